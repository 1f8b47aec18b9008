"""Distinct rows of columns of integers, and sums over equal ones."""

from __future__ import annotations

import math

import numpy as np

from ..arrays import Array, Ints


def distinct(columns: tuple[Ints, ...]) -> tuple[tuple[Ints, ...], Ints]:
    """Return the distinct rows of the columns in order, and for each row the number of its group.

    Rows are packed into one integer where that fits: ties have few distinct rows, which are then
    counted rather than sorted.
    """
    n = columns[0].size
    if n == 0:
        return columns, np.zeros(0, np.int64)
    lows = [int(column.min()) for column in columns]
    spans = [int(column.max()) - low + 1 for column, low in zip(columns, lows, strict=True)]
    n_codes = math.prod(spans)
    if n_codes >= 1 << 62:
        return _distinct_by_sorting(columns)
    code = np.zeros(n, np.int64)
    for column, low, span in zip(columns, lows, spans, strict=True):
        code = code * span + (column - low)
    if n_codes <= 4 * n:
        present = np.bincount(code, minlength=n_codes) > 0
        values, which = np.flatnonzero(present), (np.cumsum(present) - 1)[code]
    else:
        values, which = np.unique(code, return_inverse=True)
    groups: list[Ints] = []
    for low, span in zip(lows[::-1], spans[::-1], strict=True):
        groups.insert(0, values % span + low)
        values = values // span
    return tuple(groups), which


def _distinct_by_sorting(columns: tuple[Ints, ...]) -> tuple[tuple[Ints, ...], Ints]:
    """Do the same for rows that no integer can hold."""
    n = columns[0].size
    order = np.lexsort(columns[::-1])
    new = np.zeros(n, bool)
    new[:1] = True
    for column in columns:
        ordered = column[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    which = np.empty(n, np.int64)
    which[order] = np.cumsum(new) - 1
    return tuple(column[order][new] for column in columns), which


def add_up(columns: tuple[Ints, ...], amounts: Array) -> tuple[tuple[Ints, ...], Ints]:
    """Return the distinct rows of the columns and the sum of the amounts of each."""
    groups, which = distinct(columns)
    if amounts.dtype == np.int8:  # single events: all ones
        return groups, np.bincount(which, minlength=groups[0].size)
    sums = np.zeros(groups[0].size, np.int64)
    np.add.at(sums, which, amounts)
    return groups, sums
