"""Counted events: where ties make the scores near a threshold many, equal ones of a band, or of some bands, are counted together.

An event is a score inside an interval of a scan, as the change it makes to a set: once it is in, the set
of its row has a certain size, and its label hits grow by a weight. Row sizes telescope: moving the
threshold past an event turns one set of ``size - 1`` into one of ``size``. So set sizes and errors for
*every* threshold inside an interval follow from the events, without the rows. Only a cut through the
counted ties of some bands needs their rows again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Self

import numpy as np

from ..arrays import Array, Ints
from ..exact.sums import ExactSums
from ..records import JOINED, State

Column = Annotated[Ints, JOINED]


@dataclass(frozen=True)
class EventTally(State):
    """How many events of each (key, group of bands, size) there are, with the weights (hits or soft labels) they bring."""

    keys: Column
    groups: Column
    sizes: Column
    counts: Column
    #: Exact sums of weights for each (key, group), scattered (see ``ExactSums``).
    weight_keys: Column
    weight_groups: Column
    weight_limbs: Column
    weight_amounts: Column

    @classmethod
    def empty(cls) -> EventTally:
        """Return the tally of no event."""
        none = np.zeros(0, np.int64)
        return cls(none, none, none, none, none, none, none, none)

    @classmethod
    def count(cls, groups: Ints, keys: Array, sizes: Array, weights: Array) -> EventTally:
        """Count events, given the group of bands of each."""
        wide = keys.astype(np.int64)
        distinct, counts = add_up((wide, groups, sizes), np.ones(keys.size, np.int8))
        some = np.flatnonzero(weights)
        (weight_keys, weight_groups), which = _distinct((wide[some], groups[some]))
        sums = ExactSums.zeros(weight_keys.size)
        sums.add(weights[some], which)
        at, limb, amounts = sums.scattered()
        columns: tuple[Ints, ...] = (*distinct, counts, weight_keys[at], weight_groups[at], limb, amounts)
        return cls(*columns)

    def settled(self) -> Self:
        """Return the tally with equal events counted together."""
        events, counts = add_up((self.keys, self.groups, self.sizes), self.counts)
        weights, amounts = add_up((self.weight_keys, self.weight_groups, self.weight_limbs), self.weight_amounts)
        columns: tuple[Ints, ...] = (*events, counts, *weights, amounts)
        return type(self)(*columns)

    @property
    def n_stored(self) -> int:
        """How many entries the tally keeps in memory."""
        return int(self.keys.size + self.weight_keys.size)

    @property
    def n_scores(self) -> int:
        """How many scores the events stand for."""
        return int(self.counts.sum())

    def select(self, keep: Callable[[Ints, Ints], Any]) -> EventTally:
        """Return the events that satisfy ``keep``, a function of keys and groups."""
        a, b = np.flatnonzero(keep(self.keys, self.groups)), np.flatnonzero(keep(self.weight_keys, self.weight_groups))
        return EventTally(
            self.keys[a], self.groups[a], self.sizes[a], self.counts[a],
            self.weight_keys[b], self.weight_groups[b], self.weight_limbs[b], self.weight_amounts[b],
        )  # fmt: skip

    def total_weight(self) -> Fraction:
        """Return the exact sum of the weights."""
        return ExactSums.gathered(self.weight_limbs, self.weight_amounts)


def _distinct(columns: tuple[Ints, ...]) -> tuple[tuple[Ints, ...], Ints]:
    """Return the distinct rows of the columns in order, and for each row the number of its group.

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


def add_up(columns: tuple[Ints, ...], amounts: Array) -> tuple[tuple[Ints, ...], Ints]:
    """Return the distinct rows of the columns and the sum of the amounts of each."""
    groups, which = _distinct(columns)
    if amounts.dtype == np.int8:  # single events: all ones
        return groups, np.bincount(which, minlength=groups[0].size)
    sums = np.zeros(groups[0].size, np.int64)
    np.add.at(sums, which, amounts)
    return groups, sums
