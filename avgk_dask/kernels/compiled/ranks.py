"""Compiled kernels that find the highest scores of a row, in order, and sum over all pairs of two sorted columns.

The docstrings are in ``kernels/numpy``. All kernels release the GIL and use one thread, since Dask uses the cores.

At least r scores of a row reach the r-th highest of its *lane maxima* (maxima of interleaved groups), and
usually few more. One vectorised fold of the row finds it. Computed indices are unsigned: for signed ones,
numba tests whether they are negative, and the compiler cannot use vector instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from .. import ROW_LANES

#: Lists up to this long are ordered by counting the greater ones, longer ones by insertion.
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
    """Write how many of n values exceed each of them. Whole registers are written, so entries after the n-th change too."""
    padded = (n + ROW_LANES - 1) // ROW_LANES * ROW_LANES
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
def _row_floor(row: Any, n_ranks: int, width: int, lanes: Any, ranks: Any) -> tuple[Any, bool]:
    """Return a score that at least ``n_ranks`` scores of the row reach, and whether the lanes suffice for one."""
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
def _order_top(near: Any, n: int, rest: Any, ranks: Any, ordered: Any, taken: Any, top: Any, i: int) -> None:
    """Write the highest of n scores to row i of ``top`` in descending order; ``taken`` is all False, and left so."""
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
    # Equal scores share a rank, so they write one entry. The entries that they leave unwritten after it have the same score.
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
    n_rows, n_classes = values.shape
    if n_classes == 0:
        return
    r = top.shape[1]
    lanes = np.empty(max(n_classes, 2 * width), values.dtype)
    ranks = np.empty(max(width, 1), np.int32)
    for i in range(n_rows):
        row = values[i]
        n = n_top[i]
        floor, sure = _row_floor(row, r, width, lanes, ranks)
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


_HALF = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


@njit(nogil=True, cache=True)
def _middle(a: Any, b: Any) -> Any:
    """Return (i, j) such that merging ``a[:i]`` with ``b[:j]`` is the first half of merging a with b."""
    half = (a.size + b.size) // 2
    low, high = max(0, half - b.size), min(half, a.size)
    while low < high:
        i = (low + high) // 2
        if b[half - 1 - i] < a[i]:  # this b comes before a[i]
            high = i
        else:
            low = i + 1
    return low, half - low


@njit(nogil=True, cache=True)
def count_lower(a: Any, b: Any, below: Any, above: Any) -> int:
    # Each step of the merge writes both of its entries, so that no branch depends on the data; the two halves of the merge take
    # turns, so that their loads overlap.
    n_a, n_b = a.size, b.size
    end_i, end_j = _middle(a, b)
    i, j, p, q = np.int64(0), np.int64(0), end_i, end_j
    while i < end_i and j < end_j and p < n_a and q < n_b:
        lower = b[j] < a[i]
        below[i] = j
        above[j] = n_a - i
        i += 1 - lower
        j += lower
        lower = b[q] < a[p]
        below[p] = q
        above[q] = n_a - p
        p += 1 - lower
        q += lower
    _finish_merge(a, b, i, j, end_i, end_j, below, above)
    _finish_merge(a, b, p, q, n_a, n_b, below, above)
    n_pairs = 0
    for t in range(n_a):
        n_pairs += below[t]
    return n_pairs


@njit(nogil=True, cache=True)
def _finish_merge(a: Any, b: Any, i: int, j: int, end_i: int, end_j: int, below: Any, above: Any) -> None:
    """Go on with a merge up to its ends."""
    while i < end_i and j < end_j:
        lower = b[j] < a[i]
        below[i] = j
        above[j] = a.size - i
        i += 1 - lower
        j += lower
    while i < end_i:
        below[i] = j
        i += 1
    while j < end_j:
        above[j] = a.size - i
        j += 1


@njit(nogil=True, cache=True)
def _stretch_end(keys: Any, first: int, last_key: Any) -> int:
    """Return the index after the last key of an ascending column that is at most ``last_key``."""
    low, high = first, keys.size
    while low < high:
        middle = (low + high) // 2
        if keys[middle] <= last_key:
            low = middle + 1
        else:
            high = middle
    return low


@njit(nogil=True, cache=True)
def add_products(keys: Any, counts: Any, mantissa_bits: int, base: Any, stretches: Any, sums: Any) -> int:
    n = 0
    first = np.int64(0)  # a literal would make numba compile its callee twice
    while first < keys.size:
        key = np.int64(keys[first])
        sign = np.int64(1)
        exponent = np.int64(0)
        last = keys.size
        offset = np.int64(base)
        if mantissa_bits:
            sign = np.int64(-1) if key < 0 else np.int64(1)
            exponent = (key * sign) >> mantissa_bits
            highest = (exponent + 1 << mantissa_bits) - 1 if key >= 0 else -(exponent << mantissa_bits)
            if key < 0 and exponent == 0:
                highest = np.int64(-1)
            last = _stretch_end(keys, first, highest)
            # The implicit bit is that of the exponent 1; an exponent above it is taken off but for that bit.
            offset = (exponent - 1 << mantissa_bits) if exponent > 0 else np.int64(0)
        s0 = s1 = s2 = s3 = np.uint64(0)
        wide = mantissa_bits == 0 or mantissa_bits > 31
        for t in range(first, last):
            mantissa = np.uint64(np.int64(keys[t]) * sign - offset)
            low = (mantissa & _HALF) * np.uint64(counts[t])
            s0 += low & _HALF
            s1 += low >> _32
        if wide:
            for t in range(first, last):
                mantissa = np.uint64(np.int64(keys[t]) * sign - offset)
                high = (mantissa >> _32) * np.uint64(counts[t])
                s2 += high & _HALF
                s3 += high >> _32
        stretches[n, 0], stretches[n, 1] = sign, exponent
        sums[n, 0], sums[n, 1], sums[n, 2], sums[n, 3] = s0, s1, s2, s3
        n += 1
        first = last
    return n
