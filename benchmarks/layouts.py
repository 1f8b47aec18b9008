"""Compare bare reads of the layouts of ScoreWriter and of zarr's default, and measure the cost of the checks.

    python benchmarks/layouts.py [--samples 200000] [--classes 1000] [--repeat 5] [--folder FOLDER]

A bare read reads every chunk once with zarr, in Dask's threads, and keeps nothing. All values are first checked for equality.
"""

from __future__ import annotations

import pathlib

import numpy as np
import zarr
from measuring import bare_read, best_of, own_read, parser, workplace
from zarr.codecs import BloscCodec

import avgk_dask as avgk
from avgk_dask.testing import Simulation


def write(folder: pathlib.Path, samples: int, classes: int) -> None:
    spec, step = Simulation(samples, classes, dtype="float32"), 10_000
    default = zarr.create_array(folder / "default.zarr", shape=(samples, classes), dtype="float32")
    rows = default.chunks[0]
    for first in range(0, samples, rows):
        last = min(first + rows, samples)
        default[first:last] = np.concatenate([spec.rows(i, min(i + step, last))[0] for i in range(first, last, step)])
    with avgk.ScoreWriter(folder / "ours.zarr", classes) as writer:
        for first in range(0, samples, step):
            writer.append(spec.rows(first, min(first + step, samples))[0])
    ours = zarr.open_group(folder / "ours.zarr", mode="r")["scores"]
    codec = BloscCodec(cname="lz4", clevel=5, shuffle="bitshuffle")
    plain = zarr.create_array(
        folder / "plain.zarr", shape=ours.shape, chunks=ours.chunks, dtype="float32", compressors=codec
    )
    for first in range(0, samples, ours.chunks[0]):
        plain[first : first + ours.chunks[0]] = ours[first : first + ours.chunks[0]]


def main() -> None:
    arguments = parser(__doc__).parse_args()
    with workplace(arguments.folder) as folder:
        if not (folder / "ours.zarr").exists():
            write(folder, arguments.samples, arguments.classes)
        run(folder, arguments.repeat)


def run(folder: pathlib.Path, repeat: int) -> None:
    default = zarr.open_array(folder / "default.zarr", mode="r")
    ours = zarr.open_group(folder / "ours.zarr", mode="r")["scores"]
    for first in range(0, default.shape[0], default.chunks[0]):
        rows = slice(first, first + default.chunks[0])
        assert np.array_equal(default[rows], ours[rows])
    sizes = {name: sum(p.stat().st_size for p in (folder / name).rglob("*")) for name in ("default.zarr", "ours.zarr")}
    best = best_of(
        {
            "zarr default": lambda: bare_read(default),
            "ours": lambda: bare_read(ours),
            "ours, as evaluate reads": lambda: own_read(folder / "ours.zarr"),
            "the same without checks": lambda: own_read(folder / "plain.zarr"),
            "evaluate": lambda: avgk.evaluate(folder / "ours.zarr"),
            "evaluate without checks": lambda: avgk.evaluate(folder / "plain.zarr"),
        },
        repeat,
    )
    print(
        f"zarr default: chunks {default.chunks}, {sizes['default.zarr'] / 1e6:.0f} MB; ours: chunks {ours.chunks}, {sizes['ours.zarr'] / 1e6:.0f} MB"
    )
    for name, seconds in best.items():
        print(f"{name:24} {seconds:7.3f} s")
    print(f"zarr default / ours (bare reads through zarr) = {best['zarr default'] / best['ours']:.2f}  (at least 2.5)")
    print(
        f"zarr default / ours as evaluate reads         = {best['zarr default'] / best['ours, as evaluate reads']:.2f}"
    )
    for name, checked, unchecked in (
        ("evaluate", "evaluate", "evaluate without checks"),
        ("reading alone", "ours, as evaluate reads", "the same without checks"),
    ):
        print(f"cost of the checks in {name:24} = {best[checked] / best[unchecked] - 1:+.1%}")


if __name__ == "__main__":
    main()
