"""The ambiguity analysis of budgets as variables of a result: straddle strengths, supports and histograms of ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ..sources.source import Source
from .straddle import Ambiguity, Straddle, orders_of, rank_histogram, ranks_overlap, straddle_bound, values_of

#: Variables or coordinates by name.
Values = dict[str, object]


def n_ranked(budgets: Sequence[Fraction], n_classes: int) -> int:
    """Return the number of ranks whose scores the analysis of some budgets needs."""
    return min(n_classes, max(2 * int(b) if b.denominator == 1 else math.ceil(b) + 1 for b in budgets))


def integers(budgets: Sequence[Fraction]) -> list[int]:
    """Return the budgets that are integers."""
    return [int(b) for b in budgets if b.denominator == 1]


def straddle_values(ambiguity: Ambiguity, budgets: Sequence[Fraction], source: Source) -> tuple[Values, Values]:
    """Return strengths, weights, magnitudes and bounds of all budgets, and their coordinates."""
    n_samples, n_classes = source.shape[0], source.n_classes
    n_orders = max([1, *(len(orders_of(k, n_classes)) for k in integers(budgets))])
    names = "strength", "strength_error", "weight", "weight_error", "magnitude"
    tables = {name: np.full((len(budgets), n_orders), np.nan) for name in names}
    bounds = np.full((2, len(budgets)), np.nan)
    for i, budget in enumerate(budgets):
        if budget.denominator != 1:
            continue
        pairs = ambiguity.pairs[int(budget)]
        for order, pair in pairs.items():
            straddle = Straddle.from_pairs(pair, n_samples)
            for name in names:
                tables[name][i, order - 1] = getattr(straddle, name)
        bounds[:, i] = straddle_bound(pairs, int(budget), n_samples, n_classes)
    values: Values = {f"straddle_{name}": table for name, table in tables.items()}
    values |= {"straddle_bound": bounds[0], "straddle_bound_error": bounds[1]}
    return values, {"order": np.arange(1, n_orders + 1)}


def rank_values(
    ambiguity: Ambiguity, ranks: Sequence[int], source: Source, n_bins: int, log: bool
) -> tuple[Values, Values]:
    """Return the supports of some ranks and their histograms, and their coordinates."""
    dtype = source.dtype
    histograms = [rank_histogram(ambiguity.columns[rank - 1], dtype, n_bins, log) for rank in ranks]
    supports = [ambiguity.supports[rank - 1] for rank in ranks]
    values: Values = {
        "support_low": values_of([low for low, _ in supports], dtype),
        "support_high": values_of([high for _, high in supports], dtype),
        "ranked_count": [counts for counts, _ in histograms],
        "bin_low": np.array([edges for _, edges in histograms]),
    }
    return values, {"rank": list(ranks), "bin": np.arange(n_bins)}


def overlap_values(ambiguity: Ambiguity, budgets: Sequence[Fraction]) -> list[float]:
    """Return for each budget whether the supports of ranks k and k + 1 overlap; NaN for a fractional budget."""
    return [float(ranks_overlap(int(b), ambiguity.supports)) if b.denominator == 1 else math.nan for b in budgets]
