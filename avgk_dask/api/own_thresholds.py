"""Thresholds of groups, each found on its own samples, all in the same reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..arrays import Ints
from ..exact.budgets import count_labels_of_each, largest_integer
from ..kernels.keys import NAN_KEY, decode
from ..passes.caps import Strata
from ..passes.certifying import certify_groups, refuse_budgets
from ..passes.finding import find_group_thresholds
from ..passes.run import Run
from ..states.strata import StrataRanks
from .attributes import Named
from .outcome import GroupCounts, Grouping, rank_sums


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


def own_thresholds(run: Run, budgets: tuple[Fraction, ...], grouping: Grouping, n: int) -> Counted:
    """Find a threshold for each of the last n groups, and count what its sets hold."""
    refuse_budgets(run, budgets)
    keys = np.full((len(budgets), grouping.n), NAN_KEY, np.int64)
    hits, missing, ranks = np.zeros_like(keys), np.zeros_like(keys), StrataRanks.empty()
    for search in find_group_thresholds(run, budgets, _strata(run, budgets, grouping), grouping.n, grouping.n - n):
        assert search.targets is not None
        assert search.ranks is not None
        found, ranks = search.targets, search.ranks
        at = found.budgets, found.groups
        keys[at], hits[at], missing[at] = found.keys, found.hits, np.where(found.known, 0, found.left)
    counts = [_counts(ranks, *of) for of in zip(budgets, hits, missing, strict=True)]
    n_samples = counts[0].n_samples
    last = np.arange(grouping.n - n, grouping.n)
    certify_groups(run, budgets, keys, n_samples, last[n_samples[last] > 0])
    values, some = decode(keys, run.source.dtype), n_samples > 0
    # NaN stands for no samples. Integers of 64 bits, which float64 would round, are kept where it is not needed.
    are_kept = values.dtype.kind in "iu" and values.dtype.itemsize == 8 and some[last].all()
    thresholds = values if are_kept else np.where(some, values.astype(np.float64), np.nan)
    return Counted(counts, {"group_threshold": thresholds}, run.reads).of_groups(last)


def _strata(run: Run, budgets: Sequence[Fraction], grouping: Grouping) -> Strata:
    """Return what samples are counted by, and the bytes that takes: ranks of labels, and what is known of each threshold."""
    members = -(-run.source.shape[0] // grouping.n)
    per_group = 16 * len(budgets) + 24 * min(largest_integer(budgets) + 2, members)
    return Strata(grouping.kind, grouping.n * per_group)


def _counts(ranks: StrataRanks, budget: Fraction, hits: Ints, missing: Ints) -> GroupCounts:
    """Return the counts of all groups; ``missing`` are the members that sets lack where scores are NaN."""
    n_samples, n_labelled, top_hits = rank_sums(ranks, hits.size, budget)
    sizes = count_labels_of_each(budget, n_samples) - missing
    return GroupCounts(n_samples, n_labelled, hits, top_hits, sizes)
