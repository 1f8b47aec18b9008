"""The cost of a rank among the costs of all labels, or of those of each group: what conformal thresholds are.

Costs are counted singly as long as they are few. Otherwise they are counted in bins, and a second read counts those in
the one bin of each group that holds its rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Self

import numpy as np

from ..arrays import Array, Dtype, Ints
from ..bands.passes import Pass, SampleGroups
from ..bands.rows import RowChecks
from ..engine.strata import add_up
from ..exact.coverage import quantile_rank
from ..records import OWN, State
from .costs import Costs, checked_tiles
from .losses import ProbabilityTally

#: Bytes of a bin of a histogram of costs.
_BIN_BYTES = 24


@dataclass(frozen=True)
class CostHistogram(State):
    """How many labels of each group have a cost in each bin of ``2**shift``, the least shift with which the bins fit.

    More costs can only raise the shift, so that the histogram is the same for any order of merging. With shift 0
    nothing is lost. ``most_bins`` is at least twice the number of groups: costs of both signs never join.
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
        """Return for each group the bin of the cost of a rank, and its rank within the bin; 0 if the rank is not there.

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


@dataclass(frozen=True)
class CostPlan:
    """What is common to all bands: what labels cost, how they are grouped, and which costs are counted.

    ``by`` is ``""`` for one group, ``"class"`` for one a class, ``"group"`` where the labels' column tells it.
    """

    dtype: Dtype
    n_classes: int
    costs: Costs
    by: str
    most_bins: int
    first_rows: tuple[int, ...]
    #: Costs of a group are counted that are in its bin of ``2**shift``; all of them where there are no bins.
    shift: int = 0
    bins: Ints | None = None
    #: Of which groups they are.
    is_open: Ints | None = None

    def within(self, groups: Ints, costs: Ints) -> tuple[Ints, Ints]:
        """Return those that are counted."""
        if self.bins is None or self.is_open is None:
            return groups, costs
        mine = (self.is_open[groups] > 0) & ((costs >> self.shift) == self.bins[groups])
        return groups[mine], costs[mine]


def tally_costs(slabs: Iterable[Array], labels: Array, band: int, plan: CostPlan) -> CostTally:
    """Return the costs of one band's labels."""
    hard, groups = SampleGroups(plan.n_classes, plan.by == "group").split(labels)
    checks = RowChecks.of(slabs, hard, band, plan.dtype, plan.n_classes)
    mine = checks.labels.hard
    assert mine is not None
    rows = np.flatnonzero(mine >= 0)
    costs = np.zeros(len(mine), np.int64)
    for first, scores in checked_tiles(checks, plan.costs):
        part = rows[np.searchsorted(rows, first) : np.searchsorted(rows, first + len(scores))]
        costs[part] = plan.costs.of_labels(scores[part - first], mine[part], plan.first_rows[band] + part)
    of = np.zeros(rows.size, np.int64) if plan.by == "" else (mine if groups is None else groups)[rows]
    found = CostHistogram.of(*plan.within(of, costs[rows]), plan.most_bins)
    return CostTally(**checks.fields(), costs=found)


@dataclass(frozen=True)
class QuantileSearch:
    """What is known after some reads: the labels of each group, and the bin in which the cost of its rank lies."""

    plan: CostPlan
    n_samples: int
    n_groups: int
    alpha: Fraction
    #: Of each group the labels, the rank that is asked for, and the rank within the bin; 0 where it is beyond all
    #: labels.
    counts: Ints | None = None
    ranks: Ints | None = None
    left: Ints | None = None
    bins: Ints | None = None
    #: Bins are of ``2**shift`` costs.
    shift: int = 64
    first: CostTally | None = None

    def next_pass(self) -> Pass | None:
        """Return the next pass; none once bins are single costs."""
        if self.shift == 0 or (self.left is not None and not self.left.any()):
            return None
        plan, most = self.plan, _BIN_BYTES * min(self.plan.most_bins, self.n_samples)
        if self.bins is not None:
            plan = replace(plan, shift=self.shift, bins=self.bins, is_open=self.left)
        return Pass("conformal", tally_costs, plan, CostTally, holds_rows=True, state_bytes=most)

    def advance(self, state: CostTally) -> QuantileSearch:
        """Take what a pass has found."""
        found = state.costs
        if self.left is None:
            counts = found.totals(self.n_groups)
            ranks = np.array([quantile_rank(n, self.alpha) for n in counts.tolist()], np.int64)
            known = replace(self, counts=counts, ranks=ranks, left=np.where(ranks <= counts, ranks, 0), first=state)
            return known.advance(state)
        bins, left = found.find(self.left)
        return replace(self, bins=bins, left=left, shift=found.shift)

    def levels(self) -> Ints:
        """Return of each group the cost of its rank; that of everything where it has too few labels, or it is NaN."""
        assert self.bins is not None
        assert self.left is not None
        most = self.plan.costs.everything
        return np.where(self.left > 0, np.minimum(self.bins, most), most)
