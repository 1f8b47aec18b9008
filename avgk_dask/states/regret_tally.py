"""What sets lose against the best ones: the terms of the paper's regret, exact."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

import numpy as np

from ..arrays import Array, Bools
from ..exact.sums import ExactSums
from ..records import EACH, Count, State


@dataclass(frozen=True)
class RegretTally(State):
    """Sums of eta: inside the sets; inside though below the threshold; outside though above it."""

    weight: ExactSums
    n_low: Count
    low: ExactSums
    n_high: Count
    high: ExactSums

    @classmethod
    def from_block(cls, eta: Array, inside: Bools, threshold: float) -> RegretTally:
        """Return the tally of a block of probabilities and the set members among them."""
        values = eta.astype(np.float64)
        low, high = values[inside & (values < threshold)], values[~inside & (values > threshold)]
        return cls(ExactSums.of(values[inside]), low.size, ExactSums.of(low), high.size, ExactSums.of(high))

    def symmetric_difference(self, threshold: Fraction) -> Fraction:
        """Return the sum of |eta - threshold| over what is in exactly one of the sets and the best sets.

        Those are the members below the threshold and the others above it; at the threshold it is 0.
        """
        below = self.n_low * threshold - self.low[0]
        return below + self.high[0] - self.n_high * threshold


@dataclass(frozen=True)
class RegretTallies(State):
    """The tallies of several kinds of sets."""

    tallies: Annotated[tuple[RegretTally, ...], EACH]
