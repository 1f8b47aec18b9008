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

from .pair_sums import PairSum


def orders_of(k: int, n_classes: int) -> range:
    """Return the orders that budget k has: 1 to k, as far as there are ranks."""
    return range(1, min(k, n_classes - k) + 1)


def ranks_of(k: int, order: int) -> tuple[int, int]:
    """Return the two ranks that an order compares: the lower one may be high in one sample, the higher low in another."""
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
        """Return the means over all n * n pairs of samples."""
        n = n_samples * n_samples
        weight, weight_error = _rounded(pairs.n_pairs / n, pairs.n_pairs_error / n)
        if pairs.total is None:
            return cls(math.nan, math.nan, weight, weight_error, math.nan)
        magnitude = pairs.total / pairs.n_pairs if pairs.n_pairs else Fraction(0)
        return cls(*_rounded(pairs.total / n, pairs.total_error / n), weight, weight_error, _float(magnitude))


def _rounded(value: Fraction, error: Fraction) -> tuple[float, float]:
    """Return a value rounded once, and a float that bounds its error, rounding included; 0 where it was exact before."""
    near = _float(value)
    if not error:
        return near, 0.0
    if math.isinf(near):
        return near, math.inf
    whole = error + abs(Fraction(near) - value)
    bound = _float(whole)
    return near, bound if bound >= whole else math.nextafter(bound, math.inf)


def _float(value: Fraction) -> float:
    """Return the nearest float, infinity beyond the largest."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def straddle_bound(pairs: Mapping[int, PairSum], k: int, n_samples: int, n_classes: int) -> tuple[float, float]:
    """Return the paper's lower bound on the gain, the sum over the orders, or order 1 alone for k > C / 2; and its error."""
    orders: Sequence[int] = orders_of(k, n_classes) if 2 * k <= n_classes else orders_of(k, n_classes)[:1]
    total = error = Fraction(0)
    for order in orders:
        part = pairs[order].total
        if part is None:
            return math.nan, math.nan
        total, error = total + part, error + pairs[order].total_error
    n = n_samples * n_samples
    return _rounded(total / n, error / n)
