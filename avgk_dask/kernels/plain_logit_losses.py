"""Plain twins of the kernels of ``logit_losses``: the same operations in the same order, so the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from .constants import LEAST_DIFFERENCE, LEAST_EXPONENT, SUM_LANES
from .plain_exponentials import _exp, _log


def _lane_sums(values: Any) -> Any:
    """Return the sum of each row."""
    lanes = np.zeros((len(values), SUM_LANES))
    for first in range(0, values.shape[1], SUM_LANES):
        part = values[:, first : first + SUM_LANES]
        lanes[:, : part.shape[1]] += part
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes[:, 0]


def row_sums(values: Any, out: Any) -> None:
    """Write the sum of each row of a matrix, in one order: class c goes to lane c mod 64."""
    with np.errstate(all="ignore"):
        out[:] = _lane_sums(values)


def scaled_losses(scores: Any, labels: Any, scales: Any, parents: Any, losses: Any, slopes: Any, bends: Any) -> int:
    """Write -log p of each row's label, p the softmax of its scores times each scale, with two derivatives by the scale."""
    losses[:], slopes[:], bends[:] = 0.0, 0.0, 0.0
    wide = scores.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(wide.max(1)))  # NaN is the largest of its row
    rows = np.flatnonzero(labels[: bad[0] if bad.size else None] >= 0)
    largest = wide[rows].max(1, keepdims=True)
    below = np.maximum(wide[rows] - largest, LEAST_DIFFERENCE)
    own = wide[rows, labels[rows]] - largest[:, 0]
    terms: list[Any] = []
    for j, scale in enumerate(scales.tolist()):
        with np.errstate(all="ignore"):
            terms.append(_terms(below, scale) if parents[j, 0] < 0 else terms[parents[j, 0]] * terms[parents[j, 1]])
            total, firsts = _lane_sums(terms[j]), terms[j] * below
            mean = _lane_sums(firsts) / total
            losses[j, rows] = _log(total) - own * scale
            slopes[j, rows] = mean - own
            bends[j, rows] = _lane_sums(firsts * below) / total - mean * mean
    return int(bad[0]) if bad.size else -1


def _terms(below: Any, scale: float) -> Any:
    """Return exp(d times the scale) of each difference d."""
    x = below * scale
    return np.where(x > LEAST_EXPONENT, _exp(np.where(x > LEAST_EXPONENT, x, LEAST_EXPONENT), 0.0), 0.0)
