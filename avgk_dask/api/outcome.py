"""The exact outcome of an evaluation: fractions, which results round once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..arrays import Array, Ints
from ..exact.budgets import count_labels, largest_integer, window_start
from ..exact.sums import error_of
from ..passes.caps import Strata
from ..passes.finding import find_thresholds
from ..passes.run import Run
from ..searches.selection import Selection
from ..searches.threshold_search import ThresholdSearch
from ..settings import setting
from ..sources.source import Source
from ..states.ranked_scores import RankedTally
from ..states.scan_tally import ScanTally
from ..states.strata import StrataRanks


class GroupCounts(NamedTuple):
    """Of each group: samples, labelled ones, labels in the average-k and in the top-k sets, and labels the former hold."""

    n_samples: Ints
    n_labelled: Ints
    hits: Ints
    top_hits: Ints
    sizes: Ints


@dataclass(frozen=True)
class Grouping:
    """How many groups samples are counted by, and whether those are ``"groups"`` that came with the labels, or ``"classes"``."""

    kind: str = ""
    n: int = 0
    #: The strata of the groups, ascending, where those are not 0 to n - 1.
    names: Ints | None = None

    def places(self, strata: Ints) -> Ints:
        """Return the number of each stratum's group."""
        return strata if self.names is None else np.searchsorted(self.names, strata)


@dataclass(frozen=True)
class Outcome:
    """What a search tells about all budgets; errors are None where there are no labels."""

    source: Source
    budgets: tuple[Fraction, ...]
    search: ThresholdSearch
    #: By what samples are counted, besides.
    grouping: Grouping = field(default_factory=lambda: Grouping())

    @classmethod
    def find(
        cls,
        run: Run,
        budgets: tuple[Fraction, ...],
        n_ranked: int = 0,
        ties: str = "first",
        grouping: Grouping | None = None,
        keeps_rows: bool = False,
    ) -> Outcome:
        """Search the thresholds of all budgets; ``n_ranked`` and ``ties`` as for ``find_thresholds``.

        With hard labels, sizes and hits are counted by the rank of the label, or as the grouping says.
        """
        source = run.source
        counts = [count_labels(b, source.shape[0]) for b in budgets]
        n_ranks = 0 if source.labels is None else largest_integer(budgets)
        hard = source.labels is not None and not source.has_soft_labels
        grouping = grouping or Grouping()
        members = -(-source.shape[0] // max(grouping.n, 1))
        # Sums, ranks, and entries of counted ties: one for each group of bands that has samples of the group.
        per_group = 16 * (len(budgets) + 3) + 24 * min(n_ranks + 2, members) + 40 * min(setting("tie-groups"), members)
        strata = Strata(grouping.kind, grouping.n * per_group) if grouping.n else Strata("ranks" if hard else "")
        search = find_thresholds(
            run,
            counts,
            n_ranks=n_ranks,
            with_distance=source.has_soft_labels,
            n_ranked=n_ranked,
            ties=ties,
            strata=strata,
            windows=[window_start(count) for count in counts] if hard else (),
            keeps_rows=keeps_rows,
        )
        return cls(source, budgets, search, grouping)

    def slim(self) -> Outcome:
        """Return the outcome without the rows and ranked scores that were held to find it."""
        slim = replace(self.tally, rows=(), ranked=RankedTally.empty())
        return replace(self, search=replace(self.search, first_tally=slim))

    @property
    def tally(self) -> ScanTally:
        """The tally of the first scan, which read all scores."""
        assert self.search.first_tally is not None
        return self.search.first_tally

    @cached_property
    def selections(self) -> list[Selection]:
        """The selection of each budget."""
        return [self.search.found[i] for i in range(len(self.budgets))]

    def error(self, weight: Fraction) -> Fraction | None:
        """Return the error of sets with so much label weight inside."""
        return error_of(weight, self.tally.n_labelled) if self.tally.n_labelled else None

    @cached_property
    def average_errors(self) -> list[Fraction | None]:
        """The average-k error of each budget."""
        return [self.error(s.weight) for s in self.selections]

    @cached_property
    def top_errors(self) -> list[Fraction | None]:
        """The top-k error of each budget; None for a fractional one."""
        return [self.error(self._top_weight(int(b))) if b.denominator == 1 else None for b in self.budgets]

    @cached_property
    def average_weights(self) -> list[Fraction | None]:
        """The label weight in the average-k sets of each budget, over the number of labelled samples."""
        n = self.tally.n_labelled
        return [s.weight / n if n else None for s in self.selections]

    @cached_property
    def top_weights(self) -> list[Fraction | None]:
        """The same in the top-k sets; None for a fractional budget."""
        n = self.tally.n_labelled
        return [self._top_weight(int(b)) / n if n and b.denominator == 1 else None for b in self.budgets]

    def _top_weight(self, k: int) -> Fraction:
        """Return the label weight up to rank k: hard labels there, or the soft labels' weight."""
        hits = Fraction(int(self.tally.rank_counts[1 : k + 1].sum()))
        return sum(self.tally.weight_at_rank.fractions()[:k], hits)

    @property
    def n_groups(self) -> int:
        """Number of groups that have samples."""
        return int(np.unique(self.tally.strata_ranks.strata).size)

    def group_counts(self, i: int) -> GroupCounts:
        """Return what each group adds up to, for a budget."""
        n, selection = self.grouping.n, self.selections[i]
        sizes, hits = np.zeros((2, n), np.int64)
        strata = selection.strata
        mine = self.grouping.places(strata.strata)
        sizes[mine], hits[mine] = strata.sizes[:, 0], strata.hits[:, 0]
        ranks = self.tally.strata_ranks
        ranks = replace(ranks, strata=self.grouping.places(ranks.strata))
        n_samples, n_labelled, top_hits = rank_sums(ranks, n, self.budgets[i])
        return GroupCounts(n_samples, n_labelled, hits, top_hits, sizes)

    def is_spread(self, selection: Selection) -> bool:
        """Return whether ties of a selection were cut in the pseudo-random order: ranks of labels are not known of its strata."""
        return selection.is_cut and selection.cut is None

    def extremes(self) -> list[tuple[Fraction | None, Fraction | None]]:
        """Return each budget's lowest and highest average-k error over all ways to keep so many of the ties."""
        found = []
        for s in self.selections:
            assert s.extremes is not None  # settled first
            least, most = s.extremes
            found.append((self.error(s.weight_above + most), self.error(s.weight_above + least)))
        return found

    @property
    def plug_in_bound(self) -> Fraction | None:
        """The mean over samples of the sum of |label - score|; None where scores are no probabilities."""
        return self.tally.distance.mean(self.source.shape[0])


def rank_sums(ranks: StrataRanks, n: int, budget: Fraction) -> tuple[Ints, Ints, Ints]:
    """Return of each of n groups the samples, the labelled ones, and the labels in the top-k sets: none for a fractional budget."""

    def count(which: Array) -> Ints:
        found = np.zeros(n, np.int64)
        np.add.at(found, ranks.strata[which], ranks.counts[which])
        return found

    labelled, k = ranks.ranks > 0, int(budget) if budget.denominator == 1 else 0
    return count(ranks.ranks >= 0), count(labelled), count(labelled & (ranks.ranks <= k))
