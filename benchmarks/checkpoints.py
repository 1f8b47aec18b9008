"""Measure the cost of a checkpoint, and the time it saves.

    python benchmarks/checkpoints.py [--samples 200000] [--stores STORE ...] [--straddle] [--repeat 5] [--folder FOLDER]

Measured alternately, on two threads: ``evaluate`` (k = 1..10) without a checkpoint, with a new one, and with a finished one.
Results are first checked for equality. ``--stores`` takes existing stores, such as those of ``trillion.py``.
"""

from __future__ import annotations

import itertools
import pathlib
import shutil
from typing import Any

from measuring import best_of, make_store, markdown, parser, workplace

import avgk_dask as avgk


def measure(path: pathlib.Path, place: pathlib.Path, straddle: bool, repeat: int) -> list[Any]:
    """Return a row of the table, for one store. Each new checkpoint has its own folder, and all are removed at the end."""
    number = itertools.count()

    def evaluate(checkpoint: pathlib.Path | None = None) -> Any:
        return avgk.evaluate(path, k=range(1, 11), straddle=straddle, checkpoint=checkpoint)

    def anew() -> Any:
        return evaluate(place / str(next(number)))

    expected = evaluate()
    for result in (anew(), evaluate(place / "0")):
        assert result.drop_attrs().identical(expected.drop_attrs())
    size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
    best = best_of({"plain": evaluate, "new": anew, "finished": lambda: evaluate(place / "0")}, repeat)
    shutil.rmtree(place)
    times = [f"{best[name]:.2f}" for name in ("plain", "new", "finished")]
    return [path.name, *times, f"{best['new'] / best['plain']:.3f}", f"{size / 1e6:.0f}"]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--stores", type=pathlib.Path, nargs="*", help="stores that are there")
    options.add_argument("--straddle", action="store_true")
    chosen = options.parse_args()
    with workplace(chosen.folder) as folder:
        stores = chosen.stores or [make_store(folder, "blosc", chosen.samples, chosen.classes)]
        rows = [measure(path, folder / "checkpoints", chosen.straddle, chosen.repeat) for path in stores]
        header = ["store", "without (s)", "new checkpoint (s)", "finished one (s)", "new / without", "MB kept"]
        print(markdown(header, rows))


if __name__ == "__main__":
    main()
