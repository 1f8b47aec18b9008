"""The NLL of logits at several temperatures, the NLL of weighted logits with its gradient, and the best temperature.

A scale is an inverse temperature. Gradients are sums of integers, so that their bits do not depend on the order of
summation: residuals are rounded to 32 binary digits after the point, in two parts, and logits to 20 bits relative to the
largest. BLAS multiplies such integers without rounding.

The NLL is convex in the scale, so the sign of its slope shows on which side of a scale the optimum lies, and the slopes and
second derivatives at both ends of a bracket define a cubic with a root near it. The search uses only sums, products and
divisions and gives the same bits on any machine. A scale that is the sum of two others costs a third of a new one, so the
first read doubles scales and later reads take equal steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated

import numpy as np

from ..arrays import Array, Dtype, Floats, Ints
from ..bands.passes import Pass
from ..bands.rows import RowChecks
from ..kernels.dispatch import scaled_losses, softmax_wide
from ..records import MOST, Counts
from ..sources.transforms import affine_logits
from .losses import LossSums, ProbabilityTally

#: Added to exponents to make them positive.
EXPONENTS = 2000
#: The ``parents`` of a scale that is not the sum of two others.
DIRECT = (-1, -1)
#: Bits of each part of residuals, of logits, and of sums of residuals.
_PART, _LOGIT, _SUM = 16, 20, 36
#: Rows for which sums of such products are below 2**53, and for which all sums are below 2**63.
_MOST_TOGETHER, MOST_ROWS = 1 << 13, 1 << 27
#: Logits per matrix product: enough for BLAS.
_MIXED = 1 << 19


@dataclass(frozen=True)
class ScaleTally(ProbabilityTally):
    """The NLL at several scales and its first two derivatives by the scale, summed over samples."""

    losses: LossSums
    slopes: LossSums
    bends: LossSums
    #: The largest label, and the exponent of the largest finite logit plus ``EXPONENTS`` (-1 if no logit is finite).
    most_seen: Annotated[int, MOST]
    magnitude: Annotated[int, MOST]

    @property
    def has_one_class(self) -> bool:
        """Whether all labels are equal."""
        return self.least_label >= self.most_seen


@dataclass(frozen=True)
class GradientTally(ProbabilityTally):
    """The NLL of weighted logits, and its gradient in integers: by the bias, and in two parts by the weights."""

    losses: LossSums
    bias_sums: Counts
    weight_sums: Counts
    weight_rests: Counts


@dataclass(frozen=True)
class Scale:
    """A scale, with the indices of two earlier scales if it is their sum: then it needs no exponentials of its own."""

    value: float
    parents: tuple[int, int] = DIRECT


@dataclass(frozen=True)
class ScalePlan:
    """The scales to multiply logits by. With ``only_finite``, logits must be finite, and the tally has their magnitude."""

    dtype: Dtype
    n_classes: int
    scales: tuple[Scale, ...]
    only_finite: bool = False


def scale_pass(plan: ScalePlan) -> Pass:
    """Return the pass that sums the NLL and its derivatives at several scales."""
    return Pass("scales", tally_scales, plan, ScaleTally, holds_rows=True)


def tally_scales(slabs: Iterable[Array], labels: Array, band: int, plan: ScalePlan) -> ScaleTally:
    """Return the NLL of one band with hard labels."""
    checks = RowChecks.from_slabs(slabs, labels, band, plan.dtype, plan.n_classes)
    scales, parents = np.array([s.value for s in plan.scales]), np.array([s.parents for s in plan.scales])
    magnitude, parts = -1, [np.zeros((3, scales.size, 0))]
    for first, scores, strip_labels in checks.strips(in_one=True, find_nan=False):
        parts.append(np.empty((3, scales.size, len(scores))))
        if scaled_losses(scores, strip_labels, scales, parents, *parts[-1]) >= 0:
            checks.note_nan(scores, first)
            checks.refuse(first + np.flatnonzero(np.isinf(scores.max(1))))
        if plan.only_finite:
            checks.refuse(first + np.flatnonzero(np.isinf(scores.min(1))))
            largest = np.float64(max(scores.max(), -scores.min()))
            magnitude = max(magnitude, EXPONENTS + int(np.frexp(largest)[1])) if np.isfinite(largest) else magnitude
    losses, slopes, bends = (LossSums.from_values(part) for part in np.concatenate(parts, axis=2))
    hard = checks.labels.hard
    assert hard is not None
    last = int(hard.max(initial=-1))
    return ScaleTally(**checks.fields(), losses=losses, slopes=slopes, bends=bends, most_seen=last, magnitude=magnitude)


@dataclass(frozen=True)
class AffinePlan:
    """The weights (per class, or a matrix of output by input classes), the bias, and the exponent of the largest logit."""

    dtype: Dtype
    n_classes: int
    weights: Floats
    bias: Floats
    exponent: int


def affine_pass(plan: AffinePlan) -> Pass:
    """Return the pass that sums the NLL of weighted logits and its gradient."""
    return Pass("gradient", tally_gradient, plan, GradientTally, holds_rows=True, state_bytes=16 * plan.weights.size)


def tally_gradient(slabs: Iterable[Array], labels: Array, band: int, plan: AffinePlan) -> GradientTally:
    """Return the NLL and the gradient of one band with hard labels."""
    checks = RowChecks.from_slabs(slabs, labels, band, plan.dtype, plan.n_classes)
    losses: list[Floats] = [np.zeros((1, 0))]
    bias_sums, (sums, rests) = np.zeros(plan.n_classes, np.int64), np.zeros((2, *plan.weights.shape), np.int64)
    for _, scores, strip_labels in checks.strips(_MIXED, _MOST_TOGETHER):
        assert strip_labels is not None
        used = np.flatnonzero(strip_labels >= 0)
        strip_losses, residuals = _residuals(scores[used], strip_labels[used], plan)
        losses.append(strip_losses)
        bias_sums += np.rint(residuals * 2.0**_SUM).sum(0).astype(np.int64)
        logits = scores[used].astype(np.float64)
        if plan.weights.ndim == 1:
            sums += np.rint(residuals * logits * 2.0 ** (_SUM - plan.exponent)).astype(np.int64).sum(0)
        else:
            coarse = np.rint(residuals * 2.0**_PART)
            fine = np.rint((residuals * 2.0**_PART - coarse) * 2.0**_PART)
            integers = np.rint(logits * 2.0 ** (_LOGIT - plan.exponent))
            sums += (coarse.T @ integers).astype(np.int64)
            rests += (fine.T @ integers).astype(np.int64)
    return GradientTally(
        **checks.fields(),
        losses=LossSums.from_values(np.concatenate(losses, axis=1)),
        bias_sums=bias_sums,
        weight_sums=sums,
        weight_rests=rests,
    )


def _residuals(scores: Array, labels: Ints, plan: AffinePlan) -> tuple[Floats, Floats]:
    """Return the NLL of each row, and its probabilities minus the one-hot label; infinite if weights overflow."""
    logits = affine_logits(scores, plan.weights, plan.bias)
    losses, p = np.empty((3, 1, len(logits))), np.empty(logits.shape)
    if scaled_losses(logits, labels, np.ones(1), np.full((1, 2), -1), *losses) >= 0:  # too large for floats
        return np.full((1, len(logits)), np.inf), np.zeros(logits.shape)
    softmax_wide(logits, 1.0, p, np.empty((2, plan.n_classes)))
    p[np.arange(labels.size), labels] -= 1.0
    return losses[0], p


def gradient_of(tally: GradientTally, plan: AffinePlan) -> tuple[Floats, Floats]:
    """Return the gradient of the mean NLL by the weights and the bias."""
    unit = 2.0 ** (plan.exponent - _SUM)
    sums = tally.weight_sums + tally.weight_rests * 2.0**-_PART
    return sums * unit / tally.n_labelled, tally.bias_sums * 2.0**-_SUM / tally.n_labelled


#: The scales of the first read: powers of two from 1/4 to 4. Scale 1 gives the NLL before scaling.
_FIRST = tuple(Scale(2.0**n, DIRECT if n in (-2, 0) else (n + 1, n + 1)) for n in range(-2, 3))
#: Temperatures are searched up to this one, and down to its inverse.
BOUND = 65536.0
#: Factors by which a search extends beyond the known scales.
_WIDER = (4.0, 16.0, 64.0)
#: Brackets with a larger ratio than the first are divided evenly; with a larger ratio than the second, the next read
#: evaluates ``_STEPS`` scales around the estimate, at this relative distance.
_WIDEST, _WIDE = 3.0, 1.1
_BESIDE, _STEPS = 0.06, 4
#: The search ends if the next step would be shorter than this, relative to the scale.
_NEGLIGIBLE = 2e-5
_MOST_READS = 20
_HALVINGS = 80


@dataclass(frozen=True)
class Evaluated:
    """The mean NLL at a temperature, and its first two derivatives by the scale."""

    temperature: float
    loss: float
    slope: float
    bend: float
    #: Whether the loss has the bits that an evaluation at this temperature gives.
    is_direct: bool = True

    @property
    def scale(self) -> float:
        """1 / temperature."""
        return 1.0 / self.temperature

    @property
    def is_flat(self) -> bool:
        """Whether the NLL does not change with the scale: as floats, the probabilities are 0 and 1, or equal."""
        return self.slope == 0 and self.bend <= 0

    @property
    def is_optimal(self) -> bool:
        """Whether the step to the optimum is negligible."""
        return self.is_direct and not self.is_flat and abs(self.slope) <= _NEGLIGIBLE * self.scale * self.bend


@dataclass(frozen=True)
class TemperatureSearch:
    """The search for the best temperature: the NLL at the scales evaluated so far, ascending."""

    dtype: Dtype
    n_classes: int
    known: tuple[Evaluated, ...] = ()
    n_reads: int = 0
    #: The state of the first read, with the checks of the labels.
    first: ScaleTally | None = None

    def next_pass(self) -> Pass | None:
        """Return the pass over the next scales, or None at the end."""
        scales = self._next_scales()
        return scale_pass(ScalePlan(self.dtype, self.n_classes, scales)) if scales else None

    def advance(self, state: ScaleTally) -> TemperatureSearch:
        """Return the search after the state of its last pass."""
        known = list(self.known)
        for i, scale in enumerate(self._next_scales()):
            loss, slope, bend = (s.mean(i, state.n_labelled) for s in (state.losses, state.slopes, state.bends))
            known.append(Evaluated(1.0 / scale.value, loss, slope, bend, scale.parents == DIRECT))
        known.sort(key=lambda e: e.scale)
        return replace(self, known=tuple(known), n_reads=self.n_reads + 1, first=self.first or state)

    @property
    def before(self) -> Evaluated:
        """The NLL at temperature 1."""
        return next(e for e in self.known if e.temperature == 1.0)

    @property
    def best(self) -> Evaluated:
        """The best scale so far: that with the flattest slope, or the end with the lowest NLL."""
        if self.is_bounded:
            return self.known[0] if self.known[0].slope > 0 else self.known[-1]
        direct = (e for e in self.known if e.is_direct and not e.is_flat)
        return min(direct, key=lambda e: abs(e.slope), default=self.before)

    @property
    def is_bounded(self) -> bool:
        """Whether the NLL still falls at the lowest or highest temperature."""
        return self._bracket is None and not self.converged

    @property
    def converged(self) -> bool:
        """Whether a temperature is optimal, or the NLL is flat everywhere."""
        return any(e.is_optimal for e in self.known) or (bool(self.known) and all(e.is_flat for e in self.known))

    @property
    def _bracket(self) -> tuple[Evaluated, Evaluated] | None:
        """The two neighbours between which the NLL has its minimum, or None if it only falls or only rises."""
        return next(((a, b) for a, b in pairwise(self.known) if b.slope > 0 and not a.slope > 0), None)

    def _next_scales(self) -> tuple[Scale, ...]:
        """Return the scales of the next read, or () at the end."""
        if not self.known:
            return _FIRST
        if self.converged or self.n_reads >= _MOST_READS:
            return ()
        if self._bracket is None:  # extend the search where the NLL falls
            if self.known[0].slope > 0:
                return _directly(*(s for step in _WIDER if (s := self.known[0].scale / step) >= 1 / BOUND))
            return _directly(*(s for step in _WIDER if (s := self.known[-1].scale * step) <= BOUND))
        a, b = self._bracket
        ratio, root = b.scale / a.scale, _cubic_root(a, b)
        if ratio > _WIDEST:
            step = math.sqrt(math.sqrt(ratio))
            return _directly(a.scale * step, a.scale * step * step, b.scale / step)
        return _in_steps(root * (1 - _BESIDE * (_STEPS - 1) / 2), root * _BESIDE) if ratio > _WIDE else _directly(root)


def _directly(*scales: float) -> tuple[Scale, ...]:
    """Return scales that are evaluated directly, each rounded to the inverse of a temperature."""
    return tuple(Scale(1.0 / (1.0 / scale)) for scale in scales)


def _in_steps(first: float, step: float) -> tuple[Scale, ...]:
    """Return the step itself as a scale, and equally spaced scales from ``first`` up."""
    scales = [Scale(step), Scale(first), Scale(first + step, (1, 0))]
    for n in range(2, _STEPS):
        scales.append(Scale(scales[-1].value + step, (n, 0)))
    return tuple(scales)


def _cubic_root(a: Evaluated, b: Evaluated) -> float:
    """Return the root of the cubic that has the slopes and second derivatives at both ends of a bracket."""
    width = b.scale - a.scale

    def slope(t: float) -> float:
        s = 1 - t
        ends = (a.slope * s + b.slope * t) + (t * s) * (b.slope - a.slope) * (t - s)
        return ends + width * t * s * (a.bend * s - b.bend * t)

    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return a.scale + width * high
