"""What sets lose against the best ones: the terms of the paper's regret, exact."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .exact import Limbs, add_limbs, add_weights, as_fraction, carry, zero_sums

Array = NDArray[Any]


@dataclass(frozen=True)
class RegretTally:
    """Sums of eta: inside the sets; inside though below the threshold; outside though above it."""

    weight: Limbs
    n_low: int
    low: Limbs
    n_high: int
    high: Limbs

    @classmethod
    def from_block(cls, eta: Array, inside: NDArray[np.bool_], threshold: float) -> RegretTally:
        """Give the tally of a block of probabilities and the set members among them."""
        values = eta.astype(np.float64)
        low, high = values[inside & (values < threshold)], values[~inside & (values > threshold)]
        return cls(_sum(values[inside]), low.size, _sum(low), high.size, _sum(high))

    @classmethod
    def merge(cls, tallies: list[RegretTally]) -> RegretTally:
        """Give the tally of all the blocks together."""

        def add(name: str) -> Limbs:
            return add_limbs([getattr(t, name) for t in tallies])

        n_low, n_high = sum(t.n_low for t in tallies), sum(t.n_high for t in tallies)
        return cls(add("weight"), n_low, add("low"), n_high, add("high"))

    def symmetric_difference(self, threshold: Fraction) -> Fraction:
        """Give the sum of |eta - threshold| over what is in exactly one of the sets and the best sets.

        Those are the members below the threshold and the others above it; at the threshold it is 0.
        """
        below = self.n_low * threshold - as_fraction(self.low[0])
        return below + as_fraction(self.high[0]) - self.n_high * threshold


def _sum(values: Array) -> Limbs:
    sums = zero_sums(1)
    add_weights(sums, np.abs(values), np.zeros(values.size, np.int64))  # -0.0 is 0.0
    return carry(sums)
