"""The events that a scan holds singly, and what the sets gain by those of one interval.

An event (see ``counted_events``) is held as its key, its row and the number of the row's scores above the interval,
while events are few enough; of a band with many ties they are counted instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..arrays import Array, Ints
from ..exact.sums import total_weight
from ..kernels.events import move_sizes, size_events
from ..records import Record
from .counted_events import EventTally

#: The rows of a matrix are numbered ``band << ROW_BITS | row``.
ROW_BITS = 40


@dataclass(frozen=True)
class HeldEvents(Record):
    """Events of some rows of a band: those of interval j from ``starts[j]`` to ``starts[j + 1]``, in row-major order."""

    band: int
    starts: Ints
    keys: Array
    rows: Array
    #: Scores of the event's row above the interval.
    bases: Array
    #: Hits as small integers, or soft labels.
    weights: Array

    def counted(self) -> EventTally:
        """Count equal events together."""
        sizes = np.empty(self.keys.size, np.int64)
        size_events(self.starts, self.keys, self.rows, self.bases, sizes)
        return EventTally.count(self.band, self.keys, sizes, self.weights)


@dataclass(frozen=True)
class Cut:
    """Where kept ties end: after the first ``n_ties`` of one band's ties."""

    band: int
    n_ties: int
    pending: bool


@dataclass(frozen=True)
class Taken:
    """What the sets gain by the events above a key and some of the ties at it."""

    n_above: int
    n_ties: int
    #: By size, what the number of sets of that size changes by.
    changes: Ints
    weight_above: Fraction
    #: The weight of the ties taken, and of all; the single ones, where there are no others of any weight.
    weight_kept: Fraction
    weight_ties: Fraction
    tie_weights: Array | None
    cut: Cut | None


@dataclass(frozen=True)
class IntervalEvents:
    """All events of one interval: single ones in row-major order, and counted ones."""

    keys: Array
    row_numbers: Ints
    bases: Array
    weights: Array
    counted: EventTally

    @classmethod
    def gather(
        cls, parts: Sequence[HeldEvents], counted: EventTally, j: int, interval: tuple[int, int]
    ) -> IntervalEvents:
        """Return the events of interval j, whose keys are ``interval``."""
        low, high = interval
        inside = counted.select(lambda keys, _: (keys >= low) & (keys <= high))
        if not parts:
            none = np.zeros(0, np.int64)
            return cls(none, none, none, none.astype(np.uint8), inside)
        where = [slice(part.starts[j], part.starts[j + 1]) for part in parts]
        keys, rows, bases, weights = (
            np.concatenate([getattr(part, name)[mine] for part, mine in zip(parts, where, strict=True)])
            for name in ("keys", "rows", "bases", "weights")
        )
        bands = np.array([part.band for part in parts], np.int64) << ROW_BITS
        row_numbers = np.repeat(bands, [mine.stop - mine.start for mine in where]) + rows
        return cls(keys, row_numbers, bases, weights, inside)

    def key_at_rank(self, rank: int, low: int, high: int) -> int:
        """Return the key of the score of this rank, 1 for the highest, known to lie between two keys."""
        near = self.counted.select(lambda keys, _: (keys >= low) & (keys <= high))
        single = self.keys[(self.keys >= low) & (self.keys <= high)]
        rank -= int((self.keys > high).sum()) + int(self.counted.counts[self.counted.keys > high].sum())
        keys = np.concatenate([single, near.keys])
        order = np.argsort(keys)[::-1]
        counts = np.concatenate([np.ones(single.size, np.int64), near.counts])[order]
        return int(keys[order[np.searchsorted(np.cumsum(counts), rank)]])

    def take(self, key: int, n_wanted: int, n_classes: int) -> Taken:
        """Take in all events above a key, and of those at it the first in row-major order, up to ``n_wanted`` in all.

        Where the ties of a band are counted and only some of them are taken, they are left out, and the cut is
        pending: the band must be read again to know which of them come first.
        """
        ties = np.flatnonzero(self.keys == key)
        counted_ties = self.counted.select(lambda keys, _: keys == key)
        n_above = int((self.keys > key).sum()) + int(self.counted.counts[self.counted.keys > key].sum())
        n_ties = ties.size + counted_ties.n_scores
        n_kept = min(n_wanted - n_above, n_ties)
        cut, n_single, last_band = self._cut(ties, counted_ties, n_kept) if n_kept else (None, 0, -1)
        changes = np.zeros(n_classes + 1, np.int64)
        move_sizes(self.keys, self.row_numbers, self.bases, key, n_single, changes)
        above = self.counted.select(lambda keys, _: keys > key)
        kept = counted_ties.select(lambda _, bands: bands <= last_band)
        for part in (above, kept):
            np.add.at(changes, part.sizes, part.counts)
            np.subtract.at(changes, part.sizes - 1, part.counts)
        weight_above = total_weight(self.weights * (self.keys > key)) + above.total_weight()
        return Taken(
            n_above,
            n_ties,
            changes,
            weight_above,
            total_weight(self.weights[ties[:n_single]]) + kept.total_weight(),
            total_weight(self.weights[ties]) + counted_ties.total_weight(),
            None if counted_ties.weight_keys.size else self.weights[ties],
            cut if n_kept < n_ties else None,
        )

    def _cut(self, ties: Ints, counted: EventTally, n_kept: int) -> tuple[Cut, int, int]:
        """Return where the first so many ties end, how many of the single ones they are, and the last band of the counted."""
        bands = np.concatenate([self.row_numbers[ties] >> ROW_BITS, counted.bands])
        names, which = np.unique(bands, return_inverse=True)
        counts = np.concatenate([np.ones(ties.size, np.int64), counted.counts])
        through = np.cumsum(np.bincount(which, counts).astype(np.int64))
        last = int(np.searchsorted(through, n_kept))
        band, n_here = int(names[last]), n_kept - (int(through[last - 1]) if last else 0)
        is_counted = bool((counted.bands == band).any())
        pending = is_counted and n_kept < through[last]
        n_single = int((bands[: ties.size] < band).sum()) + (0 if is_counted else n_here)
        return Cut(band, n_here, pending), n_single, band - 1 if pending else band
