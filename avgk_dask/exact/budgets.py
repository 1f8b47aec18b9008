"""Budgets: any real ``k`` in (0, C], as an exact fraction."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

import numpy as np

from ..arrays import Ints
from ..errors import BudgetError, ScoresError
from ..masks import refuse_masked

#: The default budgets; with fewer than ten classes, one per class.
DEFAULT_BUDGETS = range(1, 11)
#: Integer budgets that a report can look up.
MOST_IN_CURVE = 100

#: Digits before or after the point beyond which a number is not a budget, and would take forever as a fraction.
_MOST_DIGITS = 1000

_RULE = "k must be a real number in (0, C]"
#: Maximum number of scores in a window of ranks: enough to estimate a share of labels, few enough to hold for many
#: budgets.
_WIDEST_WINDOW = 1 << 14


def parse_budget(k: Any) -> Fraction:
    """Return ``k`` as an exact fraction; a float means the decimal that Python prints for it.

    Examples
    --------
    >>> parse_budget(0.1), parse_budget("2.5"), parse_budget(3)
    (Fraction(1, 10), Fraction(5, 2), Fraction(3, 1))
    """
    if getattr(k, "ndim", None) == 0 and hasattr(k, "item"):  # a NumPy or xarray scalar
        k = k if isinstance(k, np.generic) else k.item()
    if isinstance(k, (bool, np.bool_)):
        raise BudgetError(f"{_RULE}; got the bool {k}. Pass the number of labels per sample.")
    if isinstance(k, numbers.Rational):
        return Fraction(int(k.numerator), int(k.denominator))
    try:
        if isinstance(k, (float, np.floating, Decimal, str)):
            number = Decimal(str(k).strip())
            if abs(number.adjusted()) < _MOST_DIGITS:
                return Fraction(number)
    except (InvalidOperation, ValueError, OverflowError):
        pass
    raise BudgetError(f"{_RULE}; got {k!r}. Pass an int, float, Fraction, Decimal or decimal string.")


def as_float(n_labels: int, n_samples: int) -> float:
    """Return the least float for B labels of N samples: the decimal printed for it is not below B / N."""
    k = n_labels / n_samples
    return k if parse_budget(k) * n_samples >= n_labels else math.nextafter(k, math.inf)


def whole_budgets(most: int) -> tuple[Fraction, ...]:
    """Return the integer budgets from 1 up to ``most``."""
    return tuple(Fraction(k) for k in range(1, most + 1))


def is_scalar(k: Any) -> bool:
    """Return whether ``k`` is one budget rather than a sequence."""
    return isinstance(k, (str, bytes)) or not isinstance(k, Iterable) or getattr(k, "ndim", 1) == 0


def parse_one(k: Any, n_classes: int) -> Fraction:
    """Return the only budget; refuse several."""
    budgets = parse_budgets(k, n_classes)
    if len(budgets) != 1:
        raise BudgetError(f"k must be one budget; got {len(budgets)}. Call it once for each.")
    return budgets[0]


def parse_budgets(k: Any, n_classes: int) -> tuple[Fraction, ...]:
    """Return one or several budgets as exact fractions between 0 and C, equal floats once."""
    if n_classes < 1:
        raise ScoresError(f"scores must have at least one class; got {n_classes}. Check how they were stored.")
    refuse_masked(k, "k")
    if k is DEFAULT_BUDGETS:
        k = range(1, min(10, n_classes) + 1)
    budgets = [parse_budget(one) for one in ([k] if is_scalar(k) else k)]
    if not budgets:
        raise BudgetError("k must contain at least one budget; got an empty sequence. Pass a number or several.")
    for budget in budgets:
        if not 0 < budget <= n_classes:
            raise BudgetError(
                f"{_RULE} with C = {n_classes} classes; got {show(budget)}. Pass numbers above 0, up to {n_classes}."
            )
    named: dict[float, Fraction] = {}  # results name them by floats
    for budget in budgets:
        named.setdefault(float(budget), budget)
    return tuple(named.values())


def count_labels(budget: Fraction, n_samples: int) -> int:
    """Return B = floor(N * k), the number of labels all sets hold together."""
    return math.floor(budget * n_samples)


def count_labels_of_each(budget: Fraction, n_samples: Ints) -> Ints:
    """Return B = floor(N * k) for each of several N."""
    different, which = np.unique(n_samples, return_inverse=True)
    counts = [n * budget.numerator // budget.denominator for n in different.tolist()]
    return np.array(counts, np.int64)[which]


def count_guaranteed(budget: Fraction, n_samples: int, n_classes: int) -> int:
    """Return B' = floor((n + 1) k - C): with B' labels on n calibration samples, a new sample has at most k expected.

    If that is negative, the new sample alone might have more: raise BudgetError.
    """
    count = math.floor((n_samples + 1) * budget - n_classes)
    if count < 0:
        raise BudgetError(
            f"k must be at least C / (n + 1) = {n_classes} / {n_samples + 1} for guarantee='expected'; got {show(budget)}. "
            f"Give at least {math.ceil(n_classes / budget) - 1:,} calibration samples for it, or a larger k."
        )
    return count


def window_start(count: int) -> int:
    """Return the lower end of the window of ranks up to B in which the share of labels is estimated.

    It is B - w, with the least w for which w**3 >= B**2, but at most 16,384.
    """
    width = int(count ** (2 / 3))
    while width**3 >= count**2 and width:
        width -= 1
    while width**3 < count**2:
        width += 1
    return count - min(width, _WIDEST_WINDOW)


def largest_integer(budgets: Sequence[Fraction]) -> int:
    """Return the largest integer budget, or 0 (top-k needs integers)."""
    return max((int(b) for b in budgets if b.denominator == 1), default=0)


def show(budget: Fraction) -> str:
    """Return a budget as people write it: ``5`` or ``2.5``."""
    return str(budget.numerator) if budget.denominator == 1 else str(float(budget))
