"""Straddle strengths: how much the ambiguity differs between samples, which explains the adaptive gain.

d[k, o] = mean over all ordered pairs of samples of max(0, s(x)[k + o] - s(x')[k + 1 - o]), s sorted
decreasingly. Their sum over the orders bounds the gain from below where the scores are the true
probabilities (the paper's lower bound on the adaptive gain).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from .values import PairSum


def orders_of(k: int, n_classes: int) -> range:
    """Give the orders that budget k has: 1 to k, as far as there are ranks."""
    return range(1, min(k, n_classes - k) + 1)


def ranks_of(k: int, order: int) -> tuple[int, int]:
    """Give the two ranks that an order compares: the lower one may be high in one sample, the higher low in another."""
    return k + order, k + 1 - order


@dataclass(frozen=True)
class Straddle:
    """Strength, weight and magnitude of one order of one budget, with the errors certified."""

    strength: float
    strength_error: float
    weight: float
    weight_error: float
    magnitude: float

    @classmethod
    def from_pairs(cls, pairs: PairSum, n_samples: int) -> Straddle:
        """Give the means over all n * n pairs of samples."""
        n = n_samples * n_samples
        weight = pairs.n_pairs / n
        if pairs.total is None:
            return cls(math.nan, math.nan, float(weight), _up(pairs.n_pairs_error / n), math.nan)
        strength = pairs.total / n
        magnitude = strength / weight if weight else Fraction(0)
        return cls(
            float(strength),
            _up(pairs.total_error / n),
            float(weight),
            _up(pairs.n_pairs_error / n),
            float(magnitude),
        )


def _up(error: Fraction) -> float:
    """Give a bound as a float that is not below it."""
    value = float(error)
    return value if value >= error else math.nextafter(value, math.inf)


def straddle_bound(pairs: Mapping[int, PairSum], k: int, n_samples: int, n_classes: int) -> tuple[float, float]:
    """Give the paper's lower bound on the gain, the sum over the orders, or order 1 alone for k > C / 2; and its error."""
    orders: Sequence[int] = orders_of(k, n_classes) if 2 * k <= n_classes else orders_of(k, n_classes)[:1]
    total = error = Fraction(0)
    for order in orders:
        part = pairs[order].total
        if part is None:
            return math.nan, math.nan
        total, error = total + part, error + pairs[order].total_error
    n = n_samples * n_samples
    return float(total / n), _up(error / n)
