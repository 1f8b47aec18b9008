"""What a band's probabilities lose against its labels: the paper's strongly proper losses, summed over samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Dtype, Floats, Ints
from ..states.loss_tally import LossSums, LossTally
from .band_pass import Pass
from .chances import Chances, chances_of, grown, sums_of_rows
from .whole_rows import RowChecks

#: Of each loss what a class costs where it is the label, and where it is not: a loss is the sum over all classes.
PAIRS: dict[str, Callable[[Chances], tuple[Floats, Floats]]] = {
    "nll": lambda c: (c.costs, np.zeros_like(c.costs)),
    "brier": lambda c: (c.q * c.q * 0.5, c.p * c.p * 0.5),
    "logistic": lambda c: (c.costs, c.other_costs),
    "squared": lambda c: (c.q * c.q, c.p * c.p),
    "exponential": lambda c: _exponential(c),
}
#: Below this, the quotient of a probability and its complement comes from their logarithms.
_TINY = 1e-290


def _exponential(chances: Chances) -> tuple[Floats, Floats]:
    """Return sqrt(q / p) and sqrt(p / q), also where p or q is too small for a float."""
    p, q = chances.p, chances.q
    on, off = np.sqrt(q / p), np.sqrt(p / q)
    tiny = np.nonzero((p < _TINY) | (q < _TINY))
    if tiny[0].size:
        half = (chances.costs[tiny] - chances.other_costs[tiny]) * 0.5
        on[tiny], off[tiny] = grown(half), grown(-half)
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
        chances = chances_of(scores, plan.link, plan.temperature)
        checks.refuse(first + chances.bad_rows())
        if mine is not None and not checks.n_refused and not checks.n_nan:
            found.append(np.array([_row_losses(chances, mine, loss) for loss in plan.losses]))
    return LossTally(**checks.fields(), losses=LossSums.of(np.concatenate(found, axis=1)))


def _row_losses(chances: Chances, labels: Array, loss: str) -> Floats:
    """Return the loss of each row; 0 without a label."""
    if loss == "nll" and labels.ndim == 1:
        return chances.label_costs(labels)
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        on, off = PAIRS[loss](chances)
    return sums_of_rows(_soft_terms(on, off, labels) if labels.ndim == 2 else _hard_terms(on, off, labels))


def _hard_terms(on: Floats, off: Floats, labels: Ints) -> Floats:
    terms, rows = off.copy(), np.flatnonzero(labels >= 0)
    terms[rows, labels[rows]] = on[rows, labels[rows]]
    terms[labels < 0] = 0.0
    return terms


def _soft_terms(on: Floats, off: Floats, weights: Floats) -> Floats:
    """Return what each class costs on average where it is the label so often; what never happens costs nothing."""
    never, always = weights == 0, weights == 1
    with np.errstate(invalid="ignore", under="ignore"):
        return np.where(never, 0.0, weights * on) + np.where(always, 0.0, (1.0 - weights) * off)
