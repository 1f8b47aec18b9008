"""What known sets hold of a band: their sizes, and whether the labels are inside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from ..arrays import Array, Bools, Dtype, Ints
from ..states.coverage_tally import CoverageCounts, CoverageTally
from .band_pass import Pass
from .cost_scan import checked_tiles
from .costs import Costs
from .label_columns import SampleGroups
from .whole_rows import RowChecks


class SizedRule(Protocol):
    """A rule that counts sets, and finds labels in them, without making them."""

    @property
    def costs(self) -> Costs:
        """What classes cost."""

    def for_rows(self, groups: Ints | None) -> Self:
        """Return the rule for rows of these groups."""

    def sizes(self, scores: Array, samples: Ints) -> Ints:
        """Return the size of each row's set, given the numbers of the rows' samples."""

    def holds(self, scores: Array, labels: Ints, samples: Ints) -> Bools:
        """Return whether each row's set holds its label; never where that is negative."""


@dataclass(frozen=True)
class CoveragePlan:
    """The rule, how the labels' column tells groups, of which there are so many, and where the bands begin."""

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
