"""DESIGN.md names rooms and files that are there, in the order in which imports point down, and stays short."""

from __future__ import annotations

import importlib
import pathlib
import re

import numpy as np
import pytest
import zarr
from test_layers import LAYERS

import avgk_dask
from avgk_dask import records
from avgk_dask.testing import CountingStore

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = pathlib.Path(avgk_dask.__file__).parent
DESIGN = (ROOT / "DESIGN.md").read_text()
#: Rooms and modules of the ground floor, line by line of the table.
ROOMS = [
    [
        name.strip("`/").removesuffix(".py")
        for name in re.findall(r"`[\w./]+`", line.split("|")[1 if "`" in line.split("|")[1] else 2])
    ]
    for line in re.search(r"\| room \|.*?\n\n", DESIGN, re.S)[0].splitlines()[2:]
    if line
]


def test_design__fits_in_15_kilobytes():
    assert len(DESIGN.encode()) <= 15_000


def test_design__names_every_room_once_and_in_the_order_of_imports():
    names = [name for line in ROOMS for name in line]
    assert sorted(names) == sorted(set(LAYERS) - {"__main__"})
    highest = [max(LAYERS[name] for name in line) for line in ROOMS]
    lowest = [min(LAYERS[name] for name in line) for line in ROOMS]
    assert all(below <= above for above, below in zip(lowest[:-1], highest[1:], strict=True))


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:\w+/)+\w+\.(?:py|md|rst))`", DESIGN))))
def test_design__names_files_that_are_there(path):
    assert (ROOT / path).is_file() or (PACKAGE / path).is_file()


def test_design__names_things_that_are_there():
    code = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    recipes = DESIGN.partition("## How to add")[2].partition("### Adding a statistic")[0]
    named = {name for name in re.findall(r"`(_?[A-Za-z]\w+)`", recipes) if name not in {"bytes"}}
    assert [name for name in sorted(named) if not re.search(rf"\b{name}\b", code)] == []


def test_design__adds_a_statistic_in_under_40_lines_and_one_read(tmp_path, monkeypatch):
    section = DESIGN.partition("### Adding a statistic")[2]
    code = re.search(r"```python\n(.*?)```", section, re.S)[1]
    assert len([line for line in code[code.index("@dataclass") :].splitlines() if line.strip()]) < 40
    (tmp_path / "squared_sizes.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        statistic = importlib.import_module("squared_sizes")
        scores = np.random.default_rng(1).random((300, 20)).astype(np.float32)
        store = CountingStore(zarr.storage.MemoryStore())
        zarr.create_array(store, data=scores, chunks=(40, 6), config={"write_empty_chunks": True})
        store.reads.clear()
        actual = statistic.sum_squared_sizes(zarr.open_array(store, mode="r"), 0.7)
    finally:
        records.Record._KINDS.pop("SquaredSizes", None)
    assert actual == int(((scores > 0.7).sum(1) ** 2).sum())
    assert set(store.chunk_reads().values()) == {1}
