"""Thresholds of groups, each found on its own samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..arrays import Bools, Ints
from ..passes.certifying import certify_budgets, refuse_budgets
from ..passes.run import Run
from ..sources.filtered import filtered_source
from ..sources.sample_masks import Condition
from ..sources.source import Source
from ..sources.transformed import TransformedSource
from .attributes import Named
from .outcome import GroupCounts, Outcome
from .thresholds import score_value


@dataclass(frozen=True)
class Counted:
    """What all groups add up to for each budget, the thresholds, and how often the store was read."""

    counts: Sequence[GroupCounts]
    thresholds: Named
    reads: int

    def of_groups(self, which: Ints) -> Counted:
        """Return the same of some groups."""
        counts = [GroupCounts(*(column[which] for column in one)) for one in self.counts]
        own = "group_threshold"
        thresholds: Named = dict(self.thresholds)
        if own in thresholds:
            thresholds[own] = np.asarray(thresholds[own])[:, which]
        return Counted(counts, thresholds, self.reads)


def own_thresholds(
    source: Source,
    numbers: Ints,
    n: int,
    budgets: tuple[Fraction, ...],
    running: Callable[[Source], AbstractContextManager[Run]],
) -> Counted:
    """Evaluate each of n groups by itself, given the number of each sample's; -1 for none."""
    exists = np.ones(numbers.size, bool) if source.mask is None else source.mask.samples()
    table = np.zeros((len(budgets), 5, n), np.int64)
    thresholds, reads = np.full((len(budgets), n), np.nan), 0
    for group in range(n):
        mine = exists & (numbers == group)
        if not mine.any():
            continue
        with running(existing_in(source, mine)) as run:
            refuse_budgets(run, budgets)
            outcome = Outcome.find(run, budgets)
            certify_budgets(run, budgets, [s.key for s in outcome.selections])
            reads += run.reads
        for i, selection in enumerate(outcome.selections):
            thresholds[i, group] = score_value(selection.key, source.dtype)
            table[i, :, group] = _counts(outcome, i)
    return Counted([GroupCounts(*one) for one in table], {"group_threshold": thresholds}, reads)


def _counts(outcome: Outcome, i: int) -> tuple[int, ...]:
    """Return the counts of all samples, in the order of ``GroupCounts``."""
    selection, budget, tally = outcome.selections[i], outcome.budgets[i], outcome.tally
    k = int(budget) if budget.denominator == 1 else 0
    sizes = selection.n_above + selection.n_kept
    return tally.n_rows, tally.n_labelled, int(selection.weight), int(tally.rank_counts[1 : k + 1].sum()), sizes


def existing_in(source: Source, mine: Bools) -> Source:
    """Return some of the samples of a source; what happens to scores happens after samples are left out."""
    if isinstance(source, TransformedSource):
        return source.over(existing_in(source.inner, mine))
    return filtered_source(source.whole, [Condition(mine)])
