"""Compiled kernels that find the highest scores of a row, in order.

All release the GIL and none is parallel: Dask owns the cores.

The r-th highest of a row's *lane maxima* (maxima of interleaved groups) is a value that at least r scores
reach, and few more: one vectorised fold of the row finds it. Indices that are sums are unsigned, since a test
for negative ones keeps the compiler from using vector instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from .lanes import LANES

#: Lists up to this long are ordered by counting what is greater, longer ones by insertion.
_COUNTED = 192
_U = np.uint64


@njit(nogil=True, cache=True, fastmath={"nsz"})
def _fold(row: Any, width: int, lanes: Any) -> None:
    """Write the maxima of ``width`` interleaved groups of a longer row; NaN only where all are."""
    n = row.size
    w = width
    while 2 * w < n:
        w *= 2
    rest = n - w
    for t in range(rest):
        lanes[t] = np.fmax(row[t], row[_U(w + t)])
    for t in range(rest, w):
        lanes[t] = row[t]
    while w > width:
        w //= 2
        for t in range(w):
            lanes[t] = np.fmax(lanes[t], lanes[_U(w + t)])


@njit(nogil=True, cache=True)
def _count_greater(values: Any, n: int, ranks: Any) -> None:
    """Write, for each of n values, how many of them are greater.

    Works in whole registers: what lies behind the n values up to a multiple of ``LANES`` gets some
    rank, too, which means nothing.
    """
    padded = (n + LANES - 1) // LANES * LANES
    for t in range(padded):
        ranks[t] = 0
    whole = n - n % 4
    for j in range(whole, n):
        a = values[j]
        for t in range(padded):
            ranks[t] += np.int32(a > values[t])
    for j in range(0, whole, 4):
        a, b, c, d = values[j], values[_U(j + 1)], values[_U(j + 2)], values[_U(j + 3)]
        for t in range(padded):
            x = values[t]
            ranks[t] += np.int32(a > x) + np.int32(b > x) + np.int32(c > x) + np.int32(d > x)


@njit(nogil=True, cache=True, inline="always")
def row_floor(row: Any, n_ranks: int, width: int, lanes: Any, ranks: Any) -> tuple[Any, bool]:
    """Return a score that at least ``n_ranks`` scores of the row reach, and whether there is one.

    There is none where NaN fills too many lanes, or where there are no lanes (width 0); the score then means
    nothing.
    """
    if width == 0:
        return row[0], False
    _fold(row, width, lanes)
    _count_greater(lanes, width, ranks)
    n_real = 0
    last = -1
    for t in range(width):
        real = lanes[t] == lanes[t]
        n_real += real
        # Equal lanes share a rank: the highest rank below r is that of the r-th.
        index = ranks[t] * width + t if real and ranks[t] < n_ranks else -1
        last = index if index > last else last
    return lanes[last % width], n_real >= n_ranks


@njit(nogil=True, cache=True)
def order_top(near: Any, n: int, rest: Any, ranks: Any, ordered: Any, taken: Any, top: Any, i: int) -> None:
    """Write the highest of n scores to row i of ``top`` in descending order, and ``rest`` behind them.

    ``taken`` is all False, and left so.
    """
    r = top.shape[1]
    if n > _COUNTED:  # one by one: sorting takes longer to compile than all the rest
        for t in range(n):
            x = near[t]
            index = min(t, r - 1)
            if t >= r and not x > top[i, index]:
                continue
            while index > 0 and x > top[i, index - 1]:
                top[i, index] = top[i, index - 1]
                index -= 1
            top[i, index] = x
        for p in range(n, r):
            top[i, p] = rest
        return
    _count_greater(near, n, ranks)
    rank_sum = 0
    for t in range(n):
        rank_sum += ranks[t]
    if 2 * rank_sum == n * (n - 1):  # no two are equal
        for t in range(n):
            ordered[ranks[t]] = near[t]
        for p in range(r):
            top[i, p] = ordered[p] if p < n else rest
        return
    # Equal scores share a rank: the entries behind it, never written, are theirs too.
    for t in range(n):
        ordered[ranks[t]] = near[t]
        taken[ranks[t]] = True
    x = rest
    for p in range(r):
        if p < n and taken[p]:
            x = ordered[p]
            taken[p] = False
        top[i, p] = x if p < n else rest
    for p in range(r, n):
        taken[p] = False


@njit(nogil=True, cache=True)
def rank_top(values: Any, first_class: int, top: Any, classes: Any, n_top: Any, width: int) -> None:
    """Insert a slab's scores into each row's running list of its highest ones, in rank order.

    ``top`` and ``classes`` are rows x r; ``n_top`` counts the entries filled. Slabs must come in
    class order, so that among equals the lowest class stays first. NaN never enters. ``width`` is
    the number of lanes for a first look, 0 for none.
    """
    n_rows, n_classes = values.shape
    if n_classes == 0:
        return
    r = top.shape[1]
    lanes = np.empty(max(n_classes, 2 * width), values.dtype)
    ranks = np.empty(max(width, 1), np.int32)
    for i in range(n_rows):
        row = values[i]
        n = n_top[i]
        floor, sure = row_floor(row, r, width, lanes, ranks)
        for t in range(n_classes):
            x = row[t]
            if x != x or (sure and x < floor) or (n == r and not (x > top[i, r - 1])):
                continue
            index = n if n < r else r - 1
            while index > 0 and x > top[i, index - 1]:
                top[i, index] = top[i, index - 1]
                classes[i, index] = classes[i, index - 1]
                index -= 1
            top[i, index] = x
            classes[i, index] = first_class + t
            if n < r:
                n += 1
        n_top[i] = n
