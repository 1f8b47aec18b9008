"""Compiled kernels for all pairs of two sorted columns, in the time of one merge."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

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
    """Count, for two ascending columns, the b below each a and the a above each b; return the number of pairs.

    ``below[i]`` is the number of b less than ``a[i]``, ``above[j]`` the number of a greater than
    ``b[j]``. Each step of the merge writes both entries it stands at, so that no branch depends on the
    data; the two halves of the merge take turns, so that one's loads hide behind the other's.
    """
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
    """Return the index behind the last key of an ascending column that is at most ``last_key``."""
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
    """Sum value times count over an ascending column of keys, exactly, by stretches of one exponent.

    With ``mantissa_bits`` the keys are sign and magnitude of floats with that many stored bits of
    mantissa; with 0 they are integers, counted from ``base``. Run n has ``stretches[n]`` = (sign, exponent)
    and four ``sums``: those of the low and of the high 32 bits of the mantissa times the count, each in
    two halves again. Counts must be below 2**31. Returns the number of stretches.
    """
    n = 0
    first = np.int64(0)  # a literal would make numba compile what it is passed to twice
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
