"""The memory bound: refused early with advice, and true to measured peaks."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import dask
import numpy as np
import pytest
import zarr

import avgk_dask as avgk
from avgk_dask.api.inputs import as_source
from avgk_dask.passes.memory import memory_limit, project
from avgk_dask.testing import CountingStore


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
    from avgk_dask.api.inputs import as_source
    from avgk_dask.passes.memory import edges_memory, project
    from avgk_dask.testing import Simulation

    path, ranks, what = sys.argv[1], 10, sys.argv[2]
    array = zarr.open_array(path, mode="r")
    labels = np.zeros(array.shape[0], int)
    small = Simulation(3000, 100, dtype=str(array.dtype)).rows(0, 3000)[0]
    dask.config.set(scheduler="synchronous")
    avgk.evaluate(small, np.zeros(3000, int), range(1, ranks + 1))      # compile
    avgk.evaluate(zarr.create_array({}, data=small, chunks=(500, 30), config={"write_empty_chunks": True}), np.zeros(3000, int), [1])
    avgk.error_curve(small, np.zeros(3000, int))
    dask.config.set({"avgk.ranked-bytes": 0 if what == "evaluate in bins" else 1 << 28})


    def status(name):
        return 1024 * int(re.search(name + r":\s+(\d+)", open("/proc/self/status").read())[1])

    open("/proc/self/clear_refs", "w").write("5")  # the peak counts from here
    before = status("VmRSS")
    source = as_source(array, labels)
    if what == "error_curve":
        avgk.error_curve(array, labels)
        bound = edges_memory(source, len(labels)), 50 * len(labels)
    else:
        avgk.evaluate(array, labels, range(1, ranks + 1))
        found = project(source, [ranks * len(labels)] * ranks, ranks, 2 * ranks)
        bound = found.task, found.merge + found.client
    print(json.dumps([status("VmHWM") - before, *bound]))
""")


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [(10_000, 1000), (40_000, 1000), (40_000, 50)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
@pytest.mark.parametrize("what", ["evaluate", "evaluate in bins", "error_curve"])
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
    # One process does all here: it runs the tasks, one at a time, and holds what they merge into.
    assert peak <= task + merged
