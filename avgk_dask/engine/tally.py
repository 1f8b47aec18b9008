"""The tally of a scan: the counts and events of some bands, from which every budget's result follows."""

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
from ..records import ANY, BY_BAND, JOINED, OWN, SAME, Count, Counts, State
from .events import EventTally, HeldEvents, count_by_interval
from .plan import intervals_of
from .ranked import RankedTally
from .rows import HeldRows
from .strata import StrataRanks, StrataSums, add_up

#: Tolerances for rounding: distance of the sum of a row of probabilities from 1, and of a score from [0, 1].
_SUM, _VALUE = 1e-2, 1e-3
#: Scores examined at a time.
_STRIP = 1 << 18
#: An interval with at most this many distinct keys is never dropped, since a key needs only one entry per group and set size.
_FEW_KEYS = 4


@dataclass(frozen=True)
class BinCounts(State):
    """A sparse table of counts: the flat indices of nonzero counts, ascending, and these counts."""

    shape: Annotated[tuple[int, ...], OWN]
    cells: Annotated[Array, OWN]
    counts: Annotated[Array, OWN]

    @classmethod
    def from_table(cls, table: Array) -> Self:
        """Return a table as sparse counts."""
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
        return cls.from_table(whole.reshape(states[0].shape))

    def nothing(self) -> Self:
        """Return the table of zeros."""
        return type(self)(self.shape, self.cells[:0], np.zeros(0, np.int32))


@dataclass(frozen=True)
class DistanceTally(State):
    """The sum of |label - score|, as two exact sums: of the larger of the two values, and of the smaller."""

    #: Number of scores outside [0, 1]; the distance is undefined if there are any.
    n_outside: Count
    higher: ExactSums
    lower: ExactSums

    @classmethod
    def empty(cls) -> DistanceTally:
        """Return the empty tally."""
        return cls(0, ExactSums.zeros(1), ExactSums.zeros(1))

    @classmethod
    def from_block(cls, scores: Array, labels: Floats) -> DistanceTally:
        """Return the tally of a block of scores and its labels."""
        values = scores.astype(np.float64)
        n_outside = int((~((values >= 0) & (values <= 1))).sum())
        if n_outside:
            return cls(n_outside, ExactSums.zeros(1), ExactSums.zeros(1))
        higher, lower = (choose(values, labels).reshape(-1) for choose in (np.maximum, np.minimum))
        return cls(0, ExactSums.from_values(higher), ExactSums.from_values(lower))

    def mean(self, n_samples: int) -> Fraction | None:
        """Return the mean over samples of the sum over classes, or None if scores are outside [0, 1]."""
        return None if self.n_outside else (self.higher[0] - self.lower[0]) / n_samples


@dataclass(frozen=True)
class LookedRows(State):
    """Counts of examined rows, and of those whose scores are not probabilities."""

    #: Number of examined rows.
    n_looked: Count
    #: Rows that do not sum to 1.
    n_unnormalised: Count
    #: Rows with a score below 0 or above 1.
    n_outside: Count
    #: Rows in which more than half of the scores are -inf, or are 0.
    n_infinite: Count
    n_zero: Count

    @classmethod
    def empty(cls) -> LookedRows:
        """Return the counts of no rows."""
        return cls(0, 0, 0, 0, 0)


class RowLook:
    """Examines some rows of a band, slab by slab, to see whether they are probabilities."""

    def __init__(self, rows: Array, dtype: Dtype) -> None:
        self.rows, self.n_classes = rows, 0
        rounding = 0.0 if not is_float(dtype) or dtype.itemsize > 2 else 1 / 64
        self.sum_tolerance, self.value_tolerance = _SUM + rounding, _VALUE + rounding
        self.sums: Floats = np.zeros(rows.size)
        self.low, self.high = np.full(rows.size, np.inf), np.full(rows.size, -np.inf)
        self.n_infinite, self.n_zero = np.zeros(rows.size, np.int64), np.zeros(rows.size, np.int64)

    def take(self, slab: Array) -> None:
        """Examine the next classes, a few rows at a time: a copy of all could take more memory than the slab."""
        self.n_classes += slab.shape[1]
        step = max(1, _STRIP // slab.shape[1])
        for first in range(0, self.rows.size, step):
            self._take(slice(first, first + step), slab[self.rows[first : first + step]].astype(np.float64))

    def _take(self, rows: slice, values: Floats) -> None:
        low = values.min(1)
        with np.errstate(invalid="ignore", over="ignore"):
            self.sums[rows] += values.sum(1)
        np.minimum(self.low[rows], low, out=self.low[rows])
        np.maximum(self.high[rows], values.max(1), out=self.high[rows])
        if (low == -np.inf).any():
            self.n_infinite[rows] += (values == -np.inf).sum(1)
        if not (low > 0).all():
            self.n_zero[rows] += (values == 0).sum(1)

    def counts(self) -> LookedRows:
        """Return the counts; rows with NaN are not counted."""
        seen = ~np.isnan(self.low)
        outside = (self.low < -self.value_tolerance) | (self.high > 1 + self.value_tolerance)
        off = ~(np.abs(self.sums - 1) <= self.sum_tolerance)
        half = self.n_classes / 2
        kinds = (seen, seen & off, seen & outside, seen & (self.n_infinite > half), seen & (self.n_zero > half))
        return LookedRows(*(int(rows.sum()) for rows in kinds))


@dataclass(frozen=True)
class ScanTally(CheckedTally):
    """The tally of a scan. It merges over bands in any order."""

    #: Labels at each rank from 1 on; the first entry counts rows without label, the last one labels beyond all ranks.
    rank_counts: Counts
    #: Number of sets by (interval, cell), sparse. The sets contain the scores above the interval; the cell of a set is twice
    #: its size, plus 1 if it contains the label.
    cell_intervals: Annotated[Ints, JOINED]
    cells: Annotated[Ints, JOINED]
    cell_counts: Annotated[Ints, JOINED]
    #: Sums of the set sizes and hits of each stratum, with a column per interval; and the ranks of its labels.
    strata: StrataSums
    strata_ranks: StrataRanks
    #: Number of hard labels in each zone; exact weight of the soft labels above each interval, and at each rank.
    hits: Counts
    weight_above: ExactSums
    weight_at_rank: ExactSums
    #: Either rows, in one or more parts per band, with at most ``max_held`` keys in total ...
    max_held: Annotated[int, SAME]
    rows: Annotated[tuple[HeldRows, ...], BY_BAND]
    #: ... or at most ``max_events`` events, single or counted, of the zones with these floors.
    floors: Annotated[Ints, SAME]
    max_events: Annotated[int, SAME]
    events: HeldEvents
    counted: EventTally
    #: Number of consecutive bands whose equal events are counted together; and which intervals had too many events to hold.
    n_together: Annotated[int, SAME]
    dropped: Annotated[Bools, ANY]
    #: Histogram of the listed scores by zone and bin; weighted histogram of a sample of all scores; size of the sample.
    histogram: BinCounts
    sample: BinCounts
    n_sampled: Count
    #: Number of bands; sums over bands of the number of scores above each interval, and of its square (see ``band_counts``).
    n_bands: Count
    band_sums: Counts
    band_squares: Counts
    #: The scores of each rank.
    ranked: RankedTally
    distance: DistanceTally
    looked: LookedRows

    def settled(self) -> Self:
        """Return the tally with equal cells added up; rows are dropped, and events counted or dropped, beyond their limit."""
        (intervals, cells), counts = add_up((self.cell_intervals, self.cells), self.cell_counts)
        tally = replace(self, cell_intervals=intervals, cells=cells, cell_counts=counts)
        if self.max_held and sum(part.keys.size for part in self.rows) > self.max_held:
            return replace(tally, rows=(), dropped=np.ones_like(self.dropped))
        return tally._within_limit() if self.n_stored > self.max_events else tally

    @property
    def n_stored(self) -> int:
        """The number of stored entries: single events, and entries of counted events."""
        return int(self.events.keys.size) + self.counted.n_stored

    def stored_events(self) -> Ints:
        """Return the number of stored entries in each interval."""
        return count_by_interval(self.floors, self.events.keys) + self.counted.stored_by_interval(self.floors)

    def _within_limit(self) -> Self:
        """Count the events of crowded intervals together, and drop intervals that still have too many."""
        limit = self.max_events // self.dropped.size
        keys = np.unique(np.concatenate([np.unique(self.events.keys), self.counted.keys]))
        has_few_keys = np.bincount(intervals_of(self.floors, keys), minlength=self.dropped.size) <= _FEW_KEYS
        crowded = self.stored_events() > limit
        interval_of = intervals_of(self.floors, self.events.keys)
        to_count = crowded[interval_of]
        if not self.events.select(to_count).are_ties(self.n_together):
            to_count &= has_few_keys[interval_of]
        together = self.events.select(to_count).counted(self.floors, self.n_together)
        counted = EventTally.merge([self.counted, together])
        tally = replace(self, events=self.events.select(~to_count), counted=counted)
        to_drop = (tally.stored_events() > limit) & ~has_few_keys
        if not to_drop.any():
            return tally
        return replace(
            tally,
            events=tally.events.select(~to_drop[intervals_of(self.floors, tally.events.keys)]),
            counted=tally.counted.select(lambda keys, _: ~to_drop[intervals_of(self.floors, keys)]),
            dropped=tally.dropped | to_drop,
        )
