"""Compare the results of two versions of the package, byte by byte, on random cases.

    python benchmarks/same_results.py --before PATH_OF_ANOTHER_CHECKOUT --cases 200

Each version runs in its own process. A case is a matrix (shape, dtype, ties, NaN, chunks along both axes, as NumPy, Dask or Zarr
array), labels (hard, soft or none), settings with which even small matrices use every part of the engine, and one public function.
Every variable, coordinate and attribute except the versions must be equal, or the error that is raised.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

#: Whether texts and the number of reads are ignored.
NUMBERS_ONLY = False
SETTINGS = [
    {},
    {"avgk.small-scores": 0},
    {"avgk.small-scores": 0, "avgk.kept-bytes": 0},
    {"avgk.small-scores": 0, "avgk.kept-bytes": 0, "avgk.least-events": 8, "avgk.max-events": 8},
    {"avgk.small-scores": 0, "avgk.kept-bytes": 200},
    {"avgk.ranked-bytes": 0, "avgk.task-bytes": 1, "avgk.fan-in": 2},
    {"avgk.small-scores": 0, "avgk.slab-bytes": 64, "avgk.tile-scores": 16},
]


def draw(number, folder):
    """Return the scores, labels, settings and random numbers of a case."""
    import dask.array as da
    import numpy as np
    import zarr

    rng = np.random.default_rng(number)
    n, c = int(rng.integers(1, 400)), int(rng.integers(1, 40))
    dtype = np.dtype(str(rng.choice(["float16", "float32", "float64", "uint8", "int16", "int64"])))
    raw = rng.dirichlet(np.full(c, 0.5), n)
    if rng.random() < 0.5:
        raw = np.round(raw, int(rng.integers(1, 3)))
    scores = (raw * 200).astype(dtype) if dtype.kind in "iu" else raw.astype(dtype)
    if dtype.kind == "f" and rng.random() < 0.15:
        scores[rng.random(scores.shape) < 0.02] = np.nan
    if rng.random() < 0.3:
        scores = scores[np.argsort(scores.max(1))]
    kind = rng.choice(["hard", "soft", "none"])
    labels = {"hard": rng.integers(-1, c, n), "soft": rng.dirichlet(np.ones(c), n), "none": None}[kind]
    rows, columns = int(rng.integers(1, n + 1)), int(rng.integers(1, c + 1))
    form = rng.choice(["numpy", "dask", "zarr"])
    given = scores
    if form == "dask":
        given = da.from_array(scores, chunks=(rows, columns))
    if form == "zarr":
        path = f"{folder}/{number}.zarr"
        given = zarr.create_array(path, data=scores, chunks=(rows, columns), config={"write_empty_chunks": True})
    return given, scores, labels, SETTINGS[int(rng.integers(len(SETTINGS)))], rng


def run(number, folder):
    """Run a case, and return its result as text."""
    import dask
    import numpy as np

    import avgk_dask as avgk

    given, scores, labels, settings, rng = draw(number, folder)
    c = scores.shape[1]
    ks = sorted({int(rng.integers(1, c + 1)) for _ in range(3)} | {float(np.round(rng.uniform(0.1, c), 2))})
    nan_policy = "lowest" if rng.random() < 0.7 else "raise"
    options = {"nan_policy": nan_policy}
    calls = [
        lambda: avgk.evaluate(given, labels, ks, ties=str(rng.choice(["first", "spread"])), **options),
        lambda: avgk.evaluate(given, labels, ks, straddle=False, **options),
        lambda: avgk.threshold(given, ks, **options),
        lambda: avgk.error_curve(given, labels, **options),
        lambda: avgk.risk(given, labels, [0.05, 0.3, 20], cost=0.1, **options),
        lambda: avgk.best_threshold(given, labels, cost=float(rng.choice([0.0, 0.02, 0.3])), **options),
        lambda: avgk.straddle_strength(given, ks, **options),
        lambda: avgk.ranked_supports(given, list(range(1, c + 1)), **options),
        lambda: avgk.adaptive_gain(scores.astype("f8") if scores.dtype.kind == "f" else scores / 200, [1]),
        lambda: avgk.regret(np.asarray(rng.random(scores.shape) < 0.3), given),
        lambda: avgk.plug_in_regret(given, rng.dirichlet(np.ones(c), len(scores)), ks, **options),
        lambda: avgk.average_k_sets(given, ks[0], ties=str(rng.choice(["first", "spread"])), **options),
        lambda: avgk.average_set_size_at(given, [0.05, 0.3], **options),
    ]
    with dask.config.set(settings), dask.config.set(scheduler="threads", num_workers=2):
        try:
            result = calls[number % len(calls)]()
            return plain(result.compute() if hasattr(result, "compute") else result)
        except avgk.AvgkError as error:
            return (
                type(error).__name__ if NUMBERS_ONLY else f"{type(error).__name__}: {error}".replace(folder, "FOLDER")
            )


def plain(result):
    """Return a result as text that shows every bit."""
    import numpy as np
    import xarray as xr

    if isinstance(result, xr.DataArray):
        result = result.to_dataset(name="value")
    if isinstance(result, xr.Dataset):
        parts = {
            str(name): [str(v.dtype), v.dims, v.shape, np.ascontiguousarray(v.values).tobytes().hex(), plain_attrs(v)]
            for name, v in sorted(result.variables.items())
        }
        return json.dumps([parts, plain_attrs(result)], sort_keys=True)
    text = repr(result.tolist() if isinstance(result, np.ndarray) else result)
    return re.sub(r"reads=\d+", "reads", text) if NUMBERS_ONLY else text


def plain_attrs(result):
    others = {"versions", "store", *(("reads", "description", "long_name") if NUMBERS_ONLY else ())}
    return {name: str(value) for name, value in sorted(result.attrs.items()) if name not in others}


def work(first, last):
    """Print the digest and the beginning of each case's result."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(first, last):
            text = run(number, folder)
            print(json.dumps([number, hashlib.sha256(text.encode()).hexdigest(), text[:200]]), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", help="another checkout of the package")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument(
        "--numbers-only", action="store_true", help="ignore descriptions, the texts of errors and the number of reads"
    )
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    global NUMBERS_ONLY
    NUMBERS_ONLY = given.numbers_only
    last = given.first + given.cases
    if given.work:
        work(given.first, last)
        return
    here = pathlib.Path(__file__).resolve().parent.parent
    result = []
    for checkout in (given.before, here):
        command = [sys.executable, __file__, "--work", "--cases", str(given.cases), "--first", str(given.first)]
        command += ["--numbers-only"] if given.numbers_only else []
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": str(checkout)}, capture_output=True, text=True, check=True
        )
        result.append([json.loads(line) for line in done.stdout.splitlines()])
    other = [(a, b) for a, b in zip(*result, strict=True) if a[1] != b[1]]
    refused = sum("Error" in text[:40] for _, _, text in result[1])
    print(f"{len(result[1])} cases, {refused} of them errors in both; {len(other)} differ")
    for a, b in other:
        print(f"case {a[0]}:\n  before {a[2]}\n  after  {b[2]}")
    sys.exit(bool(other))


if __name__ == "__main__":
    main()
