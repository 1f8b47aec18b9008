"""The tally of a scan: everything that one read of some bands contributes to every budget's result.

``ScanTally`` merges over bands. Its parts are tables of counts (``BinCounts``), the exact distance of probabilities from soft
labels (``DistanceTally``), and a look at some rows that shows whether the scores are probabilities (``RowLook``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Self

import numpy as np

from ..arrays import Array, Bools, Dtype, Floats, Ints
from ..bands.passes import CheckedTally
from ..exact.sums import ExactSums
from ..kernels.keys import is_float
from ..kernels.zones import intervals_of
from ..records import ANY, BY_BAND, JOINED, OWN, SAME, Count, Counts, State
from .events import EventTally, HeldEvents, count_by_interval
from .ranked import RankedTally
from .rows import HeldRows
from .strata import StrataRanks, StrataSums, add_up

#: By rounding, the sum of a row of probabilities may be this far from 1, and a score this far beyond 0 and 1.
_SUM, _VALUE = 1e-2, 1e-3
#: Scores that are looked at together.
_STRIP = 1 << 18
#: An interval of at most this many different keys can hold any number of events, counted together.
_FEW_KEYS = 4


@dataclass(frozen=True)
class BinCounts(State):
    """A table of counts, most of which are 0: the flat indices of the others, ascending, and their counts."""

    shape: Annotated[tuple[int, ...], OWN]
    cells: Annotated[Array, OWN]
    counts: Annotated[Array, OWN]

    @classmethod
    def of(cls, table: Array) -> Self:
        """Return the counts of a table."""
        flat = table.reshape(-1)
        cells = np.flatnonzero(flat)
        counts = flat[cells]
        narrow = np.int32 if counts.max(initial=0) < 1 << 31 else np.int64
        return cls(table.shape, cells.astype(np.int32), counts.astype(narrow))

    def table(self) -> Ints:
        """Return the whole table."""
        whole = np.zeros(math.prod(self.shape), np.int64)
        whole[self.cells] = self.counts
        return whole.reshape(self.shape)

    @classmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        """Return the sum of the tables."""
        if len(states) == 1:
            return states[0]
        whole = np.zeros(math.prod(states[0].shape), np.int64)
        for state in states:
            whole[state.cells] += state.counts
        return cls.of(whole.reshape(states[0].shape))

    def nothing(self) -> Self:
        """Return the table of zeros."""
        return type(self)(self.shape, self.cells[:0], np.zeros(0, np.int32))


@dataclass(frozen=True)
class DistanceTally(State):
    """The sum of |label - score|, as the sums of the higher and of the lower of both: each |label - score| would be rounded.

    ``n_outside`` counts scores outside [0, 1], for which it is not defined.
    """

    n_outside: Count
    higher: ExactSums
    lower: ExactSums

    @classmethod
    def empty(cls) -> DistanceTally:
        """Return the tally of nothing."""
        return cls(0, ExactSums.zeros(1), ExactSums.zeros(1))

    @classmethod
    def from_block(cls, scores: Array, labels: Floats) -> DistanceTally:
        """Return the tally of a block of scores and its labels."""
        values = scores.astype(np.float64)
        n_outside = int((~((values >= 0) & (values <= 1))).sum())
        if n_outside:
            return cls(n_outside, ExactSums.zeros(1), ExactSums.zeros(1))
        higher, lower = (choose(values, labels).reshape(-1) for choose in (np.maximum, np.minimum))
        return cls(0, ExactSums.of(higher), ExactSums.of(lower))

    def mean(self, n_samples: int) -> Fraction | None:
        """Return the sum over classes of |label - score|, averaged over samples; None if scores lie outside [0, 1]."""
        if self.n_outside:
            return None
        return (self.higher[0] - self.lower[0]) / n_samples


@dataclass(frozen=True)
class LookedRows(State):
    """Counts of rows that were looked at, and of those whose scores are not probabilities."""

    n_looked: Count
    #: Rows whose sum is not 1; with a score below 0 or above 1; with -inf, or 0, in more than half of the classes.
    n_unnormalised: Count
    n_outside: Count
    n_infinite: Count
    n_zero: Count

    @classmethod
    def empty(cls) -> LookedRows:
        """Return the counts of no rows."""
        return cls(0, 0, 0, 0, 0)


class RowLook:
    """Looks at some rows of a band, slab by slab."""

    def __init__(self, rows: Array, dtype: Dtype) -> None:
        self.rows, self.n_classes = rows, 0
        rounding = 0.0 if not is_float(dtype) or dtype.itemsize > 2 else 1 / 64
        self.sum_off, self.value_off = _SUM + rounding, _VALUE + rounding
        self.sums: Floats = np.zeros(rows.size)
        self.low, self.high = np.full(rows.size, np.inf), np.full(rows.size, -np.inf)
        self.n_infinite, self.n_zero = np.zeros(rows.size, np.int64), np.zeros(rows.size, np.int64)

    def take(self, slab: Array) -> None:
        """Look at the next classes, of a few rows at a time: a copy of all could take more than the slab."""
        self.n_classes += slab.shape[1]
        step = max(1, _STRIP // slab.shape[1])
        for first in range(0, self.rows.size, step):
            self._take(slice(first, first + step), slab[self.rows[first : first + step]].astype(np.float64))

    def _take(self, which: slice, values: Floats) -> None:
        low = values.min(1)
        with np.errstate(invalid="ignore", over="ignore"):
            self.sums[which] += values.sum(1)
        np.minimum(self.low[which], low, out=self.low[which])
        np.maximum(self.high[which], values.max(1), out=self.high[which])
        if (low == -np.inf).any():
            self.n_infinite[which] += (values == -np.inf).sum(1)
        if not (low > 0).all():
            self.n_zero[which] += (values == 0).sum(1)

    def counts(self) -> LookedRows:
        """Return the counts; rows with NaN do not count."""
        seen = ~np.isnan(self.low)
        outside = (self.low < -self.value_off) | (self.high > 1 + self.value_off)
        off = ~(np.abs(self.sums - 1) <= self.sum_off)
        half = self.n_classes / 2
        kinds = (seen, seen & off, seen & outside, seen & (self.n_infinite > half), seen & (self.n_zero > half))
        return LookedRows(*(int(which.sum()) for which in kinds))


@dataclass(frozen=True)
class ScanTally(CheckedTally):
    """Counts, histograms and events of the bands read so far."""

    #: Labels at each rank 1..; the first and the last entry count those that are in no top-k set, and are not read.
    rank_counts: Counts
    #: Sets of each (interval, cell) if only the scores above the interval are in, sparse: a cell is twice the size of a set,
    #: plus 1 if the label is in it.
    cell_intervals: Annotated[Ints, JOINED]
    cells: Annotated[Ints, JOINED]
    cell_counts: Annotated[Ints, JOINED]
    #: The same by strata, a column for each interval, and the ranks of the labels of each stratum.
    strata: StrataSums
    strata_ranks: StrataRanks
    #: Hard labels in each zone; soft labels' exact weight above each interval, and at each rank.
    hits: Counts
    weight_above: ExactSums
    weight_at_rank: ExactSums
    #: Rows, in one or more parts of each band, as long as they are no more than ``max_held`` keys in all.
    max_held: Annotated[int, SAME]
    rows: Annotated[tuple[HeldRows, ...], BY_BAND]
    #: Or single events and counted ones, of the zones with these floors, as long as they are no more than ``max_events``.
    floors: Annotated[Ints, SAME]
    max_events: Annotated[int, SAME]
    events: HeldEvents
    counted: EventTally
    #: Bands whose equal events are counted together; and intervals that had too many events to hold.
    n_together: Annotated[int, SAME]
    dropped: Annotated[Bools, ANY]
    #: All listed scores by zone and bin; and a sample of all scores, weighted to stand for the rest, with its size.
    histogram: BinCounts
    sample: BinCounts
    n_sampled: Count
    #: Bands, and over them the sums and the sums of squares of the scores above each interval (see ``band_counts``).
    n_bands: Count
    band_sums: Counts
    band_squares: Counts
    #: The scores of each rank.
    ranked: RankedTally
    distance: DistanceTally
    looked: LookedRows

    def settled(self) -> Self:
        """Return the tally with equal cells counted together, and without its rows if they are too many."""
        (intervals, cells), counts = add_up((self.cell_intervals, self.cells), self.cell_counts)
        tally = replace(self, cell_intervals=intervals, cells=cells, cell_counts=counts)
        if self.max_held and sum(part.keys.size for part in self.rows) > self.max_held:
            return replace(tally, rows=(), dropped=np.ones_like(self.dropped))
        return tally._within_limit() if self.n_stored > self.max_events else tally

    @property
    def n_stored(self) -> int:
        """Number of single events and of entries of counted ones."""
        return int(self.events.keys.size) + self.counted.n_stored

    def stored_events(self) -> Ints:
        """Return the number of these in each interval."""
        return count_by_interval(self.floors, self.events.keys) + self.counted.stored_by_interval(self.floors)

    def _within_limit(self) -> Self:
        """Count the events of intervals with more than their share together, and drop intervals that still have too many.

        An interval of few different keys is never dropped: each key has as many entries as there are groups and set sizes.
        """
        share = self.max_events // self.dropped.size
        keys = np.unique(np.concatenate([np.unique(self.events.keys), self.counted.keys]))
        few = np.bincount(intervals_of(self.floors, keys), minlength=self.dropped.size) <= _FEW_KEYS
        crowded = self.stored_events() > share
        interval_of = intervals_of(self.floors, self.events.keys)
        mine = crowded[interval_of]
        if not self.events.select(mine).are_ties(self.n_together):
            mine &= few[interval_of]
        together = self.events.select(mine).counted(self.floors, self.n_together)
        counted = EventTally.merge([self.counted, together])
        tally = replace(self, events=self.events.select(~mine), counted=counted)
        gone = (tally.stored_events() > share) & ~few
        if not gone.any():
            return tally
        return replace(
            tally,
            events=tally.events.select(~gone[intervals_of(self.floors, tally.events.keys)]),
            counted=tally.counted.select(lambda keys, _: ~gone[intervals_of(self.floors, keys)]),
            dropped=tally.dropped | gone,
        )
