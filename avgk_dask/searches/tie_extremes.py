"""Tie sensitivity: how the label weight inside the sets depends on which ties are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ..arrays import Array, Dtype
from ..exact.sums import ExactSums
from ..exact.units import smallest_unit
from ..kernels.keys import encode
from ..scans.band_pass import Pass
from ..scans.tie_weights import TieWindow, WeightPlan, tally_weights
from ..states.key_histogram import LEAST_BINS, KeyHistogram
from ..states.weight_tally import WeightTally
from .selection import Selection

_DOUBLE = np.dtype(np.float64)
#: The order keys of the label weights 0 and 1.
_ZERO, _ONE = (int(key) for key in encode(np.array([0.0, 1.0])))


def extreme_weights(
    n_ties: int, n_kept: int, everything: Fraction, soft: Array | None = None
) -> tuple[Fraction, Fraction]:
    """Return the least and the most label weight that any ``n_kept`` of the ties can have.

    ``everything`` is the weight of all ties: a number of hits, unless their ``soft`` weights are given.
    """
    if n_kept in (0, n_ties) or everything == 0:
        either = everything if n_kept else Fraction(0)
        return either, either
    if soft is None:
        n_hits = int(everything)
        return Fraction(max(0, n_kept - (n_ties - n_hits))), Fraction(min(n_kept, n_hits))
    weights = np.sort(soft[soft > 0])
    n_zero = n_ties - weights.size
    return ExactSums.of(weights[: max(0, n_kept - n_zero)])[0], ExactSums.of(weights[::-1][:n_kept])[0]


@dataclass(frozen=True)
class WeightSearch:
    """The search for the sum of the ``n_left`` lightest (or heaviest) weights of the ties in a window.

    A read gives a histogram of the window. Its outer bins are in or out as a whole, with their exact
    sums; the search goes on inside the one bin that is cut, and ends when that holds a single weight.
    """

    window: TieWindow
    n_left: int
    heaviest: bool
    total: Fraction = Fraction(0)

    @classmethod
    def begin(cls, key: int, n_kept: int, heaviest: bool) -> WeightSearch:
        """Begin with all ties at a key."""
        return cls(TieWindow(key, _ZERO, _ONE), n_kept, heaviest)

    @property
    def done(self) -> bool:
        """Whether the sum is known."""
        return self.n_left == 0

    def advance(self, histogram: KeyHistogram) -> WeightSearch:
        """Take in a histogram of the window."""
        step = -1 if self.heaviest else 1
        counts, sums = histogram.counts[::step], histogram.value_sums(_DOUBLE)[0][::step]
        through = np.cumsum(counts)
        n_whole = int(np.searchsorted(through, self.n_left, side="right"))
        total = self.total + sum(sums[:n_whole].tolist()) * smallest_unit(_DOUBLE)
        left = self.n_left - (int(through[n_whole - 1]) if n_whole else 0)
        if not left:
            return replace(self, n_left=0, total=total)
        if histogram.shift == 0:
            weight = smallest_unit(_DOUBLE) * (sums[n_whole] // int(counts[n_whole]))
            return replace(self, n_left=0, total=total + weight * left)
        first = int(histogram.bins[::step][n_whole]) << histogram.shift
        inside = replace(self.window, low=first, high=first + (1 << histogram.shift) - 1)
        return replace(self, window=inside, n_left=left, total=total)


@dataclass(frozen=True)
class ExtremesSearch:
    """The least and the most weight of kept ties for all budgets where a scan knows only sums of soft labels."""

    dtype: Dtype
    n_classes: int
    #: Bins that all histograms of a read share.
    n_bins: int
    searches: Mapping[tuple[int, bool], WeightSearch]

    @classmethod
    def begin(cls, dtype: Dtype, n_classes: int, n_bins: int, found: Mapping[int, Selection]) -> ExtremesSearch:
        """Begin with the budgets whose extremes are not known."""
        searches = {
            (i, heaviest): WeightSearch.begin(s.key, s.n_kept, heaviest)
            for i, s in found.items()
            if s.extremes is None
            for heaviest in (False, True)
        }
        return cls(dtype, n_classes, n_bins, searches)

    def _windows(self) -> tuple[TieWindow, ...]:
        return tuple(dict.fromkeys(s.window for s in self.searches.values() if not s.done))

    def next_pass(self) -> Pass | None:
        """Return the pass over all windows that are open; None once all sums are known."""
        windows = self._windows()
        if not windows:
            return None
        most_bins = max(LEAST_BINS, self.n_bins // len(windows))
        return Pass("ties", tally_weights, WeightPlan(self.dtype, self.n_classes, windows, most_bins), WeightTally)

    def advance(self, state: WeightTally) -> ExtremesSearch:
        """Take in the histograms of all open windows."""
        found = dict(zip(self._windows(), state.histograms, strict=True))
        searches = {name: s if s.done else s.advance(found[s.window]) for name, s in self.searches.items()}
        return replace(self, searches=searches)

    def settle(self, found: Mapping[int, Selection]) -> dict[int, Selection]:
        """Return the selections with the extremes that were found."""
        settled = {
            i: replace(found[i], extremes=(self.searches[i, False].total, self.searches[i, True].total))
            for i, _ in self.searches
        }
        return {**found, **settled}
