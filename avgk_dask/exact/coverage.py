"""The coverage of a conformal threshold: its rank, and the distribution of hits among new samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

#: Standard deviations from the mode beyond which terms are left out: less than 1e-300 of all.
_FAR = 45


def quantile_rank(n_samples: int, alpha: Fraction) -> int:
    """Return ceil((n + 1) (1 - alpha)): the rank among n ascending scores that bounds a new one with probability 1 - alpha."""
    return math.ceil((n_samples + 1) * (1 - alpha))


@dataclass(frozen=True)
class HitLaw:
    """The distribution of hits among ``n_new`` samples, for the threshold at a rank of ``n_samples`` calibration scores.

    It is beta-binomial, with rank and n + 1 - rank, unless scores tie. With a rank above n, all classes are in the set.
    """

    n_samples: int
    rank: int
    n_new: int

    def at_most(self, hits: int) -> float:
        """Return the probability of at most this number of hits."""
        return self._parts(hits)[0]

    def at_least(self, hits: int) -> float:
        """Return the probability of at least this number of hits."""
        return self._parts(hits - 1)[1]

    def interval(self, level: float) -> tuple[int, int]:
        """Return the ends of the central interval of hits of at least this probability."""
        return self._quantile((1 - level) / 2), self._quantile((1 + level) / 2)

    def _quantile(self, probability: float) -> int:
        low, high = 0, self.n_new
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.at_most(middle) >= probability else (middle + 1, high)
        return low

    def _parts(self, hits: int) -> tuple[float, float]:
        """Return the probabilities of at most this number of hits, and of more."""
        if hits < 0 or hits >= self.n_new or self.rank > self.n_samples:
            return (1.0, 0.0) if hits >= self.n_new else (0.0, 1.0)
        # The threshold is the old score of its rank. At most ``hits`` new scores are below it if at least ``rank`` of the first
        # rank + hits among all scores are old. That number is hypergeometric. Quotients of neighbouring probabilities are
        # simple: their products from the mode on, over their sum, are exact but for rounding, and only terms near the mode
        # have to be added.
        n_old, n_new, n_drawn = self.n_samples, self.n_new, self.rank + hits
        n = n_old + n_new
        spread = math.sqrt(n_drawn * (n_old / n) * (n_new / n) * max(n - n_drawn, 1) / max(n - 1, 1))
        mode, reach = (n_old + 1) * (n_drawn + 1) // (n + 2), int(_FAR * (spread + 1))
        low, high = max(0, n_drawn - n_new, mode - reach), min(n_old, n_drawn, mode + reach)
        i = np.arange(low, high, dtype=np.float64)
        steps = np.log((n_old - i) * (n_drawn - i)) - np.log((i + 1) * (n_new - n_drawn + i + 1))
        logs = np.concatenate([[0.0], np.cumsum(steps)])
        parts = np.exp(logs - logs.max())
        first = min(max(self.rank - low, 0), parts.size)
        total = float(parts.sum())
        return float(parts[first:].sum()) / total, float(parts[:first].sum()) / total
