"""What conformal sets hold: the number of sets of each size, and of those with their label, also by class and group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from ..arrays import Array, Bools, Dtype, Ints
from ..bands.passes import Pass, SampleGroups
from ..bands.rows import RowChecks
from ..records import Counts, State
from .costs import CostRule, checked_tiles
from .losses import ProbabilityTally


@dataclass(frozen=True)
class CoverageCounts(State):
    """For each group of samples: how many there are, how many have a label and hold it, and the sum of their sizes."""

    n_samples: Counts
    n_labelled: Counts
    n_hits: Counts
    sizes: Counts

    @classmethod
    def of(cls, groups: Array, sizes: Ints, labelled: Bools, hits: Bools, n_groups: int) -> Self:
        """Count samples, given group and size of the set, whether there is a label, and whether it is inside."""
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


@dataclass(frozen=True)
class CoveragePlan:
    """The rule, how the labels' column tells groups, of which there are so many, and where the bands begin."""

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
    given, groups = plan.groups.split(labels)
    checks = RowChecks.of(slabs, given, band, plan.dtype, plan.n_classes)
    n_rows, hard = len(checks.rows), checks.labels.hard
    hard = np.full(n_rows, -1, np.int64) if hard is None else hard
    sizes, hits = np.zeros(n_rows, np.int64), np.zeros(n_rows, bool)
    for first, scores in checked_tiles(checks, plan.rule.costs):
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
