"""The sets above given keys: their labels, the squares of their sizes, and the label weight inside."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ..exact.sums import ExactSums
from ..records import Counts, State


@dataclass(frozen=True)
class AboveTally(State):
    """Of the sets {key >= first} of the rows read so far, for each first key, which ascend."""

    #: Labels in all sets, and the sum of the squared set sizes: at most C times as many, which fits up to 2**63.
    n_labels: Counts
    squares: Counts
    #: Hard labels whose keys lie from each first key up to the next, and the exact sums of soft labels there.
    hits: Counts
    weights: ExactSums

    def weight_from(self, number: int) -> Fraction:
        """Return the label weight inside the sets of a first key, given its number."""
        return sum(self.weights.fractions()[number:], Fraction(int(self.hits[number:].sum())))
