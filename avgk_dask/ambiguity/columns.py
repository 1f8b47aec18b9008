"""The scores of one rank over all rows, as the analysis reads them: sorted, or as a histogram."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.keys import NAN_KEY, decode, is_float, key_range
from ..kernels.pairs import add_products, count_lower
from ..summaries.histogram import KeyHistogram
from ..summaries.ranked import RankedTally, missing_key

Array = NDArray[Any]
#: Stored bits of mantissa and bias of the exponent.
_FORMATS = {"float16": (10, 15), "bfloat16": (7, 127), "float32": (23, 127), "float64": (52, 1023)}
#: Every rank's keys: ascending, or counted in bins.
Column = Array | KeyHistogram


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


def rank_column(tally: RankedTally, rank: int) -> Column:
    """Give the column of a rank, 1 for the highest."""
    if tally.histograms:
        return tally.histograms[rank - 1]
    return np.sort(np.concatenate([part[rank - 1] for part in tally.parts]))


def ends(column: Column, dtype: np.dtype[Any]) -> tuple[int, int]:
    """Give the lowest and the highest key of a column."""
    if isinstance(column, KeyHistogram):
        low, high = column.lowest, column.highest
    else:
        low, high = int(column[0]), int(column[-1])
    if not is_float(dtype):
        return low, high
    missing = missing_key(dtype)
    return NAN_KEY if low == missing else low, NAN_KEY if high == missing else high


def all_finite(column: Column, dtype: np.dtype[Any]) -> bool:
    """Whether all scores of a column are finite numbers."""
    if not is_float(dtype):
        return True
    low, high = key_range(dtype)
    first, last = ends(column, dtype)
    return low < first and last < high


def pair_sum(a: Column, b: Column, dtype: np.dtype[Any]) -> PairSum:
    """Sum max(0, a - b) over all pairs of two columns."""
    finite = all_finite(a, dtype) and all_finite(b, dtype)
    if isinstance(a, KeyHistogram) and isinstance(b, KeyHistogram):
        return _binned_sum(a, b, dtype, finite)
    assert isinstance(a, np.ndarray)
    assert isinstance(b, np.ndarray)
    a = a[np.searchsorted(a, b[0], side="right") :]
    b = b[: np.searchsorted(b, a[-1], side="left")] if a.size else b[:0]
    below, above = np.empty(a.size, np.int32), np.empty(b.size, np.int32)
    n_pairs = Fraction(int(count_lower(a, b, below, above)))
    if not finite:
        return PairSum(n_pairs, Fraction(0), None, Fraction(0))
    base = int(b[0]) if b.size else 0  # integers are counted from here: it cancels out
    total = _weighted_sum(a, below, dtype, base) - _weighted_sum(b, above, dtype, base)
    return PairSum(n_pairs, Fraction(0), total, Fraction(0))


def _weighted_sum(keys: Array, counts: Array, dtype: np.dtype[Any], base: int) -> Fraction:
    """Give the exact sum of value times count; integers are counted from ``base``."""
    bits, bias = _format(dtype)
    n_runs = 2 * (2 * bias + 2) if bits else 1
    runs, sums = np.empty((n_runs, 2), np.int64), np.empty((n_runs, 4), np.uint64)
    n_runs = add_products(keys, counts, bits, np.int64(base), runs, sums)
    if not bits:
        return Fraction(sum(_joined(s) for s in sums[:n_runs].tolist()))
    units = sum(
        sign * _joined(s) << max(exponent - 1, 0)
        for (sign, exponent), s in zip(runs[:n_runs].tolist(), sums[:n_runs].tolist(), strict=True)
    )
    return Fraction(units) * _unit(dtype)


def _joined(halves: list[int]) -> int:
    low0, low1, high0, high1 = halves
    return low0 + (low1 + high0 << 32) + (high1 << 64)


def _format(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Give the stored bits of mantissa and the exponent's bias; (0, 0) for integers."""
    if not is_float(dtype):
        return 0, 0
    return _FORMATS[dtype.name]


def _unit(dtype: np.dtype[Any]) -> Fraction:
    """Give the smallest positive float: every float is a multiple of it."""
    bits, bias = _format(dtype)
    return Fraction(1, 1 << (bias - 1 + bits)) if bits else Fraction(1)


def _in_units(keys: Array, dtype: np.dtype[Any]) -> Array:
    """Give the values of keys as Python integers, in the smallest unit of the dtype."""
    bits, _ = _format(dtype)
    if not bits:
        return keys.astype(object)
    out = []
    for key in keys.tolist():
        exponent, mantissa = divmod(abs(key), 1 << bits)
        units = (mantissa + (1 << bits) << exponent - 1) if exponent else mantissa
        out.append(units if key >= 0 else -units)
    return np.array(out, object)


def _binned_sum(a: KeyHistogram, b: KeyHistogram, dtype: np.dtype[Any], finite: bool) -> PairSum:
    """Sum over pairs from counts and sums of bins: exact but for pairs in one bin, which are bounded.

    For n_a keys with sum s_a and n_b with s_b above the start of a bin w wide, the sum of the
    positive differences is at least n_b s_a - n_a s_b (the positive part is convex), and at most
    s_a (n_b w - s_b) / w, which is reached when all lie at the ends of the bin.
    """
    shift = max(a.shift, b.shift)
    a, b = a.coarsen(shift), b.coarsen(shift)
    place = np.searchsorted(b.bins, a.bins)
    n_a, n_b = a.counts.astype(object), b.counts.astype(object)
    n_below = np.concatenate([[0], np.cumsum(n_b)])[place]
    n_pairs = int((n_a * n_below).sum())
    same = np.flatnonzero((place < b.bins.size) & (b.bins[np.minimum(place, b.bins.size - 1)] == a.bins))
    inside = int((n_a[same] * n_b[place[same]]).sum()) if shift else 0
    half = Fraction(inside, 2)
    if not finite:
        return PairSum(n_pairs + half, half, None, Fraction(0))
    sum_a, offset_a, step = _bin_sums(a, dtype)
    sum_b, offset_b, _ = _bin_sums(b, dtype)
    sum_below = np.concatenate([[0], np.cumsum(sum_b)])[place]
    total = Fraction(int((sum_a * n_below - n_a * sum_below).sum()))
    error = Fraction(0)
    if shift and same.size:
        mine, other, width = same, place[same], (1 << shift) - 1
        least = np.maximum(n_b[other] * offset_a[mine] - n_a[mine] * offset_b[other], 0) * step[mine]
        most = offset_a[mine] * (n_b[other] * width - offset_b[other]) * step[mine]
        low, high = Fraction(int(least.sum())), Fraction(int(most.sum()), width)
        total, error = total + (low + high) / 2, (high - low) / 2
    unit = _unit(dtype)
    return PairSum(n_pairs + half, half, total * unit, error * unit)


def _bin_sums(histogram: KeyHistogram, dtype: np.dtype[Any]) -> tuple[Array, Array, Array]:
    """Give each bin's sum of values, its sum of offsets, and the step from one key to the next."""
    first = histogram.bins << histogram.shift
    start = _in_units(first, dtype)
    step = _in_units(first + 1, dtype) - start if histogram.shift else np.zeros(first.size, object)
    offsets = histogram.offset_sums()
    return start * histogram.counts.astype(object) + offsets * step, offsets, step


def values_of(keys: list[int], dtype: np.dtype[Any]) -> Array:
    """Give the scores of keys: float64, which holds every score but 64-bit integers; those as they are."""
    values = decode(np.array(keys, np.int64), dtype)
    return values if dtype.kind in "iu" and dtype.itemsize == 8 else values.astype(np.float64)
