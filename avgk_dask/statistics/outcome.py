"""The exact outcome of an evaluation: the selection of each budget, and the errors of its sets as fractions.

Results round these fractions once. ``error_bars.py`` adds their standard errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from ..arrays import Array, Bools, Ints
from ..engine.memory import NO_STRATA, Strata
from ..engine.ranked import RankedTally
from ..engine.search import ThresholdSearch
from ..engine.strata import StrataRanks
from ..engine.tally import ScanTally
from ..engine.ties import Selection
from ..exact.budgets import largest_integer
from ..exact.sums import error_of
from ..settings import setting
from ..sources.source import Source
from .straddle import values_of


class GroupCounts(NamedTuple):
    """Counts of each group: samples, labelled ones, hits of average-k and top-k sets, and sizes of the former."""

    n_samples: Ints
    n_labelled: Ints
    hits: Ints
    top_hits: Ints
    sizes: Ints

    def select(self, groups: Ints | slice) -> GroupCounts:
        """Return the counts of some of the groups."""
        return GroupCounts(*(column[groups] for column in self))


@dataclass(frozen=True)
class Grouping:
    """How samples are grouped: into ``n`` ``"groups"`` that are stored with the labels, or into ``"classes"``."""

    kind: str = ""
    n: int = 0
    #: The strata of the groups, ascending, if they are not 0 to n - 1.
    names: Ints | None = None

    def strata(self, source: Source, budgets: Sequence[Fraction]) -> Strata:
        """Return the strata that a scan counts; without groups, hard labels are counted by rank."""
        if not self.n:
            return Strata("ranks") if has_hard_labels(source) else NO_STRATA
        n_samples = -(-source.shape[0] // self.n)
        n_ranks = 0 if source.labels is None else largest_integer(budgets)
        # Sums, ranks, and entries of counted ties: one for each group of bands that has samples of the group.
        n_bytes = 16 * (len(budgets) + 3) + 24 * min(n_ranks + 2, n_samples)
        n_bytes += 40 * min(setting("tie-groups"), n_samples)
        return Strata(self.kind, self.n * n_bytes)

    def number(self, strata: Ints) -> Ints:
        """Return the number of each stratum's group."""
        return strata if self.names is None else np.searchsorted(self.names, strata)


def has_hard_labels(source: Source) -> bool:
    """Return whether samples are labelled with class numbers."""
    return source.labels is not None and not source.has_soft_labels


@dataclass(frozen=True)
class Outcome:
    """The selections of all budgets, and the errors of their sets; errors are None without labels."""

    source: Source
    budgets: tuple[Fraction, ...]
    search: ThresholdSearch
    #: The groups by which samples are counted as well.
    grouping: Grouping = field(default_factory=Grouping)

    def drop_rows(self) -> Outcome:
        """Return the outcome without the rows and ranked scores that the scan retained."""
        tally = replace(self.tally, rows=(), ranked=RankedTally.empty())
        return replace(self, search=replace(self.search, first_tally=tally))

    @property
    def tally(self) -> ScanTally:
        """The tally of the first scan, which read all scores."""
        assert self.search.first_tally is not None
        return self.search.first_tally

    @cached_property
    def selections(self) -> list[Selection]:
        """The selection of each budget."""
        return [self.search.selections[i] for i in range(len(self.budgets))]

    @property
    def thresholds(self) -> Array:
        """The threshold of each budget."""
        return values_of([s.key for s in self.selections], self.source.dtype)

    def errors(self, rule: Literal["top", "average"]) -> list[Fraction | None]:
        """Return the top-k or the average-k error of each budget."""
        return self.top_errors if rule == "top" else self.average_errors

    def error(self, weight: Fraction) -> Fraction | None:
        """Return the error of sets that contain this label weight."""
        return error_of(weight, self.tally.n_labelled) if self.tally.n_labelled else None

    @cached_property
    def average_errors(self) -> list[Fraction | None]:
        """The average-k error of each budget."""
        return [self.error(s.weight) for s in self.selections]

    @cached_property
    def top_errors(self) -> list[Fraction | None]:
        """The top-k error of each budget; None for a fractional one."""
        return [None if weight is None else self.error(weight) for weight in self.top_weights]

    @cached_property
    def top_weights(self) -> list[Fraction | None]:
        """The label weight in the top-k sets of each budget; None for a fractional one."""
        return [self._top_weight(int(b)) if b.denominator == 1 else None for b in self.budgets]

    def _top_weight(self, k: int) -> Fraction:
        """Return the label weight up to rank k: the number of hard labels, or the sum of the soft ones."""
        hits = Fraction(int(self.tally.rank_counts[1 : k + 1].sum()))
        return sum(self.tally.weight_at_rank.fractions()[:k], hits)

    @property
    def n_groups(self) -> int:
        """Number of groups that have samples."""
        return int(np.unique(self.tally.strata_ranks.strata).size)

    def group_counts(self, i: int) -> GroupCounts:
        """Return the counts of each group for a budget."""
        n, strata = self.grouping.n, self.selections[i].strata
        sizes, hits = np.zeros((2, n), np.int64)
        groups = self.grouping.number(strata.strata)
        sizes[groups], hits[groups] = strata.sizes[:, 0], strata.hits[:, 0]
        ranks = self.tally.strata_ranks
        ranks = replace(ranks, strata=self.grouping.number(ranks.strata))
        n_samples, n_labelled, top_hits = count_ranks(ranks, n, self.budgets[i])
        return GroupCounts(n_samples, n_labelled, hits, top_hits, sizes)

    def extremes(self) -> list[tuple[Fraction | None, Fraction | None]]:
        """Return each budget's lowest and highest average-k error over all ways to keep that number of ties."""
        errors = []
        for s in self.selections:
            assert s.extremes is not None  # settled before
            least, most = s.extremes
            errors.append((self.error(s.weight_above + most), self.error(s.weight_above + least)))
        return errors

    @property
    def plug_in_bound(self) -> Fraction | None:
        """The mean over samples of the sum of |label - score|; None if scores are not probabilities."""
        return self.tally.distance.mean(self.source.shape[0])


def count_ranks(ranks: StrataRanks, n: int, budget: Fraction) -> tuple[Ints, Ints, Ints]:
    """Count the samples, the labelled ones and the top-k hits of n groups; a fractional budget has no hits."""

    def count(mask: Bools) -> Ints:
        counts = np.zeros(n, np.int64)
        np.add.at(counts, ranks.strata[mask], ranks.counts[mask])
        return counts

    labelled, k = ranks.ranks > 0, int(budget) if budget.denominator == 1 else 0
    return count(ranks.ranks >= 0), count(labelled), count(labelled & (ranks.ranks <= k))
