"""Runs on clusters: what goes wrong is said and ends in an error of ours, and what workers lose is computed again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import contextmanager

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr

import avgk_dask as avgk
from avgk_dask.api.inputs.sources import as_source
from avgk_dask.bands.passes import Pass
from avgk_dask.engine import progress as progress_module
from avgk_dask.engine.run import open_run
from avgk_dask.statistics.label_ranks import edge_pass
from avgk_dask.testing import Simulation, simulate_store

distributed = pytest.importorskip("distributed")

from avgk_dask.engine.cluster import Death, Suspects, deaths_of  # noqa: E402 - it imports distributed

#: Every band is a task, and stalls are reported soon. They end a run soon only in tests of that: workers begin slowly.
SETTINGS = {"avgk.task-bytes": 1, "avgk.band-bytes": 1, "avgk.stall-seconds": 1, "avgk.stall-limit": 120}
SOON = {"avgk.stall-limit": 3}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("scores") / "s.zarr"
    simulate_store(path, Simulation(3_000, 20), chunks=(50, 10))
    return path


@contextmanager
def cluster(n_workers=2, settings=(), **options):
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "silence_logs": 60, **options}
    with (
        dask.config.set({**SETTINGS, **dict(settings)}),
        distributed.LocalCluster(n_workers=n_workers, **options) as made,
        distributed.Client(made) as client,
    ):
        yield made, client


def pids(made):
    return [worker.pid for worker in made.workers.values() if worker.pid]


def signal_all(numbers, what):
    for number in numbers:
        os.kill(number, what)


@pytest.fixture
def after_task(monkeypatch):
    """Give a function that sets the action after a number of finished tasks."""
    wanted, n_finished, advance = {}, [0], progress_module.Progress.advance

    def counted(self, n):
        advance(self, n)
        n_finished[0] += 1
        wanted.pop(n_finished[0], lambda: None)()

    monkeypatch.setattr(progress_module.Progress, "advance", counted)
    return wanted.__setitem__


def read(source, work, progress=None):
    """Read a pass whose work is given; it must be a function inside a function, which is sent unchanged."""
    what = edge_pass(source.dtype, source.shape[1], np.array([3]))
    with open_run(source, progress) as run:
        return run.read(Pass("scan", work, what.plan, what.state))


def failing_at(number, fail):
    """Return the work of a pass that fails at a band."""
    from avgk_dask.statistics.label_ranks import tally_edges

    def work(slabs, labels, band, plan):
        if band == number:
            fail()
        return tally_edges(slabs, labels, band, plan)

    return work


def test_workers__that_are_killed_change_no_bit(store, after_task):
    with cluster(settings={"distributed.scheduler.allowed-failures": 20}) as (made, _):
        for n in (5, 25, 45):
            after_task(n, lambda: os.kill(random.choice(pids(made)), signal.SIGKILL))
        actual = avgk.evaluate(store, k=[1, 2.5], straddle=False)
    assert actual.identical(avgk.evaluate(store, k=[1, 2.5], straddle=False))


@pytest.mark.slow
def test_workers__that_are_stopped_end_the_run(store, after_task, caplog):
    with cluster() as (made, client):
        stopped = pids(made)

        def stop():
            dask.config.set(SOON)
            caplog.clear()
            signal_all(stopped, signal.SIGSTOP)

        after_task(3, stop)
        try:
            with pytest.raises(
                avgk.ClusterError, match=r"has finished no task for \d+ s: worker .* has sent no heartbeat"
            ):
                avgk.evaluate(store, k=1)
        finally:
            signal_all(stopped, signal.SIGCONT)
        assert not client.futures
    lines = [r.message for r in caplog.records if r.name == "avgk_dask"]
    assert 1 <= len(lines) <= 3
    assert all(line.startswith("no task has finished for") for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("progress", [True, None, False])
def test_workers__that_are_paused_end_the_run_with_what_to_do(store, progress, capsys, caplog):
    with cluster(settings={**SOON, "distributed.worker.memory.pause": False}, processes=False) as (_, client):

        def pause(dask_worker):
            dask_worker.status = distributed.Status.paused

        client.run(pause)
        with pytest.raises(
            avgk.ClusterError, match=r"all 2 workers are paused because the memory is full\. Use workers"
        ):
            avgk.evaluate(store, k=1, progress=progress)
    assert ("memory is full" in capsys.readouterr().err) == (progress is True)
    assert "memory is full" in caplog.text


def test_clusters__without_workers_end_the_run(store):
    with (
        cluster(0, SOON, processes=False),
        pytest.raises(avgk.ClusterError, match=r"no task for \d+ s: the cluster has no workers"),
    ):
        avgk.evaluate(store, k=1)


def test_clusters__whose_scheduler_gives_up_on_workers_end_the_run(store):
    with (
        cluster(0, {"distributed.scheduler.no-workers-timeout": "100ms"}, processes=False),
        pytest.raises(avgk.ClusterError, match="has no workers that may take the tasks"),
    ):
        avgk.evaluate(store, k=1)


def test_stalls__of_running_tasks_name_the_first(store):
    def wait():
        distributed.Event("go").wait()

    with cluster(1, SOON, processes=False):
        try:
            with pytest.raises(
                avgk.ClusterError, match=r"the first reads rows 0 to 49 \(band 0, chunks .*c/0/0 to .*c/0/1 of"
            ):
                read(as_source(store), failing_at(0, wait))
        finally:
            distributed.Event("go").set()


@pytest.mark.slow
def test_stalls__are_none_where_tasks_of_a_lazy_array_are_finished(monkeypatch):
    def block(x):
        distributed.Queue("go").get()
        return x

    from avgk_dask.engine import cluster as watching

    looks, diagnose_stall = [], watching.diagnose_stall

    def look(*arguments):
        actual = diagnose_stall(*arguments)
        looks.append(actual)
        distributed.Queue("go").put(1)
        return actual

    monkeypatch.setattr(watching, "diagnose_stall", look)
    avgk.threshold(np.ones((6, 3)), 1)  # compiled
    with cluster(1, SOON, processes=False):
        lazy = da.ones((6, 3), chunks=(1, 3)).map_blocks(block, meta=np.ones((0, 0))).rechunk((6, 3))
        assert avgk.threshold(lazy, 1).value == 1
    assert len(looks) >= 6  # a second apart each, and the limit is 3


@pytest.mark.slow
def test_tasks__that_end_their_worker_are_named(store):
    # One task at a time, so that no other is suspected.
    alone = {"distributed.scheduler.allowed-failures": 1, "distributed.scheduler.worker-saturation": 1.0}
    with cluster(settings=alone) as (_, client):
        with pytest.raises(avgk.ClusterError) as caught:
            read(as_source(store), failing_at(7, lambda: os._exit(1)))
        assert not client.futures
    assert (
        "more than 1 worker died, one after the other, in the task that reads rows 350 to 399 (band 7, chunks"
        in str(caught.value)
    )
    assert "c/7/0 to scores/c/7/1 of" in str(caught.value)
    assert "more memory" in str(caught.value)


@pytest.mark.parametrize("where", ["threads", "cluster"])
def test_errors__of_a_task_stop_the_bar_where_it_is(store, where, monkeypatch, capsys):
    bars = watched_bars(monkeypatch)

    def fail():
        raise ZeroDivisionError("of a task")

    def run(source):
        with pytest.raises(ZeroDivisionError, match="of a task"):
            read(source, failing_at(30, fail), progress=True)

    if where == "threads":
        with dask.config.set(SETTINGS):
            run(as_source(store))
    else:
        with cluster(1, processes=False) as (_, client):
            run(as_source(store))
            assert not client.futures
    (bar,) = bars
    assert bar.n < bar.total == 3_000 * 20 * 4
    assert bar.disable  # closed


def test_interrupts__cancel_what_is_under_way(store, after_task):
    def interrupt():
        raise KeyboardInterrupt

    after_task(2, interrupt)
    with cluster(1, processes=False) as (_, client):
        with pytest.raises(KeyboardInterrupt):
            avgk.evaluate(store, k=1)
        assert not client.futures


def test_schedulers__that_are_lost_end_the_run(store, after_task, tmp_path):
    commands = [
        ["scheduler", "--port", "0", "--dashboard-address", ":0", "--scheduler-file", str(tmp_path / "at.json")],
        ["worker", "--no-nanny", "--no-dashboard", "--nthreads", "1", "--scheduler-file", str(tmp_path / "at.json")],
    ]
    started = [
        subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_" + name, *rest], stderr=subprocess.DEVNULL)
        for name, *rest in commands
    ]
    try:
        with (
            dask.config.set({**SETTINGS}),
            distributed.Client(scheduler_file=tmp_path / "at.json", timeout=60) as client,
        ):
            client.wait_for_workers(1)
            after_task(3, started[0].kill)
            with pytest.raises(avgk.ClusterError, match="scheduler was lost or restarted"):
                avgk.evaluate(store, k=1)
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_calls__inside_a_task_leave_its_thread_to_others(store):
    with cluster(1, processes=False) as (_, client):

        def call():
            return avgk.threshold(store, 1).value

        assert client.submit(call).result() == avgk.threshold(store, 1).value


def watched_bars(monkeypatch):
    bars, made = [], progress_module.new_bar

    def watched(**options):
        bars.append(made(**options))
        return bars[-1]

    monkeypatch.setattr(progress_module, "new_bar", watched)
    return bars


@contextmanager
def _kills(made, n):
    """Kill a worker each second, a number of times, while something runs."""
    import threading

    over = threading.Event()

    def kill():
        for _ in range(n):
            if over.wait(1):
                return
            known = set(made.scheduler.workers)
            alive = [one.pid for one in made.workers.values() if one.worker_address in known and one.pid]
            for number in random.sample(alive, min(1, len(alive))):
                os.kill(number, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield thread
    finally:
        over.set()
        thread.join()


def _losses(store):
    return avgk.losses.evaluate_losses(store)


def _fit(store):
    return xr.Dataset({"weights": ("class", avgk.calibration.VectorScaling().fit(store).weights)})


def _evaluate(store):
    return avgk.evaluate(store, k=[1, 2.5], straddle=False)


@pytest.mark.slow
@pytest.mark.parametrize(("work", "adaptive"), [(_evaluate, False), (_evaluate, True), (_losses, True), (_fit, True)])
def test_workers__that_are_killed_each_second_change_no_bit(store, work, adaptive):
    expected = work(store)
    n_done = 0
    with cluster(4, {"avgk.stall-limit": 120}) as (made, _):
        if adaptive:
            made.adapt(minimum=4, maximum=4)
        with _kills(made, 20) as kills:
            while kills.is_alive():
                assert work(store).identical(expected)
                n_done += 1
    assert n_done


@pytest.mark.slow
def test_tasks__whose_workers_were_killed_by_others_are_tried_again(store, tmp_path):
    """A task that was there when two workers died is given up by distributed, but not by us."""
    mark = str(tmp_path / "deaths")

    def die():
        with open(mark, "a") as file:
            file.write(".")
        if os.path.getsize(mark) <= 3:
            os._exit(1)

    alone = {"distributed.scheduler.allowed-failures": 1, "distributed.scheduler.worker-saturation": 1.0}
    with cluster(settings=alone):
        actual = read(as_source(store), failing_at(7, die))
    assert os.path.getsize(mark) == 4
    assert actual.to_parts() == read(as_source(store), failing_at(-1, die)).to_parts()


def events(*deaths):
    """Return what a scheduler logs of deaths: (worker, tasks), and other events."""
    removals = [
        {"action": "remove-worker", "worker": w, "processing-tasks": set(t), "expected": False} for w, t in deaths
    ]
    others = [{"action": "add-worker", "worker": "a"}, {"action": "remove-worker", "worker": "b", "expected": True}]
    return [(float(i), event) for i, event in enumerate([*others, *removals])]


def n_tries(suspects, task, deaths, finished=()):
    """Return how often a task is tried again where nothing changes, up to 100 times."""
    return next((n for n in range(100) if not suspects.try_again(task, deaths, finished)), 100)


def test_deaths__are_those_that_were_not_expected_with_tasks_and_memory():
    actual = deaths_of(events(("x", "tu"), ("y", "v")), [(0.0, {"worker": "y", "pid": 1, "rss": 2})])
    assert actual == [Death(frozenset("tu")), Death(frozenset("v"), by_memory=True)]


def test_suspects__a_task_that_alone_ends_its_workers_is_tried_twice():
    deaths = deaths_of(events(*[("x", "t")] * 4), [])
    assert n_tries(Suspects({"t"}), "t", deaths) == 2
    before = deaths_of(events(("y", "u"), *[("x", "t")] * 4), [])  # of an earlier pass
    assert n_tries(Suspects({"t"}), "t", before, {"u"}) == 2


def test_suspects__a_task_whose_memory_was_full_is_tried_twice_whatever_else_dies():
    deaths = deaths_of(events(("x", "t"), ("y", "u"), ("z", "t"), ("w", "v")), [(0.0, {"worker": "z"})])
    assert n_tries(Suspects({"t", "u", "v"}), "t", deaths, {"u", "v"}) == 2
    # Each task is too large: other such deaths do not prove another cause.
    full = deaths_of(events(("x", "t"), ("y", "u"), ("z", "t")), [(0.0, {"worker": w}) for w in "xyz"])
    assert n_tries(Suspects({"t", "u"}), "t", full) == 2


def test_suspects__a_burst_of_kills_lets_tasks_try_again_more_often():
    deaths = deaths_of(events(*[("x", "t"), ("y", "u"), ("z", "v")] * 4), [])
    for task in "tuv":
        assert n_tries(Suspects(set("tuv")), task, deaths) == 20


def test_suspects__tasks_are_tried_again_as_long_as_others_prove_that_kills_come_from_outside():
    suspects, deaths_so_far, finished = Suspects({"t", *map(str, range(50))}), [("x", "t")] * 4, set()
    for n in range(50):
        deaths_so_far += [("y", [str(n)]), ("x", "t")]
        finished.add(str(n))
        assert suspects.try_again("t", deaths_of(events(*deaths_so_far), []), finished)
    deaths_so_far += [("x", "t")] * 3  # kills of others have ended, and it still ends its workers
    assert n_tries(suspects, "t", deaths_of(events(*deaths_so_far), []), finished) == 20


def test_suspects__the_death_of_an_idle_worker_is_a_proof():
    suspects, deaths_so_far = Suspects({"t"}), [("x", "t")] * 4
    for _ in range(30):
        deaths_so_far += [("y", ()), ("x", "t")]
        assert suspects.try_again("t", deaths_of(events(*deaths_so_far), []), ())


def test_suspects__a_task_beside_the_cause_outlives_it():
    """Tasks that wait on a worker die with it: the cause is there each time, the others now and then."""
    deaths = deaths_of(events(("w", "ct"), ("x", "ct"), ("y", "cu"), ("z", "ct"), ("w", "ct")), [])
    assert n_tries(Suspects(set("ctu")), "c", deaths) == 2
    assert n_tries(Suspects(set("ctu")), "t", deaths) == 20


def test_suspects__tasks_that_neither_read_nor_merge_are_tried_more_often():
    assert n_tries(Suspects({"t"}), "avgk-plan", deaths_of(events(*[("x", ["avgk-plan"])] * 4), [])) == 20


@pytest.mark.slow
def test_tasks__that_lose_their_workers_together_are_tried_again_more_often(store, tmp_path):
    """The first two tasks lose five workers each: alone, any of them would be the cause."""

    def work(slabs, labels, band, plan):
        from avgk_dask.statistics.label_ranks import tally_edges

        if band < 2:
            mark = os.path.join(folder, str(band))
            with open(mark, "a") as file:
                file.write(".")
            if os.path.getsize(mark) <= 5:
                os.kill(os.getpid(), signal.SIGKILL)
        return tally_edges(slabs, labels, band, plan)

    folder = str(tmp_path)
    settings = {"distributed.scheduler.allowed-failures": 1, "distributed.scheduler.worker-saturation": 1.0}
    with cluster(settings=settings) as (made, _):
        made.adapt(minimum=2, maximum=2)  # a worker that dies while it starts takes its nanny along
        actual = read(as_source(store), work)
    assert min(os.path.getsize(tmp_path / str(band)) for band in range(2)) >= 6
    assert actual.to_parts() == read(as_source(store), work).to_parts()
