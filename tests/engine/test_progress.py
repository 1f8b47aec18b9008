"""Progress: one bar over all stages of a call, in bytes of scores, or a line in the log now and then."""

from __future__ import annotations

import logging
import re
from concurrent.futures import ThreadPoolExecutor

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from dask.utils import key_split

import avgk_dask as avgk
from avgk_dask.api.inputs.sources import as_source
from avgk_dask.engine import progress as progress_module
from avgk_dask.engine import run as run_module
from avgk_dask.engine.graph import pass_task
from avgk_dask.statistics.label_ranks import edge_pass
from avgk_dask.statistics.thresholds import pilot_pass
from avgk_dask.testing import Simulation, simulate_store

SMALL = {"avgk.small-scores": 0, "avgk.task-bytes": 1, "avgk.band-bytes": 1}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("scores") / "s.zarr"
    simulate_store(path, Simulation(3_000, 20), chunks=(50, 10))
    return path


@pytest.fixture
def stages(monkeypatch):
    """Give the stages so far: the name, how much of how much was done when the next one began, and the unit."""
    actual, begun = [], progress_module.Progress.begin

    def note(self):
        if self.stage:
            actual.append((self.stage, self.n_done, self.total, self.unit))

    def begin(self, stage, unit, total, is_wave=False):
        if not (is_wave and stage == self.stage):
            note(self)
        begun(self, stage, unit, total, is_wave)

    monkeypatch.setattr(progress_module.Progress, "begin", begin)
    for kind in (progress_module.Progress, progress_module.Bar):
        original = kind.close
        monkeypatch.setattr(kind, "close", lambda self, original=original: (note(self), original(self)))
    return actual


@pytest.mark.sample(2)
@pytest.mark.parametrize("scheduler", ["sync", "threads", "cluster"])
@pytest.mark.parametrize("progress", [True, None, False])
def test_stages__count_the_bytes_of_the_scores(store, stages, scheduler, progress):
    with dask.config.set(SMALL):
        if scheduler == "cluster":
            distributed = pytest.importorskip("distributed")
            with distributed.Client(
                processes=False, n_workers=1, threads_per_worker=2, dashboard_address="127.0.0.1:0"
            ):
                avgk.evaluate(store, k=[1, 2], straddle=False, progress=progress)
        else:
            with dask.config.set(scheduler=scheduler):
                avgk.evaluate(store, k=[1, 2], straddle=False, progress=progress)
    (pilot, done, total, unit), scan, *_ = stages
    assert (pilot, unit) == ("pilot", "B")
    assert 0 < done == total < 240_000
    assert scan == ("scan", 240_000, 240_000, "B")
    assert all(done == total for _, done, total, _ in stages)


def test_stages__of_waves_share_the_bytes_of_the_store(stages, monkeypatch):
    waves, begin = [], progress_module.Progress.begin

    def noted(self, stage, unit, total, is_wave=False):
        waves.append((stage, is_wave))
        begin(self, stage, unit, total, is_wave)

    monkeypatch.setattr(progress_module.Progress, "begin", noted)
    scores = np.random.default_rng(0).random((4_000, 20)).astype(np.float32)
    lazy = da.from_array(scores, chunks=(20, 20))
    with dask.config.set({**SMALL, "avgk.max-events": 2_000, "avgk.least-events": 1, "avgk.kept-bytes": 1}):
        avgk.threshold(lazy, [1, 5])
    assert waves.count(("scan", True)) > 1
    assert [stage for stage in stages if stage[0] == "scan"] == [("scan", 320_000, 320_000, "B")]


def test_stages__that_a_checkpoint_has_kept_are_done(store, stages, tmp_path):
    with dask.config.set({**SMALL, "avgk.max-events": 2_000, "avgk.least-events": 1, "avgk.kept-bytes": 1}):
        actual = [avgk.threshold(store, [1, 5], checkpoint=tmp_path / "kept") for _ in range(2)]
    assert actual[0].drop_attrs().identical(actual[1].drop_attrs())
    scans = [stage for stage in stages if stage[0] == "scan"]
    assert scans == 2 * [("scan", 240_000, 240_000, "B")]


def test_bar__is_one_for_all_stages(store, monkeypatch, capsys):
    bars, new_bar = [], progress_module.new_bar
    monkeypatch.setattr(progress_module, "new_bar", lambda **options: bars.append(new_bar(**options)) or bars[-1])
    with dask.config.set(SMALL):
        avgk.evaluate(store, k=[1, 2], progress=True)
    (bar,) = bars
    assert bar.disable  # closed
    shown = capsys.readouterr().err
    assert "avgk pilot" in shown
    assert "avgk scan" in shown
    assert "240k/240k" in shown


def test_bar__of_stages_that_read_no_scores_counts_tasks(store, stages, capsys):
    avgk.verify(store, progress=True)
    assert {(name, unit) for name, _, _, unit in stages} == {("verify", "task")}
    assert "avgk verify: 100%" in capsys.readouterr().err


@pytest.fixture
def drawn(monkeypatch):
    """Give what the bars showed so far: the text before a count, or alone."""
    actual, new_bar = [], progress_module.new_bar

    def watched(**options):
        bar = new_bar(**options)
        refresh = bar.refresh
        actual.extend(["", bar.desc])  # where one begins
        monkeypatch.setattr(bar, "refresh", lambda *args, **more: (actual.append(bar.desc), refresh(*args, **more)))
        return bar

    monkeypatch.setattr(progress_module, "new_bar", watched)
    return actual


def in_order(actual):
    return [name.strip(": ") for i, name in enumerate(actual) if name and name not in actual[i - 1 : i]]


def test_phases__are_named_before_between_and_after_what_is_counted(store, drawn, capsys):
    with dask.config.set(SMALL):
        avgk.evaluate(store, k=[1, 2], progress=True)
    assert in_order(drawn) == [
        "avgk opening", "avgk pilot", "avgk settling", "avgk scan", "avgk settling",
    ]  # fmt: skip
    last = capsys.readouterr().err.rpartition("\r")[2]
    assert last.startswith("avgk scan: 100%")  # the last count stays
    assert last.endswith("\n")


def test_phases__of_several_models_end_with_what_compares_them(store, drawn):
    avgk.compare({"a": store, "b": store}, k=1, progress=True)
    assert in_order(drawn) == ["avgk scan", "avgk settling"] * 2 + ["avgk settling"]


def test_phase__in_a_task_gives_way_to_the_count_again(drawn):
    with run_module.open_compute(True) as compute:

        def task():
            with progress_module.phase("compiling"):
                assert progress_module.current_progress().phase == "compiling"

        compute([dask.delayed(task)()], "scan")
    assert in_order(drawn) == ["avgk scan", "avgk compiling", "avgk scan", "avgk settling"]


def test_phase__is_silent_without_a_bar(capfd):
    for asked in (None, False):
        with run_module.show_progress(asked) as shown, progress_module.phase("opening"):
            assert shown.phase == "opening"
    with progress_module.phase("opening"):
        pass
    assert capfd.readouterr() == ("", "")


def test_status_line__is_empty_again_and_makes_room(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    with progress_module.report_to(progress_module.StatusLine()) as line, progress_module.phase("writing"):
        with line.aside():
            print("wrote it", file=progress_module.sys.stderr)
        with progress_module.phase("settling"):
            pass
    clear = "\r" + 19 * " " + "\r"
    named = {name: f"\r{name.ljust(19)}\r{name}" for name in ("avgk writing", "avgk settling")}
    shown = [
        named["avgk writing"],
        clear,
        "wrote it\n",
        *(named[f"avgk {name}"] for name in ("writing", "settling", "writing")),
    ]
    assert capsys.readouterr().err == "".join([*shown, clear])


def test_bars__of_calls_in_several_threads_are_their_own(store, monkeypatch, capsys):
    bars, new_bar = [], progress_module.new_bar
    monkeypatch.setattr(progress_module, "new_bar", lambda **options: bars.append(new_bar(**options)) or bars[-1])
    with run_module.show_progress(True) as mine, ThreadPoolExecutor(1) as pool:
        mine.begin("scan", "B", 10)
        pool.submit(avgk.threshold, store, 1, progress=True).result()
        assert mine.n_done == 0
    assert len(bars) == 2


@pytest.mark.sample(2)
@pytest.mark.parametrize("progress", [True, None, False])
def test_log__has_a_line_now_and_then_without_a_bar(store, progress, caplog):
    caplog.set_level(logging.INFO, "avgk_dask")
    avgk.evaluate(store, k=[1, 2], progress=progress)
    assert not caplog.messages  # less than a minute
    with dask.config.set({**SMALL, "avgk.log-seconds": 0}):
        avgk.evaluate(store, k=[1, 2], progress=progress)
    assert bool(caplog.messages) == (progress is None)
    if progress is None:
        assert any(line.startswith("pilot: ") for line in caplog.messages)
        assert re.fullmatch(r"scan: \d+ of \d+ MB, [\d,.]+ MB/s, 0 s left", caplog.messages[-1])


@pytest.mark.parametrize("seconds, text", [(7.4, "7 s"), (200, "3 min 20 s"), (7325, "2 h 2 min")])
def test_clock__has_two_units(seconds, text):
    assert progress_module._clock(seconds) == text


def test_log__reports_gigabytes_and_the_time_left(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "avgk_dask")
    clock = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: clock[0])
    lines = progress_module.LogLines()
    lines.begin("scan", "B", 100_000_000_000)
    for clock[0] in (30.0, 60.0, 61.0, 120.0):
        lines.advance(5_000_000_000)
    assert caplog.messages == [
        "scan: 10.00 of 100.00 GB, 0.17 GB/s, 9 min 0 s left",
        "scan: 20.00 of 100.00 GB, 0.17 GB/s, 8 min 0 s left",
    ]


def test_log__tells_the_dashboard_of_a_cluster_once(store, caplog):
    distributed = pytest.importorskip("distributed")
    caplog.set_level(logging.INFO, "avgk_dask")
    with distributed.Client(processes=False, n_workers=1, dashboard_address="127.0.0.1:0") as client:
        for _ in range(2):
            avgk.threshold(store, 1)
        messages = [record.getMessage() for record in caplog.records if record.name == "avgk_dask"]
        assert messages == [f"dashboard {client.dashboard_link}"]


def test_reads__name_the_rows_and_chunks_of_a_task(store):
    with dask.config.set(SMALL):
        source = as_source(store)
        for what in (edge_pass(source.dtype, 20, np.array([3])), pilot_pass(source, [3_000])):
            reads = pass_task(source, what)[1]
            places = [reads.place_of(key) for key in reads.groups]
            assert len(set(places)) == len(reads.groups) > 3
            assert all(place.startswith("reads rows ") and f"of {source.location}" in place for place in places)
    assert reads.place_of("avgk-merge-0-0-0") == "merges the results of other tasks"
    lazy = as_source(da.from_array(np.eye(6), chunks=(3, 3)))
    what = edge_pass(lazy.dtype, 6, np.array([3]))
    reads = pass_task(lazy, what)[1]
    assert [reads.place_of(key) for key in reads.groups] == ["reads rows 0 to 2 (band 0)", "reads rows 3 to 5 (band 1)"]


def test_names__on_the_dashboard_are_readable(store):
    with dask.config.set(SMALL):
        source = as_source(
            zarr.open_array(store, path="scores", mode="r"), zarr.open_array(store, path="labels", mode="r")
        )
        what = edge_pass(source.dtype, 20, np.array([3]))
        names = {key_split(key) for key in pass_task(source, what)[0].dask}
    assert names == {"avgk-edges", "avgk-merge", "avgk-plan", "avgk-store", "avgk-labels"}
