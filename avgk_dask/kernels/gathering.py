"""Compiled kernels that list the scores of rows from a floor up, and find the labels among them.

All release the GIL and none is parallel: Dask owns the cores.

A first look compares a whole row with the floor, vectorised, into a byte for each score, and then
tests eight bytes at once: only the few scores of interest are touched singly. ``not (x < floor)`` is
true for NaN too, so finding NaN costs nothing. Indices that are sums are unsigned, since a test for
negative ones keeps the compiler from using vector instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from .cache_stamps import notice_changes
from .tops import order_top, row_floor

#: Rows up to this long are looked at score by score: a first look would not save what it costs.
_SHORT = 32
_U = np.uint64


@intrinsic
def _trailing_zeros(typing_context: Any, word: Any) -> Any:
    """Return the number of trailing zero bits of a word that is not zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

    return types.uint64(types.uint64), generate


@njit(nogil=True, cache=True, inline="always")
def _gather_short(row: Any, bits: Any, magnitude: Any, floor: Any, classes: Any, keys: Any, n: int, near: Any) -> Any:
    """List the scores of a short row that are at least ``floor`` behind n others, and copy all but NaN to ``near``.

    Returns how many are listed now, and how many were copied.
    """
    n_near = np.int64(0)
    for t in range(row.size):
        x = row[t]
        key = np.int64(bits[t])
        classes[_U(n)] = t
        keys[_U(n)] = -(key & magnitude) if key < 0 and magnitude != 0 else key
        n += x >= floor
        near[_U(n_near)] = x
        n_near += x == x
    return n, n_near


@njit(nogil=True, cache=True)
def gather_above(
    values: Any,
    bits: Any,
    magnitude: Any,
    floor: Any,
    first_row: int,
    offsets: Any,
    classes: Any,
    keys: Any,
    ranked: Any,
    width: int,
    missing: Any,
    scratch: Any,
) -> tuple[int, int, int]:
    """List the scores that are at least ``floor``, row by row, for as many rows as there is space.

    ``bits`` are the bits of the scores as integers. The order key of an integer is the integer itself, and
    ``magnitude`` is 0; that of a float is its sign and magnitude, and ``magnitude`` is the mask of all bits but
    the sign. Writes class and key of each listed score; those of the i-th row that is read stand from
    ``offsets[i]`` to ``offsets[i + 1]``. Stops before
    a row that might not fit. Returns the row it stopped at, the number of NaN met and the flat index
    of the first one (-1 for none).

    Each row of ``ranked`` (rows x r, r may be 0) becomes the row's r highest scores in descending
    order, ``missing`` where NaN leave too few; ``width`` is the number of lanes for them.
    """
    n_rows, n_classes = values.shape
    flags, busy, lanes, near, ranks, ordered, taken = scratch
    words = flags.view(np.uint64)
    r = ranked.shape[1]
    n = 0
    n_nan = 0
    first_nan = -1
    offsets[0] = 0
    for i in range(first_row, n_rows):
        if n + n_classes > keys.size or i - first_row == offsets.size - 1:
            return i, n_nan, first_nan
        row = values[i]
        n_near = np.int64(0)  # a literal would make numba compile what it is passed to twice
        if n_classes <= _SHORT:
            n, n_near = _gather_short(row, bits[i], magnitude, floor, classes, keys, n, near)
            if n_near < n_classes:
                for t in range(n_classes):
                    if row[t] != row[t] and n_nan == 0:
                        first_nan = i * n_classes + t
                    n_nan += row[t] != row[t]
            offsets[i + 1 - first_row] = n
            if r > 0:
                order_top(near, n_near, missing, ranks, ordered, taken, ranked, i)
            continue
        least, sure = row_floor(row, r, width, lanes, ranks)
        if r > 0 and not sure:
            for t in range(n_classes):
                flags[t] = 1
        elif r > 0 and least < floor:
            for t in range(n_classes):
                flags[t] = not (row[t] <= least)
        else:
            for t in range(n_classes):
                flags[t] = not (row[t] < floor)
        n_busy = 0
        for word in range(words.size):
            busy[n_busy] = word
            n_busy += words[word] != 0
        for p in range(n_busy):
            word = busy[p]
            left = words[word]
            while left != 0:
                t = 8 * word + np.int64(_trailing_zeros(left) >> np.uint64(3))
                left &= left - np.uint64(1)
                x = row[t]
                if x != x:
                    if n_nan == 0:
                        first_nan = i * n_classes + t
                    n_nan += 1
                    continue
                near[n_near] = x
                n_near += not sure or x > least
                key = np.int64(bits[i, t])
                if key < 0 and magnitude != 0:
                    key = -(key & magnitude)
                classes[n] = t
                keys[n] = key
                n += x >= floor
        offsets[i + 1 - first_row] = n
        if r > 0:
            order_top(near, n_near, least if sure else missing, ranks, ordered, taken, ranked, i)
    return n_rows, n_nan, first_nan


@njit(nogil=True, cache=True, inline="always")
def find_labels(labels: Any, first_row: int, offsets: Any, classes: Any, indices: Any) -> None:
    """Write the index of each row's label among the listed scores of its row, -1 where it is not listed."""
    for i in range(offsets.size - 1):
        first = offsets[i]
        label = labels[first_row + i]
        index = np.int32(-1)
        for t in range(offsets[i + 1] - first):
            index = np.int32(t) if classes[_U(first + t)] == label else index
        indices[first_row + i] = index


@njit(nogil=True, cache=True, inline="always")
def rank_labels(
    values: Any, labels: Any, indices: Any, first_row: int, offsets: Any, keys: Any, n_ranks: int, ranks: Any
) -> None:
    """Write the rank of each row's label in its row: 1 for the highest score, ties by class index.

    It is ``n_ranks`` + 1 for all beyond ``n_ranks`` and for a label whose score is NaN, and 0 for a negative label. The scores of the rows from ``first_row``
    on are listed down to some floor, with the labels at their ``indices``. So the scores that rank before a
    listed label are listed too; and a label that is not listed ranks behind all that are, beyond ``n_ranks``
    if so many are. Only otherwise the row itself is read again.
    """
    n_classes = values.shape[1]
    for i in range(offsets.size - 1):
        label = labels[first_row + i]
        if label < 0:
            ranks[first_row + i] = 0
            continue
        first, last = offsets[i], offsets[i + 1]
        index = indices[first_row + i]
        higher = 0
        if index >= 0:
            mine = keys[first:last]
            key = mine[index]
            for t in range(mine.size):
                higher += mine[t] > key
            for t in range(index):
                higher += mine[t] == key
        elif last - first >= n_ranks:
            higher = n_ranks
        else:
            row = values[first_row + i]
            x = row[label]
            for t in range(n_classes):
                higher += row[t] > x
            before = row[:label]
            for t in range(before.size):
                higher += before[t] == x
            if x != x:
                higher = n_ranks
        ranks[first_row + i] = min(higher, n_ranks) + 1


notice_changes(gather_above, row_floor, order_top)
