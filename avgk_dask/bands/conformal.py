"""Conformal methods: the cost of each class.

A set holds the classes whose cost is at most a level, and the level is the cost of a calibration label. LAC, APS, RAPS and top-k
differ only in these costs, which are integers, the least for the class that enters first:

======== ==============================================================================================================
lac      the order key of its score, reversed
top_k    its rank in its row
aps      the sum of the probabilities of the ranks down to its own, each rounded once to a multiple of ``2**-bits``
raps     that, and a penalty for each rank beyond ``k_reg``
======== ==============================================================================================================

Integers add up to the same sum in any order, so that no chunking changes a bit.

To add a method, write a class with the four operations of ``ConformalMethod``, list it in ``METHODS``, describe its sets in
``results.registry.CONFORMAL_METHODS``, and document it in ``conformal.calibrate``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np

from ..arrays import Array, Bools, Dtype, Floats, Ints
from ..errors import OptionError
from ..kernels.dispatch import rank_in_row
from ..kernels.keys import (
    HALF_NAN,
    KEY_MAX,
    carrier,
    check_dtype,
    decode,
    encode,
    first_key_from,
    is_float,
    is_half,
    key_range,
    sample_draws,
)
from .probabilities import rows_outside

#: The cost of a class whose score is NaN: no set may hold it.
NEVER = KEY_MAX
#: Rows of probabilities may sum to this much: costs of all classes fit an integer of 64 bits.
MOST_SUM = 2
#: Minimum number of bits for a probability, next to a penalty.
_LEAST_BITS = 40


@dataclass(frozen=True)
class ConformalMethod(ABC):
    """A method with its parameters.

    The four operations are ``label_costs``, ``members``, ``set_sizes`` and ``shown_thresholds``. The limits of sets broadcast with
    their scores: a column of one limit, or of one per row, or one limit per class.
    """

    name: ClassVar[str]
    #: Whether it needs whole rows, and whether scores must be probabilities.
    needs_rows: ClassVar[bool] = True
    sums_probabilities: ClassVar[bool] = False
    #: Whether it has a random form, with a seed; whether it takes ``penalty`` and ``k_reg``.
    has_seed: ClassVar[bool] = False
    has_penalty: ClassVar[bool] = False

    dtype: Dtype

    @classmethod
    def make(cls, dtype: Dtype, n_classes: int, seed: int | None, penalty: Fraction, k_reg: int) -> Self:
        """Return the method for scores of a dtype."""
        return cls(dtype)

    @abstractmethod
    def label_costs(self, scores: Array, labels: Ints, samples: Ints) -> Ints:
        """Return the nonnegative cost of each row's label, given the numbers of the rows' samples."""

    @abstractmethod
    def members(self, scores: Array, limits: Ints, samples: Ints) -> Bools:
        """Return which classes of the rows are within their limit."""

    def set_sizes(self, scores: Array, limits: Ints, samples: Ints) -> Ints:
        """Return the number of classes of each row within its limit."""
        return np.asarray(np.sum(self.members(scores, limits, samples), axis=1, dtype=np.int64))

    @abstractmethod
    def shown_thresholds(self, levels: Ints, every: Bools, n_classes: int) -> Array:
        """Return levels in the units of users, given which of them admit every class."""

    @property
    def shows_integers(self) -> bool:
        """Whether users see thresholds as integers."""
        return False

    @property
    def everything(self) -> int:
        """The level that admits every class whose score is a number."""
        return KEY_MAX - 1

    def everything_in(self, levels: Ints, counts: Ints, ranks: Ints) -> Bools:
        """Return which levels admit every number: those of too few samples, or at the NaN score of a label."""
        # The least int64 has the same cost as everything.
        return ranks > counts if self.everything == NEVER else levels == self.everything

    def allows(self, levels: Ints) -> bool:
        """Return whether all of these may be levels."""
        return not (levels > self.everything).any()

    def on_new_samples(self, dtype: Dtype) -> Self:
        """Return the method for new samples, not used in the calibration, with scores of any dtype."""
        return replace(self, dtype=dtype)

    def levels_on(self, dtype: Dtype, levels: Ints, every: Bools) -> tuple[Ints, Bools]:
        """Return the levels of the same thresholds for scores of another dtype, and which exceed all of these."""
        return levels, np.zeros(levels.size, bool)

    def least_key(self, levels: Ints) -> int | None:
        """Return the key from which on all scores are in some set, or None if sets depend on anything else."""
        return None

    def last_rank(self, levels: Ints, n_classes: int) -> int | None:
        """Return the lowest rank in any set, or None if sets depend on anything else."""
        return None

    def bad_rows(self, scores: Array) -> Ints:
        """Return the rows that must be probabilities and are not."""
        return np.zeros(0, np.int64)


@dataclass(frozen=True)
class Lac(ConformalMethod):
    """The classes whose score reaches a threshold: Sadinle, Lei and Wasserman (2019)."""

    name = "lac"
    needs_rows = False

    def label_costs(self, scores: Array, labels: Ints, samples: Ints) -> Ints:  # noqa: D102
        return ~encode(scores[np.arange(labels.size), labels])

    def members(self, scores: Array, limits: Ints, samples: Ints) -> Bools:
        """Return which scores have at least the key of the limit; NaN never."""
        # In the scores' own dtype, or that of their kernels, which is several times as fast.
        keys = np.maximum(~limits, key_range(scores.dtype)[0])
        return np.asarray(carrier(scores) >= carrier(decode(keys, scores.dtype)))

    def shown_thresholds(self, levels: Ints, every: Bools, n_classes: int) -> Array:
        """Return the scores; -inf if every class is in."""
        values = decode(np.where(every, 0, ~levels), self.dtype)
        wide = self.shows_integers and self.dtype.itemsize == 8  # float64 does not hold them all
        return np.where(every, -np.inf, values.astype(object if wide else np.float64))

    @property
    def shows_integers(self) -> bool:  # noqa: D102
        return self.dtype.kind in "iu"

    @property
    def everything(self) -> int:  # noqa: D102
        return KEY_MAX - 1 if is_float(self.dtype) else KEY_MAX

    def allows(self, levels: Ints) -> bool:  # noqa: D102
        return super().allows(levels) and not (~levels > key_range(self.dtype)[1]).any()

    def levels_on(self, dtype: Dtype, levels: Ints, every: Bools) -> tuple[Ints, Bools]:
        """Return the levels of the first scores from each threshold up, without rounding."""
        if dtype == self.dtype:
            return super().levels_on(dtype, levels, every)
        dtype = check_dtype(dtype)
        highest, firsts = key_range(dtype)[1], {}
        for level in np.unique(levels[~every]).tolist():
            firsts[level] = first_key_from(decode([~level], self.dtype)[0], dtype)
        all_in = ~Lac(dtype).everything
        keys = [
            all_in if of_all else firsts[level] for level, of_all in zip(levels.tolist(), every.tolist(), strict=True)
        ]
        exceed = np.array([key > highest for key in keys], bool)
        return ~np.array([min(key, highest) for key in keys], np.int64), exceed

    def least_key(self, levels: Ints) -> int | None:  # noqa: D102
        return ~int(levels.max())


class _ByRank(ConformalMethod):
    """A method whose costs ascend with the rank of a class in its row."""

    def members(self, scores: Array, limits: Ints, samples: Ints) -> Bools:
        order = np.argsort(~encode(scores), axis=1, kind="stable")
        costs = np.empty(scores.shape, np.int64)
        np.put_along_axis(costs, order, self._rank_costs(scores, order, samples), axis=1)
        if is_float(scores.dtype):
            costs[scores != scores] = NEVER
        return np.asarray(costs <= limits)

    @abstractmethod
    def _rank_costs(self, scores: Array, order: Ints, samples: Ints) -> Ints:
        """Return the costs of the classes of each row in this order."""


@dataclass(frozen=True)
class TopK(_ByRank):
    """The same number of highest classes for each sample."""

    name = "top_k"

    def label_costs(self, scores: Array, labels: Ints, samples: Ints) -> Ints:  # noqa: D102
        ranks = _label_ranks(scores, labels)
        return np.where(ranks > scores.shape[1], NEVER, ranks)

    def _rank_costs(self, scores: Array, order: Ints, samples: Ints) -> Ints:
        return np.broadcast_to(np.arange(1, scores.shape[1] + 1), scores.shape)

    def set_sizes(self, scores: Array, limits: Ints, samples: Ints) -> Ints:
        """Return the limit, or the number of scores that are numbers if this is less."""
        return np.minimum(np.sum(scores == scores, axis=1, dtype=np.int64), limits.reshape(-1))

    def shown_thresholds(self, levels: Ints, every: Bools, n_classes: int) -> Array:
        """Return the numbers of ranks."""
        return np.minimum(levels, n_classes)

    @property
    def shows_integers(self) -> bool:  # noqa: D102
        return True

    def last_rank(self, levels: Ints, n_classes: int) -> int | None:  # noqa: D102
        return min(int(levels.max()), n_classes)


@dataclass(frozen=True)
class Aps(_ByRank):
    """The highest classes until their probabilities add up to a threshold: Romano, Sesia and Candes (2020)."""

    name = "aps"
    sums_probabilities = True
    has_seed = True

    bits: int = 0
    #: In units of ``2**-bits``.
    penalty: int = 0
    k_reg: int = 0
    #: A random part of the class's own probability is subtracted from its cost, one random number per sample.
    seed: int | None = None
    stream: int = 0

    @classmethod
    def make(cls, dtype: Dtype, n_classes: int, seed: int | None, penalty: Fraction, k_reg: int) -> Self:  # noqa: D102
        bits = cost_bits(penalty, k_reg, n_classes)
        if bits < 0 or penalty * 2**bits >= 1 << 63:  # even if no rank is beyond k_reg
            raise OptionError(
                f"penalty must be small enough to be summed over {n_classes} classes; got {float(penalty):g}. Use one "
                "such as 0.01."
            )
        return cls(dtype, bits, round(penalty * 2**bits), k_reg, seed)

    def label_costs(self, scores: Array, labels: Ints, samples: Ints) -> Ints:  # noqa: D102
        probabilities = scores.astype(np.float64)
        own = probabilities[np.arange(labels.size), labels]
        earlier = probabilities > own[:, None]
        earlier |= (probabilities == own[:, None]) & (np.arange(scores.shape[1]) <= labels[:, None])
        sums: Ints = np.where(earlier, self._units(probabilities), 0).sum(1)
        return sums + self._penalties(_label_ranks(scores, labels)) - self._parts(own[:, None], samples)[:, 0]

    def _rank_costs(self, scores: Array, order: Ints, samples: Ints) -> Ints:
        return self._sums(np.take_along_axis(scores.astype(np.float64), order, axis=1), samples)

    def set_sizes(self, scores: Array, limits: Ints, samples: Ints) -> Ints:
        """Return the number of ranks within the limit, from sorted probabilities, which is faster."""
        costs = self._sums(-np.sort(-scores.astype(np.float64), axis=1), samples)
        return np.asarray(np.sum(costs <= limits, axis=1, dtype=np.int64))

    def shown_thresholds(self, levels: Ints, every: Bools, n_classes: int) -> Array:
        """Return the sums of probabilities; inf if every class is in."""
        return np.where(every, np.inf, levels / 2.0**self.bits)

    def on_new_samples(self, dtype: Dtype) -> Self:
        """Return the method with other random numbers, for new samples."""
        return replace(self, dtype=dtype, stream=1)

    def bad_rows(self, scores: Array) -> Ints:  # noqa: D102
        sums = scores.sum(1, dtype=np.float64)
        return np.union1d(rows_outside(scores), np.flatnonzero(sums > MOST_SUM))

    def _sums(self, probabilities: Floats, samples: Ints) -> Ints:
        """Return the costs of descending probabilities."""
        sums: Ints = np.cumsum(self._units(probabilities), axis=1)
        return sums + self._penalties(np.arange(1, probabilities.shape[1] + 1)) - self._parts(probabilities, samples)

    def _units(self, probabilities: Floats) -> Ints:
        """Return probabilities in whole units."""
        return np.rint(probabilities * 2.0**self.bits).astype(np.int64)

    def _penalties(self, ranks: Ints) -> Ints:
        return self.penalty * np.maximum(ranks - self.k_reg, 0)

    def _parts(self, probabilities: Floats, samples: Ints) -> Ints:
        """Return the part of each probability that is subtracted for a row's random number."""
        if self.seed is None:
            return np.zeros((len(probabilities), 1), np.int64)
        draws = sample_draws(self.seed, self.stream, samples)
        return self._units(probabilities * draws[:, None])


@dataclass(frozen=True)
class Raps(Aps):
    """APS with a penalty for each rank beyond ``k_reg``: Angelopoulos et al. (2021)."""

    name = "raps"
    has_penalty = True


#: The methods by name.
METHODS: dict[str, type[ConformalMethod]] = {method.name: method for method in (Lac, Aps, Raps, TopK)}


def cost_bits(penalty: Fraction, k_reg: int, n_classes: int) -> int:
    """Return the number of bits after the point in sums of probabilities; -1 if a penalty leaves too few."""
    most = MOST_SUM + penalty * max(0, n_classes - k_reg)
    bits = 62 - (int(most) + 1).bit_length()
    return bits if bits >= _LEAST_BITS else -1


def _label_ranks(scores: Array, labels: Ints) -> Ints:
    """Return the rank of each row's label, one past the last if its score is NaN."""
    tile = carrier(scores)
    ranks = np.empty(labels.size, np.int64)
    rank_in_row(tile, labels, ranks)
    if is_half(scores.dtype):
        ranks[tile[np.arange(labels.size), labels] == HALF_NAN] = scores.shape[1] + 1
    return ranks
