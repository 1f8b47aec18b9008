"""Plain twins of the kernels of ``bits``."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np


def count_apart(bins: Any, counts: Any) -> None:
    """Count the neighbours among ascending numbers by the number of bits up to the highest in which they differ."""
    for a, b in pairwise(bins.tolist()):
        counts[((a ^ b) & (2**64 - 1)).bit_length()] += 1


def join_bins(
    bins: Any, order: Any, sums: Any, old_shift: int, shift: int, low_bits: int, new_bins: Any, new_sums: Any
) -> int:
    """Join ascending bins of ``2**old_shift`` keys into bins of ``2**shift``; return their number."""
    joined: dict[int, list[int]] = {}
    for t, bin_ in enumerate(bins.tolist()):
        first = bin_ << old_shift
        moved = first - (first >> shift << shift)
        count, low, high = sums[:, order[t]].tolist() if order.size else (1, 0, 0)
        mine = joined.setdefault(first >> shift, [0, 0, 0])
        mine[0] += count
        mine[1] += low + moved % 2**low_bits * count
        mine[2] += high + (moved >> low_bits) * count
    for n, (bin_, totals) in enumerate(joined.items()):
        new_bins[n], new_sums[:, n] = bin_, totals
    return len(joined)


def half_keys(bits: Any, infinity: Any, nan: Any, keys: Any) -> None:
    """Write the 16-bit keys of half floats, given by their bits: sign and magnitude, NaN as ``nan``."""
    magnitude = bits & np.int16(0x7FFF)
    keys[:] = np.where(magnitude > infinity, nan, np.where(bits < 0, -magnitude, magnitude))


def stretch_numbers(keys: Any, base: Any, shift: Any) -> Any:
    """Return in which stretch of ``2**shift`` keys from ``base`` up each key lies; those below ``base`` are in none."""
    distances = keys.astype(np.int64).view(np.uint64) - np.uint64(int(base) % 2**64)
    return distances >> np.uint64(shift)


def count_bins(keys: Any, base: Any, shift: Any, histogram: Any) -> None:
    """Add keys to a histogram of ``2**shift`` keys a bin, from ``base`` up; those beyond an end go to the bin there."""
    bins = np.minimum(stretch_numbers(keys, base, shift), np.uint64(histogram.size - 1))
    np.add.at(histogram, np.where(keys < base, 0, bins).astype(np.int64), 1)


def count_cells(above: Any, label_zones: Any, counts: Any) -> None:
    """Count the cells of rows with their scores above each interval: ``counts[interval, cell]``."""
    for j, column in enumerate(above.T):
        counts[j] += np.bincount(2 * column + (label_zones <= 2 * j), minlength=counts.shape[1])


def add_exact(bits: Any, groups: Any, limbs: Any) -> None:
    """Add non-negative float64 values, given by their bits, to fixed-point sums of 32-bit limbs."""
    for value, group in zip(bits.view(np.float64).tolist(), groups.tolist(), strict=True):
        numerator, denominator = value.as_integer_ratio()
        units = (numerator << 1074) // denominator
        first = max(units.bit_length() - 53, 0) // 32  # the limb that the last bit of a mantissa is in
        for limb in range(first, first + 3):
            limbs[group, limb] += (units >> (32 * limb)) & 0xFFFFFFFF
