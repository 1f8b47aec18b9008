"""DESIGN.md names rooms and files that are there, in the order in which imports point down, and stays short."""

from __future__ import annotations

import pathlib
import re

import pytest
from test_layers import LAYERS

import avgk_dask

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
