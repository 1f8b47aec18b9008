"""Events: the scores inside the intervals of a scan, held singly, or counted together if they are many ties.

An event is a score with the change that it makes to the set of its row: the set grows to a certain size, and its label weight by
the event's weight. So set sizes and errors for *every* threshold inside an interval follow from the events, without the rows.

``HeldEvents`` are single events. ``EventTally`` counts the equal events of a band, or of some bands, by their *step*: the size of
the set that includes the event, whether the event is the label, and whether the label is in that set (see ``step_events``). Only
a cut through the counted ties of some bands needs their rows again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, Dtype, Ints
from ..bands.rows import Candidates
from ..exact.sums import ExactSums, total_weight
from ..kernels.dispatch import group_order, move_cells, split_rows, step_events
from ..records import JOINED, State
from .plan import ZoneTable, intervals_of
from .strata import StrataSums, add_up, distinct

#: The rows of a band, at most ``2**ROW_BITS``, have the numbers from ``band << ROW_BITS`` on.
ROW_BITS = 36
#: Keys counted at a time.
_AT_ONCE = 1 << 20
#: Keys examined to see whether events are ties, and how often each must occur in a group of bands.
_EXAMINED, _TIED = 1 << 8, 8


Column = Annotated[Ints, JOINED]
ArrayColumn = Annotated[Array, JOINED]


@dataclass(frozen=True)
class EventTally(State):
    """The number of events of each (key, group of bands, step), with their weights: hits or soft labels."""

    keys: Column
    groups: Column
    steps: Column
    counts: Column
    #: Exact sums of weights for each (key, group), scattered (see ``ExactSums``).
    weight_keys: Column
    weight_groups: Column
    weight_limbs: Column
    weight_amounts: Column
    #: The number of events of each (key, group, stratum), and of hard labels among them.
    stratum_keys: Column
    stratum_groups: Column
    strata: Column
    stratum_counts: Column
    stratum_hits: Column

    @classmethod
    def empty(cls) -> EventTally:
        """Return the empty tally."""
        none = np.zeros(0, np.int64)
        return cls(*(none,) * 13)

    @classmethod
    def count(cls, groups: Ints, keys: Array, steps: Array, weights: Array, strata: Array) -> EventTally:
        """Count events, given the group of bands of each."""
        wide, ones = keys.astype(np.int64), np.ones(keys.size, np.int8)
        events, counts = add_up((wide, groups, steps), ones)
        by_stratum, n_of_stratum = add_up((wide, groups, strata.astype(np.int64), steps >> 1 & 1), ones)
        some = np.flatnonzero(weights)
        (weight_keys, weight_groups), which = distinct((wide[some], groups[some]))
        sums = ExactSums.zeros(weight_keys.size)
        sums.add(weights[some], which)
        at, limb, amounts = sums.scattered()
        weighed = weight_keys[at], weight_groups[at], limb, amounts
        strata_hits = n_of_stratum, n_of_stratum * by_stratum[3]
        columns: tuple[Ints, ...] = (*events, counts, *weighed, *by_stratum[:3], *strata_hits)
        return cls(*columns).settled()

    def settled(self) -> Self:
        """Return the tally with equal events counted together."""
        events, counts = add_up((self.keys, self.groups, self.steps), self.counts)
        weights, amounts = add_up((self.weight_keys, self.weight_groups, self.weight_limbs), self.weight_amounts)
        by_stratum = self.stratum_keys, self.stratum_groups, self.strata
        names, n_events = add_up(by_stratum, self.stratum_counts)
        _, n_hits = add_up(by_stratum, self.stratum_hits)
        columns: tuple[Ints, ...] = (*events, counts, *weights, amounts, *names, n_events, n_hits)
        return type(self)(*columns)

    @property
    def n_stored(self) -> int:
        """The number of entries in memory."""
        return int(self.keys.size + self.weight_keys.size + self.stratum_keys.size)

    def stored_by_interval(self, floors: Ints) -> Ints:
        """Return the number of entries in each interval, given the floors of a ``ZoneTable``."""
        return count_by_interval(floors, self.keys, self.weight_keys, self.stratum_keys)

    @property
    def n_scores(self) -> int:
        """The number of scores."""
        return int(self.counts.sum())

    def select(self, keep: Callable[[Ints, Ints], Any]) -> EventTally:
        """Return the events for which ``keep(keys, groups)`` is true."""
        tables = (
            (self.keys, self.groups, self.steps, self.counts),
            (self.weight_keys, self.weight_groups, self.weight_limbs, self.weight_amounts),
            (self.stratum_keys, self.stratum_groups, self.strata, self.stratum_counts, self.stratum_hits),
        )
        rows = [np.flatnonzero(keep(table[0], table[1])) for table in tables]
        return EventTally(*(column[mine] for table, mine in zip(tables, rows, strict=True) for column in table))

    def between(self, low: int, high: int) -> EventTally:
        """Return the events with keys from ``low`` to ``high``."""
        return self.select(lambda keys, _: (keys >= low) & (keys <= high))

    def above(self, key: int) -> EventTally:
        """Return the events above a key."""
        return self.select(lambda keys, _: keys > key)

    def total_weight(self) -> Fraction:
        """Return the exact sum of weights."""
        return ExactSums.gathered(self.weight_limbs, self.weight_amounts)

    def strata_sums(self) -> StrataSums:
        """Return the gains of the strata if the events are in the sets."""
        return StrataSums.added(self.strata, self.stratum_hits, self.stratum_counts)

    def add_cells(self, changes: Ints) -> None:
        """Add the changes of the number of sets of each cell if the events are in the sets."""
        size, is_label, inside = self.steps >> 2, self.steps >> 1 & 1, self.steps & 1
        np.add.at(changes, 2 * size + inside, self.counts)
        np.subtract.at(changes, 2 * (size - 1) + inside - is_label, self.counts)


@dataclass(frozen=True)
class HeldEvents(State):
    """Single events in the order of merged bands; those of a row are adjacent, in the order of its classes."""

    keys: ArrayColumn
    #: The row of the event (see ``row_numbers``).
    rows: ArrayColumn
    #: The cell of the row's set above the event's interval: twice its size, plus 1 if the label is in it.
    bases: ArrayColumn
    #: Hits as small integers, or soft labels.
    weights: ArrayColumn
    #: The stratum of the row.
    strata: ArrayColumn

    @classmethod
    def empty(cls) -> HeldEvents:
        """Return no events."""
        none = np.zeros(0, np.int64)
        return cls(none.astype(np.int32), none, none.astype(np.int32), none.astype(np.uint8), none.astype(np.int8))

    def select(self, indices: Array | slice) -> HeldEvents:
        """Return some of the events, in this order."""
        columns = self.keys, self.rows, self.bases, self.weights, self.strata
        return HeldEvents(*(column[indices] for column in columns))

    @property
    def hits(self) -> Array:
        """Whether each event is a hard label; 0 with soft labels."""
        return self.weights if self.weights.dtype.kind != "f" else np.zeros(self.weights.size, np.uint8)

    def between(self, low: int, high: int) -> HeldEvents:
        """Return the events with keys from ``low`` to ``high``."""
        return self.select(np.flatnonzero((self.keys >= low) & (self.keys <= high)))

    def in_order(self) -> HeldEvents:
        """Return the events in row-major order."""
        in_order = not self.rows.size or (np.diff(self.rows) >= 0).all()
        return self if in_order else self.select(np.argsort(self.rows, kind="stable"))

    def are_ties(self, n_together: int) -> bool:
        """Return whether counting equal events of ``n_together`` bands together would save much, judged by some keys."""
        keys = np.unique(self.keys[:: max(1, self.keys.size // _EXAMINED)][:_EXAMINED])
        some = np.isin(self.keys, keys)
        pairs = np.stack([self.keys[some].astype(np.int64), (self.rows[some] >> ROW_BITS) // n_together])
        return bool(np.unique(pairs, axis=1).shape[1] * _TIED <= some.sum())

    def strata_sums(self) -> StrataSums:
        """Return the gains of the strata if the events are in the sets."""
        return StrataSums.added(self.strata, self.hits)

    def counted(self, floors: Ints, n_together: int = 1) -> EventTally:
        """Count equal events of a band, or of ``n_together`` bands, together."""
        starts, order = np.empty(floors.size // 2 + 1, np.int64), np.empty(self.keys.size, np.int64)
        group_order(intervals_of(floors, self.keys), starts, order)
        events = self.select(order)
        steps = np.empty(events.keys.size, np.int64)
        step_events(starts, events.keys, events.rows, events.bases, events.hits, steps)
        groups = (events.rows >> ROW_BITS) // n_together
        return EventTally.count(groups, events.keys, steps, events.weights, events.strata)


def count_by_interval(floors: Ints, *columns: Array) -> Ints:
    """Return the number of keys in each interval, given the floors of a ``ZoneTable``."""
    counts = np.zeros(floors.size // 2, np.int64)
    for keys in columns:
        for first in range(0, keys.size, _AT_ONCE):  # all together would take several times their memory
            counts += np.bincount(intervals_of(floors, keys[first : first + _AT_ONCE]), minlength=counts.size)
    return counts


def row_numbers(band: int, rows: Array) -> Ints:
    """Return numbers for the rows of a band, in the order of the rows of the matrix."""
    return rows.astype(np.int64) + (band << ROW_BITS)


@dataclass(frozen=True)
class Cut:
    """The place of the last kept tie: after the first ``n_ties`` in ``band``, or in the bands from it on."""

    band: int
    n_ties: int
    pending: bool
    n_bands: int = 1

    @property
    def bands(self) -> range:
        """The bands in one of which the kept ties end."""
        return range(self.band, self.band + self.n_bands)


@dataclass(frozen=True)
class Gains:
    """The gains of the sets by events above a key and some of the ties at it."""

    n_above: int
    n_ties: int
    #: The changes of the number of sets of each cell, and the gains of the strata.
    changes: Ints
    strata: StrataSums
    weight_above: Fraction
    #: The weight of the kept ties, and of all ties; the weights of single ties, if the others have no weight.
    weight_kept: Fraction
    weight_ties: Fraction
    tie_weights: Array | None
    cut: Cut | None


@dataclass(frozen=True)
class IntervalEvents:
    """All events of one interval: single ones in row-major order, and counted ones."""

    single: HeldEvents
    counted: EventTally
    #: Bands whose equal events were counted together.
    n_together: int = 1

    @property
    def n_scores(self) -> int:
        """The number of scores."""
        return int(self.single.keys.size) + self.counted.n_scores

    def key_at_rank(self, rank: int, low: int, high: int) -> int:
        """Return the key at a rank, 1 for the highest, which is known to lie from ``low`` to ``high``."""
        near = self.counted.between(low, high)
        single = self.single.keys[(self.single.keys >= low) & (self.single.keys <= high)]
        rank -= int((self.single.keys > high).sum()) + int(self.counted.counts[self.counted.keys > high].sum())
        keys = np.concatenate([single, near.keys])
        order = np.argsort(keys)[::-1]
        counts = np.concatenate([np.ones(single.size, np.int64), near.counts])[order]
        return int(keys[order[np.searchsorted(np.cumsum(counts), rank)]])

    def weigh(self, keep: Callable[[Array], Array]) -> tuple[int, Fraction]:
        """Return the number of scores for which ``keep(keys)`` is true, and their label weight."""
        single, counted = keep(self.single.keys), self.counted.select(lambda keys, _: keep(keys))
        weight = total_weight(self.single.weights[single]) + counted.total_weight()
        return int(single.sum()) + counted.n_scores, weight

    def take(self, key: int, n_labels: int, n_classes: int) -> Gains:
        """Take all events above a key, and the first ones at it in row-major order, up to ``n_labels`` in all.

        If only some of the counted ties of a band are taken, they are left out, and the cut is pending: the band must be read
        again to find the first ones.
        """
        single, above, counted_ties = self.single, self.counted.above(key), self.counted.between(key, key)
        entering, ties = single.keys > key, np.flatnonzero(single.keys == key)
        weight_above = total_weight(single.weights * entering) + above.total_weight()
        n_above = int(entering.sum()) + above.n_scores
        n_ties = ties.size + counted_ties.n_scores
        n_kept = min(n_labels - n_above, n_ties)
        cut, n_single, last_group = self._cut(ties, counted_ties, n_kept) if n_kept else (None, 0, -1)
        kept = counted_ties.select(lambda _, groups: groups <= last_group)
        changes = np.zeros(2 * n_classes + 2, np.int64)
        move_cells(single.keys, single.rows, single.bases, single.hits, key, n_single, changes)
        entering[ties[:n_single]] = True
        gains = [StrataSums.added(single.strata[entering], single.hits[entering])]
        for part in (above, kept):
            part.add_cells(changes)
            gains.append(part.strata_sums())
        return Gains(
            n_above,
            n_ties,
            changes,
            StrataSums.merge(gains),
            weight_above,
            total_weight(single.weights[ties[:n_single]]) + kept.total_weight(),
            total_weight(single.weights[ties]) + counted_ties.total_weight(),
            None if counted_ties.weight_keys.size else single.weights[ties],
            cut if n_kept < n_ties else None,
        )

    def _cut(self, ties: Ints, counted: EventTally, n_kept: int) -> tuple[Cut, int, int]:
        """Return the end of the first ``n_kept`` ties, the number of single ones, and the last group of counted ones."""
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
        # If all ties of a group are kept, but not all ties of later groups, the band in which they end is still
        # unknown.
        if n_kept < through[last] or (self.n_together > 1 and n_kept < through[-1]):
            return Cut(group * self.n_together, n_here, True, self.n_together), n_before, group - 1
        return Cut(group * self.n_together, n_here, False), int((groups[: ties.size] <= group).sum()), group


class Split:
    """Space for the events of a stretch of rows, reused for every stretch."""

    def __init__(self, n: int, key_dtype: Dtype) -> None:
        dtypes = (np.int32, key_dtype, np.int32, np.int32, np.int32, np.uint8)
        self.columns = tuple(np.empty(n, dtype) for dtype in dtypes)

    def held(self, n: int, band: int, first_row: int, strata: Array, soft: Array | None = None) -> HeldEvents:
        """Return the first n events; their rows count from ``first_row``, the strata from the first row of the band."""
        _, keys, rows, bases, classes, hits = (column[:n] for column in self.columns)
        band_rows = rows + np.int32(first_row)
        weights = hits.copy() if soft is None else soft[band_rows, classes]
        return HeldEvents(keys.copy(), row_numbers(band, band_rows), bases.copy(), weights, strata[band_rows])


def split_candidates(
    candidates: Candidates, zones: ZoneTable, histogram: Array, labels: Ints | None = None
) -> tuple[NDArray[np.int32], NDArray[np.int32], Split, int]:
    """Split candidates by the zones, and add them to the histogram of each zone.

    Return the number of scores of each row above each interval, the zone of its label, the events inside, and their number.
    """
    above = np.empty((candidates.n_rows, zones.n_intervals), np.int32)
    label_zones = np.empty(candidates.n_rows, np.int32)
    if labels is None:
        labels = np.full(candidates.n_rows, -1, np.int64)
    split = Split(candidates.keys.size, np.dtype(np.int64))
    listed, tallies = (candidates.keys, candidates.classes, candidates.offsets), (above, label_zones, histogram)
    n_events = split_rows(listed, zones.arrays(), tallies, labels, 0, 0, split.columns)
    return above, label_zones, split, n_events


def label_weights(labels: Array | None, rows: Ints, classes: Ints) -> Array:
    """Return the weight of hard or soft labels at each (row, class); 0 without labels."""
    if labels is None:
        return np.zeros(rows.size, np.uint8)
    if labels.ndim == 2:
        return np.asarray(labels[rows, classes], np.float64)
    return np.asarray(labels[rows] == classes, np.uint8)
