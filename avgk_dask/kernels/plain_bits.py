"""Plain twins of the kernels of ``bits``."""

from __future__ import annotations

from typing import Any

import numpy as np

#: The least numbers of 1, 2, 3 ... bits.
_POWERS = np.uint64(1) << np.arange(64, dtype=np.uint64)


def count_apart(bins: Any, counts: Any) -> None:
    """Count the neighbours among ascending numbers by the number of bits up to the highest in which they differ."""
    wide = bins.astype(np.int64).view(np.uint64)
    counts += np.bincount(np.searchsorted(_POWERS, wide[1:] ^ wide[:-1], side="right"), minlength=counts.size)


def join_bins(
    bins: Any, order: Any, sums: Any, old_shift: int, shift: int, low_bits: int, new_bins: Any, new_sums: Any
) -> int:
    """Join ascending bins of ``2**old_shift`` keys into bins of ``2**shift``; return their number."""
    first = bins.astype(np.int64) << np.int64(old_shift)
    joined = first >> np.int64(shift)
    moved = first - (joined << np.int64(shift))
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, bins.size), bool), joined[1:] != joined[:-1]]))
    mine = sums[:, order] if order.size else np.array([[1], [0], [0]]) * np.ones(bins.size, np.int64)
    more = np.stack([np.zeros_like(moved), moved & ((1 << low_bits) - 1), moved >> np.int64(low_bits)]) * mine[0]
    n = starts.size
    new_bins[:n] = joined[starts]
    if n:
        new_sums[:, :n] = np.add.reduceat(mine + more, starts, axis=1)
    return n


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
    exponents = bits >> 52 & 0x7FF
    mantissas = (bits & 0xFFFFFFFFFFFFF) + (
        np.minimum(exponents, 1) << 52
    )  # 0 is the exponent of numbers that are not normal
    first, shifts = np.divmod(np.maximum(exponents, 1) - 1, 32)
    low, high = (part.view(np.uint64) << shifts.view(np.uint64) for part in (mantissas & 0xFFFFFFFF, mantissas >> 32))
    half, by = np.uint64(0xFFFFFFFF), np.uint64(32)
    for limb, part in enumerate((low & half, (low >> by) + (high & half), high >> by)):
        np.add.at(limbs, (groups, first + limb), part.view(np.int64))
