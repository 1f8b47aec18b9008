"""Compiled kernels on the bits of numbers. They release the GIL; none is parallel: Dask owns the cores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def half_keys(bits: Any, infinity: Any, nan: Any, keys: Any) -> None:
    """Write the 16-bit keys of half floats, given by their bits: sign and magnitude, NaN as ``nan``."""
    for t in range(bits.size):
        magnitude = bits[t] & np.int16(0x7FFF)
        key = -magnitude if bits[t] < 0 else magnitude
        keys[t] = nan if magnitude > infinity else key


@njit(nogil=True, cache=True)
def count_bins(keys: Any, base: Any, shift: Any, histogram: Any) -> None:
    """Add the keys to a histogram of ``2**shift`` keys a bin from ``base`` up, ends clipped."""
    last = np.uint64(histogram.size - 1)
    for t in range(keys.size):
        if keys[t] < base:
            histogram[0] += 1
        else:
            bin_ = (np.uint64(keys[t]) - np.uint64(base)) >> np.uint64(shift)
            histogram[min(bin_, last)] += 1


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
