"""Events: the scores near a threshold, each as the change it makes to a set.

An event says: once the score with this key is in, the set of one row has this size, and its
label hits grow by this weight. Row sizes telescope: moving the threshold past an event turns one
set of ``size - 1`` into one of ``size``. So set sizes and errors for *every* threshold inside an
interval follow from the events, without the rows.

Events are kept singly (*fine*: place = band and row) while they are few. Where ties make them
many, a band's equal events are counted instead (*coarse*: place = band), and only a cut through
the ties of that very band needs its rows again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .exact import N_LIMBS, add_weights, as_fraction, sum_weights, zero_sums

Ints = NDArray[np.int64]

#: A place is ``band << ROW_BITS | (row + 1)``; 0 in the low bits marks a coarse event.
ROW_BITS = 40


def _no_ints() -> Ints:
    return np.zeros(0, np.int64)


@dataclass(frozen=True)
class Cut:
    """Where kept ties end: after the first ``n_ties`` of one band's ties."""

    band: int
    n_ties: int
    pending: bool


@dataclass(frozen=True)
class EventTally:
    """Events inside the intervals of a scan, with the weights (hits or soft labels) they bring."""

    keys: Ints
    places: Ints
    sizes: NDArray[Any]
    counts: NDArray[Any]
    #: Fine weights, one per event of non-zero weight.
    weight_keys: Ints
    weight_places: Ints
    weight_sizes: Ints
    weights: NDArray[np.float64]
    #: Coarse weights: exact sums per (key, band), as limbs that are not zero.
    limb_keys: Ints
    limb_places: Ints
    limb_numbers: Ints
    limb_amounts: Ints

    @classmethod
    def empty(cls) -> EventTally:
        """Give the tally of no event."""
        none = _no_ints()
        return cls(none, none, none, none, none, none, none, np.zeros(0), none, none, none, none)

    @classmethod
    def from_rows(
        cls, band: int, keys: Ints, rows: Ints, sizes: NDArray[Any], weights: NDArray[np.float64] | None
    ) -> EventTally:
        """Give the fine events of one band's rows."""
        places = rows + ((np.int64(band) << ROW_BITS) + 1)
        fine = replace(cls.empty(), keys=keys, places=places, sizes=sizes, counts=np.ones(keys.size, np.int8))
        if weights is None:
            return fine
        some = np.flatnonzero(weights)
        return replace(
            fine, weight_keys=keys[some], weight_places=places[some], weight_sizes=sizes[some], weights=weights[some]
        )

    @classmethod
    def merge(cls, tallies: list[EventTally]) -> EventTally:
        """Give the events of all; order does not matter, since read-outs sort."""
        if len(tallies) == 1:
            return tallies[0]
        names = list(cls.__dataclass_fields__)
        return cls(*(np.concatenate([getattr(t, name) for t in tallies]) for name in names))

    @property
    def n_stored(self) -> int:
        """How many entries the tally keeps in memory."""
        return int(self.keys.size + self.weight_keys.size + self.limb_keys.size)

    def select(self, keep: Any) -> EventTally:
        """Give the events whose key satisfies ``keep``, a function of keys."""
        return self._take(keep(self.keys), keep(self.weight_keys), keep(self.limb_keys))

    def _take(self, events: Any, weights: Any, limbs: Any) -> EventTally:
        """Give the entries that three masks name."""
        a, b, c = np.flatnonzero(events), np.flatnonzero(weights), np.flatnonzero(limbs)
        return EventTally(
            self.keys[a], self.places[a], self.sizes[a], self.counts[a],
            self.weight_keys[b], self.weight_places[b], self.weight_sizes[b], self.weights[b],
            self.limb_keys[c], self.limb_places[c], self.limb_numbers[c], self.limb_amounts[c],
        )  # fmt: skip

    def coarsen(self) -> EventTally:
        """Count equal events of a band together, and sum their weights exactly."""
        bands = (self.places >> ROW_BITS) << ROW_BITS
        (keys, places, sizes), counts = add_up((self.keys, bands, self.sizes), self.counts)
        weight_bands = (self.weight_places >> ROW_BITS) << ROW_BITS
        groups, which = _distinct((self.weight_keys, weight_bands))
        sums = zero_sums(groups[0].size)
        add_weights(sums, self.weights, which)
        group, number = np.nonzero(sums)
        limbs, amounts = add_up(
            (
                np.concatenate([self.limb_keys, groups[0][group]]),
                np.concatenate([self.limb_places, groups[1][group]]),
                np.concatenate([self.limb_numbers, number]),
            ),
            np.concatenate([self.limb_amounts, sums[group, number]]),
        )
        return replace(
            EventTally.empty(),
            keys=keys,
            places=places,
            sizes=sizes,
            counts=counts,
            limb_keys=limbs[0],
            limb_places=limbs[1],
            limb_numbers=limbs[2],
            limb_amounts=amounts,
        )

    def first(self, n: int) -> tuple[EventTally, Cut]:
        """Give the first ``n`` (not none, not all) of events that share one key, in row-major order.

        Where the cut falls inside a band whose events are coarse, its own events are left out and
        the cut is pending: the band must be read again to know which of them come first.
        """
        # Events of one key come by row within a band, and those of a row by class: a stable sort will do.
        order = np.argsort(self.places, kind="stable")
        cumulative = np.cumsum(self.counts[order], dtype=np.int64)
        last = int(np.searchsorted(cumulative, n))
        band = int(self.places[order[last]]) >> ROW_BITS
        start = band << ROW_BITS
        n_before = int(self.counts[self.places < start].sum(dtype=np.int64))
        coarse = int(self.places[order[last]]) == start
        n_here = int(self.counts[self.places == start].sum(dtype=np.int64)) if coarse else 0
        cut = Cut(band, n - n_before, pending=coarse and n - n_before < n_here)
        if coarse:
            return self._before(start if cut.pending else (band + 1) << ROW_BITS, 0), cut
        return self._before(int(self.places[order[last]]), int(self.sizes[order[last]]) + 1), cut

    def _before(self, place: int, size: int) -> EventTally:
        """Give the events before a place, and those at it up to a size."""

        def earlier(places: Ints, sizes: NDArray[Any]) -> Any:
            return (places < place) | ((places == place) & (sizes < size))

        return self._take(
            earlier(self.places, self.sizes),
            earlier(self.weight_places, self.weight_sizes),
            self.limb_places < place,
        )

    @property
    def n_scores(self) -> int:
        """How many scores the events stand for."""
        return int(self.counts.sum(dtype=np.int64))

    def key_at_rank(self, rank: int) -> int:
        """Give the key of the score of this rank, 1 for the highest."""
        if self.n_scores == self.keys.size:  # all single: no need to sort
            return int(np.partition(self.keys, self.keys.size - rank)[self.keys.size - rank])
        order = np.argsort(self.keys)[::-1]
        return int(self.keys[order[np.searchsorted(np.cumsum(self.counts[order], dtype=np.int64), rank)]])

    def size_changes(self) -> tuple[Ints, Ints]:
        """Give, for each size, how many sets of ``size - 1`` these events turn into ``size``."""
        (sizes,), counts = add_up((self.sizes,), self.counts)
        return sizes, counts

    def total_weight(self) -> Fraction:
        """Give the exact sum of the weights."""
        limbs = np.zeros(N_LIMBS, object)
        np.add.at(limbs, self.limb_numbers, self.limb_amounts.astype(object))
        return as_fraction(limbs) + sum_weights(self.weights)


def _distinct(columns: tuple[Ints, ...]) -> tuple[tuple[Ints, ...], Ints]:
    """Give the distinct rows of the columns in order, and for each row the number of its group.

    Rows are packed into one integer where that fits: ties have few distinct rows, which are then
    counted rather than sorted.
    """
    n = columns[0].size
    if n == 0:
        return columns, np.zeros(0, np.int64)
    lows = [int(column.min()) for column in columns]
    spans = [int(column.max()) - low + 1 for column, low in zip(columns, lows, strict=True)]
    n_codes = math.prod(spans)
    if n_codes >= 1 << 62:
        return _distinct_by_sorting(columns)
    code = np.zeros(n, np.int64)
    for column, low, span in zip(columns, lows, spans, strict=True):
        code = code * span + (column - low)
    if n_codes <= 4 * n:
        present = np.bincount(code, minlength=n_codes) > 0
        values, which = np.flatnonzero(present), (np.cumsum(present) - 1)[code]
    else:
        values, which = np.unique(code, return_inverse=True)
    groups: list[Ints] = []
    for low, span in zip(lows[::-1], spans[::-1], strict=True):
        groups.insert(0, values % span + low)
        values = values // span
    return tuple(groups), which


def _distinct_by_sorting(columns: tuple[Ints, ...]) -> tuple[tuple[Ints, ...], Ints]:
    """Do the same for rows that no integer can hold."""
    n = columns[0].size
    order = np.lexsort(columns[::-1])
    new = np.zeros(n, bool)
    new[:1] = True
    for column in columns:
        ordered = column[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    which = np.empty(n, np.int64)
    which[order] = np.cumsum(new) - 1
    return tuple(column[order][new] for column in columns), which


def add_up(columns: tuple[Ints, ...], amounts: NDArray[Any]) -> tuple[tuple[Ints, ...], Ints]:
    """Give the distinct rows of the columns and the sum of the amounts of each."""
    groups, which = _distinct(columns)
    if amounts.dtype == np.int8:  # single events: all ones
        return groups, np.bincount(which, minlength=groups[0].size)
    sums = np.zeros(groups[0].size, np.int64)
    np.add.at(sums, which, amounts)
    return groups, sums
