"""Kernels that find the highest scores of rows, in order, and sum over all pairs of two sorted columns."""

from __future__ import annotations

from typing import Any

import numpy as np


def runs_of(*columns: Any) -> tuple[Any, Any]:
    """Return where the runs of equal neighbours start, and the number of the run that each item is in."""
    starts = np.zeros(columns[0].size, bool)
    starts[:1] = True
    for column in columns:
        starts[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(starts), np.cumsum(starts) - 1


def order_rows(rows: Any, missing: Any, top: Any) -> None:
    """Write the highest scores of each row in descending order, and ``missing`` if NaN leave too few."""
    nan = rows != rows
    least = -np.inf if rows.dtype.kind == "f" else np.iinfo(rows.dtype).min
    top[:] = np.sort(np.where(nan, rows.dtype.type(least), rows), axis=1)[:, ::-1][:, : top.shape[1]]
    top[np.arange(top.shape[1]) >= rows.shape[1] - np.count_nonzero(nan, axis=1)[:, None]] = missing


def rank_top(values: Any, first_class: int, top: Any, classes: Any, n_top: Any, width: int) -> None:
    """Insert a slab's scores into each row's running list of its highest ones, in rank order.

    ``top`` and ``classes`` are rows x r; ``n_top`` counts the entries filled. Slabs must come in
    class order, so that among equals the lowest class stays first. NaN never enters. ``width`` is
    the number of lanes for a first look, 0 for none.
    """
    r, names = top.shape[1], np.broadcast_to(first_class + np.arange(values.shape[1]), values.shape)
    scores, names = np.hstack([top, values])[:, ::-1], np.hstack([classes, names])[:, ::-1]
    counts = np.hstack([np.arange(r) < n_top[:, None], values == values])[:, ::-1]
    # The highest last, and of equal ones the last first; entries that do not count come before all.
    ascending = np.lexsort((scores, counts), axis=1)
    descending = ascending[:, ::-1][:, :r]
    n_top[:] = np.minimum(np.count_nonzero(counts, axis=1), r)
    filled = np.arange(descending.shape[1]) < n_top[:, None]
    for column, values in ((top, scores), (classes, names)):
        column[:, : filled.shape[1]][filled] = np.take_along_axis(values, descending, 1)[filled]


_HALF, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


def count_lower(a: Any, b: Any, below: Any, above: Any) -> int:
    """Count, for two ascending columns, the b below each a and the a above each b; return the number of pairs.

    ``below[i]`` is the number of b less than ``a[i]``, ``above[j]`` the number of a greater than
    ``b[j]``.
    """
    below[:] = np.searchsorted(b, a, side="left")
    above[:] = a.size - np.searchsorted(a, b, side="right")
    return int(below.sum())


def add_products(keys: Any, counts: Any, mantissa_bits: int, base: Any, stretches: Any, sums: Any) -> int:
    """Sum value times count over an ascending column of keys, exactly, by stretches of one exponent.

    With ``mantissa_bits`` the keys are sign and magnitude of floats with that many stored bits of
    mantissa; with 0 they are integers, counted from ``base``. Run n has ``stretches[n]`` = (sign, exponent)
    and four ``sums``: those of the low and of the high 32 bits of the mantissa times the count, each in
    two halves again. Counts must be below 2**31. Returns the number of stretches.
    """
    wide = keys.astype(np.int64)
    signs, exponents, mantissas = np.ones_like(wide), np.zeros_like(wide), wide - np.int64(base)
    if mantissa_bits:
        signs, magnitudes = np.where(wide < 0, -1, 1), np.abs(wide)
        exponents = magnitudes >> np.int64(mantissa_bits)
        # The implicit bit is that of the exponent 1; an exponent above it is taken off but for that bit.
        mantissas = magnitudes - (np.maximum(exponents - 1, 0) << np.int64(mantissa_bits))
    starts, _ = runs_of(signs, exponents)
    parts, times = mantissas.view(np.uint64), counts.astype(np.uint64)
    low, high = (parts & _HALF) * times, (parts >> _32) * times
    n = int(starts.size)
    stretches[:n, 0], stretches[:n, 1] = signs[starts], exponents[starts]
    if n:
        sums[:n] = np.add.reduceat(np.stack([low & _HALF, low >> _32, high & _HALF, high >> _32]), starts, axis=1).T
    return n
