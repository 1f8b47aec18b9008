"""Standard errors of errors and gains, from exact sums of squares and products over samples or clusters.

Write L for "labelled", h and t for "the label is in the average-k set, the top-k set", Z for the size of the average-k
set. One sample changes the average-k error by its *influence* over N:

    psi = (N / n) L (1 - h/L - e) + r (Z - mean Z),

where n is the number of labelled samples and r the rate of labels, per sample, that one more score in the sets adds:
N / n times the share of labels among the scores of ranks B - w to B, with w the least integer for which w**3 >= B**2,
at most 16,384 (``window_start``). So a search also settles the budget B - w, of which only the label weight is needed.
The second term is there because a sample also moves the threshold. The top-k error has psi = (N / n) L (1 - t/L - e),
the gain the difference of both. A standard error is the root of the sum of psi squared, over N; with clusters, psi is
first added up within each. This is a quadratic form in the sums of products of (1, L, h, t, Z): integers, which are
added up exactly and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from ..arrays import Array, Ints
from ..exact.budgets import window_start
from .outcome import Outcome

#: Columns of the table of products, in the order of ``GroupCounts``.
ONE, LABELLED, HIT, TOP_HIT, SIZE = range(5)

#: An influence: the coefficient of each column.
Influence = dict[int, Fraction]
#: Rows whose products are added up at a time.
_N_ROWS = 1 << 14


@dataclass(frozen=True)
class ErrorBars:
    """The standard errors for one budget; None if an error does not exist."""

    average_k_error: float | None = None
    top_k_error: float | None = None
    adaptive_gain: float | None = None
    relative_gain: float | None = None


@dataclass(frozen=True)
class Products:
    """Sums over samples or clusters of the products of any two of their counts: a symmetric table of integers."""

    n_samples: int
    table: tuple[tuple[int, ...], ...]
    #: Labelled samples, or clusters with labelled samples. A single one does not show how they vary.
    n_units: int
    has_top: bool = True

    def stderr(self, influence: Influence) -> float:
        """Return sqrt(c' P c) / N for the coefficients c and the table P; NaN for a single unit."""
        if self.n_units < 2:
            return math.nan
        # Integers over a common denominator: a tenth of the work of fractions.
        denominator = math.lcm(*(c.denominator for c in influence.values()))
        whole = {i: c.numerator * (denominator // c.denominator) for i, c in influence.items()}
        total = sum(a * sum(b * self.table[i][j] for j, b in whole.items()) for i, a in whole.items())
        return math.sqrt(max(0, total) / denominator**2) / self.n_samples


def compute_error_bars(outcome: Outcome) -> list[ErrorBars]:
    """Return the standard errors for each budget; all None without hard labels."""
    if outcome.source.has_soft_labels or not outcome.tally.n_labelled:
        return [ErrorBars() for _ in outcome.budgets]
    multiply = cluster_products if outcome.grouping.n else sample_products
    return [error_bars(outcome, i, multiply(outcome, i)) for i in range(len(outcome.budgets))]


def error_bars(outcome: Outcome, i: int, products: Products) -> ErrorBars:
    """Return the standard errors for one budget from the sums of products."""
    average, top = (error_influence(outcome, rule, i) for rule in ("average", "top"))
    if average is None:
        return ErrorBars()
    if top is None or not products.has_top:
        return ErrorBars(products.stderr(average), None if top is None else products.stderr(top))
    relative = _relative_influence(outcome, i, top, average)
    return ErrorBars(
        products.stderr(average),
        products.stderr(top),
        products.stderr(subtract(top, average)),
        None if relative is None else products.stderr(relative),
    )


def error_influence(outcome: Outcome, rule: Literal["average", "top"], i: int) -> Influence | None:
    """Return psi of the average-k or the top-k error of a budget; None if there is no such error."""
    error = outcome.errors(rule)[i]
    if error is None:
        return None
    n, selection = outcome.source.shape[0], outcome.selections[i]
    scale = Fraction(n, outcome.tally.n_labelled)
    if rule == "top":
        return {LABELLED: scale * (1 - error), TOP_HIT: -scale}
    rate = scale * _label_share(outcome, i)
    mean_size = Fraction(selection.n_above + selection.n_kept, n)
    return {LABELLED: scale * (1 - error), HIT: -scale, SIZE: rate, ONE: -rate * mean_size}


def _relative_influence(outcome: Outcome, i: int, top: Influence, average: Influence) -> Influence | None:
    """Return psi of 1 - average_k_error / top_k_error; None if the latter is 0."""
    error, top_error = outcome.average_errors[i], outcome.top_errors[i]
    if error is None or not top_error:
        return None
    return subtract(
        {n: c * error / top_error**2 for n, c in top.items()}, {n: c / top_error for n, c in average.items()}
    )


def subtract(a: Influence, b: Influence) -> Influence:
    """Return the difference of two influences."""
    return {column: a.get(column, Fraction(0)) - b.get(column, Fraction(0)) for column in {*a, *b}}


def _label_share(outcome: Outcome, i: int) -> Fraction:
    """Return the share of labels among the scores that rank just above a budget's threshold."""
    search, selection = outcome.search, outcome.selections[i]
    n_numbers = outcome.source.shape[0] * outcome.source.shape[1] - outcome.tally.n_nan
    n_window = selection.n_above + selection.n_kept - min(window_start(selection.budget), n_numbers)
    return (selection.expected_weight - search.window_weights[i]) / n_window if n_window else Fraction(0)


def sample_products(outcome: Outcome, i: int) -> Products:
    """Return the sums of products over samples."""
    selection, budget = outcome.selections[i], outcome.budgets[i]
    k = int(budget) if budget.denominator == 1 else 0
    n, n_labelled = outcome.source.shape[0], outcome.tally.n_labelled
    _, size, squares = _moments(selection.set_sizes)
    n_hits, hit_size, _ = _moments(selection.hit_sizes)
    strata = selection.strata
    labelled_size = int(strata.sizes[strata.strata > 0].sum())
    top = (strata.strata > 0) & (strata.strata <= k)
    n_top = int(outcome.tally.rank_counts[1 : k + 1].sum())
    top_hits, top_size = int(strata.hits[top].sum()), int(strata.sizes[top].sum())
    table = (
        (n, n_labelled, n_hits, n_top, size),
        (n_labelled, n_labelled, n_hits, n_top, labelled_size),
        (n_hits, n_hits, n_hits, top_hits, hit_size),
        (n_top, n_top, top_hits, n_top, top_size),
        (size, labelled_size, hit_size, top_size, squares),
    )
    # Where ties were cut in the pseudo-random order, the strata are not the ranks of labels.
    is_spread = selection.is_cut and selection.cut is None
    return Products(n, table, n_labelled, has_top=not is_spread)


def cluster_products(outcome: Outcome, i: int) -> Products:
    """Return the sums of products over clusters, whose samples are added up first."""
    counts = outcome.group_counts(i)
    return Products(outcome.source.shape[0], multiply_columns(counts), int((counts.n_labelled > 0).sum()))


def multiply_columns(columns: Sequence[Array]) -> tuple[tuple[int, ...], ...]:
    """Return the sums of products of any two columns of counts, exactly."""
    total = np.zeros((len(columns), len(columns)), object)
    for first in range(0, columns[0].size, _N_ROWS):
        parts = np.array([column[first : first + _N_ROWS] for column in columns], np.int64)
        # Floats add integers up to 2**53 exactly, in any order.
        exact = np.float64 if int(parts.max(initial=0)) ** 2 * _N_ROWS < 1 << 53 else object
        wide = parts.astype(exact)
        total += (wide @ wide.T).astype(np.int64 if exact is np.float64 else object).astype(object)
    return tuple(tuple(map(int, row)) for row in total.tolist())


def _moments(counts: Ints) -> tuple[int, int, int]:
    """Return the number of sets, the sum of their sizes, and the sum of their squares, given the counts by size."""
    sizes = np.flatnonzero(counts)
    pairs = list(zip(sizes.tolist(), counts[sizes].tolist(), strict=True))
    return sum(n for _, n in pairs), sum(z * n for z, n in pairs), sum(z * z * n for z, n in pairs)
