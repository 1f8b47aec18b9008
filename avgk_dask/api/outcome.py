"""The exact outcome of an evaluation: errors as fractions, which results round once, and their standard errors.

Standard errors come from exact sums of squares and products over samples or clusters. Write L for "labelled", h and t
for "the label is in the average-k set, the top-k set", Z for the size of the average-k set. The average-k error changes
with one sample by its *influence*, over N:

    psi = (N / n) L (1 - h/L - e) + r (Z - mean Z),

n the number of labelled samples and r the labels that one more score in the sets brings, per sample: N / n times the
share of labels among the scores of ranks B - w to B, with w the least for which w**3 >= B**2, at most 16,384
(``window_start``). So a search also settles the budget B - w, of which only the label weight is needed. The second part
is there because a sample also moves the threshold. The top-k error has psi = (N / n) L (1 - t/L - e), the gain the
difference of both. A standard error is the root of the sum of psi squared, over N; with clusters psi is first added up
within each. This is a quadratic form in the sums of products of (1, L, h, t, Z): integers, added up exactly and rounded
once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..arrays import Array, Ints
from ..engine.memory import Strata
from ..engine.ranked import RankedTally
from ..engine.run import Run
from ..engine.search import ThresholdSearch
from ..engine.strata import StrataRanks
from ..engine.tally import ScanTally
from ..engine.ties import Selection
from ..exact.budgets import count_labels, largest_integer, window_start
from ..exact.sums import error_of
from ..settings import setting
from ..sources.source import Source
from ..statistics.thresholds import find_thresholds


class GroupCounts(NamedTuple):
    """Counts of each group: samples, labelled ones, hits of average-k and top-k sets, and sizes of the former."""

    n_samples: Ints
    n_labelled: Ints
    hits: Ints
    top_hits: Ints
    sizes: Ints


@dataclass(frozen=True)
class Grouping:
    """By what samples are counted: ``n`` ``"groups"`` that come with the labels, or ``"classes"``."""

    kind: str = ""
    n: int = 0
    #: The strata of the groups, ascending, where those are not 0 to n - 1.
    names: Ints | None = None

    def places(self, strata: Ints) -> Ints:
        """Return the number of each stratum's group."""
        return strata if self.names is None else np.searchsorted(self.names, strata)


@dataclass(frozen=True)
class Outcome:
    """The selections of all budgets, and the errors they give; errors are None without labels."""

    source: Source
    budgets: tuple[Fraction, ...]
    search: ThresholdSearch
    #: The groups by which samples are counted as well.
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
        """Return the counts of each group, for a budget."""
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
        """Return whether ties were cut in the pseudo-random order: then its strata do not know the ranks of labels."""
        return selection.is_cut and selection.cut is None

    def extremes(self) -> list[tuple[Fraction | None, Fraction | None]]:
        """Return each budget's lowest and highest average-k error over all ways to keep that number of ties."""
        found = []
        for s in self.selections:
            assert s.extremes is not None  # settled first
            least, most = s.extremes
            found.append((self.error(s.weight_above + most), self.error(s.weight_above + least)))
        return found

    @property
    def plug_in_bound(self) -> Fraction | None:
        """The mean over samples of the sum of |label - score|; None if scores are not probabilities."""
        return self.tally.distance.mean(self.source.shape[0])


def rank_sums(ranks: StrataRanks, n: int, budget: Fraction) -> tuple[Ints, Ints, Ints]:
    """Count the samples, the labelled ones and the top-k hits of n groups; a fractional budget has no hits."""

    def count(which: Array) -> Ints:
        found = np.zeros(n, np.int64)
        np.add.at(found, ranks.strata[which], ranks.counts[which])
        return found

    labelled, k = ranks.ranks > 0, int(budget) if budget.denominator == 1 else 0
    return count(ranks.ranks >= 0), count(labelled), count(labelled & (ranks.ranks <= k))


#: What a sum of products is of, in the order of ``GroupCounts``.
ONE, LABELLED, HIT, TOP_HIT, SIZE = range(5)

Coefficients = dict[int, Fraction]
#: Rows whose products are added up at a time.
_STRETCH = 1 << 14


@dataclass(frozen=True)
class ErrorBars:
    """The standard errors for one budget, or None."""

    average_k_error: float | None = None
    top_k_error: float | None = None
    adaptive_gain: float | None = None
    relative_gain: float | None = None


def error_bars(outcome: Outcome) -> list[ErrorBars]:
    """Return the standard errors for each budget; none without hard labels."""
    if outcome.source.has_soft_labels or not outcome.tally.n_labelled:
        return [ErrorBars() for _ in outcome.budgets]
    return [_bars_of(outcome, i) for i in range(len(outcome.budgets))]


def _bars_of(outcome: Outcome, i: int) -> ErrorBars:
    selection, budget = outcome.selections[i], outcome.budgets[i]
    k = int(budget) if budget.denominator == 1 else None
    products = cluster_products(outcome, i) if outcome.grouping.n else sample_products(outcome, selection, k)
    average = average_influence(outcome, i)
    top = None if k is None else top_influence(outcome, i)
    found = ErrorBars(products.stderr(average), None if top is None else products.stderr(top))
    if top is None or not products.has_top:
        return found
    relative = relative_influence(outcome, i, top, average)
    return replace(
        found,
        adaptive_gain=products.stderr(less(top, average)),
        relative_gain=None if relative is None else products.stderr(relative),
    )


def average_influence(outcome: Outcome, i: int) -> Coefficients:
    """Return psi of the average-k error of a budget as coefficients."""
    n, selection = outcome.source.shape[0], outcome.selections[i]
    error, share = outcome.average_errors[i], label_share(outcome, i)
    assert error is not None
    scale = Fraction(n, outcome.tally.n_labelled)
    mean = Fraction(selection.n_above + selection.n_kept, n)
    rate = scale * share
    return {LABELLED: scale * (1 - error), HIT: -scale, SIZE: rate, ONE: -rate * mean}


def top_influence(outcome: Outcome, i: int) -> Coefficients:
    """Return psi of the top-k error of a budget as coefficients."""
    error = outcome.top_errors[i]
    assert error is not None
    scale = Fraction(outcome.source.shape[0], outcome.tally.n_labelled)
    return {LABELLED: scale * (1 - error), TOP_HIT: -scale}


def relative_influence(outcome: Outcome, i: int, top: Coefficients, average: Coefficients) -> Coefficients | None:
    """Return psi of 1 - average_k_error / top_k_error; None if the latter is 0."""
    error, of_top = outcome.average_errors[i], outcome.top_errors[i]
    assert error is not None
    if not of_top:
        return None
    return less({n: c * error / of_top**2 for n, c in top.items()}, {n: c / of_top for n, c in average.items()})


def less(a: Coefficients, b: Coefficients) -> Coefficients:
    """Return the difference of two influences."""
    return {name: a.get(name, Fraction(0)) - b.get(name, Fraction(0)) for name in {*a, *b}}


def label_share(outcome: Outcome, i: int) -> Fraction:
    """Return the share of labels among the scores that rank just above a budget's threshold."""
    search, selection = outcome.search, outcome.selections[i]
    n_numbers = outcome.source.shape[0] * outcome.source.shape[1] - outcome.tally.n_nan
    n_window = selection.n_above + selection.n_kept - min(window_start(selection.budget), n_numbers)
    return (selection.expected_weight - search.window_weights[i]) / n_window if n_window else Fraction(0)


@dataclass(frozen=True)
class Products:
    """Sums over samples, or over clusters, of the products of two of their counts, in a symmetric table of integers."""

    n_samples: int
    table: tuple[tuple[int, ...], ...]
    #: Labelled samples, or clusters with some: one alone says nothing of how they vary.
    n_units: int
    has_top: bool = True

    def stderr(self, coefficients: Coefficients) -> float:
        """Return sqrt(c' P c) / N for the coefficients c and the table P; NaN for a single unit."""
        if self.n_units < 2:
            return math.nan
        # Over one denominator all of this is integers, which are a tenth of the work of fractions.
        denominator = math.lcm(*(c.denominator for c in coefficients.values()))
        whole = {i: c.numerator * (denominator // c.denominator) for i, c in coefficients.items()}
        total = sum(a * sum(b * self.table[i][j] for j, b in whole.items()) for i, a in whole.items())
        return math.sqrt(max(0, total) / denominator**2) / self.n_samples


def sample_products(outcome: Outcome, selection: Selection, k: int | None) -> Products:
    """Return the sums of products over samples."""
    n, n_labelled = outcome.source.shape[0], outcome.tally.n_labelled
    _, size, squares = _moments(selection.set_sizes)
    n_hits, hit_size, _ = _moments(selection.hit_sizes)
    strata = selection.strata
    labelled_size = int(strata.sizes[strata.strata > 0].sum())
    top = (strata.strata > 0) & (strata.strata <= (k or 0))
    n_top = int(outcome.tally.rank_counts[1 : (k or 0) + 1].sum())
    top_hits, top_size = int(strata.hits[top].sum()), int(strata.sizes[top].sum())
    table = (
        (n, n_labelled, n_hits, n_top, size),
        (n_labelled, n_labelled, n_hits, n_top, labelled_size),
        (n_hits, n_hits, n_hits, top_hits, hit_size),
        (n_top, n_top, top_hits, n_top, top_size),
        (size, labelled_size, hit_size, top_size, squares),
    )
    return Products(n, table, n_labelled, has_top=not outcome.is_spread(selection))


def cluster_products(outcome: Outcome, i: int) -> Products:
    """Return the sums of products over clusters, whose samples are added up first."""
    counts = outcome.group_counts(i)
    return Products(outcome.source.shape[0], products_of(counts), int((counts.n_labelled > 0).sum()))


def products_of(columns: Sequence[Array]) -> tuple[tuple[int, ...], ...]:
    """Return the sums of products of any two columns of counts, exactly."""
    total = np.zeros((len(columns), len(columns)), object)
    for first in range(0, columns[0].size, _STRETCH):
        parts = np.array([column[first : first + _STRETCH] for column in columns], np.int64)
        # Floats add integers up to 2**53 exactly, in any order.
        exact = np.float64 if int(parts.max(initial=0)) ** 2 * _STRETCH < 1 << 53 else object
        wide = parts.astype(exact)
        total += (wide @ wide.T).astype(np.int64 if exact is np.float64 else object).astype(object)
    return tuple(tuple(map(int, row)) for row in total.tolist())


def _moments(counts: Ints) -> tuple[int, int, int]:
    """Return how many sets are counted by size, the sum of their sizes, and that of their squares, exactly."""
    sizes = np.flatnonzero(counts)
    pairs = list(zip(sizes.tolist(), counts[sizes].tolist(), strict=True))
    return sum(n for _, n in pairs), sum(z * n for z, n in pairs), sum(z * z * n for z, n in pairs)
