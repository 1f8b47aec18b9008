"""What probabilities lose against the labels, and how well they are calibrated: exact sums over the samples.

The losses are the paper's strongly proper ones. For calibration errors scores are put in bins with the label weight on them.
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
from ..records import LEAST, MOST, Count, Counts, State

#: Values from 2**32 up are summed in this unit, in which they are below 2**32.
_FROM, _UNIT = 2.0**32, 2.0**992


@dataclass(frozen=True)
class LossSums(State):
    """Several exact sums of values of any size; infinite values are counted."""

    n_infinite: Counts
    small: ExactSums
    large: ExactSums

    @classmethod
    def of(cls, values: Floats) -> Self:
        """Return the sum of each row of a matrix."""
        small, large = ExactSums.zeros(len(values)), ExactSums.zeros(len(values))
        for n, row in enumerate(values):
            size = np.abs(row)
            few, rest = row[(size >= _FROM) & np.isfinite(row)] / _UNIT, row[size < _FROM]
            large.add(few, np.full(few.size, n))
            small.add(rest, np.full(rest.size, n))
        return cls(np.isinf(values).sum(1), small.settled(), large.settled())

    def mean(self, i: int, n: int) -> float:
        """Return the mean of one sum over n samples: rounded once, NaN if n is 0."""
        if n == 0:
            return math.nan
        if self.n_infinite[i]:
            return math.inf
        return float((self.small[i] + self.large[i] * Fraction(_UNIT)) / n)


@dataclass(frozen=True)
class ProbabilityTally(CheckedTally):
    """What every pass over probabilities counts: also the samples whose scores are not, and the first of them."""

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


#: What a class costs where it is the label, and where it is not, by loss: a loss is the sum over all classes.
PAIRS: dict[str, Callable[[Probabilities], tuple[Floats, Floats]]] = {
    "nll": lambda c: (c.costs, np.zeros_like(c.costs)),
    "brier": lambda c: (c.q * c.q * 0.5, c.p * c.p * 0.5),
    "logistic": lambda c: (c.costs, c.other_costs),
    "squared": lambda c: (c.q * c.q, c.p * c.p),
    "exponential": lambda c: _exponential(c),
}
#: Below this, the quotient of a probability and its complement comes from their logarithms.
_TINY = 1e-290


def _exponential(chances: Probabilities) -> tuple[Floats, Floats]:
    """Return sqrt(q / p) and sqrt(p / q), also where p or q is too small for a float."""
    p, q = chances.p, chances.q
    on, off = np.sqrt(q / p), np.sqrt(p / q)
    tiny = np.nonzero((p < _TINY) | (q < _TINY))
    if tiny[0].size:
        half = (chances.costs[tiny] - chances.other_costs[tiny]) * 0.5
        on[tiny], off[tiny] = exponential(half), exponential(-half)
    return on, off


@dataclass(frozen=True)
class LossPlan:
    """Which losses to sum, and what makes probabilities of the scores: nothing, ``"softmax"`` or ``"sigmoid"``."""

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
    checks = RowChecks.of(slabs, labels, band, plan.dtype, plan.n_classes)
    found = [np.zeros((len(plan.losses), 0))]
    for first, scores, mine in checks.strips():
        chances = probabilities_of(scores, plan.link, plan.temperature)
        checks.refuse(first + chances.bad_rows())
        if mine is not None and not checks.n_refused and not checks.n_nan:
            found.append(np.array([_row_losses(chances, mine, loss) for loss in plan.losses]))
    return LossTally(**checks.fields(), losses=LossSums.of(np.concatenate(found, axis=1)))


def _row_losses(chances: Probabilities, labels: Array, loss: str) -> Floats:
    """Return the loss of each row; 0 without a label."""
    if loss == "nll" and labels.ndim == 1:
        return chances.label_costs(labels)
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        on, off = PAIRS[loss](chances)
    if labels.ndim == 2:  # what each class costs on average; what never happens costs nothing
        with np.errstate(invalid="ignore", under="ignore"):
            label, other = np.where(labels == 0, 0.0, labels * on), np.where(labels == 1, 0.0, (1.0 - labels) * off)
        return sums_of_rows(label + other)
    terms, rows = off.copy(), np.flatnonzero(labels >= 0)
    terms[rows, labels[rows]] = on[rows, labels[rows]]
    terms[labels < 0] = 0.0
    return sums_of_rows(terms)


@dataclass(frozen=True)
class BinPlan:
    """The ascending edges of the bins [low, high), the last one closed: of each row's highest score, or of all scores."""

    dtype: Dtype
    n_classes: int
    edges: tuple[float, ...]
    only_tops: bool

    @property
    def n_bins(self) -> int:
        """Number of bins."""
        return len(self.edges) - 1


def bin_pass(plan: BinPlan) -> Pass:
    """Return the pass that puts scores of labelled samples in bins."""
    return Pass("calibration", tally_bins, plan, BinTally, holds_rows=True, state_bytes=600 * plan.n_bins)


def tally_bins(slabs: Iterable[Array], labels: Array | None, band: int, plan: BinPlan) -> BinTally:
    """Return the bins of one band."""
    checks = RowChecks.of(slabs, labels, band, plan.dtype, plan.n_classes)
    chosen, edges = _tops if plan.only_tops else _between, np.array(plan.edges)
    parts = [(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))]
    for first, scores, mine in checks.strips():
        checks.refuse(first + rows_outside(scores))
        if mine is not None and not checks.n_refused and not checks.n_nan:
            rows, classes = chosen(scores, mine, edges)
            values = scores[rows, classes].astype(np.float64)
            bins = np.minimum(
                np.searchsorted(edges, values, side="right") - 1, edges.size - 2
            )  # of equal edges the last
            parts.append((bins, values, mine[rows, classes] if mine.ndim == 2 else 1.0 * (mine[rows] == classes)))
    bins, values, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    sums, in_bins = (ExactSums.by_group(of, bins, plan.n_bins) for of in (values, weights))
    return BinTally(**checks.fields(), counts=np.bincount(bins, minlength=plan.n_bins), weights=in_bins, sums=sums)


def _tops(scores: Array, labels: Array, edges: Floats) -> tuple[Ints, Ints]:
    """Return row and class of the highest score of each labelled row; of equal ones the first."""
    rows = np.arange(len(labels)) if labels.ndim == 2 else np.flatnonzero(labels >= 0)
    return rows, scores.argmax(1)[rows]


def _between(scores: Array, labels: Array, edges: Floats) -> tuple[Ints, Ints]:
    """Return rows and classes of all scores of labelled rows between the first edge and the last."""
    inside = (scores >= edges[0]) & (scores <= edges[-1])
    if labels.ndim == 1:
        inside &= (labels >= 0)[:, None]
    rows, classes = np.nonzero(inside)
    return rows, classes
