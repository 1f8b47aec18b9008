"""Commands on clusters: the dashboard and the log on stderr, reports, and workers that are replaced."""

from __future__ import annotations

import os
import random
import signal

import dask
import pytest
from click.testing import CliRunner

import avgk_dask as avgk
from avgk_dask.cli import clusters, main
from avgk_dask.engine import progress as progress_module

distributed = pytest.importorskip("distributed")

NOWHERE = {"scheduler": None, "scheduler_file": None, "threads": None, "memory_limit": None, "performance_report": None}


@pytest.mark.slow
def test_performance_report__is_one_page_that_needs_no_other(folder, run, tmp_path):
    done = run(
        "threshold", "scores.zarr", "-k", 2, "--workers", 1, "--performance-report", tmp_path / "a.html", cwd=folder
    )
    assert done.returncode == 0
    assert done.stderr.count("avgk: dashboard http://127.0.0.1:") == 1
    page = (tmp_path / "a.html").read_text()
    assert "avgk-scan" in page
    assert "<script src=" not in page


@pytest.mark.parametrize(
    "options, message",
    [
        ([], "--performance-report needs a cluster"),
        (["--workers", 1], "no such folder for --performance-report"),
    ],
)
def test_performance_report__is_refused_where_none_can_be(folder, run, options, message, monkeypatch):
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    done = run("verify", "scores.zarr", "--performance-report", "nowhere/a.html", *options, cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize("quiet", [False, True])
def test_log__is_printed_where_stderr_is_no_terminal(folder, run, quiet):
    with dask.config.set({"avgk.log-seconds": 0, "avgk.small-scores": 0}):
        done = run("evaluate", "scores.zarr", *["--quiet"] * quiet, cwd=folder)
    assert done.returncode == 0
    assert ("avgk: scan: 0 of 0 MB, " in done.stderr) != quiet
    assert ("avgk: pilot: " in done.stderr) != quiet


@pytest.mark.slow
def test_cluster__of_our_own_replaces_workers_that_are_killed(folder, run, monkeypatch):
    """Also all at once, while they begin, when a nanny would give up."""
    made, killed, advance = [], [], progress_module.Progress.advance
    start = distributed.LocalCluster.adapt

    def adapt(self, **options):
        made.append(self)
        return start(self, **options)

    def kill(self, n):
        advance(self, n)
        if len(killed) < 3:
            killed.append([worker.pid for worker in made[0].workers.values() if worker.pid])
            for number in killed[-1]:
                os.kill(number, signal.SIGKILL)

    monkeypatch.setattr(distributed.LocalCluster, "adapt", adapt)
    expected = run("threshold", "scores.zarr", "-k", "1,2.5", cwd=folder)
    monkeypatch.setattr(progress_module.Progress, "advance", kill)
    done = run("threshold", "scores.zarr", "-k", "1,2.5", "--workers", 2, "--threads", 1, "--quiet", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, expected.stdout, "")
    assert len(killed) == 3


@pytest.mark.slow
def test_cluster__of_our_own_survives_twenty_kills_at_one_a_second(folder):
    import threading

    import avgk_dask as avgk

    expected, over = avgk.evaluate(folder / "scores.zarr", k=[1, 2.5]), threading.Event()
    with clusters.cluster({**NOWHERE, "workers": 2, "threads": 1}, quiet=True):
        own = distributed.get_client().cluster

        def kill():
            for _ in range(20):
                over.wait(1)
                alive = [worker.pid for worker in list(own.workers.values()) if worker.pid]
                if alive:
                    os.kill(random.choice(alive), signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        try:
            while thread.is_alive():
                assert avgk.evaluate(folder / "scores.zarr", k=[1, 2.5]).identical(expected)
        finally:
            over.set()
            thread.join()
        assert avgk.evaluate(folder / "scores.zarr", k=[1, 2.5]).identical(expected)


@pytest.mark.parametrize("content", ["{}", '{"type": "Scheduler"}', "xx", '{"address": 1}', "[]"])
def test_scheduler_file__that_is_none_is_refused_by_name(tmp_path, content):
    (tmp_path / "bad.json").write_text(content)
    where = NOWHERE | {"workers": None, "scheduler_file": str(tmp_path / "bad.json")}
    with (
        pytest.raises(avgk.OptionError, match="not a scheduler file"),
        clusters.cluster(where, quiet=True),
    ):
        pass


def test_options__that_do_not_go_together_are_refused(folder):
    for options, text in (
        (["--scheduler", "tcp://127.0.0.1:1", "--scheduler-file", "a.json"], "are mutually exclusive"),
        (["--checkpoint-option", "anon=true"], "--checkpoint-option needs --checkpoint."),
    ):
        done = CliRunner().invoke(main, ["threshold", str(folder / "scores.zarr"), "-k", "1", *options])
        assert done.exit_code == 2
        assert text in done.output
