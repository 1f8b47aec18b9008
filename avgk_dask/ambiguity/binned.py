"""The scores of one rank where only a histogram of them is known: sums over pairs, with their error certified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from ..arrays import Array, Dtype
from ..exact.units import smallest_unit
from ..kernels.keys import key_range
from ..states.key_histogram import KeyHistogram
from .pair_sums import PairSum, all_finite, real_ends


@dataclass(frozen=True)
class _Bins:
    """Bins of one width as Python integers: counts, sums of values, sums of offsets, and the step between keys."""

    bins: Array
    counts: Array
    sums: Array
    offsets: Array
    steps: Array

    @classmethod
    def from_histogram(cls, histogram: KeyHistogram, dtype: Dtype, finite: bool) -> _Bins:
        counts, offsets = histogram.counts.astype(object), histogram.offset_sums()
        sums, steps = histogram.value_sums(dtype) if finite else (offsets, offsets)
        return cls(histogram.bins, counts, sums, offsets, steps)


@dataclass(frozen=True)
class BinnedColumn:
    """The keys of a rank, counted and summed in bins."""

    histogram: KeyHistogram
    dtype: Dtype
    #: The bins at each width asked for: a column is in many pairs.
    _by_shift: dict[int, _Bins] = field(default_factory=dict, compare=False, repr=False)

    @property
    def ends(self) -> tuple[int, int]:
        """The lowest and the highest key."""
        return real_ends(self.histogram.lowest, self.histogram.highest, self.dtype)

    @property
    def finite_ends(self) -> tuple[int, int] | None:
        """About the lowest and the highest key of a finite score, if there is one: where their bins begin and end."""
        if all_finite(self.ends, self.dtype):
            return self.ends
        least, most = key_range(self.dtype)
        shift = self.histogram.shift
        finite = self.histogram.bins[
            (self.histogram.bins > least >> shift) & (self.histogram.bins < most >> shift)
        ].tolist()
        return (finite[0] << shift, (finite[-1] + 1 << shift) - 1) if finite else None

    def counts_from(self, edges: Sequence[int]) -> tuple[list[int], Array]:
        """Return how many keys lie from each ascending edge to the next, with the edges moved down to those of bins."""
        shift, low = self.histogram.shift, edges[0]
        moved = [low, *(max(edge >> shift << shift, low) for edge in edges[1:])]
        cumulative = np.concatenate([[0], np.cumsum(self.histogram.counts)])
        below = cumulative[np.searchsorted(self.histogram.bins, np.array(moved[1:], np.int64) >> shift)]
        return moved, np.diff(below, prepend=0, append=cumulative[-1])

    def pairs_above(self, other: BinnedColumn, space: Array | None = None) -> PairSum:
        """Sum max(0, a - b) over all pairs of a key of this column and one of the other.

        Exact but for pairs in one bin. For n_a keys with sum s_a and n_b with s_b above the start of a
        bin w wide, the sum of the positive differences is at least n_b s_a - n_a s_b (the positive part
        is convex), and at most s_a (n_b w - s_b) / w, which is reached when all lie at the ends of the bin.
        """
        shift = max(self.histogram.shift, other.histogram.shift)
        finite = all_finite(self.ends, self.dtype) and all_finite(other.ends, self.dtype)
        a, b = self._bins(shift), other._bins(shift)
        index = np.searchsorted(b.bins, a.bins)
        n_below = _running(b.counts)[index]
        mine = np.flatnonzero(b.bins[np.minimum(index, b.bins.size - 1)] == a.bins)
        yours = index[mine]
        half = Fraction(int((a.counts[mine] * b.counts[yours]).sum()), 2) if shift else Fraction(0)
        n_pairs = int((a.counts * n_below).sum()) + half
        if not finite:
            return PairSum(n_pairs, half, None, Fraction(0))
        total = Fraction(int((a.sums * n_below - a.counts * _running(b.sums)[index]).sum()))
        width = (1 << shift) - 1
        low, high = _within_bins(a, b, mine, yours, width) if shift else (Fraction(0), Fraction(0))
        unit = smallest_unit(self.dtype)
        return PairSum(n_pairs, half, (total + (low + high) / 2) * unit, (high - low) / 2 * unit)

    def _bins(self, shift: int) -> _Bins:
        if shift not in self._by_shift:
            finite = all_finite(self.ends, self.dtype)
            self._by_shift[shift] = _Bins.from_histogram(self.histogram.coarsen(shift), self.dtype, finite)
        return self._by_shift[shift]


def _running(values: Array) -> Array:
    return np.concatenate([[0], np.cumsum(values)])


def _within_bins(a: _Bins, b: _Bins, mine: Array, yours: Array, width: int) -> tuple[Fraction, Fraction]:
    """Bound the sum over pairs that share a bin, from below and from above."""
    least = np.maximum(b.counts[yours] * a.offsets[mine] - a.counts[mine] * b.offsets[yours], 0) * a.steps[mine]
    most = a.offsets[mine] * (b.counts[yours] * width - b.offsets[yours]) * a.steps[mine]
    return Fraction(int(least.sum())), Fraction(int(most.sum()), width)
