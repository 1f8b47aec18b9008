"""Conformal thresholds and coverage: the costs of labels by group, the cost at a rank of each group, and set counts.

Few costs are counted one by one. Many are counted in bins, and a second read counts the costs inside the bin that holds the
rank of each group. ``bands.conformal`` defines the cost of a class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Self

import numpy as np

from ..arrays import Array, Bools, Dtype, Ints
from ..bands.conformal import ConformalMethod
from ..bands.passes import Pass, SampleGroups
from ..bands.rows import RowChecks
from ..engine.strata import add_up
from ..exact.coverage import quantile_rank
from ..records import OWN, Counts, State
from .losses import ProbabilityTally
from .rules import CostRule

#: Scores per tile.
_TILE = 1 << 17
#: Bytes of a bin of a histogram of costs.
_BIN_BYTES = 24


@dataclass(frozen=True)
class CostHistogram(State):
    """Number of labels of each group with a cost in each bin of width ``2**shift``, the least shift for which bins fit.

    More costs can only raise the shift, so the histogram does not depend on the order of merging. With shift 0 it is exact.
    ``most_bins`` is at least twice the number of groups, so that costs of different sign are never in one bin.
    """

    most_bins: Annotated[int, OWN]
    shift: Annotated[int, OWN]
    #: By group, then by bin, both ascending.
    groups: Annotated[Ints, OWN]
    bins: Annotated[Ints, OWN]
    counts: Annotated[Ints, OWN]

    @classmethod
    def from_costs(cls, groups: Ints, costs: Ints, most_bins: int) -> Self:
        """Return the histogram of some costs."""
        return cls._fitted(most_bins, 0, groups, costs, np.ones(costs.size, np.int64))

    def nothing(self) -> Self:
        """Return an empty histogram."""
        empty = np.zeros(0, np.int64)
        return type(self)(self.most_bins, 0, empty, empty, empty)

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
        """Return the histogram with equal bins joined, and then neighbours until the bins fit."""
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
        """Return the number of labels of each group."""
        totals = np.zeros(n_groups, np.int64)
        np.add.at(totals, self.groups, self.counts)
        return totals

    def find(self, ranks: Ints) -> tuple[Ints, Ints]:
        """Return, for each group, the bin of the cost at a rank, and the rank within the bin; 0 for ranks out of range.

        Ranks count from 1, the least cost first.
        """
        up_to = np.cumsum(self.counts)
        firsts = np.searchsorted(self.groups, np.arange(ranks.size))
        before = np.concatenate([[0], up_to])[firsts]
        exists = (ranks > 0) & (ranks <= self.totals(ranks.size))
        index = np.searchsorted(up_to, before + ranks)[exists]
        bins, left = np.zeros((2, ranks.size), np.int64)
        bins[exists] = self.bins[index]
        left[exists] = (before + ranks)[exists] - (up_to[index] - self.counts[index])
        return bins, left


def _n_distinct(groups: Ints, bins: Ints) -> int:
    """Return the number of distinct pairs, which are sorted."""
    return 1 + int(np.count_nonzero((np.diff(groups) != 0) | (np.diff(bins) != 0)))


@dataclass(frozen=True)
class CostTally(ProbabilityTally):
    """The costs of labels."""

    costs: CostHistogram


@dataclass(frozen=True)
class CostPlan:
    """The method, the grouping of labels, and which costs are counted.

    ``by`` is ``""`` for one group, ``"class"`` for one group per class, ``"group"`` if the label column contains groups.
    """

    dtype: Dtype
    n_classes: int
    method: ConformalMethod
    by: str
    most_bins: int
    first_rows: tuple[int, ...]
    #: Only costs in this bin of width ``2**shift`` of their group are counted, or all costs if None.
    shift: int = 0
    bins: Ints | None = None
    #: Only groups for which this is positive are counted.
    is_open: Ints | None = None

    def select(self, groups: Ints, costs: Ints) -> tuple[Ints, Ints]:
        """Return the groups and costs that are counted."""
        if self.bins is None or self.is_open is None:
            return groups, costs
        selection = (self.is_open[groups] > 0) & ((costs >> self.shift) == self.bins[groups])
        return groups[selection], costs[selection]


def cost_pass(plan: CostPlan, n_samples: int) -> Pass:
    """Return the pass that counts the costs of the labels of ``n_samples`` samples."""
    most = _BIN_BYTES * min(plan.most_bins, n_samples)
    return Pass("conformal", tally_costs, plan, CostTally, holds_rows=True, state_bytes=most)


def tally_costs(slabs: Iterable[Array], labels: Array, band: int, plan: CostPlan) -> CostTally:
    """Return the costs of one band's labels."""
    hard, groups = SampleGroups(plan.n_classes, plan.by == "group").split(labels)
    checks = RowChecks.from_slabs(slabs, hard, band, plan.dtype, plan.n_classes)
    classes = checks.labels.hard
    assert classes is not None
    rows = np.flatnonzero(classes >= 0)
    costs = np.zeros(len(classes), np.int64)
    for first, scores in checked_tiles(checks, plan.method):
        part = rows[np.searchsorted(rows, first) : np.searchsorted(rows, first + len(scores))]
        costs[part] = plan.method.label_costs(scores[part - first], classes[part], plan.first_rows[band] + part)
    row_groups = np.zeros(rows.size, np.int64) if plan.by == "" else (classes if groups is None else groups)[rows]
    histogram = CostHistogram.from_costs(*plan.select(row_groups, costs[rows]), plan.most_bins)
    return CostTally(**checks.fields(), costs=histogram)


def checked_tiles(checks: RowChecks, method: ConformalMethod) -> Iterator[tuple[int, Array]]:
    """Yield (first row, scores) of parts of a band's rows after checking them, until a check fails."""
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
    """The search for the cost at a rank of each group: the labels of each group, and the bin that holds the cost."""

    plan: CostPlan
    n_samples: int
    n_groups: int
    alpha: Fraction
    #: For each group: its labels, the rank of its threshold, and the rank within the bin (0 if larger than all labels).
    counts: Ints | None = None
    ranks: Ints | None = None
    left: Ints | None = None
    bins: Ints | None = None
    #: Bins are of ``2**shift`` costs.
    shift: int = 64
    first: CostTally | None = None

    def next_pass(self) -> Pass | None:
        """Return the next pass, or None once bins are single costs."""
        if self.shift == 0 or (self.left is not None and not self.left.any()):
            return None
        if self.bins is None or self.left is None:
            return cost_pass(self.plan, self.n_samples)
        plan = replace(self.plan, shift=self.shift, bins=self.bins, is_open=self.left)
        return cost_pass(plan, self.n_samples)

    def advance(self, state: CostTally) -> QuantileSearch:
        """Return the search after the state of its last pass."""
        if self.left is None:
            counts = state.costs.totals(self.n_groups)
            ranks = np.array([quantile_rank(n, self.alpha) for n in counts.tolist()], np.int64)
            left = np.where(ranks <= counts, ranks, 0)
            return replace(self, counts=counts, ranks=ranks, left=left, first=state).advance(state)
        bins, left = state.costs.find(self.left)
        return replace(self, bins=bins, left=left, shift=state.costs.shift)

    def levels(self) -> Ints:
        """Return the cost at the rank of each group; infinite if the group has too few labels or the cost is NaN."""
        assert self.bins is not None
        assert self.left is not None
        most = self.plan.method.everything
        return np.where(self.left > 0, np.minimum(self.bins, most), most)


@dataclass(frozen=True)
class CoverageCounts(State):
    """For each group: its samples, those with labels, those whose sets contain the label, and the sum of set sizes."""

    n_samples: Counts
    n_labelled: Counts
    n_hits: Counts
    sizes: Counts

    @classmethod
    def from_sets(cls, groups: Array, sizes: Ints, labelled: Bools, hits: Bools, n_groups: int) -> Self:
        """Count samples, given the group and set size of each, whether it has a label, and whether its set contains it."""
        totals = np.zeros(n_groups, np.int64)
        np.add.at(totals, groups, sizes)
        n_all, n_labelled, n_hits = (
            np.bincount(each, minlength=n_groups) for each in (groups, groups[labelled], groups[hits])
        )
        return cls(n_all, n_labelled, n_hits, totals)


@dataclass(frozen=True)
class CoverageTally(ProbabilityTally):
    """Counts of sets by their size, by the class of their label, and by group."""

    by_size: CoverageCounts
    by_class: CoverageCounts
    by_group: CoverageCounts


@dataclass(frozen=True)
class CoveragePlan:
    """The rule, the grouping of samples, and the first rows of the bands."""

    dtype: Dtype
    n_classes: int
    rule: CostRule
    groups: SampleGroups
    n_groups: int
    first_rows: tuple[int, ...]


def coverage_pass(plan: CoveragePlan) -> Pass:
    """Return the pass that counts sets."""
    n_counts = 4 * (2 * plan.n_classes + 1 + plan.n_groups)
    return Pass("coverage", tally_coverage, plan, CoverageTally, holds_rows=True, state_bytes=8 * n_counts)


def tally_coverage(slabs: Iterable[Array], labels: Array | None, band: int, plan: CoveragePlan) -> CoverageTally:
    """Return the counts of one band."""
    classes, groups = plan.groups.split(labels)
    checks = RowChecks.from_slabs(slabs, classes, band, plan.dtype, plan.n_classes)
    n_rows, hard = len(checks.rows), checks.labels.hard
    hard = np.full(n_rows, -1, np.int64) if hard is None else hard
    sizes, hits = np.zeros(n_rows, np.int64), np.zeros(n_rows, bool)
    for first, scores in checked_tiles(checks, plan.rule.method):
        rows = slice(first, first + len(scores))
        rule = plan.rule.for_rows(None if groups is None else groups[rows])
        samples = plan.first_rows[band] + np.arange(rows.start, rows.stop)
        sizes[rows], hits[rows] = rule.sizes(scores, samples), rule.contains_labels(scores, hard[rows], samples)
    labelled = hard >= 0
    groups = np.zeros(n_rows, np.int64) if groups is None else groups
    return CoverageTally(
        **checks.fields(),
        by_size=CoverageCounts.from_sets(sizes, sizes, labelled, hits, plan.n_classes + 1),
        by_class=CoverageCounts.from_sets(
            hard[labelled], sizes[labelled], labelled[labelled], hits[labelled], plan.n_classes
        ),
        by_group=CoverageCounts.from_sets(groups, sizes, labelled, hits, plan.n_groups),
    )
