"""What a scan looks for, and what one read of some bands contributes to every budget's result."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .distance import DistanceTally
from .events import EventTally, add_up
from .exact import Limbs, carry
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
    #: Ranks whose scores are kept (0: none), and the room of their histograms (0: keep all scores).
    n_ranked: int = 0
    ranked_room: int = 0
    #: Whether to measure how far scores are from soft labels.
    with_distance: bool = False

    @property
    def floor(self) -> int:
        """The lowest key that is listed."""
        return int(self.zones.floors[-1])


@dataclass(frozen=True)
class ScanTally:
    """Counts, histograms and events of the bands read so far; ``merge`` adds them up."""

    n_rows: int
    n_nan: int
    first_nan: tuple[int, int, int]
    n_bad_labels: int
    first_bad_label: tuple[int, int, int]
    n_labelled: int
    #: Labels at each rank 1.., in the last place those beyond.
    rank_counts: Ints
    #: Sets of each (interval, size) when only the scores above the interval are in, sparse.
    size_intervals: Ints
    sizes: Ints
    size_counts: Ints
    #: Hard labels in each zone; soft labels' exact weight above each interval, and at each rank.
    hits: Ints
    weight_above: Limbs
    weight_at_rank: Limbs
    #: One tally for each band: copied together only once, at the end.
    events: tuple[EventTally, ...]
    #: Intervals whose events were too many to keep.
    dropped: NDArray[np.bool_]
    #: All listed scores by zone and bin; and all scores of sampled rows, weighted to stand for the rest.
    histogram: Ints
    sample: Ints
    n_sampled: int
    #: The scores of each rank.
    ranked: RankedTally
    #: How far the scores are from the soft labels.
    distance: DistanceTally

    @classmethod
    def merge(cls, tallies: list[ScanTally]) -> ScanTally:
        """Give the tally of all the bands together."""
        merged: dict[str, Any] = {}
        for field in fields(cls):
            values = [getattr(t, field.name) for t in tallies]
            merged[field.name] = _MERGERS.get(field.name, sum)(values)
        sizes = merged["size_intervals"], merged["sizes"]
        (merged["size_intervals"], merged["sizes"]), merged["size_counts"] = add_up(sizes, merged["size_counts"])
        return cls(**merged)


def _concatenate(values: list[Array]) -> Array:
    return np.concatenate(values)


_MERGERS: dict[str, Any] = {
    "first_nan": min,
    "first_bad_label": min,
    "size_intervals": _concatenate,
    "sizes": _concatenate,
    "size_counts": _concatenate,
    "weight_above": lambda values: carry(np.sum(values, axis=0)),
    "weight_at_rank": lambda values: carry(np.sum(values, axis=0)),
    "events": lambda values: tuple(chain.from_iterable(values)),
    "ranked": RankedTally.merge,
    "distance": DistanceTally.merge,
    "dropped": lambda values: np.logical_or.reduce(values),
}
