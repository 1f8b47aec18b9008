"""What probabilities lose, and how far they are from what happens: exact sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Self

import numpy as np

from ..arrays import Array, Floats
from ..exact.sums import ExactSums
from ..records import LEAST, MOST, Count, Counts, State
from .checks import CheckedTally, Place

#: Values from 2**32 up are summed in this unit, in which they are below 2**32.
_FROM, _UNIT = 2.0**32, 2.0**992


@dataclass(frozen=True)
class LossSums(State):
    """Several exact sums of values of any size; those that are infinite are counted."""

    n_infinite: Counts
    small: ExactSums
    large: ExactSums

    @classmethod
    def of(cls, values: Floats) -> Self:
        """Return the sum of each row of a matrix."""
        small = ExactSums.zeros(len(values))
        large = ExactSums.zeros(len(values))
        for n, row in enumerate(values):
            size = np.abs(row)
            few, rest = row[(size >= _FROM) & np.isfinite(row)] / _UNIT, row[size < _FROM]
            large.add(few, np.full(few.size, n))
            small.add(rest, np.full(rest.size, n))
        return cls(np.isinf(values).sum(1), small.settled(), large.settled())

    def mean(self, i: int, n: int) -> float:
        """Return the mean of one sum over so many samples: rounded once, NaN where there are none."""
        if n == 0:
            return math.nan
        if self.n_infinite[i]:
            return math.inf
        return float((self.small[i] + self.large[i] * Fraction(_UNIT)) / n)


@dataclass(frozen=True)
class ProbabilityTally(CheckedTally):
    """What every pass over probabilities counts: also the samples whose scores are none, and the first of them."""

    n_refused: Count
    first_refused: Annotated[Place, LEAST]


@dataclass(frozen=True)
class LossTally(ProbabilityTally):
    """The sums of several losses over the labelled samples."""

    losses: LossSums


@dataclass(frozen=True)
class BinTally(ProbabilityTally):
    """How many scores of labelled samples are in each bin, the label weight on them, and their sums."""

    counts: Counts
    weights: ExactSums
    sums: ExactSums

    @staticmethod
    def binned(bins: Array, values: Array, weights: Array, n_bins: int) -> dict[str, Any]:
        """Return the fields of a tally of values, given the bin and the label weight of each."""
        found = {"weights": ExactSums.zeros(n_bins), "sums": ExactSums.zeros(n_bins)}
        found["weights"].add(weights, bins)
        found["sums"].add(values, bins)
        return {"counts": np.bincount(bins, minlength=n_bins), **{n: s.settled() for n, s in found.items()}}


@dataclass(frozen=True)
class ScaleTally(ProbabilityTally):
    """The NLL of scaled logits at several scales, and its first two derivatives by the scale, summed over samples."""

    losses: LossSums
    slopes: LossSums
    bends: LossSums
    #: The largest label, and the exponent of the largest finite logit, both more by so much that none is negative.
    most_seen: Annotated[int, MOST]
    magnitude: Annotated[int, MOST]

    @property
    def has_one_class(self) -> bool:
        """Whether no two labels differ."""
        return self.least_label >= self.most_seen


@dataclass(frozen=True)
class GradientTally(ProbabilityTally):
    """The NLL of weighted logits, and its gradient in integers: by the bias, and by the weights in two parts."""

    losses: LossSums
    bias_sums: Counts
    weight_sums: Counts
    weight_rests: Counts
