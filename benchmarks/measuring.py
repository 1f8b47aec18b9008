"""Shared by the benchmarks: stores, the bare read as a reference, and alternating timing."""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dask
import numpy as np
import zarr
from zarr.codecs import BloscCodec

import avgk_dask as avgk
from avgk_dask.api.inputs.sources import as_source
from avgk_dask.testing import Simulation

#: Codecs of the stores that are compared; zstd is zarr's default.
CODECS = ("blosc", "raw", "zstd")
_STEP = 5_000_000


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of all benchmarks."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--samples", type=int, default=200_000, help="samples of the simulated store")
    options.add_argument("--classes", type=int, default=1_000, help="classes of the simulated store")
    options.add_argument("--repeat", type=int, default=5, help="runs of each; the best counts")
    options.add_argument("--folder", type=pathlib.Path, help="keep the stores here and use them again")
    return options


@contextlib.contextmanager
def workplace(folder: pathlib.Path | None) -> Iterator[pathlib.Path]:
    """Yield the folder for the stores, and compute on two threads."""
    with tempfile.TemporaryDirectory() as temporary, dask.config.set(scheduler="threads", num_workers=2):
        place = folder or pathlib.Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        yield place


def make_store(
    folder: pathlib.Path,
    codec: str,
    samples: int,
    classes: int,
    dtype: str = "float32",
    chunk_bytes: int = 10_000_000,
) -> pathlib.Path:
    """Write simulated scores and labels with zarr alone, in chunks of whole rows, unless they exist."""
    rows = max(1, chunk_bytes // (classes * np.dtype(dtype).itemsize))
    path = folder / f"{codec}-{samples}x{classes}-{dtype}-{rows}.zarr"
    if (path / "done").exists():
        return path
    group = zarr.open_group(path, mode="w")
    blosc = BloscCodec(cname="lz4", clevel=5, shuffle="bitshuffle", typesize=np.dtype(dtype).itemsize)
    options: dict[str, Any] = {"chunks": (min(rows, samples), classes), "dtype": dtype, "shape": (samples, classes)}
    scores = group.create_array("scores", compressors={"blosc": blosc, "raw": None, "zstd": "auto"}[codec], **options)
    labels = group.create_array("labels", shape=(samples,), dtype="int64", chunks=(samples,))
    spec = Simulation(samples, classes, dtype=dtype)
    label_values = np.empty(samples, np.int64)
    step = max(1, _STEP // (classes * rows)) * rows
    for first in range(0, samples, step):
        last = min(first + step, samples)
        scores[first:last], label_values[first:last], _ = spec.rows(first, last)
    labels[:] = label_values
    (path / "done").touch()
    return path


def make_logits(folder: pathlib.Path, samples: int, classes: int) -> pathlib.Path:
    """Write logits of an overconfident model, with labels drawn from the true probabilities, unless they exist."""
    path = folder / f"logits-{samples}x{classes}.zarr"
    if not path.exists():
        spec = Simulation(samples, classes, dtype="float64")
        step = max(1, _STEP // classes)
        with avgk.ScoreWriter(path, classes, dtype="float32") as writer:
            for first in range(0, samples, step):
                scores, labels, _ = spec.rows(first, min(first + step, samples))
                writer.append((1.5 * np.log(scores + 1e-12)).astype("f4"), labels)
    return path


def scores_of(path: pathlib.Path) -> Any:
    """Return the scores as a Zarr array."""
    return zarr.open_group(path, mode="r")["scores"]


def bare_read(array: Any) -> int:
    """Read every chunk once with zarr, through the same scheduler, and keep nothing."""
    rows, columns = array.chunks
    read = dask.delayed(lambda i, j: array[i : i + rows, j : j + columns].size, pure=False)
    places = [(i, j) for i in range(0, array.shape[0], rows) for j in range(0, array.shape[1], columns)]
    return sum(dask.compute(*[read(*place) for place in places]))


def own_read(path: pathlib.Path) -> int:
    """Read every chunk once like evaluate, for local files without zarr, and keep nothing."""
    source = as_source(path)
    read = dask.delayed(
        lambda band: sum(len(slab) for slabs in source.reader.band_reader.read_bands([band]) for slab in slabs)
    )
    return sum(dask.compute(*[read(band) for band in range(source.n_bands)]))


def best_of(functions: dict[str, Callable[[], Any]], repeat: int) -> dict[str, float]:
    """Time the functions alternately; return the best time of each."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(repeat):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def check_thresholds(path: pathlib.Path, result: Any) -> None:
    """Check the thresholds of a result against a NumPy partition of all scores."""
    flat = scores_of(path)[:].reshape(-1)
    n_samples = result.attrs["n_samples"]
    places = [flat.size - 1 - int(n_samples * k) for k in result.k.values]
    flat.partition(places)
    for k, value, place in zip(result.k.values, result.threshold.values, places, strict=True):
        assert value == flat[place], (k, value, flat[place])


def in_own_process(script: str, *arguments: object) -> dict[str, Any]:
    """Run a script of this folder; return the JSON in its last line of output."""
    command = [sys.executable, str(pathlib.Path(__file__).with_name(script)), *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def peak_memory() -> float:
    """Return the peak memory of this process in MB (``getrusage`` would include the parent's memory at the fork)."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


def markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
