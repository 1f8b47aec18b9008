"""What it costs a set to hold a class: conformity scores as integers, the least for the class that enters first.

A set holds the classes whose cost is at most a level, and the level is the cost of a calibration label. So LAC, APS, RAPS and
top-k differ in nothing but what a class costs:

``lac``    the order key of its score, reversed
``top_k``  its rank in its row
``aps``    the sum of the probabilities of the ranks down to its own, each rounded once to a multiple of ``2**-bits``
``raps``   that, and a penalty for each rank beyond ``k_reg``

Integers add up to the same sum in any order, so that no chunking changes a bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..arrays import Array, Dtype, Floats, Ints
from ..kernels.chosen import rank_in_row
from ..kernels.draws import sample_draws
from ..kernels.keys import HALF_NAN, KEY_MAX, carrier, encode, is_float, is_half
from .chances import rows_outside

#: What a class costs that no set may hold: one whose score is NaN.
NEVER = KEY_MAX
#: Rows of probabilities may sum to this much: costs of all classes fit an integer of 64 bits.
MOST_SUM = 2
#: Bits that are left for a probability, at least, beside a penalty.
_LEAST_BITS = 40


def cost_bits(penalty: Fraction, k_reg: int, n_classes: int) -> int:
    """Return in how many bits behind the point probabilities are added up; negative where a penalty leaves too few.

    Examples
    --------
    >>> cost_bits(Fraction(0), 0, 1000), cost_bits(Fraction(1, 100), 5, 1000), cost_bits(Fraction(10**9), 0, 1000)
    (60, 58, -1)

    """
    most = MOST_SUM + penalty * max(0, n_classes - k_reg)
    bits = 62 - (int(most) + 1).bit_length()
    return bits if bits >= _LEAST_BITS else -1


@dataclass(frozen=True)
class Costs:
    """A method, and all that its costs depend on beside the scores."""

    method: str
    dtype: Dtype
    bits: int = 0
    #: In units of ``2**-bits``.
    penalty: int = 0
    k_reg: int = 0
    #: Costs are less by a part of the class's own probability, one random number a sample.
    seed: int | None = None
    stream: int = 0

    @property
    def needs_rows(self) -> bool:
        """Whether whole rows must be seen at once."""
        return self.method != "lac"

    @property
    def sums_probabilities(self) -> bool:
        """Whether scores must be probabilities."""
        return self.method in ("aps", "raps")

    @property
    def everything(self) -> int:
        """The level up to which every class costs whose score is a number."""
        return KEY_MAX if self.method == "lac" and not is_float(self.dtype) else KEY_MAX - 1

    def bad_rows(self, scores: Array) -> Ints:
        """Return the rows that are no probabilities; none where they need not be."""
        if not self.sums_probabilities:
            return np.zeros(0, np.int64)
        sums = scores.sum(1, dtype=np.float64)
        return np.union1d(rows_outside(scores), np.flatnonzero(sums > MOST_SUM))

    def of_labels(self, scores: Array, labels: Ints, samples: Ints) -> Ints:
        """Return the cost of each row's label, none of which is negative, given the numbers of the rows' samples."""
        if self.method == "lac":
            return ~encode(scores[np.arange(labels.size), labels])
        ranks = self._label_ranks(scores, labels)
        if self.method == "top_k":
            return np.where(ranks > scores.shape[1], NEVER, ranks)
        chances = scores.astype(np.float64)
        own = chances[np.arange(labels.size), labels]
        earlier = chances > own[:, None]
        earlier |= (chances == own[:, None]) & (np.arange(scores.shape[1]) <= labels[:, None])
        sums: Ints = np.where(earlier, self._units(chances), 0).sum(1)
        return sums + self._penalties(ranks) - self._parts(own[:, None], samples)[:, 0]

    def of_all(self, scores: Array, samples: Ints) -> Ints:
        """Return what each class of whole rows costs."""
        keys = ~encode(scores)
        if self.method == "lac":
            return keys
        order = np.argsort(keys, axis=1, kind="stable")
        found = np.empty(scores.shape, np.int64)
        np.put_along_axis(found, order, self._by_rank(scores, order, samples), axis=1)
        if is_float(scores.dtype):
            found[scores != scores] = NEVER
        return found

    def sorted_costs(self, scores: Array, samples: Ints) -> Ints:
        """Return the costs of each row's ranks, ascending, of probabilities: as many as ``of_all`` in less time."""
        return self._sums(-np.sort(-scores.astype(np.float64), axis=1), samples)

    def _by_rank(self, scores: Array, order: Ints, samples: Ints) -> Ints:
        if self.method == "top_k":
            return np.broadcast_to(np.arange(1, scores.shape[1] + 1), scores.shape)
        return self._sums(np.take_along_axis(scores.astype(np.float64), order, axis=1), samples)

    def _sums(self, chances: Floats, samples: Ints) -> Ints:
        """Return the costs of descending probabilities."""
        sums: Ints = np.cumsum(self._units(chances), axis=1)
        return sums + self._penalties(np.arange(1, chances.shape[1] + 1)) - self._parts(chances, samples)

    def _units(self, chances: Floats) -> Ints:
        """Return probabilities in whole units."""
        return np.rint(chances * 2.0**self.bits).astype(np.int64)

    def _penalties(self, ranks: Ints) -> Ints:
        return self.penalty * np.maximum(ranks - self.k_reg, 0)

    def _parts(self, chances: Floats, samples: Ints) -> Ints:
        """Return the part of each probability that a row's random number takes off."""
        if self.seed is None:
            return np.zeros((len(chances), 1), np.int64)
        draws = sample_draws(self.seed, self.stream, samples)
        return self._units(chances * draws[:, None])

    @staticmethod
    def _label_ranks(scores: Array, labels: Ints) -> Ints:
        """Return the rank of each row's label, one past the last where its score is NaN."""
        tile = carrier(scores)
        ranks = np.empty(labels.size, np.int64)
        rank_in_row(tile, labels, ranks)
        if is_half(scores.dtype):
            ranks[tile[np.arange(labels.size), labels] == HALF_NAN] = scores.shape[1] + 1
        return ranks
