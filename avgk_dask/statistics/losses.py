"""Losses of probabilities, and bins for their calibration errors, as exact sums over samples.

The losses are the strongly proper ones of the paper. Calibration errors need the number of scores, their sum, and the label
weight of each bin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Self

import numpy as np

from ..arrays import Array, Dtype, Floats, Ints
from ..bands.passes import CheckedTally, Pass, Place
from ..bands.probabilities import Probabilities, exponential, probabilities_of, rows_outside, sums_of_rows
from ..bands.rows import RowChecks
from ..exact.sums import ExactSums
from ..records import LEAST, Count, Counts, State

#: Values from 2**32 up are summed in this unit, which makes them less than 2**32.
_FROM, _UNIT = 2.0**32, 2.0**992


@dataclass(frozen=True)
class LossSums(State):
    """Several exact sums of values of any magnitude; infinite values are counted."""

    n_infinite: Counts
    small: ExactSums
    large: ExactSums

    @classmethod
    def from_values(cls, values: Floats) -> Self:
        """Return the sum of each row of a matrix."""
        small, large = ExactSums.zeros(len(values)), ExactSums.zeros(len(values))
        for n, row in enumerate(values):
            size = np.abs(row)
            large_values, small_values = row[(size >= _FROM) & np.isfinite(row)] / _UNIT, row[size < _FROM]
            large.add(large_values, np.full(large_values.size, n))
            small.add(small_values, np.full(small_values.size, n))
        return cls(np.isinf(values).sum(1), small.settled(), large.settled())

    def mean(self, i: int, n: int) -> float:
        """Return one sum divided by n and rounded once, or NaN if n is 0."""
        if n == 0:
            return math.nan
        if self.n_infinite[i]:
            return math.inf
        return float((self.small[i] + self.large[i] * Fraction(_UNIT)) / n)


@dataclass(frozen=True)
class ProbabilityTally(CheckedTally):
    """A tally that also counts samples whose scores are not probabilities, with the first of them."""

    n_refused: Count
    first_refused: Annotated[Place, LEAST]


@dataclass(frozen=True)
class LossTally(ProbabilityTally):
    """Sums of several losses over the labelled samples."""

    losses: LossSums


@dataclass(frozen=True)
class BinTally(ProbabilityTally):
    """For each bin, the number of scores of labelled samples, their sum, and the label weight."""

    counts: Counts
    weights: ExactSums
    sums: ExactSums


#: For each loss, the terms of a class that is the label and of one that is not. A loss is the sum over all classes.
PAIRS: dict[str, Callable[[Probabilities], tuple[Floats, Floats]]] = {
    "nll": lambda c: (c.costs, np.zeros_like(c.costs)),
    "brier": lambda c: (c.q * c.q * 0.5, c.p * c.p * 0.5),
    "logistic": lambda c: (c.costs, c.other_costs),
    "squared": lambda c: (c.q * c.q, c.p * c.p),
    "exponential": lambda c: _exponential(c),
}
#: Below this, the ratio of a probability and its complement is computed from their logarithms.
_TINY = 1e-290


def _exponential(probabilities: Probabilities) -> tuple[Floats, Floats]:
    """Return sqrt(q / p) and sqrt(p / q), even if p or q is too small for a float."""
    p, q = probabilities.p, probabilities.q
    on, off = np.sqrt(q / p), np.sqrt(p / q)
    tiny = np.nonzero((p < _TINY) | (q < _TINY))
    if tiny[0].size:
        half = (probabilities.costs[tiny] - probabilities.other_costs[tiny]) * 0.5
        on[tiny], off[tiny] = exponential(half), exponential(-half)
    return on, off


@dataclass(frozen=True)
class LossPlan:
    """The losses to sum; ``link`` is ``"softmax"`` or ``"sigmoid"`` if scores are logits, else empty."""

    dtype: Dtype
    n_classes: int
    losses: tuple[str, ...]
    link: str = ""
    temperature: float = 1.0


def loss_pass(plan: LossPlan) -> Pass:
    """Return the pass that sums losses over the labelled samples."""
    return Pass("losses", tally_losses, plan, LossTally, holds_rows=True)


def tally_losses(slabs: Iterable[Array], labels: Array | None, band: int, plan: LossPlan) -> LossTally:
    """Return the losses of one band."""
    checks = RowChecks.from_slabs(slabs, labels, band, plan.dtype, plan.n_classes)
    losses = [np.zeros((len(plan.losses), 0))]
    for first, scores, strip_labels in checks.strips():
        probabilities = probabilities_of(scores, plan.link, plan.temperature)
        checks.refuse(first + probabilities.bad_rows())
        if strip_labels is not None and not checks.n_refused and not checks.n_nan:
            losses.append(np.array([_row_losses(probabilities, strip_labels, loss) for loss in plan.losses]))
    return LossTally(**checks.fields(), losses=LossSums.from_values(np.concatenate(losses, axis=1)))


def _row_losses(probabilities: Probabilities, labels: Array, loss: str) -> Floats:
    """Return the loss of each row; 0 without a label."""
    if loss == "nll" and labels.ndim == 1:
        return probabilities.label_costs(labels)
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        on, off = PAIRS[loss](probabilities)
    if labels.ndim == 2:  # the expected loss; an infinite term of weight 0 is 0
        with np.errstate(invalid="ignore", under="ignore"):
            label, other = np.where(labels == 0, 0.0, labels * on), np.where(labels == 1, 0.0, (1.0 - labels) * off)
        return sums_of_rows(label + other)
    terms, rows = off.copy(), np.flatnonzero(labels >= 0)
    terms[rows, labels[rows]] = on[rows, labels[rows]]
    terms[labels < 0] = 0.0
    return sums_of_rows(terms)


@dataclass(frozen=True)
class BinPlan:
    """The ascending edges of the bins [low, high), the last one closed, of each row's highest score or of all scores."""

    dtype: Dtype
    n_classes: int
    edges: tuple[float, ...]
    only_tops: bool

    @property
    def n_bins(self) -> int:
        """Number of bins."""
        return len(self.edges) - 1


def bin_pass(plan: BinPlan) -> Pass:
    """Return the pass that bins the scores of labelled samples."""
    return Pass("calibration", tally_bins, plan, BinTally, holds_rows=True, state_bytes=600 * plan.n_bins)


def tally_bins(slabs: Iterable[Array], labels: Array | None, band: int, plan: BinPlan) -> BinTally:
    """Return the bins of one band."""
    checks = RowChecks.from_slabs(slabs, labels, band, plan.dtype, plan.n_classes)
    select, edges = _select_tops if plan.only_tops else _select_between, np.array(plan.edges)
    parts = [(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))]
    for first, scores, strip in checks.strips():
        checks.refuse(first + rows_outside(scores))
        if strip is not None and not checks.n_refused and not checks.n_nan:
            rows, classes = select(scores, strip, edges)
            values = scores[rows, classes].astype(np.float64)
            # A value at several equal edges belongs to the last of their bins.
            bins = np.minimum(np.searchsorted(edges, values, side="right") - 1, edges.size - 2)
            parts.append((bins, values, strip[rows, classes] if strip.ndim == 2 else 1.0 * (strip[rows] == classes)))
    bins, values, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    sums, in_bins = (ExactSums.by_group(column, bins, plan.n_bins) for column in (values, weights))
    return BinTally(**checks.fields(), counts=np.bincount(bins, minlength=plan.n_bins), weights=in_bins, sums=sums)


def _select_tops(scores: Array, labels: Array, edges: Floats) -> tuple[Ints, Ints]:
    """Return row and class of the highest score of each labelled row; the first class if several are equal."""
    rows = np.arange(len(labels)) if labels.ndim == 2 else np.flatnonzero(labels >= 0)
    return rows, scores.argmax(1)[rows]


def _select_between(scores: Array, labels: Array, edges: Floats) -> tuple[Ints, Ints]:
    """Return rows and classes of all scores of labelled rows between the first edge and the last."""
    inside = (scores >= edges[0]) & (scores <= edges[-1])
    if labels.ndim == 1:
        inside &= (labels >= 0)[:, None]
    rows, classes = np.nonzero(inside)
    return rows, classes
