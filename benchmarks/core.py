"""evaluate against a bare read of the store and against dask.array.topk, in one run.

    python benchmarks/core.py [--samples 200000] [--classes 1000] [--repeat 5] [--store PATH]

Every timed result is checked against the exact answer (a NumPy partition of all scores) first.
Ratios are of the best of the repeats, which take turns, on the threaded scheduler.
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import zarr

import avgk_dask as avgk
from avgk_dask.api.inputs import as_source
from avgk_dask.testing import Simulation, simulate_store


def best_of(functions: dict[str, Callable[[], Any]], repeat: int) -> dict[str, float]:
    """Time the functions in turns; give the best time of each."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(repeat):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def bare_read(array: Any) -> int:
    """Read every chunk once through the same scheduler, and keep nothing."""
    rows = array.chunks[0]
    read = dask.delayed(lambda first: array[first : first + rows].shape[0], pure=False)
    return sum(dask.compute(*[read(first) for first in range(0, array.shape[0], rows)]))


def own_read(path: pathlib.Path) -> int:
    """Read every chunk once the way evaluate does, for local files without zarr, and keep nothing."""
    source = as_source(path)
    read = dask.delayed(lambda band: sum(len(slab) for slab in source.reader.slabs(band)), pure=False)
    return sum(dask.compute(*[read(band) for band in range(source.n_bands)]))


def topk_threshold(array: Any, budget: int) -> float:
    """Find the same threshold with Dask alone."""
    return float(da.topk(da.from_zarr(array).ravel(), budget + 1).min().compute())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--classes", type=int, default=1_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--store", type=pathlib.Path, help="keep the simulated store here and use it again")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, dask.config.set(scheduler="threads"):
        path = arguments.store or pathlib.Path(folder) / "scores.zarr"
        if not path.exists():
            spec = Simulation(arguments.samples, arguments.classes, dtype="float32")
            simulate_store(path, spec, chunks=(2_500, arguments.classes), progress=True)
        scores = zarr.open_group(path, mode="r")["scores"]
        run(path, scores, arguments.repeat)


def run(path: pathlib.Path, scores: Any, repeat: int) -> None:
    n_samples = scores.shape[0]
    flat = scores[:].reshape(-1)
    result = avgk.evaluate(path, k=range(1, 11))
    for k, value in zip(result.k.values, result.threshold.values, strict=True):
        place = flat.size - 1 - int(n_samples * k)
        exact = np.partition(flat, place)[place]
        assert value == exact, (k, value, exact)
    assert topk_threshold(scores, 5 * n_samples) == result.threshold.sel(k=5)
    del flat
    best = best_of(
        {
            "bare read": lambda: bare_read(scores),
            "own read": lambda: own_read(path),
            "evaluate": lambda: avgk.evaluate(path, k=range(1, 11), straddle=False),
            "straddle": lambda: avgk.evaluate(path, k=range(1, 11), straddle=True),
            "dask topk": lambda: topk_threshold(scores, 5 * n_samples),
        },
        repeat,
    )
    for name, seconds in best.items():
        print(f"{name:10} {seconds:7.3f} s   {seconds / best['bare read']:6.2f} x bare read")
    extra = (best["straddle"] - best["evaluate"]) / best["bare read"]
    print(f"straddle=True on top of False        = {extra:.2f} bare reads  (at most 0.25)")
    print(f"evaluate(k=1..10) / own read         = {best['evaluate'] / best['own read']:.2f}")
    print(f"evaluate(k=1..10) / bare read        = {best['evaluate'] / best['bare read']:.2f}  (at most 1.4)")
    print(f"evaluate(k=1..10) / dask topk, one k = {best['evaluate'] / best['dask topk']:.2f}  (at most 0.8)")


if __name__ == "__main__":
    main()
