"""Compiled kernels on the bits of numbers. They release the GIL; none is parallel: Dask owns the cores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic


@intrinsic
def _leading_zeros(typing_context: Any, word: Any) -> Any:
    """Return the number of leading zero bits of a word, 64 for zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], context.get_constant(types.boolean, False))

    return types.uint64(types.uint64), generate


@njit(nogil=True, cache=True)
def count_apart(bins: Any, counts: Any) -> None:
    """Count the neighbours among ascending numbers by the number of bits up to the highest in which they differ."""
    for t in range(1, bins.size):
        counts[64 - _leading_zeros(np.uint64(np.int64(bins[t]) ^ np.int64(bins[t - 1])))] += 1


@njit(nogil=True, cache=True)
def join_bins(
    bins: Any, order: Any, sums: Any, old_shift: int, shift: int, low_bits: int, new_bins: Any, new_sums: Any
) -> int:
    """Join ascending bins of ``2**old_shift`` keys into bins of ``2**shift``; return their number.

    The three rows of ``sums`` are the number of keys in a bin, and the sums of the low bits and of the remaining
    bits of (key - first key of the bin); column ``order[t]`` is that of bin t. An empty ``order`` stands for bins
    of one key each.
    """
    n = -1
    mask = (np.int64(1) << low_bits) - 1
    for t in range(bins.size):
        first = np.int64(bins[t]) << old_shift
        bin_ = first >> shift
        moved = first - (bin_ << shift)
        if n < 0 or new_bins[n] != bin_:
            n += 1
            new_bins[n] = bin_
            new_sums[0, n] = new_sums[1, n] = new_sums[2, n] = 0
        count = np.int64(1)
        if order.size:
            mine = order[t]
            count = sums[0, mine]
            new_sums[1, n] += sums[1, mine]
            new_sums[2, n] += sums[2, mine]
        new_sums[0, n] += count
        new_sums[1, n] += (moved & mask) * count
        new_sums[2, n] += (moved >> low_bits) * count
    return n + 1


@njit(nogil=True, cache=True)
def half_keys(bits: Any, infinity: Any, nan: Any, keys: Any) -> None:
    """Write the 16-bit keys of half floats, given by their bits: sign and magnitude, NaN as ``nan``."""
    for t in range(bits.size):
        magnitude = bits[t] & np.int16(0x7FFF)
        key = -magnitude if bits[t] < 0 else magnitude
        keys[t] = nan if magnitude > infinity else key


@njit(nogil=True, cache=True)
def count_bins(keys: Any, base: Any, shift: Any, histogram: Any) -> None:
    """Add keys to a histogram of ``2**shift`` keys a bin, from ``base`` up; those beyond an end go to the bin there."""
    last = np.uint64(histogram.size - 1)
    for t in range(keys.size):
        if keys[t] < base:
            histogram[0] += 1
        else:
            bin_ = (np.uint64(keys[t]) - np.uint64(base)) >> np.uint64(shift)
            histogram[min(bin_, last)] += 1


@njit(nogil=True, cache=True)
def count_cells(above: Any, label_zones: Any, counts: Any) -> None:
    """Count the cells of rows with their scores above each interval: ``counts[interval, cell]``.

    ``above`` and ``label_zones`` are as ``split_rows`` writes them. A cell is twice the size, and one more if the label is in.
    """
    for i in range(above.shape[0]):
        for j in range(above.shape[1]):
            counts[j, 2 * above[i, j] + (label_zones[i] <= 2 * j)] += 1


@njit(nogil=True, cache=True)
def add_exact(bits: Any, groups: Any, limbs: Any) -> None:
    """Add non-negative float64 values, given by their bits, to fixed-point sums of 32-bit limbs.

    ``limbs[g]`` counts units of 2**-1074 in base 2**32, least first; a limb takes 2**31 additions
    before it could overflow.
    """
    for t in range(bits.size):
        exponent = (bits[t] >> 52) & 0x7FF
        mantissa = np.uint64(bits[t] & 0xFFFFFFFFFFFFF)
        if exponent == 0:
            exponent = 1
        else:
            mantissa |= np.uint64(1) << np.uint64(52)
        limb = (exponent - 1) >> 5
        shift = np.uint64((exponent - 1) & 31)
        low = (mantissa & np.uint64(0xFFFFFFFF)) << shift
        high = (mantissa >> np.uint64(32)) << shift
        g = groups[t]
        limbs[g, limb] += np.int64(low & np.uint64(0xFFFFFFFF))
        limbs[g, limb + 1] += np.int64((low >> np.uint64(32)) + (high & np.uint64(0xFFFFFFFF)))
        limbs[g, limb + 2] += np.int64(high >> np.uint64(32))
