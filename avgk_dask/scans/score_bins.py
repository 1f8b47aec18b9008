"""Scores in bins, with the label weight on them: what one band tells of calibration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Dtype, Floats, Ints
from ..states.loss_tally import BinTally
from .band_pass import Pass
from .chances import rows_outside
from .whole_rows import RowChecks


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
    chosen = _tops if plan.only_tops else _between
    none = np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
    parts = [none]
    for first, scores, mine in checks.strips():
        checks.refuse(first + rows_outside(scores))
        if mine is not None and not checks.n_refused and not checks.n_nan:
            parts.append(chosen(scores, mine, np.array(plan.edges)))
    bins, values, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    return BinTally(**checks.fields(), **BinTally.binned(bins, values, weights, plan.n_bins))


def _tops(scores: Array, labels: Array, edges: Floats) -> tuple[Ints, Floats, Floats]:
    """Return bin, score and label weight of the highest score of each labelled row; of equal ones the first."""
    rows = np.arange(len(labels)) if labels.ndim == 2 else np.flatnonzero(labels >= 0)
    top = scores.argmax(1)[rows]
    values = scores[rows, top].astype(np.float64)
    return _bins(values, edges), values, _weights(labels, rows, top)


def _between(scores: Array, labels: Array, edges: Floats) -> tuple[Ints, Floats, Floats]:
    """Return bin, score and label weight of all scores of labelled rows between the first edge and the last."""
    inside = (scores >= edges[0]) & (scores <= edges[-1])
    if labels.ndim == 1:
        inside &= (labels >= 0)[:, None]
    rows, classes = np.nonzero(inside)
    values = scores[rows, classes].astype(np.float64)
    return _bins(values, edges), values, _weights(labels, rows, classes)


def _bins(values: Floats, edges: Floats) -> Ints:
    """Return the bin of each value; of bins with equal edges the last."""
    return np.minimum(np.searchsorted(edges, values, side="right") - 1, edges.size - 2)


def _weights(labels: Array, rows: Ints, classes: Ints) -> Floats:
    found: Floats = labels[rows, classes] if labels.ndim == 2 else (labels[rows] == classes).astype(np.float64)
    return found
