"""Probabilities of a strip of rows, and their logarithms, from wherever they come: as given, or from logits.

From logits nothing is lost where a probability is too near to 0 or 1 for a float.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from ..arrays import Array, Floats, Ints
from ..kernels.constants import LN2_HIGH, LN2_LOW
from ..kernels.dispatch import exponentials, logarithms, row_sums, scaled_losses, sigmoid_wide, softmax_wide

_LEAST_NORMAL = float(np.finfo(np.float64).smallest_normal)


def minus_log(values: Floats) -> Floats:
    """Return -log of values in [0, 1], in our own arithmetic; infinite for 0."""
    small = values < _LEAST_NORMAL
    found = np.empty(values.shape)
    usable = np.where(small, np.where(values == 0, 1.0, values * 2.0**54), values)
    logarithms(usable.reshape(-1), found.reshape(-1))
    found = np.where(small, (found - 54 * LN2_HIGH) - 54 * LN2_LOW, found)
    return np.where(values == 0, np.inf, np.maximum(-found, 0.0))


def grown(values: Floats) -> Floats:
    """Return the exponentials of values, in our own arithmetic; 0 and infinite beyond what floats hold."""
    found = np.empty(values.shape)
    exponentials(values, found)
    return np.where(values > 709, np.inf, np.where(values < -708, 0.0, found))


def sums_of_rows(values: Floats) -> Floats:
    """Return the sum of each row, in one order."""
    found = np.empty(len(values))
    row_sums(values, found)
    return found


class Chances(Protocol):
    """The probabilities p of a strip of rows, their complements q, and -log of both."""

    @property
    def p(self) -> Floats:
        """The probabilities."""

    @property
    def q(self) -> Floats:
        """1 - p."""

    @property
    def costs(self) -> Floats:
        """-log p."""

    @property
    def other_costs(self) -> Floats:
        """-log q."""

    def label_costs(self, labels: Ints) -> Floats:
        """Return -log p of each row's label; 0 where that is negative."""

    def bad_rows(self) -> Ints:
        """Return the rows that have no probabilities."""


@dataclass(frozen=True)
class GivenChances:
    """Scores that are probabilities."""

    scores: Array

    @cached_property
    def p(self) -> Floats:  # noqa: D102
        return self.scores.astype(np.float64)

    @cached_property
    def q(self) -> Floats:  # noqa: D102
        return 1.0 - self.p

    @cached_property
    def costs(self) -> Floats:  # noqa: D102
        return minus_log(self.p)

    @cached_property
    def other_costs(self) -> Floats:  # noqa: D102
        return minus_log(self.q)

    def label_costs(self, labels: Ints) -> Floats:  # noqa: D102
        own = self.scores[np.arange(labels.size), np.maximum(labels, 0)].astype(np.float64)
        return np.where(labels >= 0, minus_log(own), 0.0)

    def bad_rows(self) -> Ints:  # noqa: D102
        return rows_outside(self.scores)


def rows_outside(scores: Array) -> Ints:
    """Return the rows of which a score is outside [0, 1]; NaN is not meant."""
    if scores.min() >= 0 and scores.max() <= 1:
        return np.zeros(0, np.int64)
    return np.flatnonzero(((scores < 0) | (scores > 1)).any(1))


@dataclass(frozen=True)
class SoftmaxChances:
    """The softmax of logits divided by a temperature."""

    scores: Array
    temperature: float

    @cached_property
    def _wide(self) -> Floats:
        return self.scores.astype(np.float64)

    @cached_property
    def p(self) -> Floats:  # noqa: D102
        found = np.empty(self.scores.shape)
        softmax_wide(self._wide, self.temperature, found, np.empty((2, self.scores.shape[1])))
        return found

    @cached_property
    def q(self) -> Floats:  # noqa: D102
        # Near 1 the complement is what the others have.
        rows, classes = np.nonzero(self.p > 0.5)
        others = self.p[rows]
        others[np.arange(rows.size), classes] = 0.0
        found: Floats = 1.0 - self.p
        found[rows, classes] = sums_of_rows(others)
        return found

    @cached_property
    def costs(self) -> Floats:  # noqa: D102
        top = self.scores.argmax(1)
        largest = self._wide[np.arange(top.size), top][:, None]
        found: Floats = self.label_costs(top)[:, None] - (self._wide - largest) * (1.0 / self.temperature)
        return found

    @cached_property
    def other_costs(self) -> Floats:  # noqa: D102
        found = minus_log(self.q)
        rows, classes = np.nonzero(self.p > 0.5)
        others, each = self.scores[rows], np.arange(rows.size)
        tops, others[each, classes] = others[each, classes].astype(np.float64), -np.inf
        second = others.argmax(1)
        best = others[each, second].astype(np.float64)
        some = np.flatnonzero(np.isfinite(best))  # of no other class nothing is left
        shared = self.label_costs(self.scores.argmax(1))[rows[some]]
        rest = SoftmaxChances(others[some], self.temperature).label_costs(second[some])
        gaps = (tops[some] - best[some]) * (1.0 / self.temperature)
        found[rows[some], classes[some]] = (shared - rest) + gaps
        return found

    def label_costs(self, labels: Ints) -> Floats:  # noqa: D102
        found = np.empty((3, 1, labels.size))
        scaled_losses(self.scores, labels, np.array([1.0 / self.temperature]), np.full((1, 2), -1), *found)
        losses: Floats = found[0, 0]
        return losses

    def bad_rows(self) -> Ints:  # noqa: D102
        return np.flatnonzero(np.isinf(self.scores.max(1)))


@dataclass(frozen=True)
class SigmoidChances:
    """The sigmoid of each logit divided by a temperature."""

    scores: Array
    temperature: float

    @cached_property
    def _logits(self) -> Floats:
        return self.scores.astype(np.float64) / self.temperature

    @cached_property
    def p(self) -> Floats:  # noqa: D102
        return _sigmoid(self._logits)

    @cached_property
    def q(self) -> Floats:  # noqa: D102
        return _sigmoid(-self._logits)

    @cached_property
    def costs(self) -> Floats:  # noqa: D102
        return _softplus(-self._logits)

    @cached_property
    def other_costs(self) -> Floats:  # noqa: D102
        return _softplus(self._logits)

    def label_costs(self, labels: Ints) -> Floats:  # noqa: D102
        own = self._logits[np.arange(labels.size), np.maximum(labels, 0)]
        return np.where(labels >= 0, _softplus(-own), 0.0)

    def bad_rows(self) -> Ints:  # noqa: D102
        return np.zeros(0, np.int64)


def _sigmoid(values: Floats) -> Floats:
    found = np.empty(values.shape)
    sigmoid_wide(values, 1.0, found)
    return found


def _softplus(values: Floats) -> Floats:
    """Return log(1 + exp(x)) as max(x, 0) + log(1 + exp(-|x|)), where nothing overflows."""
    found = np.empty(values.size)
    exponentials(-np.abs(values).reshape(-1), found)
    logarithms(1.0 + found, found)
    return np.maximum(values, 0.0) + found.reshape(values.shape)


def chances_of(scores: Array, link: str, temperature: float) -> Chances:
    """Return the probabilities of a strip of rows: ``link`` is what makes them of the scores."""
    if link == "softmax":
        return SoftmaxChances(scores, temperature)
    return SigmoidChances(scores, temperature) if link == "sigmoid" else GivenChances(scores)
