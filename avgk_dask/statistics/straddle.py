"""Straddle strengths, supports and histograms of the ranked scores: how much the ambiguity differs between samples.

``analyse`` computes them from the scores that a scan retained; ``straddle_values``, ``rank_values`` and ``overlap_values``
turn them into variables of a result.

d[k, o] = mean over all ordered pairs of samples of max(0, s(x)[k + o] - s(x')[k + 1 - o]), s sorted decreasingly. If the
scores are the true probabilities, their sum over the orders o bounds the adaptive gain from below (the paper's lower bound).

The scores of one rank over all rows are a column. Columns are sorted, or replaced by histograms if they are too large. Sums
over the pairs of two sorted columns are exact; sums from histograms have an error bound.

For sorted columns, d[k, o] is one merge: the number of b below each a, and of a above each b, times the values, summed
exactly by powers of two. The merge has no branch that depends on the data, and alternates between the lower and the upper
half, so that the memory latency of one is hidden by the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Array, Dtype
from ..engine.ranked import KeyHistogram, RankedTally
from ..exact.sums import float_format, smallest_unit
from ..kernels.dispatch import add_products, count_lower
from ..kernels.keys import NAN_KEY, decode, encode, is_float, key_range, missing_key
from ..threads import in_threads

if TYPE_CHECKING:  # loads Dask arrays, which workers do not need
    from ..sources.source import Source

#: Variables or coordinates by name.
Values = dict[str, object]


@dataclass(frozen=True)
class PairSum:
    """The number of pairs (a, b) of two columns with a above b, and the sum of their differences.

    Both are within their errors, which are 0 if no bin contains several keys. ``total`` is None if a score is infinite or NaN.
    """

    n_pairs: Fraction
    n_pairs_error: Fraction
    total: Fraction | None
    total_error: Fraction


def real_ends(low: int, high: int, dtype: Dtype) -> tuple[int, int]:
    """Return the ends of a column of narrow keys as order keys, where NaN has another key."""
    if not is_float(dtype):
        return low, high
    missing = missing_key(dtype)
    return NAN_KEY if low == missing else low, NAN_KEY if high == missing else high


def all_finite(ends: tuple[int, int], dtype: Dtype) -> bool:
    """Return whether all scores of a column with these ends are finite."""
    low, high = key_range(dtype)
    return not is_float(dtype) or (low < ends[0] and ends[1] < high)


def values_of(keys: list[int], dtype: Dtype) -> Array:
    """Return the scores of keys as float64, or in their dtype for 64-bit integers, which float64 cannot represent."""
    values = decode(np.array(keys, np.int64), dtype)
    return values if dtype.kind in "iu" and dtype.itemsize == 8 else values.astype(np.float64)


@dataclass(frozen=True)
class _Bins:
    """Bins of one width: counts, sums of values, sums of offsets, and the step between keys, as Python integers."""

    bins: Array
    counts: Array
    sums: Array
    offsets: Array
    steps: Array


@dataclass(frozen=True)
class BinnedColumn:
    """The keys of a rank, counted and summed in bins."""

    histogram: KeyHistogram
    dtype: Dtype
    #: Cache of the bins at each width, since a column is in many pairs.
    _by_shift: dict[int, _Bins] = field(default_factory=dict, compare=False, repr=False)

    @property
    def ends(self) -> tuple[int, int]:
        """The lowest and the highest key."""
        return real_ends(self.histogram.lowest, self.histogram.highest, self.dtype)

    @property
    def finite_ends(self) -> tuple[int, int] | None:
        """The first and last key of the bins of finite scores, or None if no score is finite."""
        if all_finite(self.ends, self.dtype):
            return self.ends
        (least, most), shift, bins = key_range(self.dtype), self.histogram.shift, self.histogram.bins
        finite = bins[(bins > least >> shift) & (bins < most >> shift)].tolist()
        return (finite[0] << shift, (finite[-1] + 1 << shift) - 1) if finite else None

    def counts_from(self, edges: Sequence[int]) -> tuple[list[int], Array]:
        """Return the ascending edges, moved down to edges of bins, and the number of keys from each to the next."""
        shift, low = self.histogram.shift, edges[0]
        moved = [low, *(max(edge >> shift << shift, low) for edge in edges[1:])]
        cumulative = np.concatenate([[0], np.cumsum(self.histogram.counts)])
        below = cumulative[np.searchsorted(self.histogram.bins, np.array(moved[1:], np.int64) >> shift)]
        return moved, np.diff(below, prepend=0, append=cumulative[-1])

    def pairs_above(self, other: BinnedColumn, space: Array | None = None) -> PairSum:
        """Sum max(0, a - b) over all pairs of a key of this column and one of the other.

        Only pairs within a bin are inexact. Let a bin of width w contain n_a keys whose offsets from its start sum to s_a, and
        n_b keys with s_b. The sum of the positive differences is at least n_b s_a - n_a s_b (the positive part is
        convex), and at most s_a (n_b w - s_b) / w, which is reached if all keys are at the ends of the bin.
        """
        shift = max(self.histogram.shift, other.histogram.shift)
        finite = all_finite(self.ends, self.dtype) and all_finite(other.ends, self.dtype)
        a, b = self._bins(shift), other._bins(shift)
        index = np.searchsorted(b.bins, a.bins)
        n_below = _sums_before(b.counts)[index]
        in_a = np.flatnonzero(b.bins[np.minimum(index, b.bins.size - 1)] == a.bins)  # the bins that both have
        in_b = index[in_a]
        n_a, n_b, above_a, above_b = a.counts[in_a], b.counts[in_b], a.offsets[in_a], b.offsets[in_b]
        half = Fraction(int((n_a * n_b).sum()), 2) if shift else Fraction(0)
        n_pairs = int((a.counts * n_below).sum()) + half
        if not finite:
            return PairSum(n_pairs, half, None, Fraction(0))
        total = Fraction(int((a.sums * n_below - a.counts * _sums_before(b.sums)[index]).sum()))
        low = high = Fraction(0)
        if shift:
            width = (1 << shift) - 1
            low = Fraction(int((np.maximum(n_b * above_a - n_a * above_b, 0) * a.steps[in_a]).sum()))
            high = Fraction(int((above_a * (n_b * width - above_b) * a.steps[in_a]).sum()), width)
        unit = smallest_unit(self.dtype)
        return PairSum(n_pairs, half, (total + (low + high) / 2) * unit, (high - low) / 2 * unit)

    def _bins(self, shift: int) -> _Bins:
        if shift not in self._by_shift:
            wide = self.histogram.coarsen(shift)
            counts, offsets = wide.counts.astype(object), wide.offset_sums()
            sums, steps = wide.value_sums(self.dtype) if all_finite(self.ends, self.dtype) else (offsets, offsets)
            self._by_shift[shift] = _Bins(wide.bins, counts, sums, offsets, steps)
        return self._by_shift[shift]


def _sums_before(values: Array) -> Array:
    """Return the sum of the values before each value, and of all values."""
    return np.concatenate([[0], np.cumsum(values)])


@dataclass(frozen=True)
class SortedColumn:
    """All keys of a rank, ascending."""

    keys: Array
    dtype: Dtype

    @property
    def ends(self) -> tuple[int, int]:
        """The lowest and the highest key."""
        return real_ends(int(self.keys[0]), int(self.keys[-1]), self.dtype)

    @property
    def finite_ends(self) -> tuple[int, int] | None:
        """The lowest and the highest key of a finite score, or None if no score is finite."""
        if not is_float(self.dtype):
            return self.ends
        least, most = key_range(self.dtype)
        kind = self.keys.dtype.type  # otherwise NumPy would convert all keys
        first = int(np.searchsorted(self.keys, kind(least), side="right"))
        last = int(np.searchsorted(self.keys, kind(most), side="left"))
        return (int(self.keys[first]), int(self.keys[last - 1])) if first < last else None

    def counts_from(self, edges: Sequence[int]) -> tuple[list[int], Array]:
        """Return the ascending edges, the first of which is the lowest key, and the number of keys from each to the next."""
        limits = np.iinfo(self.keys.dtype)  # the order key of NaN may be below all narrow keys
        bounds = np.clip(np.array(edges[1:], np.int64), limits.min, limits.max).astype(self.keys.dtype)
        below = np.searchsorted(self.keys, bounds)
        return list(edges), np.diff(below, prepend=0, append=self.keys.size)

    def pairs_above(self, other: SortedColumn, space: Array | None = None) -> PairSum:
        """Sum max(0, a - b) over all pairs of a key of this column and one of the other.

        ``space`` is work space: two rows of int32 as long as the columns.
        """
        space = pairs_space(self, other) if space is None else space
        a = self.keys[np.searchsorted(self.keys, other.keys[0], side="right") :]
        b = other.keys[: np.searchsorted(other.keys, a[-1], side="left")] if a.size else other.keys[:0]
        below, above = space[0, : a.size], space[1, : b.size]
        n_pairs, zero = Fraction(int(count_lower(a, b, below, above))), Fraction(0)
        if not (all_finite(self.ends, self.dtype) and all_finite(other.ends, self.dtype)):
            return PairSum(n_pairs, zero, None, zero)
        base = int(b[0]) if b.size else 0  # subtracted from integers; it cancels out
        total = _weighted_sum(a, below, self.dtype, base) - _weighted_sum(b, above, self.dtype, base)
        return PairSum(n_pairs, zero, total, zero)


def _weighted_sum(keys: Array, counts: Array, dtype: Dtype, base: int) -> Fraction:
    """Return the exact sum of value times count, after ``base`` is subtracted from integer values."""
    bits, bias = float_format(dtype)
    n_stretches = 2 * (2 * bias + 2) if bits else 1
    stretches, sums = np.empty((n_stretches, 2), np.int64), np.empty((n_stretches, 4), np.uint64)
    n_stretches = add_products(keys, counts, bits, np.int64(base), stretches, sums)
    units = 0
    for (sign, exponent), halves in zip(stretches[:n_stretches].tolist(), sums[:n_stretches].tolist(), strict=True):
        low0, low1, high0, high1 = halves
        units += sign * (low0 + (low1 + high0 << 32) + (high1 << 64)) << max(exponent - 1, 0)
    return Fraction(units) * smallest_unit(dtype)


Column = SortedColumn | BinnedColumn


def pairs_space(*columns: Column) -> Array:
    """Return work space for sums over the pairs of any two of these columns."""
    return np.empty((2, max((c.keys.size for c in columns if isinstance(c, SortedColumn)), default=0)), np.int32)


def orders_of(k: int, n_classes: int) -> range:
    """Return the orders of budget k: 1 to min(k, C - k)."""
    return range(1, min(k, n_classes - k) + 1)


@dataclass(frozen=True)
class Straddle:
    """Strength, weight and magnitude of one order of one budget, with certified errors."""

    strength: float
    strength_error: float
    weight: float
    weight_error: float
    magnitude: float

    @classmethod
    def from_pairs(cls, pairs: PairSum, n_samples: int) -> Straddle:
        """Return the means over all n * n pairs of samples."""
        n = n_samples * n_samples
        weight, weight_error = _rounded(pairs.n_pairs / n, pairs.n_pairs_error / n)
        if pairs.total is None:
            return cls(math.nan, math.nan, weight, weight_error, math.nan)
        magnitude = pairs.total / pairs.n_pairs if pairs.n_pairs else Fraction(0)
        return cls(*_rounded(pairs.total / n, pairs.total_error / n), weight, weight_error, _float(magnitude))


def _rounded(value: Fraction, error: Fraction) -> tuple[float, float]:
    """Return a value rounded once, and a float that bounds its error including rounding, or 0 if the value is exact."""
    near = _float(value)
    if not error:
        return near, 0.0
    if math.isinf(near):
        return near, math.inf
    exact = error + abs(Fraction(near) - value)
    bound = _float(exact)
    return near, bound if bound >= exact else math.nextafter(bound, math.inf)


def _float(value: Fraction) -> float:
    """Return the nearest float, or infinity if the value exceeds all floats."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def straddle_bound(pairs: Mapping[int, PairSum], k: int, n_samples: int, n_classes: int) -> tuple[float, float]:
    """Return the paper's lower bound on the gain, a sum over the orders (only order 1 if k > C / 2), and its error."""
    orders: Sequence[int] = orders_of(k, n_classes) if 2 * k <= n_classes else orders_of(k, n_classes)[:1]
    total = error = Fraction(0)
    for order in orders:
        part = pairs[order].total
        if part is None:
            return math.nan, math.nan
        total, error = total + part, error + pairs[order].total_error
    n = n_samples * n_samples
    return _rounded(total / n, error / n)


def rank_histogram(column: Column, dtype: Dtype, n_bins: int, log: bool = False) -> tuple[Array, Array]:
    """Return the counts of a rank's scores in bins over its support, and the lower edge of each bin.

    Bins are equally wide between the lowest and the highest finite score, to the precision of the dtype. With ``log`` they
    are equally wide on a log scale if those scores are positive and an order of magnitude apart. Edges of a binned column
    are moved down to edges of its bins. Counts are exact for the returned edges. Infinite scores and NaN are counted in the
    outermost bins.
    """
    edges, counts = column.counts_from([column.ends[0], *_inner_edges(column, dtype, n_bins, log)])
    return counts, values_of(edges, dtype)


def _inner_edges(column: Column, dtype: Dtype, n_bins: int, log: bool) -> list[int]:
    """Return the first key of each bin after the first; all are the lowest key if no score is finite."""
    finite = column.finite_ends
    if finite is None:
        return [column.ends[0]] * (n_bins - 1)
    low, high = (value.item() for value in values_of(list(finite), dtype))
    if log and low > 0 and high > 10 * low:
        edges = np.geomspace(low, high, n_bins + 1)[1:-1]
    elif is_float(dtype):
        share = np.arange(1, n_bins) / n_bins
        edges = low * (1 - share) + high * share  # the difference of two floats might overflow
    else:
        edges = np.array([-((low * (i - n_bins) - high * i) // n_bins) for i in range(1, n_bins)], dtype)
    keys = encode(np.clip(edges, low, high).astype(dtype))
    return [int(key) for key in np.maximum.accumulate(np.clip(keys, *finite))]


@dataclass(frozen=True)
class Ambiguity:
    """The columns of all ranks, their ends, and the sums over pairs for each integer budget and order."""

    columns: tuple[Column, ...]
    supports: tuple[tuple[int, int], ...]
    pairs: dict[int, dict[int, PairSum]]


def n_ranked(budgets: Sequence[Fraction], n_classes: int) -> int:
    """Return the number of ranks whose scores the analysis of some budgets needs."""
    return min(n_classes, max(2 * int(b) if b.denominator == 1 else math.ceil(b) + 1 for b in budgets))


def analyse(tally: RankedTally, budgets: Sequence[Fraction], dtype: Dtype, n_classes: int) -> Ambiguity:
    """Sort the columns of all ranks, and sum over the pairs that the integer budgets need, in threads."""
    ranked = tally.binned() if tally.n_bins > 0 else tally

    def make_column(rank: int) -> Any:
        if ranked.histograms:
            return BinnedColumn(ranked.histograms[rank - 1], dtype)
        return SortedColumn(np.sort(ranked.keys[rank - 1]), dtype)

    columns = in_threads(make_column, range(1, tally.n_ranks + 1))

    def sum_pairs(k: int) -> dict[int, PairSum]:
        # Order o compares rank k + o in one sample with rank k + 1 - o in another.
        pairs = {order: (columns[k + order - 1], columns[k - order]) for order in orders_of(k, n_classes)}
        space = pairs_space(*(column for pair in pairs.values() for column in pair))
        return {order: a.pairs_above(b, space) for order, (a, b) in pairs.items()}

    longest_first = sorted({int(b) for b in budgets if b.denominator == 1}, reverse=True)
    sums = dict(zip(longest_first, in_threads(sum_pairs, longest_first), strict=True))
    return Ambiguity(tuple(columns), tuple(column.ends for column in columns), {k: sums[k] for k in sorted(sums)})


def straddle_values(ambiguity: Ambiguity, budgets: Sequence[Fraction], source: Source) -> tuple[Values, Values]:
    """Return strengths, weights, magnitudes and bounds of all budgets, and their coordinates."""
    n_samples, n_classes = source.shape[0], source.n_classes
    n_orders = max([1, *map(len, ambiguity.pairs.values())])
    names = "strength", "strength_error", "weight", "weight_error", "magnitude"
    tables = {name: np.full((len(budgets), n_orders), np.nan) for name in names}
    bounds = np.full((2, len(budgets)), np.nan)
    for i, budget in enumerate(budgets):
        if budget.denominator != 1:
            continue
        pairs = ambiguity.pairs[int(budget)]
        for order, pair in pairs.items():
            straddle = Straddle.from_pairs(pair, n_samples)
            for name in names:
                tables[name][i, order - 1] = getattr(straddle, name)
        bounds[:, i] = straddle_bound(pairs, int(budget), n_samples, n_classes)
    values: Values = {f"straddle_{name}": table for name, table in tables.items()}
    values |= {"straddle_bound": bounds[0], "straddle_bound_error": bounds[1]}
    return values, {"order": np.arange(1, n_orders + 1)}


def rank_values(
    ambiguity: Ambiguity, ranks: Sequence[int], source: Source, n_bins: int, log: bool
) -> tuple[Values, Values]:
    """Return the supports of some ranks and their histograms, and their coordinates."""
    dtype = source.dtype
    histograms = [rank_histogram(ambiguity.columns[rank - 1], dtype, n_bins, log) for rank in ranks]
    supports = [ambiguity.supports[rank - 1] for rank in ranks]
    values: Values = {
        "support_low": values_of([low for low, _ in supports], dtype),
        "support_high": values_of([high for _, high in supports], dtype),
        "ranked_count": [counts for counts, _ in histograms],
        "bin_low": np.array([edges for _, edges in histograms]),
    }
    return values, {"rank": list(ranks), "bin": np.arange(n_bins)}


def overlap_values(ambiguity: Ambiguity, budgets: Sequence[Fraction]) -> list[float]:
    """Return for each budget whether the supports of ranks k and k + 1 overlap; NaN for a fractional budget.

    They overlap if the highest key of rank k + 1 is above the lowest of rank k. For k = C there is no overlap. If the scores
    are the true probabilities, average-k improves on top-k if and only if they overlap (the paper's characterisation of when
    top-k is optimal).
    """
    supports = ambiguity.supports

    def overlap(k: int) -> bool:
        return k < len(supports) and supports[k][1] > supports[k - 1][0]

    return [float(overlap(int(b))) if b.denominator == 1 else math.nan for b in budgets]
