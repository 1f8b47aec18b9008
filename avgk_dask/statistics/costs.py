"""Conformal thresholds and what their sets hold: the costs of labels by group, the cost at a rank of them, and coverage.

Costs are counted singly as long as they are few. Beyond, they are counted in bins, and a second read counts those in the one
bin of each group that holds its rank. What a class costs is in ``bands.conformal``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Protocol, Self

import numpy as np

from ..arrays import Array, Bools, Dtype, Ints
from ..bands.conformal import ConformalMethod
from ..bands.passes import Pass, SampleGroups
from ..bands.rows import RowChecks
from ..engine.strata import add_up
from ..exact.coverage import quantile_rank
from ..records import OWN, Counts, State
from .losses import ProbabilityTally

#: Scores that are worked on at once.
_TILE = 1 << 17
#: Bytes of a bin of a histogram of costs.
_BIN_BYTES = 24


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


@dataclass(frozen=True)
class CostPlan:
    """What is common to all bands: what labels cost, how they are grouped, and which costs are counted.

    ``by`` is ``""`` for one group, ``"class"`` for one per class, ``"group"`` if the labels' column holds it.
    """

    dtype: Dtype
    n_classes: int
    method: ConformalMethod
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


def cost_pass(plan: CostPlan, n_samples: int) -> Pass:
    """Return the pass that counts the costs of the labels of ``n_samples`` samples."""
    most = _BIN_BYTES * min(plan.most_bins, n_samples)
    return Pass("conformal", tally_costs, plan, CostTally, holds_rows=True, state_bytes=most)


def tally_costs(slabs: Iterable[Array], labels: Array, band: int, plan: CostPlan) -> CostTally:
    """Return the costs of one band's labels."""
    hard, groups = SampleGroups(plan.n_classes, plan.by == "group").split(labels)
    checks = RowChecks.of(slabs, hard, band, plan.dtype, plan.n_classes)
    mine = checks.labels.hard
    assert mine is not None
    rows = np.flatnonzero(mine >= 0)
    costs = np.zeros(len(mine), np.int64)
    for first, scores in checked_tiles(checks, plan.method):
        part = rows[np.searchsorted(rows, first) : np.searchsorted(rows, first + len(scores))]
        costs[part] = plan.method.label_costs(scores[part - first], mine[part], plan.first_rows[band] + part)
    of = np.zeros(rows.size, np.int64) if plan.by == "" else (mine if groups is None else groups)[rows]
    found = CostHistogram.of(*plan.within(of, costs[rows]), plan.most_bins)
    return CostTally(**checks.fields(), costs=found)


def checked_tiles(checks: RowChecks, method: ConformalMethod) -> Iterator[tuple[int, Array]]:
    """Yield (first row, scores) of stretches of a band's rows, after checking them; none once any are refused."""
    step = max(1, _TILE // checks.rows.shape[1])
    for first in range(0, len(checks.rows), step):
        scores = checks.rows[first : first + step]
        checks.note_nan(scores, first)
        if method.sums_probabilities and not checks.n_nan:
            checks.refuse(first + method.bad_rows(scores))
        if not (method.sums_probabilities and (checks.n_nan or checks.n_refused)):
            yield first, scores


@dataclass(frozen=True)
class QuantileSearch:
    """What is known after some reads: the labels of each group, and the bin in which the cost of its rank lies."""

    plan: CostPlan
    n_samples: int
    n_groups: int
    alpha: Fraction
    #: For each group its labels, the rank of its threshold, and the rank within the bin; 0 if it is beyond all labels.
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
        if self.bins is None or self.left is None:
            return cost_pass(self.plan, self.n_samples)
        plan = replace(self.plan, shift=self.shift, bins=self.bins, is_open=self.left)
        return cost_pass(plan, self.n_samples)

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
        """Return for each group the cost at its rank; that of everything if it has too few labels, or it is NaN."""
        assert self.bins is not None
        assert self.left is not None
        most = self.plan.method.everything
        return np.where(self.left > 0, np.minimum(self.bins, most), most)


@dataclass(frozen=True)
class CoverageCounts(State):
    """Of each group of samples: how many there are, how many of them have a label and hold it, and their sizes added up."""

    n_samples: Counts
    n_labelled: Counts
    n_hits: Counts
    sizes: Counts

    @classmethod
    def of(cls, groups: Array, sizes: Ints, labelled: Bools, hits: Bools, n_groups: int) -> Self:
        """Count samples, given the group, the size of the set, and whether there is a label and whether it is inside."""
        totals = np.zeros(n_groups, np.int64)
        np.add.at(totals, groups, sizes)
        n_all, n_labelled, n_hits = (
            np.bincount(which, minlength=n_groups) for which in (groups, groups[labelled], groups[hits])
        )
        return cls(n_all, n_labelled, n_hits, totals)


@dataclass(frozen=True)
class CoverageTally(ProbabilityTally):
    """The sets of the bands read so far."""

    by_size: CoverageCounts
    #: Of labelled samples, by their class.
    by_class: CoverageCounts
    by_group: CoverageCounts


class SizedRule(Protocol):
    """A rule that counts sets, and finds labels in them, without making them."""

    @property
    def method(self) -> ConformalMethod:
        """What classes cost."""

    def for_rows(self, groups: Ints | None) -> Self:
        """Return the rule for rows of these groups."""

    def sizes(self, scores: Array, samples: Ints) -> Ints:
        """Return the size of each row's set, given the numbers of the rows' samples."""

    def holds(self, scores: Array, labels: Ints, samples: Ints) -> Bools:
        """Return whether each row's set holds its label; never where that is negative."""


@dataclass(frozen=True)
class CoveragePlan:
    """The rule, how the labels' column holds groups, their number, and where the bands begin."""

    dtype: Dtype
    n_classes: int
    rule: SizedRule
    groups: SampleGroups
    n_groups: int
    first_rows: tuple[int, ...]


def coverage_pass(plan: CoveragePlan) -> Pass:
    """Return the pass that counts sets."""
    n_counts = 4 * (2 * plan.n_classes + 1 + plan.n_groups)
    return Pass("coverage", tally_coverage, plan, CoverageTally, holds_rows=True, state_bytes=8 * n_counts)


def tally_coverage(slabs: Iterable[Array], labels: Array | None, band: int, plan: CoveragePlan) -> CoverageTally:
    """Return the counts of one band."""
    given, groups = plan.groups.split(labels)
    checks = RowChecks.of(slabs, given, band, plan.dtype, plan.n_classes)
    n_rows, hard = len(checks.rows), checks.labels.hard
    hard = np.full(n_rows, -1, np.int64) if hard is None else hard
    sizes, hits = np.zeros(n_rows, np.int64), np.zeros(n_rows, bool)
    for first, scores in checked_tiles(checks, plan.rule.method):
        rows = slice(first, first + len(scores))
        rule = plan.rule.for_rows(None if groups is None else groups[rows])
        samples = plan.first_rows[band] + np.arange(rows.start, rows.stop)
        sizes[rows], hits[rows] = rule.sizes(scores, samples), rule.holds(scores, hard[rows], samples)
    mine = hard >= 0
    names = np.zeros(n_rows, np.int64) if groups is None else groups
    return CoverageTally(
        **checks.fields(),
        by_size=CoverageCounts.of(sizes, sizes, mine, hits, plan.n_classes + 1),
        by_class=CoverageCounts.of(hard[mine], sizes[mine], mine[mine], hits[mine], plan.n_classes),
        by_group=CoverageCounts.of(names, sizes, mine, hits, plan.n_groups),
    )
