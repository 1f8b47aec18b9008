"""Measure the time to the first answer: in Python and on the command line, small and large, cold and warm.

    python benchmarks/first_answer.py [--samples 250000] [--classes 1000] [--repeat 3]

Each time is that of a separate process from start to end: seconds, and CPU seconds. Cold processes start with an empty cache of
compiled kernels, warm ones with the cache of the cold one; the last rows are a second dtype in the cache of the first.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

from measuring import markdown

ARRAY = """
import numpy as np
import avgk_dask as avgk
rng = np.random.default_rng(0)
avgk.evaluate(rng.dirichlet(np.ones(10), 1000).astype(np.float32), rng.integers(0, 10, 1000))
"""
STORE = "import sys, avgk_dask as avgk\navgk.evaluate(sys.argv[1], k=range(1, 11))"
AVGK = (sys.executable, "-m", "avgk_dask")


def seconds(command, cache):
    """Return the seconds and the CPU seconds of a process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    taken, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return taken, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def simulated(path, samples, classes, dtype="float32"):
    """Write a store, and return its path."""
    size = ("--samples", str(samples), "--classes", str(classes), "--dtype", dtype)
    subprocess.run([*AVGK, "simulate", *size, "--out", str(path), "--quiet"], check=True, stdout=subprocess.DEVNULL)
    return str(path)


def row(name, command, cache, repeat):
    """Return the row of a command: its first run with an empty cache, and the fastest of the later ones."""
    cold = seconds(command, cache)
    warm = [min(runs) for runs in zip(*(seconds(command, cache) for _ in range(repeat)), strict=True)]
    return [name, *(f"{value:.1f}" for value in (*cold, *warm))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=250_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        small = simulated(folder / "small.zarr", 1000, 10)
        large, other = (
            simulated(folder / f"{dtype}.zarr", options.samples, options.classes, dtype)
            for dtype in ("float32", "float16")
        )
        python = sys.executable, "-c"
        rows = [
            row("1,000 x 10, Python", (*python, ARRAY), folder / "a", options.repeat),
            row("1,000 x 10, avgk evaluate", (*AVGK, "evaluate", small), folder / "b", options.repeat),
            row("large, Python", (*python, STORE, large), folder / "c", options.repeat),
            row("large, avgk evaluate", (*AVGK, "evaluate", large), folder / "d", options.repeat),
            row("large float16 after float32, Python", (*python, STORE, other), folder / "c", options.repeat),
        ]
    print(markdown(["", "cold s", "cold CPU s", "warm s", "warm CPU s"], rows))


if __name__ == "__main__":
    main()
