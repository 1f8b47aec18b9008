"""Logits that are weighted, or mixed, and shifted: what a band tells of their NLL and its gradient.

Gradients are sums of integers, so that no order of adding changes a bit: residuals are rounded to 32 bits behind the
point, in two parts, and logits to 20 bits of the largest. BLAS multiplies such integers without rounding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array, Dtype, Floats, Ints
from ..kernels.chosen import mix_rows, scaled_losses, softmax_wide
from ..states.loss_tally import GradientTally, LossSums
from .band_pass import Pass
from .whole_rows import RowChecks

#: Bits of residuals in either part, of logits, and of the sums that are no products.
_PART, _LOGIT, _SUM = 16, 20, 36
#: Rows up to which sums of such products are below 2**53, and those up to which all are below 2**63.
_MOST_TOGETHER, MOST_ROWS = 1 << 13, 1 << 27
#: Logits that are mixed together: enough for BLAS.
_MIXED = 1 << 19


@dataclass(frozen=True)
class AffinePlan:
    """The weights (one a class, or a matrix by class made and class read), the bias, and the exponent of the largest logit."""

    dtype: Dtype
    n_classes: int
    weights: Floats
    bias: Floats
    exponent: int


def affine_pass(plan: AffinePlan) -> Pass:
    """Return the pass that sums the NLL of weighted logits, and its gradient."""
    return Pass("gradient", tally_gradient, plan, GradientTally, holds_rows=True, state_bytes=16 * plan.weights.size)


def affine_logits(scores: Array, weights: Floats, bias: Floats) -> Floats:
    """Return logits times their weights, or mixed by a matrix, plus the bias; in one order, whatever the rows."""
    wide = np.ascontiguousarray(scores, np.float64)
    if weights.ndim == 1:
        with np.errstate(over="ignore", invalid="ignore"):
            return wide * weights + bias
    found = np.empty((len(wide), len(weights)))
    mix_rows(wide, np.ascontiguousarray(weights.T), bias, found)
    return found


def tally_gradient(slabs: Iterable[Array], labels: Array, band: int, plan: AffinePlan) -> GradientTally:
    """Return the NLL and the gradient of one band with hard labels."""
    checks = RowChecks.of(slabs, labels, band, plan.dtype, plan.n_classes)
    losses: list[Floats] = [np.zeros((1, 0))]
    sums: dict[str, Any] = {
        "weight_sums": np.zeros(plan.weights.shape, np.int64),
        "bias_sums": np.zeros(plan.n_classes, np.int64),
    }
    sums["weight_rests"] = np.zeros_like(sums["weight_sums"])
    for _, scores, mine in checks.strips(_MIXED, _MOST_TOGETHER):
        assert mine is not None
        used = np.flatnonzero(mine >= 0)
        found, residuals = _residuals(scores[used], mine[used], plan)
        losses.append(found)
        for name, part in _gradients(residuals, scores[used].astype(np.float64), plan).items():
            sums[name] += part
    return GradientTally(**checks.fields(), losses=LossSums.of(np.concatenate(losses, axis=1)), **sums)


def _residuals(scores: Array, labels: Ints, plan: AffinePlan) -> tuple[Floats, Floats]:
    """Return the NLL of each row, and its probabilities less the label's 1; infinite where weights overflow."""
    logits = affine_logits(scores, plan.weights, plan.bias)
    found, p = np.empty((3, 1, len(logits))), np.empty(logits.shape)
    if scaled_losses(logits, labels, np.ones(1), np.full((1, 2), -1), *found) >= 0:  # too large for floats
        return np.full((1, len(logits)), np.inf), np.zeros(logits.shape)
    softmax_wide(logits, 1.0, p, np.empty((2, plan.n_classes)))
    p[np.arange(labels.size), labels] -= 1.0
    return found[0], p


def _gradients(residuals: Floats, logits: Floats, plan: AffinePlan) -> dict[str, Any]:
    """Return the sums over some rows, by the names of a tally's fields."""
    bias = np.rint(residuals * 2.0**_SUM).sum(0).astype(np.int64)
    if plan.weights.ndim == 1:
        products = np.rint(residuals * logits * 2.0 ** (_SUM - plan.exponent))
        return {"bias_sums": bias, "weight_sums": products.astype(np.int64).sum(0)}
    coarse = np.rint(residuals * 2.0**_PART)
    fine = np.rint((residuals * 2.0**_PART - coarse) * 2.0**_PART)
    read = np.rint(logits * 2.0 ** (_LOGIT - plan.exponent))
    return {
        "bias_sums": bias,
        "weight_sums": (coarse.T @ read).astype(np.int64),
        "weight_rests": (fine.T @ read).astype(np.int64),
    }


def gradient_of(tally: GradientTally, plan: AffinePlan) -> tuple[Floats, Floats]:
    """Return the gradient of the mean NLL by the weights and by the bias."""
    unit = 2.0 ** (plan.exponent - _SUM)
    sums = tally.weight_sums + tally.weight_rests * 2.0**-_PART
    return sums * unit / tally.n_labelled, tally.bias_sums * 2.0**-_SUM / tally.n_labelled
