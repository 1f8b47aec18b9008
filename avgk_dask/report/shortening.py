"""What a page shows of much: some budgets of many, some rows of a table, the beginning of a long text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from .tables import Table

#: Budgets that tables and pictures of a page show at most.
MOST_BUDGETS = 100
#: Rows that a table may have before it is folded, and how many then stay in sight.
MOST_OPEN, IN_SIGHT = 15, 8
#: Characters that a page shows of one text, and texts that users may add.
MOST_CHARACTERS, MOST_FACTS = 2_000, 40
#: Characters of a name in a table.
MOST_NAME = 100


def places(n: int, most: int, keep: int | None = None) -> list[int]:
    """Return which of n to show where they are too many: evenly spaced ones, the first and the last, and one to keep.

    Examples
    --------
    >>> places(3, 5), places(100, 4), places(100, 4, keep=5)
    ([0, 1, 2], [0, 33, 66, 99], [0, 5, 33, 66, 99])

    """
    if n <= most:
        return list(range(n))
    spaced = np.linspace(0, n - 1, most).round().astype(int).tolist()
    return sorted({*spaced, *([] if keep is None else [keep])})


def spaced(result: xr.Dataset, keep: float | None = None, most: int = MOST_BUDGETS) -> xr.Dataset:
    """Return a result with so many of its budgets at most, and one to keep."""
    kept = None if keep is None else int(np.flatnonzero(result.k.values == keep)[0])
    return result.isel(k=places(result.sizes["k"], most, kept))


def in_sight(table: Table, keep: str | None = None) -> Table | None:
    """Return a few rows of a long table, among them those that begin with a text to keep; nothing of a short one."""
    if len(table.rows) <= MOST_OPEN:
        return None
    kept = [i for i, row in enumerate(table.rows) if row[0] == keep]
    return Table(table.header, [table.rows[i] for i in places(len(table.rows), IN_SIGHT, kept[0] if kept else None)])


def columns(table: Table, names: Sequence[str]) -> Table:
    """Return some columns of a table, in this order.

    Examples
    --------
    >>> found = columns(Table(("k", "error", "gain"), [("1", "5 %", "1 %")]), ("gain", "k"))
    >>> found.header, found.rows
    (('gain', 'k'), [('1 %', '1')])

    """
    found = [table.header.index(name) for name in names if name in table.header]
    return Table(tuple(table.header[c] for c in found), [tuple(row[c] for c in found) for row in table.rows])


def clipped(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return the beginning of a text that is too long to show, and how long it is.

    Examples
    --------
    >>> clipped("abc"), clipped("abcdef", 3)
    ('abc', 'abc … (6 characters)')

    """
    return text if len(text) <= most else f"{text[:most]} … ({len(text):,} characters)"


def clipped_cells(table: Table, most: int = MOST_NAME) -> Table:
    """Return a table in which no cell is longer than the name of a class should be."""
    return Table(table.header, [tuple(clipped(cell, most) for cell in row) for row in table.rows])


def first_rows(table: Table | None) -> Table | None:
    """Return the first rows of a long table, which are the worst; nothing of a short one."""
    return None if table is None or len(table.rows) <= MOST_OPEN else Table(table.header, table.rows[:MOST_OPEN])
