"""Sums over pairs, and the ends of columns."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..arrays import Array, Dtype
from ..kernels.keys import NAN_KEY, decode, is_float, key_range
from ..states.ranked_scores import missing_key


@dataclass(frozen=True)
class PairSum:
    """All pairs (a, b) of two columns: how many have a above b, and the sum of their differences.

    Both are exact to within the errors given, which are 0 where no bin holds several keys.
    ``total`` is None where a score is infinite or NaN.
    """

    n_pairs: Fraction
    n_pairs_error: Fraction
    total: Fraction | None
    total_error: Fraction


def real_ends(low: int, high: int, dtype: Dtype) -> tuple[int, int]:
    """Return the ends of a column of narrow keys as order keys: what stands for NaN becomes the key of NaN."""
    if not is_float(dtype):
        return low, high
    missing = missing_key(dtype)
    return NAN_KEY if low == missing else low, NAN_KEY if high == missing else high


def all_finite(ends: tuple[int, int], dtype: Dtype) -> bool:
    """Whether all scores of a column with these ends are finite numbers."""
    low, high = key_range(dtype)
    return not is_float(dtype) or (low < ends[0] and ends[1] < high)


def values_of(keys: list[int], dtype: Dtype) -> Array:
    """Return the scores of keys: float64, which holds every score but 64-bit integers; those as they are."""
    values = decode(np.array(keys, np.int64), dtype)
    return values if dtype.kind in "iu" and dtype.itemsize == 8 else values.astype(np.float64)
