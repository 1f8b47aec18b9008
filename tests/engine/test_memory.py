"""The memory bound: refused early with advice, and true to measured peaks."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import textwrap
import tracemalloc

import dask
import numpy as np
import pytest
import zarr

import avgk_dask as avgk
from avgk_dask.api.inputs.sources import as_source
from avgk_dask.bands.passes import Pass
from avgk_dask.engine import memory
from avgk_dask.engine.graph import pass_task
from avgk_dask.engine.memory import Caps, memory_limit, project
from avgk_dask.engine.search import ThresholdSearch
from avgk_dask.engine.tally import RowLook
from avgk_dask.records import Several
from avgk_dask.sources.planning import held_bytes
from avgk_dask.sources.readers import ShapeOnlyReader
from avgk_dask.sources.source import Source
from avgk_dask.statistics.regrets import RegretPlan, tally_sets, tally_tops
from avgk_dask.testing import CountingStore, Simulation, simulate_store
from avgk_dask.threads import n_task_threads


def test_evaluate__refuses_a_plan_that_cannot_fit_before_reading():
    store = CountingStore(zarr.storage.MemoryStore())
    zarr.create_array(store, data=np.zeros((1000, 100), "f4"), chunks=(1000, 100), config={"write_empty_chunks": True})
    array = zarr.open_array(store, mode="r")
    store.reads.clear()
    with (
        dask.config.set({"avgk.memory-limit": "100kB"}),
        pytest.raises(avgk.MemoryLimitError, match="chunks of fewer rows"),
    ):
        avgk.evaluate(array)
    assert not store.chunk_reads()


def test_memory_limit__is_a_threads_share_unless_set():
    assert memory_limit() > 1 << 20
    with dask.config.set({"avgk.memory-limit": "2 GB"}):
        assert memory_limit() == 2 * 10**9


def test_task_memory__follows_the_chunks():
    sizes = []
    for rows in (100, 1000, 10_000):
        array = zarr.create_array({}, shape=(10_000, 1000), chunks=(rows, 1000), dtype="f4")
        sizes.append(project(as_source(array, missing="fill"), [10]).task - project(as_source(array[:1]), [10]).task)
    assert sizes[0] < sizes[1] < sizes[2]
    cut = zarr.create_array({}, shape=(10_000, 20_000), chunks=(10_000, 200), dtype="f4")
    assert project(as_source(cut, missing="fill"), [10]).task < 10_000 * 20_000 * 4  # streamed: less than its one band


PEAK = textwrap.dedent(r"""
    import json, re, sys
    import dask, numpy as np, zarr
    import avgk_dask as avgk
    from avgk_dask.api.inputs.sources import as_source
    from avgk_dask.engine.memory import edges_memory, project
    from avgk_dask.testing import Simulation

    path, ranks, what = sys.argv[1], 10, sys.argv[2]
    array = zarr.open_array(path, mode="r")
    labels = np.zeros(array.shape[0], int)
    small = Simulation(3000, 100, dtype=str(array.dtype)).rows(0, 3000)[0]
    dask.config.set(scheduler="synchronous")
    avgk.evaluate(small, np.zeros(3000, int), range(1, ranks + 1))      # compile
    avgk.evaluate(zarr.create_array({}, data=small, chunks=(500, 30), config={"write_empty_chunks": True}), np.zeros(3000, int), [1])
    avgk.error_curve(small, np.zeros(3000, int))
    avgk.conformal.calibrate(small, np.zeros(3000, int), method="top_k").evaluate(small, np.zeros(3000, int))
    dask.config.set({"avgk.ranked-bytes": 0 if what == "evaluate in bins" else 1 << 28})


    def status(name):
        return 1024 * int(re.search(name + r":\s+(\d+)", open("/proc/self/status").read())[1])

    open("/proc/self/clear_refs", "w").write("5")  # the peak counts from here
    before = status("VmRSS")
    scores = avgk.ensemble([array] * 3) if what.startswith("ensemble") else array
    source = as_source(scores, labels)
    if what.endswith("error_curve"):
        avgk.error_curve(scores, labels)
        bound = edges_memory(source, len(labels)), 50 * len(labels)
    elif what.startswith("conformal"):
        method, by = what.split()[1:]
        dask.config.set({"avgk.label-costs": 1 << 12})
        actual = avgk.conformal.calibrate(scores, labels, 0.1, method, None if by == "all" else by)
        actual.evaluate(scores, labels)
        bound = edges_memory(source, 0), 40 * 24 * (1 << 16) + (32 << 20)
    elif what == "transfer":
        avgk.transfer(array, array, labels, range(1, ranks + 1))
        actual = project(source, [ranks * len(labels)] * ranks)
        bound = actual.task, actual.merge + actual.client
    else:
        avgk.evaluate(scores, labels, range(1, ranks + 1))
        actual = project(source, [ranks * len(labels)] * ranks, ranks, 2 * ranks)
        bound = actual.task, actual.merge + actual.client
    print(json.dumps([status("VmHWM") - before, *bound]))
""")


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [(10_000, 1000), (40_000, 1000), (40_000, 50)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
@pytest.mark.parametrize(
    "what", ["evaluate", "evaluate in bins", "error_curve", "ensemble", "ensemble error_curve", "transfer"]
)
def test_task_memory__bounds_the_measured_peak(tmp_path, chunks, dtype, what):
    from avgk_dask.testing import Simulation

    n, c = 80_000, 1000
    array = zarr.create_array(tmp_path / "a.zarr", shape=(n, c), chunks=chunks, dtype=dtype)
    spec = Simulation(n, c, dtype=dtype)
    for first in range(0, n, 10_000):
        array[first : first + 10_000] = spec.rows(first, first + 10_000)[0]
    run = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path / "a.zarr"), what], capture_output=True, text=True, check=True
    )
    peak, task, merged = json.loads(run.stdout)
    print(f"{what} {dtype} {chunks}: peak {peak / 1e6:.0f} MB, task {task / 1e6:.0f} MB, merged {merged / 1e6:.0f} MB")
    # One process does everything here: it runs the tasks, one at a time, and holds the merged state.
    assert peak <= task + merged


def on_workers(monkeypatch, n_bytes, n_threads=1):
    monkeypatch.setattr(memory, "_workers", lambda: [{"memory_limit": n_bytes, "nthreads": n_threads}] * 2)


def test_caps__are_lowered_to_fit_small_workers(monkeypatch):
    array = zarr.create_array({}, shape=(2_000_000, 1000), chunks=(2500, 1000), dtype="f4")
    source = as_source(array, missing="fill")
    shapes = []
    for n_bytes in (8 << 30, 1000 << 20, 600 << 20):
        on_workers(monkeypatch, n_bytes)
        shapes.append(memory.fitting_shape(source, [20_000_000], 10, 20))
        actual = memory.project(source, [20_000_000], 10, 20)
        assert memory.IDLE_BYTES + actual.merge <= 0.7 * n_bytes
    assert shapes[0].all_events > shapes[1].all_events > shapes[2].all_events
    assert shapes[0].max_held > shapes[1].max_held > shapes[2].max_held
    assert shapes[1].ranked_bins == shapes[0].ranked_bins  # how far strengths are exact changes last


def test_merge_limit__is_that_of_the_cluster_that_dask_would_use():
    distributed = pytest.importorskip("distributed")
    alone = memory.merge_limit()
    assert not alone.is_cluster
    options = {"processes": False, "n_workers": 2, "threads_per_worker": 3, "dashboard_address": None}
    with distributed.Client(memory_limit=10**9, **options):
        assert memory.merge_limit() == memory.MergeLimit(700_000_000, 3, is_cluster=True)
        assert memory_limit() == (95 * 10**7 - memory.IDLE_BYTES) // 3
        assert n_task_threads() == 6
        with dask.config.set(scheduler="threads"):
            assert memory.merge_limit() == alone


@pytest.mark.parametrize("function", ["evaluate", "error_curve", "straddle_strength"])
def test_what_comes_together__is_refused_where_no_worker_can_hold_it(monkeypatch, function):
    store = CountingStore(zarr.storage.MemoryStore())
    group = zarr.open_group(store, mode="w")
    group.create_array("scores", data=np.random.default_rng(0).random((1000, 20), "f4"), chunks=(100, 20))
    group.create_array("labels", data=np.ones(1000, int), chunks=(1000,))
    store.reads.clear()
    on_workers(monkeypatch, 300 << 20)
    scores = zarr.open_group(store, mode="r")
    with pytest.raises(avgk.MemoryLimitError, match="more memory"):
        getattr(avgk, function)(scores, *([2] if function == "straddle_strength" else []))
    assert not [key for key in store.chunk_reads() if key.startswith("scores")]


def test_graph__holds_numbers_and_no_labels(tmp_path):
    import cloudpickle

    sizes = []
    for n in (20_000, 80_000):
        path = tmp_path / f"{n}.zarr"
        simulate_store(path, Simulation(n, 50), chunks=(1000, 50))
        source = as_source(path)
        with dask.config.set({"avgk.band-bytes": 0, "avgk.task-bytes": 1}):
            source = as_source(path)
            shape = Caps.configured().scan_shape(source, 10)
            graph = pass_task(source, ThresholdSearch.begin(shape, [n]).next_pass())[0].dask
        tasks = [len(cloudpickle.dumps(node)) for key, node in graph.items() if str(key).startswith("avgk-scan")]
        assert max(tasks) < 2000
        sizes.append(sum(len(cloudpickle.dumps(node)) for key, node in graph.items() if "labels" in str(key)))
    assert sizes[1] < sizes[0] + 1000  # where bands begin, and no label


@pytest.mark.slow
def test_evaluate__of_ten_billion_scores_takes_one_read_and_a_gigabyte():
    script = pathlib.Path(__file__).parents[2] / "benchmarks" / "trillion.py"
    run = subprocess.run([sys.executable, script, "--scores", "1e10"], capture_output=True, text=True, check=True)
    print(run.stdout)
    actual = [part.strip() for part in run.stdout.splitlines()[-1].split("|")]
    reads, waves, root, a_task, peak = (
        int(actual[3]),
        int(actual[4]),
        float(actual[7]),
        int(actual[9]),
        float(actual[10]),
    )
    assert reads == 1
    assert waves > 1
    assert root < 256
    assert a_task < 2000
    assert peak < 1000


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [(10_000, 1000), (40_000, 50)])
@pytest.mark.parametrize(
    "what", ["conformal lac all", "conformal lac class", "conformal aps all", "conformal aps class"]
)
def test_conformal__keeps_to_the_bound_of_a_task_that_holds_rows(tmp_path, chunks, what):
    from avgk_dask.testing import Simulation

    n, c = 80_000, 1000
    array = zarr.create_array(tmp_path / "a.zarr", shape=(n, c), chunks=chunks, dtype="float32")
    spec = Simulation(n, c, dtype="float32")
    for first in range(0, n, 10_000):
        array[first : first + 10_000] = spec.rows(first, first + 10_000)[0]
    line = [sys.executable, "-c", PEAK, str(tmp_path / "a.zarr"), what]
    peak, task, merged = json.loads(subprocess.run(line, capture_output=True, text=True, check=True).stdout)
    print(f"{what} {chunks}: peak {peak / 1e6:.0f} MB, task {task / 1e6:.0f} MB, merged {merged / 1e6:.0f} MB")
    assert peak <= task + merged


def test_caps__count_what_a_row_takes_besides_its_keys():
    """Two hundred million rows with a key each would be 2.4 GB of lengths, label indices and strata."""
    caps = Caps.configured()
    few, many = (
        caps.scan_shape(Source(ShapeOnlyReader((n, 10), np.dtype("f4")), np.zeros(0, int))) for n in (1000, 200_000_000)
    )
    assert few.max_held * few.key_bytes + 12 * 1000 <= caps.held_bytes < (few.max_held + 1) * few.key_bytes + 12 * 1000
    assert many.max_held == 0


def test_memory_limit__leaves_an_idle_worker_its_own_memory_and_the_share_that_ends_it(monkeypatch):
    """Tasks that would fill a worker are refused, not tried again and again while its nanny restarts it."""
    array = zarr.create_array({}, shape=(3200, 200_000), chunks=(200, 200_000), dtype="f4")
    source = as_source(array, missing="fill")
    task = project(source, [3200]).task
    least = (memory.IDLE_BYTES + task) / 0.95
    on_workers(monkeypatch, int(least * 1.01))
    memory.check_pass_memory(source, Pass("all", print, None, Several, holds_rows=True))
    assert memory_limit() >= task
    on_workers(monkeypatch, int(least * 0.99))
    assert memory_limit() < task
    on_workers(monkeypatch, memory.IDLE_BYTES)
    assert memory_limit() == 0


def test_task_memory__counts_codecs_that_hold_what_they_decode_twice():
    needed = []
    for codecs in (None, zarr.codecs.ZstdCodec(), zarr.codecs.GzipCodec()):
        array = zarr.create_array({}, shape=(200, 200_000), chunks=(200, 200_000), dtype="f4", compressors=codecs)
        needed.append(held_bytes(as_source(array, missing="fill")) // (200 * 200_000 * 4))
    assert needed == [3, 3, 4]


def test_scans__copy_a_few_rows_at_a_time():
    """A chunk of whole rows may be large: everything else in a scan must be smaller."""
    rows = np.random.default_rng(0).random((64, 1 << 16), np.float32)  # 16 MiB
    rows /= rows.sum(1, keepdims=True)
    plan = RegretPlan(rows.dtype, rows.shape[1], (0.5, 0.5), (1, 2))
    looked = RowLook(np.arange(64), rows.dtype)
    sets = rows > 1e-3
    works = {
        "looks": lambda: looked.take(rows),
        "regrets": lambda: tally_tops([rows], None, 0, plan),
        "sets": lambda: tally_sets([rows], sets, 0, plan),
    }
    tally_tops([rows[:1]], None, 0, plan)  # its kernels are loaded
    for name, work in works.items():
        tracemalloc.start()
        work()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < rows.nbytes, name
