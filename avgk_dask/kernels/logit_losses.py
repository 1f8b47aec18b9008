"""Compiled kernels that tell what logits lose. They release the GIL; none is parallel: Dask owns the cores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from .cache_stamps import notice_changes
from .constants import LEAST_DIFFERENCE, LEAST_EXPONENT, SUM_LANES
from .exponentials import _exp, _largest, _log


@njit(nogil=True, cache=True)
def _folded(lanes: Any) -> Any:
    """Return the sum of all lanes, half added to half; it changes them."""
    n = lanes.size // 2
    while n:
        for t in range(n):
            lanes[t] += lanes[t + n]
        n //= 2
    return lanes[0]


@njit(nogil=True, cache=True)
def row_sums(values: Any, out: Any) -> None:
    """Write the sum of each row of a matrix, in one order: class c goes to lane c mod 64."""
    lanes = np.empty(SUM_LANES)
    for i in range(values.shape[0]):
        lanes[:] = 0.0
        for first in range(0, values.shape[1], SUM_LANES):
            part = values[i, first : first + SUM_LANES]
            for t in range(part.size):
                lanes[t] += part[t]
        out[i] = _folded(lanes)


@njit(nogil=True, cache=True)
def _add_exponentials(below: Any, scale: Any, terms: Any, lanes: Any) -> None:
    """Write exp(d times the scale) of each difference d, and add it to its lane, and that times d, and times d squared."""
    lanes[:] = 0.0
    zeroth, first, second = lanes[0], lanes[1], lanes[2]
    for start in range(0, below.size, SUM_LANES):
        part, mine = below[start : start + SUM_LANES], terms[start : start + SUM_LANES]
        for t in range(SUM_LANES):
            x = part[t] * scale
            term = _exp(x if x > LEAST_EXPONENT else LEAST_EXPONENT, 0.0)
            mine[t] = term if x > LEAST_EXPONENT else 0.0
            once = mine[t] * part[t]
            zeroth[t] += mine[t]
            first[t] += once
            second[t] += once * part[t]


@njit(nogil=True, cache=True)
def _add_products(below: Any, left: Any, right: Any, terms: Any, lanes: Any) -> None:
    """Do the same with the products of terms, which are those of the sum of two scales."""
    lanes[:] = 0.0
    zeroth, first, second = lanes[0], lanes[1], lanes[2]
    for start in range(0, below.size, SUM_LANES):
        part, mine = below[start : start + SUM_LANES], terms[start : start + SUM_LANES]
        one, other = left[start : start + SUM_LANES], right[start : start + SUM_LANES]
        for t in range(SUM_LANES):
            term = one[t] * other[t]
            once = term * part[t]
            mine[t] = term
            zeroth[t] += term
            first[t] += once
            second[t] += once * part[t]


@njit(nogil=True, cache=True)
def scaled_losses(scores: Any, labels: Any, scales: Any, parents: Any, losses: Any, slopes: Any, bends: Any) -> int:
    """Write -log p of each row's label, p the softmax of its scores times each scale, with two derivatives by the scale.

    All three by scale and row; 0 for rows with a negative label. A scale with parents, which are two places before it (-1
    without), is the sum of theirs, and takes no exponentials. Returns the first row with NaN or whose largest is infinite, at
    which it stops, or -1.
    """
    n_classes, lanes = scores.shape[1], np.empty((3, SUM_LANES))
    below = np.full(-(-n_classes // SUM_LANES) * SUM_LANES, LEAST_DIFFERENCE)
    terms = np.empty((scales.size, below.size))
    losses[:], slopes[:], bends[:] = 0.0, 0.0, 0.0
    for i in range(scores.shape[0]):
        row, label = scores[i], labels[i]
        largest, n_nan = _largest(row)
        if n_nan or np.isinf(largest):
            return i
        if label < 0:
            continue
        for c in range(n_classes):
            d = np.float64(row[c]) - largest
            below[c] = d if d > LEAST_DIFFERENCE else LEAST_DIFFERENCE
        own = np.float64(row[label]) - largest
        for j in range(scales.size):
            if parents[j, 0] < 0:
                _add_exponentials(below, scales[j], terms[j], lanes)
            else:
                _add_products(below, terms[parents[j, 0]], terms[parents[j, 1]], terms[j], lanes)
            total = _folded(lanes[0])
            mean = _folded(lanes[1]) / total
            losses[j, i] = _log(total) - own * scales[j]
            slopes[j, i] = mean - own
            bends[j, i] = _folded(lanes[2]) / total - mean * mean
    return -1


notice_changes(_add_exponentials, _exp)
notice_changes(scaled_losses, _largest, _log, _add_exponentials)
