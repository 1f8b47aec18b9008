"""Plain twins of the kernels of ``tops``; they need none of the space that those work in."""

from __future__ import annotations

from typing import Any

import numpy as np


def row_floor(row: Any, n_ranks: int, width: int, lanes: Any, ranks: Any) -> tuple[Any, bool]:
    """Return a score that at least ``n_ranks`` scores of the row reach, and whether there is one."""
    maxima = np.array([np.fmax.reduce(row[lane::width]) for lane in range(width)], row.dtype)
    ascending = np.sort(maxima[maxima == maxima])
    if width == 0 or ascending.size < n_ranks:
        return row[0], False
    return ascending[-n_ranks], True


def order_top(near: Any, n: int, rest: Any, ranks: Any, ordered: Any, taken: Any, top: Any, i: int) -> None:
    """Write the highest of n scores to row i of ``top`` in descending order, and ``rest`` behind them."""
    highest = np.sort(near[:n])[::-1][: top.shape[1]]
    top[i, : highest.size], top[i, highest.size :] = highest, rest


def order_rows(rows: Any, missing: Any, top: Any) -> None:
    """Write the highest scores of each row in descending order, and ``missing`` where NaN leave too few."""
    nan = rows != rows
    least = -np.inf if rows.dtype.kind == "f" else np.iinfo(rows.dtype).min
    top[:] = np.sort(np.where(nan, rows.dtype.type(least), rows), axis=1)[:, ::-1][:, : top.shape[1]]
    top[np.arange(top.shape[1]) >= rows.shape[1] - np.count_nonzero(nan, axis=1)[:, None]] = missing


def rank_top(values: Any, first_class: int, top: Any, classes: Any, n_top: Any, width: int) -> None:
    """Insert a slab's scores into each row's running list of its highest ones, in rank order."""
    r, names = top.shape[1], np.broadcast_to(first_class + np.arange(values.shape[1]), values.shape)
    scores, names = np.hstack([top, values])[:, ::-1], np.hstack([classes, names])[:, ::-1]
    counts = np.hstack([np.arange(r) < n_top[:, None], values == values])[:, ::-1]
    # The highest last, and of equal ones the last first; what does not count comes before all.
    ascending = np.lexsort((scores, counts), axis=1)
    descending = ascending[:, ::-1][:, :r]
    n_top[:] = np.minimum(np.count_nonzero(counts, axis=1), r)
    filled = np.arange(descending.shape[1]) < n_top[:, None]
    for column, found in ((top, scores), (classes, names)):
        column[:, : filled.shape[1]][filled] = np.take_along_axis(found, descending, 1)[filled]


# Plain twins of the kernels of ``pairs``.


_HALF, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


def count_lower(a: Any, b: Any, below: Any, above: Any) -> int:
    """Count, for two ascending columns, the b below each a and the a above each b; return the number of pairs."""
    below[:] = np.searchsorted(b, a, side="left")
    above[:] = a.size - np.searchsorted(a, b, side="right")
    return int(below.sum())


def add_products(keys: Any, counts: Any, mantissa_bits: int, base: Any, stretches: Any, sums: Any) -> int:
    """Sum value times count over an ascending column of keys, exactly, by stretches of one exponent; return their number."""
    wide = keys.astype(np.int64)
    signs, exponents, mantissas = np.ones_like(wide), np.zeros_like(wide), wide - np.int64(base)
    if mantissa_bits:
        signs, magnitudes = np.where(wide < 0, -1, 1), np.abs(wide)
        exponents = magnitudes >> np.int64(mantissa_bits)
        # The implicit bit is that of the exponent 1; an exponent above it is taken off but for that bit.
        mantissas = magnitudes - (np.maximum(exponents - 1, 0) << np.int64(mantissa_bits))
    named = np.stack([signs, exponents])
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, wide.size), bool), (named[:, 1:] != named[:, :-1]).any(0)]))
    parts, times = mantissas.view(np.uint64), counts.astype(np.uint64)
    low, high = (parts & _HALF) * times, (parts >> _32) * times
    n = starts.size
    stretches[:n] = named[:, starts].T
    if n:
        sums[:n] = np.add.reduceat(np.stack([low & _HALF, low >> _32, high & _HALF, high >> _32]), starts, axis=1).T
    return n
