"""The NLL of a band's logits at several scales, which are inverse temperatures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Dtype
from ..kernels.chosen import scaled_losses
from ..states.loss_tally import LossSums, ScaleTally
from .band_pass import Pass
from .whole_rows import RowChecks

#: Added to exponents, so that none is negative.
EXPONENTS = 2000


#: The parents of a scale that has none.
DIRECT = (-1, -1)


@dataclass(frozen=True)
class Scale:
    """A scale, and the places of two before it whose sum it is: then it needs no exponentials of its own."""

    value: float
    parents: tuple[int, int] = DIRECT


@dataclass(frozen=True)
class ScalePlan:
    """The scales to multiply logits by; with ``only_finite`` all logits must be, and their magnitude is told."""

    dtype: Dtype
    n_classes: int
    scales: tuple[Scale, ...]
    only_finite: bool = False


def scale_pass(plan: ScalePlan) -> Pass:
    """Return the pass that sums the NLL and its derivatives at several scales."""
    return Pass("scales", tally_scales, plan, ScaleTally, holds_rows=True)


def tally_scales(slabs: Iterable[Array], labels: Array, band: int, plan: ScalePlan) -> ScaleTally:
    """Return the NLL of one band with hard labels."""
    checks = RowChecks.of(slabs, labels, band, plan.dtype, plan.n_classes)
    scales, parents = np.array([s.value for s in plan.scales]), np.array([s.parents for s in plan.scales])
    magnitude, parts = -1, [np.zeros((3, scales.size, 0))]
    for first, scores, mine in checks.strips(in_one=True, find_nan=False):
        parts.append(np.empty((3, scales.size, len(scores))))
        if scaled_losses(scores, mine, scales, parents, *parts[-1]) >= 0:
            checks.note_nan(scores, first)
            checks.refuse(first + np.flatnonzero(np.isinf(scores.max(1))))
        if plan.only_finite:
            checks.refuse(first + np.flatnonzero(np.isinf(scores.min(1))))
            largest = np.float64(max(scores.max(), -scores.min()))
            magnitude = max(magnitude, EXPONENTS + int(np.frexp(largest)[1])) if np.isfinite(largest) else magnitude
    losses, slopes, bends = (LossSums.of(part) for part in np.concatenate(parts, axis=2))
    hard = checks.labels.hard
    assert hard is not None
    last = int(hard.max(initial=-1))
    return ScaleTally(**checks.fields(), losses=losses, slopes=slopes, bends=bends, most_seen=last, magnitude=magnitude)
