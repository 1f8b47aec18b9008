"""What one read of some bands contributes to every budget's result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np

from ..arrays import Bools, Ints
from ..exact.sums import ExactSums
from ..records import ANY, BY_BAND, JOINED, SAME, Count, Counts
from .checks import CheckedTally
from .counted_events import EventTally, add_up
from .distances import DistanceTally
from .held_events import HeldEvents
from .held_rows import HeldRows
from .ranked_scores import RankedTally


@dataclass(frozen=True)
class ScanTally(CheckedTally):
    """Counts, histograms and events of the bands read so far."""

    #: Labels at each rank 1..; the first and the last entry take those that are in no top-k set, and are not read.
    rank_counts: Counts
    #: Sets of each (interval, size) when only the scores above the interval are in, sparse.
    size_intervals: Annotated[Ints, JOINED]
    sizes: Annotated[Ints, JOINED]
    size_counts: Annotated[Ints, JOINED]
    #: Hard labels in each zone; soft labels' exact weight above each interval, and at each rank.
    hits: Counts
    weight_above: ExactSums
    weight_at_rank: ExactSums
    #: Rows, in one or more parts of each band, as long as they are no more than ``max_held`` keys in all; or the
    #: events of each band, or counted ones.
    max_held: Annotated[int, SAME]
    rows: Annotated[tuple[HeldRows, ...], BY_BAND]
    events: Annotated[tuple[HeldEvents, ...], BY_BAND]
    counted: EventTally
    #: Intervals whose events were too many to keep.
    dropped: Annotated[Bools, ANY]
    #: All listed scores by zone and bin; and a sample of all scores, weighted to stand for the rest, with its size.
    histogram: Counts
    sample: Counts
    n_sampled: Count
    #: The scores of each rank.
    ranked: RankedTally
    #: How far the scores are from the soft labels.
    distance: DistanceTally

    def settled(self) -> Self:
        """Return the tally with equal sizes counted together, and without its rows if they are too many."""
        (intervals, sizes), counts = add_up((self.size_intervals, self.sizes), self.size_counts)
        found = replace(self, size_intervals=intervals, sizes=sizes, size_counts=counts)
        if not self.max_held or sum(part.keys.size for part in self.rows) <= self.max_held:
            return found
        return replace(found, rows=(), dropped=np.ones_like(self.dropped))
