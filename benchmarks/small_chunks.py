"""Evaluate a store of many small chunks.

    python benchmarks/small_chunks.py [--chunks 100000] [--rows 8] [--classes 100] [--codecs raw blosc] [--folder FOLDER]

Chunk files are written one by one, without zarr, which would take minutes. Each time is that of a new process on two
threads, from the first import to the printed answer; the first run also compiles kernels that are not in numba's cache.
The thresholds are checked against those of the same scores in memory.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import time

import numcodecs
import numpy as np
import zarr
from measuring import workplace
from zarr.codecs import BloscCodec

import avgk_dask as avgk

_STEP = 1000
_RUN = """
import json, sys, time
import dask
import avgk_dask as avgk
from avgk_dask.store.read.opening import open_arrays
from avgk_dask.store.read.verification import check_chunks
start = time.perf_counter()
check_chunks(open_arrays(sys.argv[1]).scores)
listed = time.perf_counter() - start
with dask.config.set(scheduler="threads", num_workers=2):
    result = avgk.evaluate(sys.argv[1], k=range(1, 11))
print(json.dumps({"listed": listed, "reads": result.attrs["reads"], "threshold": result.threshold.values.tolist()}))
"""


def make_scores(n_rows: int, n_classes: int, first: int) -> np.ndarray:
    """Return some rows of scores, always the same."""
    return np.random.default_rng(first).random((n_rows, n_classes), dtype=np.float32) ** 4


def write(path: pathlib.Path, codec: str, chunks: int, rows: int, classes: int) -> None:
    """Write a store, chunk file by chunk file."""
    blosc = BloscCodec(cname="lz4", clevel=5, shuffle="bitshuffle", typesize=4)
    options = {"chunks": (rows, classes), "dtype": "float32", "compressors": {"blosc": blosc, "raw": None}[codec]}
    zarr.create_array(path, shape=(chunks * rows, classes), **options)
    encode = numcodecs.Blosc(cname="lz4", clevel=5, shuffle=numcodecs.Blosc.BITSHUFFLE).encode
    for first in range(0, chunks, _STEP):
        n = min(_STEP, chunks - first)
        for i, block in enumerate(make_scores(n * rows, classes, first).reshape(n, rows, classes)):
            place = path / "c" / str(first + i)
            place.mkdir(parents=True)
            (place / "0").write_bytes(block.tobytes() if codec == "raw" else encode(block))
    (path / "done").touch()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--chunks", type=int, default=100_000)
    options.add_argument("--rows", type=int, default=8)
    options.add_argument("--classes", type=int, default=100)
    options.add_argument("--codecs", nargs="+", default=["raw", "blosc"], choices=["raw", "blosc"])
    options.add_argument("--folder", type=pathlib.Path, help="keep the stores here and use them again")
    arguments = options.parse_args()
    chunks, rows, classes = arguments.chunks, arguments.rows, arguments.classes
    parts = [make_scores(min(_STEP, chunks - i) * rows, classes, i) for i in range(0, chunks, _STEP)]
    expected = avgk.evaluate(np.concatenate(parts), k=range(1, 11), straddle=False).threshold.values.tolist()
    del parts
    with workplace(arguments.folder) as folder:
        for codec in arguments.codecs:
            path = folder / f"{codec}-{chunks}x{rows}x{classes}.zarr"
            if not (path / "done").exists():
                write(path, codec, chunks, rows, classes)
            start = time.perf_counter()
            done = subprocess.run([sys.executable, "-c", _RUN, str(path)], check=True, capture_output=True, text=True)
            seconds, result = time.perf_counter() - start, json.loads(done.stdout)
            assert result["threshold"] == expected
            print(
                f"{codec}: {chunks:,} chunks of {rows} x {classes} in {seconds:.1f} s, of which one more listing "
                f"{result['listed']:.1f} s; {result['reads']} read",
                flush=True,
            )


if __name__ == "__main__":
    main()
