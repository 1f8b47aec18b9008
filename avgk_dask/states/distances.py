"""How far scores are from soft labels: the exact sum of |label - score|, for scores that are probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..arrays import Array, Floats
from ..exact.sums import ExactSums
from ..records import Count, State


@dataclass(frozen=True)
class DistanceTally(State):
    """The sums of the higher and of the lower of label and score: their difference is exact, each |label - score| is not.

    ``n_outside`` counts scores that are not in [0, 1], where there is nothing to tell.
    """

    n_outside: Count
    higher: ExactSums
    lower: ExactSums

    @classmethod
    def empty(cls) -> DistanceTally:
        """Return the tally of nothing."""
        return cls(0, ExactSums.zeros(1), ExactSums.zeros(1))

    @classmethod
    def from_block(cls, scores: Array, labels: Floats) -> DistanceTally:
        """Return the tally of a block of scores and its labels."""
        values = scores.astype(np.float64)
        n_outside = int((~((values >= 0) & (values <= 1))).sum())
        if n_outside:
            return cls(n_outside, ExactSums.zeros(1), ExactSums.zeros(1))
        higher, lower = (choose(values, labels).reshape(-1) for choose in (np.maximum, np.minimum))
        return cls(0, ExactSums.of(higher), ExactSums.of(lower))

    def mean(self, n_samples: int) -> Fraction | None:
        """Return the sum over classes of |label - score|, averaged over samples; None where scores lie outside [0, 1]."""
        if self.n_outside:
            return None
        return (self.higher[0] - self.lower[0]) / n_samples
