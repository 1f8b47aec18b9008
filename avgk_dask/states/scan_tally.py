"""What one read of some bands contributes to every budget's result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np

from ..arrays import Bools, Ints
from ..exact.sums import ExactSums
from ..kernels.zones import intervals_of
from ..records import ANY, BY_BAND, JOINED, SAME, Count, Counts
from .bin_counts import BinCounts
from .checks import CheckedTally
from .counted_events import EventTally
from .distances import DistanceTally
from .distinct import add_up
from .held_events import HeldEvents
from .held_rows import HeldRows
from .looked_rows import LookedRows
from .ranked_scores import RankedTally
from .strata import StrataRanks, StrataSums

#: Different keys of which any number of events can be held, counted together.
_FEW_KEYS = 4
#: Keys that are looked at together.
_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class ScanTally(CheckedTally):
    """Counts, histograms and events of the bands read so far."""

    #: Labels at each rank 1..; the first and the last entry take those that are in no top-k set, and are not read.
    rank_counts: Counts
    #: Sets of each (interval, cell) when only the scores above the interval are in, sparse: a cell is twice the size of a
    #: set, and 1 more if the label is in it.
    cell_intervals: Annotated[Ints, JOINED]
    cells: Annotated[Ints, JOINED]
    cell_counts: Annotated[Ints, JOINED]
    #: The same by strata, a column for each interval; and the ranks of the labels of each stratum, where strata are given.
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
    #: How far the scores are from the soft labels.
    distance: DistanceTally
    #: What some rows of each band look like.
    looked: LookedRows

    def settled(self) -> Self:
        """Return the tally with equal cells counted together, and without its rows if they are too many."""
        (intervals, cells), counts = add_up((self.cell_intervals, self.cells), self.cell_counts)
        found = replace(self, cell_intervals=intervals, cells=cells, cell_counts=counts)
        if self.max_held and sum(part.keys.size for part in self.rows) > self.max_held:
            return replace(found, rows=(), dropped=np.ones_like(self.dropped))
        return found._within_limit() if self.n_stored > self.max_events else found

    @property
    def n_stored(self) -> int:
        """How many single events and entries of counted ones are held."""
        return int(self.events.keys.size) + self.counted.n_stored

    def stored_events(self) -> Ints:
        """Return how many of those each interval has."""
        counts = np.zeros(self.floors.size // 2, np.int64)
        counted = self.counted
        for keys in (self.events.keys, counted.keys, counted.weight_keys, counted.stratum_keys):
            for first in range(
                0, keys.size, _AT_ONCE
            ):  # what is made of all at once would take several times their memory
                counts += np.bincount(intervals_of(self.floors, keys[first : first + _AT_ONCE]), minlength=counts.size)
        return counts

    def _within_limit(self) -> Self:
        """Count the events of intervals with more than their share together; drop those of which there are still too many.

        An interval of few different keys is never dropped: each has as many entries as there are groups and set sizes.
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
        found = replace(self, events=self.events.select(~mine), counted=counted)
        return found._without((found.stored_events() > share) & ~few)

    def _without(self, gone: Bools) -> Self:
        """Return the tally without the events of some intervals."""
        if not gone.any():
            return self
        return replace(
            self,
            events=self.events.select(~gone[intervals_of(self.floors, self.events.keys)]),
            counted=self.counted.select(lambda keys, _: ~gone[intervals_of(self.floors, keys)]),
            dropped=self.dropped | gone,
        )
