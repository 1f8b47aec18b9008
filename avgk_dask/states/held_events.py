"""The events that a scan holds singly, and what the sets gain by those of one interval.

An event (see ``counted_events``) is held as its key, its row and the cell of the row's set above the interval,
while events are few enough; of a band with many ties they are counted instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, NamedTuple

import numpy as np

from ..arrays import Array, Ints
from ..exact.sums import total_weight
from ..kernels.chosen import group_order, move_cells, step_events
from ..kernels.zones import intervals_of
from ..records import JOINED, State
from .counted_events import EventTally
from .strata import StrataSums

#: Rows of a band, at most ``2**ROW_BITS`` of them, have the numbers from ``band << ROW_BITS`` on.
ROW_BITS = 36
#: Keys looked at to see whether events are ties, and how often each must occur in a group of bands.
_LOOKED_AT, _TIED = 1 << 8, 8

Column = Annotated[Array, JOINED]


@dataclass(frozen=True)
class HeldEvents(State):
    """Single events, in the order in which bands came; those of a row stand together, in the order of its classes."""

    keys: Column
    #: The event's row, as ``row_numbers`` tells.
    rows: Column
    #: The cell of the row's set above the interval that the event lies in: twice its size, and 1 if the label is in it.
    bases: Column
    #: Hits as small integers, or soft labels.
    weights: Column
    #: The stratum of the row.
    strata: Column

    @classmethod
    def empty(cls) -> HeldEvents:
        """Return no events."""
        none = np.zeros(0, np.int64)
        return cls(none.astype(np.int32), none, none.astype(np.int32), none.astype(np.uint8), none.astype(np.int8))

    def select(self, which: Array | slice) -> HeldEvents:
        """Return some of the events, in that order."""
        columns = self.keys, self.rows, self.bases, self.weights, self.strata
        return HeldEvents(*(column[which] for column in columns))

    @property
    def hits(self) -> Array:
        """Which events are hard labels; none of soft ones."""
        return self.weights if self.weights.dtype.kind != "f" else np.zeros(self.weights.size, np.uint8)

    def between(self, low: int, high: int) -> HeldEvents:
        """Return the events whose keys lie between two, which count as well."""
        return self.select(np.flatnonzero((self.keys >= low) & (self.keys <= high)))

    def in_order(self) -> HeldEvents:
        """Return the events in row-major order."""
        in_order = not self.rows.size or (np.diff(self.rows) >= 0).all()
        return self if in_order else self.select(np.argsort(self.rows, kind="stable"))

    def by_interval(self, floors: Ints) -> list[Ints]:
        """Return the indices of each interval's events; ``floors`` are those of a ``ZoneTable``."""
        starts, order = np.empty(floors.size // 2 + 1, np.int64), np.empty(self.keys.size, np.int64)
        group_order(intervals_of(floors, self.keys), starts, order)
        return np.split(order, starts[1:-1])

    def are_ties(self, n_together: int) -> bool:
        """Whether counting equal events of so many bands together would save much, from a look at some of the keys."""
        keys = np.unique(self.keys[:: max(1, self.keys.size // _LOOKED_AT)][:_LOOKED_AT])
        some = np.isin(self.keys, keys)
        pairs = np.stack([self.keys[some].astype(np.int64), (self.rows[some] >> ROW_BITS) // n_together])
        return bool(np.unique(pairs, axis=1).shape[1] * _TIED <= some.sum())

    def strata_sums(self) -> StrataSums:
        """Return what the strata gain once the events are in."""
        return StrataSums.added(self.strata, self.hits)

    def counted(self, floors: Ints, n_together: int = 1) -> EventTally:
        """Count equal events of a band, or of so many bands, together."""
        indices = self.by_interval(floors)
        events = self.select(np.concatenate(indices))
        starts = np.cumsum([0, *(mine.size for mine in indices)])
        steps = np.empty(events.keys.size, np.int64)
        step_events(starts, events.keys, events.rows, events.bases, events.hits, steps)
        groups = (events.rows >> ROW_BITS) // n_together
        return EventTally.count(groups, events.keys, steps, events.weights, events.strata)


def row_numbers(band: int, rows: Array) -> Ints:
    """Return numbers for the rows of a band that sort as the rows of the matrix do."""
    return rows.astype(np.int64) + (band << ROW_BITS)


@dataclass(frozen=True)
class Cut:
    """Where kept ties end: after the first ``n_ties`` of one band's ties, or of those of some bands from ``band`` on."""

    band: int
    n_ties: int
    pending: bool
    n_bands: int = 1

    @property
    def bands(self) -> range:
        """The bands in one of which they end."""
        return range(self.band, self.band + self.n_bands)


@dataclass(frozen=True)
class Taken:
    """What the sets gain by the events above a key and some of the ties at it."""

    n_above: int
    n_ties: int
    #: By cell, what the number of sets of that cell changes by; and what the strata gain.
    changes: Ints
    strata: StrataSums
    weight_above: Fraction
    #: The weight of the ties taken, and of all; the single ones, where there are no others of any weight.
    weight_kept: Fraction
    weight_ties: Fraction
    tie_weights: Array | None
    cut: Cut | None


class Weighed(NamedTuple):
    """A number of scores, and their label weight."""

    n_scores: int
    weight: Fraction


@dataclass(frozen=True)
class IntervalEvents:
    """All events of one interval: single ones in row-major order, and counted ones."""

    single: HeldEvents
    counted: EventTally
    #: Bands whose equal events were counted together.
    n_together: int = 1

    @classmethod
    def of(
        cls, single: HeldEvents, counted: EventTally, interval: tuple[int, int], n_together: int = 1
    ) -> IntervalEvents:
        """Return the events of an interval, given its single ones, and the counted ones of all."""
        low, high = interval
        return cls(single, counted.select(lambda keys, _: (keys >= low) & (keys <= high)), n_together)

    @property
    def n_scores(self) -> int:
        """How many scores the events stand for."""
        return int(self.single.keys.size) + self.counted.n_scores

    def key_at_rank(self, rank: int, low: int, high: int) -> int:
        """Return the key of the score of this rank, 1 for the highest, known to lie between two keys."""
        near = self.counted.select(lambda keys, _: (keys >= low) & (keys <= high))
        single = self.single.keys[(self.single.keys >= low) & (self.single.keys <= high)]
        rank -= int((self.single.keys > high).sum()) + int(self.counted.counts[self.counted.keys > high].sum())
        keys = np.concatenate([single, near.keys])
        order = np.argsort(keys)[::-1]
        counts = np.concatenate([np.ones(single.size, np.int64), near.counts])[order]
        return int(keys[order[np.searchsorted(np.cumsum(counts), rank)]])

    def weighed(self, keep: Callable[[Array], Array]) -> Weighed:
        """Return how many scores the events stand for whose keys satisfy a condition, and their label weight."""
        single, counted = keep(self.single.keys), self.counted.select(lambda keys, _: keep(keys))
        weight = total_weight(self.single.weights[single]) + counted.total_weight()
        return Weighed(int(single.sum()) + counted.n_scores, weight)

    def take(self, key: int, n_wanted: int, n_classes: int) -> Taken:
        """Take in all events above a key, and of those at it the first in row-major order, up to ``n_wanted`` in all.

        Where the ties of a band are counted and only some of them are taken, they are left out, and the cut is
        pending: the band must be read again to know which of them come first.
        """
        ties = np.flatnonzero(self.single.keys == key)
        counted_ties = self.counted.select(lambda keys, _: keys == key)
        n_above = int((self.single.keys > key).sum()) + int(self.counted.counts[self.counted.keys > key].sum())
        n_ties = ties.size + counted_ties.n_scores
        n_kept = min(n_wanted - n_above, n_ties)
        cut, n_single, last_group = self._cut(ties, counted_ties, n_kept) if n_kept else (None, 0, -1)
        changes = np.zeros(2 * n_classes + 2, np.int64)
        single = self.single
        move_cells(single.keys, single.rows, single.bases, single.hits, key, n_single, changes)
        above = self.counted.select(lambda keys, _: keys > key)
        kept = counted_ties.select(lambda _, groups: groups <= last_group)
        entering = single.keys > key
        entering[ties[:n_single]] = True
        gains = [StrataSums.added(single.strata[entering], single.hits[entering])]
        for part in (above, kept):
            part.add_cells(changes)
            gains.append(part.strata_sums())
        weight_above = total_weight(self.single.weights * (self.single.keys > key)) + above.total_weight()
        return Taken(
            n_above,
            n_ties,
            changes,
            StrataSums.merge(gains),
            weight_above,
            total_weight(self.single.weights[ties[:n_single]]) + kept.total_weight(),
            total_weight(self.single.weights[ties]) + counted_ties.total_weight(),
            None if counted_ties.weight_keys.size else self.single.weights[ties],
            cut if n_kept < n_ties else None,
        )

    def _cut(self, ties: Ints, counted: EventTally, n_kept: int) -> tuple[Cut, int, int]:
        """Return where the first so many ties end, how many of the single ones they are, and the last group of the counted."""
        single_bands = self.single.rows[ties] >> ROW_BITS
        groups = np.concatenate([single_bands // self.n_together, counted.groups])
        names, which = np.unique(groups, return_inverse=True)
        counts = np.concatenate([np.ones(ties.size, np.int64), counted.counts])
        through = np.cumsum(np.bincount(which, counts).astype(np.int64))
        last = int(np.searchsorted(through, n_kept))
        group, n_here = int(names[last]), n_kept - (int(through[last - 1]) if last else 0)
        n_before = int((groups[: ties.size] < group).sum())
        if not (counted.groups == group).any():
            n_single = n_before + n_here
            band = int(single_bands[n_single - 1])
            return Cut(band, int((single_bands[:n_single] == band).sum()), pending=False), n_single, group
        # Where a group's ties are all kept, but not those of later ones, it is still to be told in which band they end.
        if n_kept < through[last] or (self.n_together > 1 and n_kept < through[-1]):
            return Cut(group * self.n_together, n_here, True, self.n_together), n_before, group - 1
        return Cut(group * self.n_together, n_here, False), int((groups[: ties.size] <= group).sum()), group
