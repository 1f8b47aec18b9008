"""Probabilities of a strip of rows, their complements, and their logarithms: stored, or computed from logits.

Computed from logits, logarithms are precise even if a probability is too close to 0 or 1 for a float. Logarithms and
exponentials are the package's own, so that results are the same on every machine.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ..arrays import Array, Floats, Ints
from ..kernels import LN2_HIGH, LN2_LOW
from ..kernels.dispatch import exponentials, logarithms, row_sums, scaled_losses, sigmoid_wide, softmax_wide

_LEAST_NORMAL = float(np.finfo(np.float64).smallest_normal)


def minus_log(values: Floats) -> Floats:
    """Return -log of values in [0, 1]; infinite for 0."""
    small = values < _LEAST_NORMAL
    logs = np.empty(values.shape)
    usable = np.where(small, np.where(values == 0, 1.0, values * 2.0**54), values)
    logarithms(usable.reshape(-1), logs.reshape(-1))
    logs = np.where(small, (logs - 54 * LN2_HIGH) - 54 * LN2_LOW, logs)
    return np.where(values == 0, np.inf, np.maximum(-logs, 0.0))


def exponential(values: Floats) -> Floats:
    """Return the exponentials of values; 0 or infinite beyond the range of floats."""
    result = np.empty(values.shape)
    exponentials(values, result)
    return np.where(values > 709, np.inf, np.where(values < -708, 0.0, result))


def sums_of_rows(values: Floats) -> Floats:
    """Return the sum of each row, in a fixed order."""
    sums = np.empty(len(values))
    row_sums(values, sums)
    return sums


def rows_outside(scores: Array) -> Ints:
    """Return the rows with a score outside [0, 1], NaN apart."""
    if scores.min() >= 0 and scores.max() <= 1:
        return np.zeros(0, np.int64)
    return np.flatnonzero(((scores < 0) | (scores > 1)).any(1))


class Probabilities:
    """The probabilities p of a strip of rows: the scores themselves."""

    def __init__(self, scores: Array, temperature: float = 1.0) -> None:
        self.scores, self.temperature = scores, temperature

    @cached_property
    def p(self) -> Floats:
        """The probabilities."""
        return self.scores.astype(np.float64)

    @cached_property
    def q(self) -> Floats:
        """The complements 1 - p."""
        return 1.0 - self.p

    @cached_property
    def costs(self) -> Floats:
        """-log p."""
        return minus_log(self.p)

    @cached_property
    def other_costs(self) -> Floats:
        """-log q."""
        return minus_log(self.q)

    def label_costs(self, labels: Ints) -> Floats:
        """Return -log p of each row's label; 0 if the label is negative."""
        own = self.scores[np.arange(labels.size), np.maximum(labels, 0)].astype(np.float64)
        return np.where(labels >= 0, minus_log(own), 0.0)

    def bad_rows(self) -> Ints:
        """Return the rows whose scores do not define probabilities."""
        return rows_outside(self.scores)


class _Softmax(Probabilities):
    """The softmax of logits divided by a temperature."""

    @cached_property
    def _wide(self) -> Floats:
        return self.scores.astype(np.float64)

    @cached_property
    def p(self) -> Floats:
        p = np.empty(self.scores.shape)
        softmax_wide(self._wide, self.temperature, p, np.empty((2, self.scores.shape[1])))
        return p

    @cached_property
    def q(self) -> Floats:
        # Near 1 the complement is the sum of the other probabilities.
        rows, classes = np.nonzero(self.p > 0.5)
        others = self.p[rows]
        others[np.arange(rows.size), classes] = 0.0
        q: Floats = 1.0 - self.p
        q[rows, classes] = sums_of_rows(others)
        return q

    @cached_property
    def costs(self) -> Floats:
        top = self.scores.argmax(1)
        largest = self._wide[np.arange(top.size), top][:, None]
        costs: Floats = self.label_costs(top)[:, None] - (self._wide - largest) * (1.0 / self.temperature)
        return costs

    @cached_property
    def other_costs(self) -> Floats:
        costs = minus_log(self.q)
        rows, classes = np.nonzero(self.p > 0.5)
        others, each = self.scores[rows], np.arange(rows.size)
        tops, others[each, classes] = others[each, classes].astype(np.float64), -np.inf
        second = others.argmax(1)
        best = others[each, second].astype(np.float64)
        some = np.flatnonzero(np.isfinite(best))  # otherwise no other class has a positive probability
        shared = self.label_costs(self.scores.argmax(1))[rows[some]]
        rest = _Softmax(others[some], self.temperature).label_costs(second[some])
        gaps = (tops[some] - best[some]) * (1.0 / self.temperature)
        costs[rows[some], classes[some]] = (shared - rest) + gaps
        return costs

    def label_costs(self, labels: Ints) -> Floats:
        results = np.empty((3, 1, labels.size))
        scaled_losses(self.scores, labels, np.array([1.0 / self.temperature]), np.full((1, 2), -1), *results)
        losses: Floats = results[0, 0]
        return losses

    def bad_rows(self) -> Ints:
        return np.flatnonzero(np.isinf(self.scores.max(1)))


class _Sigmoid(Probabilities):
    """The sigmoid of each logit divided by a temperature."""

    @cached_property
    def _logits(self) -> Floats:
        return self.scores.astype(np.float64) / self.temperature

    @cached_property
    def p(self) -> Floats:
        return _sigmoid(self._logits)

    @cached_property
    def q(self) -> Floats:
        return _sigmoid(-self._logits)

    @cached_property
    def costs(self) -> Floats:
        return _softplus(-self._logits)

    @cached_property
    def other_costs(self) -> Floats:
        return _softplus(self._logits)

    def label_costs(self, labels: Ints) -> Floats:
        own = self._logits[np.arange(labels.size), np.maximum(labels, 0)]
        return np.where(labels >= 0, _softplus(-own), 0.0)

    def bad_rows(self) -> Ints:
        return np.zeros(0, np.int64)


def _sigmoid(values: Floats) -> Floats:
    result = np.empty(values.shape)
    sigmoid_wide(values, 1.0, result)
    return result


def _softplus(values: Floats) -> Floats:
    """Return log(1 + exp(x)) as max(x, 0) + log(1 + exp(-|x|)), in which nothing overflows."""
    result = np.empty(values.size)
    exponentials(-np.abs(values).reshape(-1), result)
    logarithms(1.0 + result, result)
    return np.maximum(values, 0.0) + result.reshape(values.shape)


#: By the activation that gives the probabilities; "" if the scores are probabilities.
LINKS: dict[str, type[Probabilities]] = {"": Probabilities, "softmax": _Softmax, "sigmoid": _Sigmoid}


def probabilities_of(scores: Array, link: str, temperature: float) -> Probabilities:
    """Return the probabilities of a strip of rows, given the name of their link; "" if the scores are probabilities."""
    return LINKS[link](scores, temperature)
