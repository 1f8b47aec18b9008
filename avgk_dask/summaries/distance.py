"""How far scores are from soft labels: the exact sum of |label - score|, for scores that are probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .exact import Limbs, add_limbs, add_weights, as_fraction, carry, zero_sums

Array = NDArray[Any]


@dataclass(frozen=True)
class DistanceTally:
    """The sums of the higher and of the lower of label and score: their difference is exact, each |label - score| is not.

    ``n_outside`` counts scores that are not in [0, 1], where there is nothing to tell.
    """

    n_outside: int
    higher: Limbs
    lower: Limbs

    @classmethod
    def empty(cls) -> DistanceTally:
        """Give the tally of nothing."""
        return cls(0, zero_sums(1), zero_sums(1))

    @classmethod
    def from_block(cls, scores: Array, labels: NDArray[np.float64]) -> DistanceTally:
        """Give the tally of a block of scores and its labels."""
        values = scores.astype(np.float64)
        n_outside = int((~((values >= 0) & (values <= 1))).sum())
        if n_outside:
            return cls(n_outside, zero_sums(1), zero_sums(1))
        found = []
        for choose in (np.maximum, np.minimum):
            sums, chosen = zero_sums(1), np.abs(choose(values, labels)).reshape(-1)  # -0.0 is 0.0
            add_weights(sums, chosen, np.zeros(chosen.size, np.int64))
            found.append(carry(sums))
        return cls(0, *found)

    @classmethod
    def merge(cls, tallies: list[DistanceTally]) -> DistanceTally:
        """Give the tally of all the blocks together."""
        return cls(
            sum(t.n_outside for t in tallies),
            add_limbs([t.higher for t in tallies]),
            add_limbs([t.lower for t in tallies]),
        )

    def mean(self, n_samples: int) -> Fraction | None:
        """Give the sum over classes of |label - score|, averaged over samples; None where scores lie outside [0, 1]."""
        if self.n_outside:
            return None
        return (as_fraction(self.higher[0]) - as_fraction(self.lower[0])) / n_samples
