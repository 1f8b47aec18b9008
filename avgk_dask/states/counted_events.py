"""Counted events: where ties make the scores near a threshold many, equal ones of a band, or of some bands, are counted together.

An event is a score inside an interval of a scan, as the change it makes to a set: once it is in, the set
of its row has a certain size, and its label hits grow by a weight. Row sizes telescope: moving the
threshold past an event turns one set of ``size - 1`` into one of ``size``. Its *step* tells that size, whether it is the label,
and whether the label is in the set then (see ``step_events``). So set sizes and errors for
*every* threshold inside an interval follow from the events, without the rows. Only a cut through the
counted ties of some bands needs their rows again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Self

import numpy as np

from ..arrays import Array, Ints
from ..exact.sums import ExactSums
from ..records import JOINED, State
from .distinct import add_up, distinct
from .strata import StrataSums

Column = Annotated[Ints, JOINED]


@dataclass(frozen=True)
class EventTally(State):
    """How many events of each (key, group of bands, step) there are, with the weights (hits or soft labels) they bring."""

    keys: Column
    groups: Column
    steps: Column
    counts: Column
    #: Exact sums of weights for each (key, group), scattered (see ``ExactSums``).
    weight_keys: Column
    weight_groups: Column
    weight_limbs: Column
    weight_amounts: Column
    #: How many events of each (key, group, stratum) there are, and the hard labels among them.
    stratum_keys: Column
    stratum_groups: Column
    strata: Column
    stratum_counts: Column
    stratum_hits: Column

    @classmethod
    def empty(cls) -> EventTally:
        """Return the tally of no event."""
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
        """How many entries the tally keeps in memory."""
        return int(self.keys.size + self.weight_keys.size + self.stratum_keys.size)

    @property
    def n_scores(self) -> int:
        """How many scores the events stand for."""
        return int(self.counts.sum())

    def select(self, keep: Callable[[Ints, Ints], Any]) -> EventTally:
        """Return the events that satisfy ``keep``, a function of keys and groups."""
        tables = (
            (self.keys, self.groups, self.steps, self.counts),
            (self.weight_keys, self.weight_groups, self.weight_limbs, self.weight_amounts),
            (self.stratum_keys, self.stratum_groups, self.strata, self.stratum_counts, self.stratum_hits),
        )
        found = [(table, np.flatnonzero(keep(table[0], table[1]))) for table in tables]
        return EventTally(*(column[mine] for table, mine in found for column in table))

    def total_weight(self) -> Fraction:
        """Return the exact sum of the weights."""
        return ExactSums.gathered(self.weight_limbs, self.weight_amounts)

    def strata_sums(self) -> StrataSums:
        """Return what the strata gain once the events are in."""
        return StrataSums.added(self.strata, self.stratum_hits, self.stratum_counts)

    def add_cells(self, changes: Ints) -> None:
        """Add to what the number of sets of each cell changes by."""
        size, is_label, inside = self.steps >> 2, self.steps >> 1 & 1, self.steps & 1
        np.add.at(changes, 2 * size + inside, self.counts)
        np.subtract.at(changes, 2 * (size - 1) + inside - is_label, self.counts)
