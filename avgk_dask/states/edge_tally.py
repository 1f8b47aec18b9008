"""Places: how many scores lie between given keys, and where the labels' own scores lie among all.

A label's rank in its row tells all top-K errors, its rank among all scores all average-K errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np

from ..arrays import Ints
from ..exact.sums import ExactSums
from ..records import BY_BAND, JOINED, Counts, Record
from .checks import CheckedTally
from .distinct import add_up


@dataclass(frozen=True)
class LabelTally(CheckedTally):
    """The labels of the bands read so far: how many have each score, NaN left out, and each rank in their row."""

    rank_counts: Counts
    #: Ascending.
    keys: Annotated[Ints, JOINED]
    key_counts: Annotated[Ints, JOINED]

    def settled(self) -> Self:
        """Return the tally with labels of equal scores counted together."""
        (keys,), counts = add_up((self.keys,), self.key_counts)
        return replace(self, keys=keys, key_counts=counts)


@dataclass(frozen=True)
class BandLabels(Record):
    """Where the labels of one band lie: at which edge, and how many of the band's scores at that edge come before.

    ``equal`` are the edges that scores of the band equal, and ``n_equal`` how many do.
    """

    band: int
    edges: Ints
    orders: Ints
    equal: Ints
    n_equal: Ints


@dataclass(frozen=True)
class EdgeTally(CheckedTally):
    """Counts of all scores by cell, label weight by cell, and where each label lies."""

    counts: Counts
    #: Hard labels by cell; exact sums of soft labels by cell.
    hits: Counts
    weights: ExactSums
    #: How many soft labels exceed the cost, and their exact sums, by cell.
    heavy_counts: Counts
    heavy_weights: ExactSums
    bands: Annotated[tuple[BandLabels, ...], BY_BAND]

    def n_from(self) -> Ints:
        """Return, for each edge, how many scores are at it or above."""
        return _from_top(self.counts)[1::2]

    def hits_from(self) -> Ints:
        """Return, for each edge, how many hard labels' scores are at it or above."""
        return _from_top(self.hits)[1::2]

    def label_ranks(self) -> Ints:
        """Return the rank among all scores of every label whose score is an edge: ties in row-major order.

        The bands' ties come one after the other, so their labels' orders are carried on from band to band.
        """
        above = _from_top(self.counts)[2::2]
        so_far = np.zeros(above.size, np.int64)
        ranks = []
        for band in self.bands:
            ranks.append(above[band.edges] + so_far[band.edges] + band.orders + 1)
            so_far[band.equal] += band.n_equal
        return np.concatenate(ranks)


def _from_top(counts: Ints) -> Ints:
    return np.cumsum(counts[::-1])[::-1]
