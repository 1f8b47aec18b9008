"""What a scan looks for, and what one read of some bands contributes to every budget's result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..reuse import Pool
from .checked import CheckedTally, join_tuples
from .distance import DistanceTally
from .events import EventTally, add_up
from .exact import Limbs, add_limbs
from .kept import KeptEvents
from .kept_rows import KeptRows
from .ranked import RankedTally
from .split import ZoneTable

Array = NDArray[Any]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ScanPlan:
    """What a scan looks for: the same for every band.

    The intervals of ``zones`` each hold one or more thresholds, it is hoped. Scores below the last
    one are not listed, only sampled, in bins of ``2**sample_shift`` keys from ``sample_base`` up.
    """

    n_classes: int
    dtype: np.dtype[Any]
    zones: ZoneTable
    sample_base: int
    sample_shift: int
    #: Highest rank a label's place is told apart to (0: no top-k wanted).
    n_ranks: int
    #: Events a band may keep; more are counted together, and if still too many dropped.
    max_events: int
    tile_scores: int
    #: Keys of listed scores that may be kept in all; 0 where events are kept.
    max_kept: int = 0
    #: Ranks whose scores are kept (0: none), and the room of their histograms (0: keep all scores).
    n_ranked: int = 0
    ranked_room: int = 0
    #: Whether to measure how far scores are from soft labels.
    with_distance: bool = False
    #: Room for the scans to work in.
    pool: Pool = field(default_factory=Pool, compare=False, repr=False)

    @property
    def floor(self) -> int:
        """The lowest key that is listed."""
        return int(self.zones.floors[-1])


@dataclass(frozen=True)
class ScanTally(CheckedTally):
    """Counts, histograms and events of the bands read so far; ``merge`` adds them up."""

    #: Labels at each rank 1..; the first and the last place take those that are in no top-k set, and are not read.
    rank_counts: Ints
    #: Sets of each (interval, size) when only the scores above the interval are in, sparse.
    size_intervals: Ints
    sizes: Ints
    size_counts: Ints
    #: Hard labels in each zone; soft labels' exact weight above each interval, and at each rank.
    hits: Ints
    weight_above: Limbs
    weight_at_rank: Limbs
    #: Rows, in one or more parts of each band, as long as they are no more than ``max_kept`` keys in all; or the
    #: events of each band, or counted ones.
    max_kept: int
    kept: tuple[KeptRows, ...]
    events: tuple[KeptEvents, ...]
    counted: EventTally
    #: Intervals whose events were too many to keep.
    dropped: NDArray[np.bool_]
    #: All listed scores by zone and bin; and a sample of all scores, weighted to stand for the rest, with its size.
    histogram: Ints
    sample: Ints
    n_sampled: int
    #: The scores of each rank.
    ranked: RankedTally
    #: How far the scores are from the soft labels.
    distance: DistanceTally

    @classmethod
    def mergers(cls) -> Mapping[str, Callable[[list[Any]], Any]]:  # noqa: D102
        return {**super().mergers(), **_MERGERS}

    @classmethod
    def merge(cls, tallies: Sequence[Self]) -> Self:
        """Give the tally of all the bands together."""
        merged = super().merge(tallies)
        (intervals, sizes), counts = add_up((merged.size_intervals, merged.sizes), merged.size_counts)
        return replace(merged, size_intervals=intervals, sizes=sizes, size_counts=counts).within_room()

    def within_room(self) -> Self:
        """Give the tally without its rows, if they are too many."""
        if not self.max_kept or sum(part.keys.size for part in self.kept) <= self.max_kept:
            return self
        return replace(self, kept=(), dropped=np.ones_like(self.dropped))


_MERGERS: dict[str, Callable[[list[Any]], Any]] = {
    "size_intervals": np.concatenate,
    "sizes": np.concatenate,
    "size_counts": np.concatenate,
    "weight_above": add_limbs,
    "weight_at_rank": add_limbs,
    "max_kept": max,
    "kept": join_tuples,
    "events": join_tuples,
    "counted": EventTally.merge,
    "ranked": RankedTally.merge,
    "distance": DistanceTally.merge,
    "dropped": np.logical_or.reduce,
}
