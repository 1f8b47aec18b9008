"""The costs of labels, by group: singly as long as they are few, in bins beyond."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np

from ..arrays import Ints
from ..records import OWN, State
from .distinct import add_up
from .loss_tally import ProbabilityTally


@dataclass(frozen=True)
class CostHistogram(State):
    """How many labels of each group have a cost in each bin of ``2**shift``, the least shift with which the bins fit.

    More costs can only raise the shift, so that the histogram is the same for any order of merging. With shift 0 nothing is lost.
    ``most_bins`` is at least twice the number of groups: costs of both signs never join.
    """

    most_bins: Annotated[int, OWN]
    shift: Annotated[int, OWN]
    #: By group, then by bin, both ascending.
    groups: Annotated[Ints, OWN]
    bins: Annotated[Ints, OWN]
    counts: Annotated[Ints, OWN]

    @classmethod
    def of(cls, groups: Ints, costs: Ints, most_bins: int) -> Self:
        """Return the histogram of some costs."""
        return cls._fitted(most_bins, 0, groups, costs, np.ones(costs.size, np.int64))

    def nothing(self) -> Self:
        """Return the histogram of no cost."""
        none = np.zeros(0, np.int64)
        return type(self)(self.most_bins, 0, none, none, none)

    @classmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        """Return the histogram of all costs together."""
        if len(states) == 1:
            return states[0]
        shift = max(part.shift for part in states)
        columns = [(part.groups, part.bins >> (shift - part.shift), part.counts) for part in states]
        groups, bins, counts = (np.concatenate(column) for column in zip(*columns, strict=True))
        return cls._fitted(states[0].most_bins, shift, groups, bins, counts)

    @classmethod
    def _fitted(cls, most_bins: int, shift: int, groups: Ints, bins: Ints, counts: Ints) -> Self:
        """Return the histogram with equal bins joined, and then neighbours until they fit."""
        (groups, bins), counts = add_up((groups, bins), counts)
        more = 0
        if bins.size > most_bins:
            low, high = 1, 63
            while low < high:
                middle = (low + high) // 2
                low, high = (low, middle) if _n_distinct(groups, bins >> middle) <= most_bins else (middle + 1, high)
            more = low
            (groups, bins), counts = add_up((groups, bins >> more), counts)
        return cls(most_bins, shift + more, groups, bins, counts)

    def totals(self, n_groups: int) -> Ints:
        """Return how many labels each group has."""
        found = np.zeros(n_groups, np.int64)
        np.add.at(found, self.groups, self.counts)
        return found

    def find(self, ranks: Ints) -> tuple[Ints, Ints]:
        """Return of each group the bin of the cost of a rank, and its rank within the bin; 0 where the rank is not there.

        Ranks count from 1, the least cost first; 0 asks for nothing.
        """
        up_to = np.cumsum(self.counts)
        firsts = np.searchsorted(self.groups, np.arange(ranks.size))
        before = np.concatenate([[0], up_to])[firsts]
        there = (ranks > 0) & (ranks <= self.totals(ranks.size))
        index = np.searchsorted(up_to, before + ranks)[there]
        bins, left = np.zeros(ranks.size, np.int64), np.zeros(ranks.size, np.int64)
        bins[there] = self.bins[index]
        left[there] = (before + ranks)[there] - (up_to[index] - self.counts[index])
        return bins, left


def _n_distinct(groups: Ints, bins: Ints) -> int:
    """Return how many distinct pairs there are, in order."""
    return 1 + int(np.count_nonzero((np.diff(groups) != 0) | (np.diff(bins) != 0)))


@dataclass(frozen=True)
class CostTally(ProbabilityTally):
    """The costs of the labels of the bands read so far."""

    costs: CostHistogram
