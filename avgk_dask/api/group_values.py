"""Errors, sizes and intervals of groups, from what each of them adds up to."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ..arrays import Floats, Ints
from .attributes import Named
from .outcome import GroupCounts

#: Standard deviations to either side that hold 95 % of a normal distribution.
Z95 = 1.959963984540054


def group_values(counts: Sequence[GroupCounts], budgets: Sequence[Fraction]) -> Named:
    """Return the variables of a breakdown, given the counts of all groups for each budget."""
    n_samples, n_labelled = counts[0].n_samples, counts[0].n_labelled
    missed = np.array([n_labelled - one.hits for one in counts])
    top_missed = np.array([n_labelled - one.top_hits for one in counts])
    whole = np.array([budget.denominator == 1 for budget in budgets])
    top, gains = _share(top_missed, n_labelled), _share(top_missed - missed, n_labelled)
    top[~whole] = gains[~whole] = np.nan
    low, high = wilson(missed, n_labelled)
    return {
        "n_samples": n_samples,
        "n_labelled": n_labelled,
        "average_k_error": _share(missed, n_labelled),
        "average_k_error_low": low,
        "average_k_error_high": high,
        "top_k_error": top,
        "adaptive_gain": gains,
        "average_set_size": _share(np.array([one.sizes for one in counts]), n_samples),
        "macro_average_k_error": [_macro(row, n_labelled) for row in missed],
        "macro_top_k_error": [
            _macro(row, n_labelled) if w else np.nan for row, w in zip(top_missed, whole, strict=True)
        ],
    }


def _share(counts: Ints, n: Ints) -> Floats:
    """Return counts over numbers of samples; NaN where there are none."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(n > 0, counts / np.maximum(n, 1), np.nan))


def _macro(missed: Ints, n: Ints) -> float:
    """Return the mean of the errors of all groups with labelled samples, exactly, rounded once."""
    some = np.flatnonzero(n)
    if not some.size:
        return float("nan")
    sizes, which = np.unique(n[some], return_inverse=True)  # few: their fractions are added up fast
    sums = np.zeros(sizes.size, np.int64)
    np.add.at(sums, which, missed[some])
    total = sum(Fraction(int(m), int(of)) for m, of in zip(sums, sizes, strict=True))
    return float(total / some.size)


def wilson(counts: Ints, n: Ints) -> tuple[Floats, Floats]:
    """Return the ends of the 95 % Wilson intervals of the shares counts / n; NaN where n is 0.

    (p + z**2 / 2n -+ z sqrt(p (1 - p) / n + z**2 / 4n**2)) / (1 + z**2 / n); Wilson (1927).
    """
    p, of = _share(counts, n), np.maximum(n, 1)
    middle, scale = p + Z95**2 / (2 * of), 1 + Z95**2 / of
    reach = Z95 * np.sqrt(p * (1 - p) / of + Z95**2 / (4 * of.astype(np.float64) ** 2))
    low, high = (middle - reach) / scale, (middle + reach) / scale
    some = n > 0
    return np.where(some & (counts == 0), 0.0, low), np.where(some & (counts == n), 1.0, high)
