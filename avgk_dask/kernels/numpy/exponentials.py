"""Kernels for exponentials, softmax, sigmoid, losses of logits, and mixed logits, with fixed operations and order."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import (
    EXP_TERMS,
    LANES,
    LEAST_DIFFERENCE,
    LEAST_EXPONENT,
    LEAST_WIDE,
    LN2_HIGH,
    LN2_LOW,
    LOG2_E,
    LOG_TERMS,
    ROOT_BITS,
    ROUNDING,
    SPLITTER,
    SUM_LANES,
)


def _exp(x: Any, low: Any) -> Any:
    """Return exp(x + low) for x from -708 to 709, ``low`` being the rounding error of x."""
    c = dict(enumerate(EXP_TERMS, 2))
    shifted = x * LOG2_E + ROUNDING
    k = shifted - ROUNDING
    r = (x - k * LN2_HIGH) + (low - k * LN2_LOW)
    r2 = r * r
    r4 = r2 * r2
    first = (c[2] + c[3] * r) + (c[4] + c[5] * r) * r2
    second = (c[6] + c[7] * r) + (c[8] + c[9] * r) * r2
    third = (c[10] + c[11] * r) + (c[12] + c[13] * r) * r2
    near_one = 1.0 + (((first + second * r4) + third * (r4 * r4)) * r2 + r)
    return (near_one.view(np.int64) + (shifted.view(np.int64) << 52)).view(np.float64)


def _log(x: Any) -> Any:
    """Return the natural logarithm of positive, normal numbers."""
    bits = x.view(np.int64)
    k = (bits - ROOT_BITS) >> 52
    f = (bits - (k << 52)).view(np.float64) - 1.0
    s = f / (f + 2.0)
    z = s * s
    *terms, last = LOG_TERMS
    series = np.full_like(z, last)
    for term in reversed(terms):
        series = term + z * series
    return k * LN2_HIGH + (f - (s * (f - z * series) - k * LN2_LOW))


def exponentials(values: Any, out: Any) -> None:
    """Write the exponentials of values from -708 to 709; of others those of the nearest bound."""
    out[:] = _exp(np.minimum(np.maximum(values, LEAST_EXPONENT), 709.0), 0.0)


def logarithms(values: Any, out: Any) -> None:
    """Write the natural logarithms of positive, normal numbers."""
    out[:] = _log(np.ascontiguousarray(values))


def _largest(scores: Any) -> tuple[Any, int]:
    """Return the largest of each row (NaN if all are NaN), and the first row whose largest is infinite, or -1."""
    wide = scores.astype(np.float64)
    largest = np.where(np.isnan(wide), -np.inf, wide).max(1)
    infinite = np.isinf(largest) & ~np.isnan(wide).all(1)
    stop = int(np.argmax(infinite)) if infinite.any() else -1
    return np.where(np.isnan(wide).all(1), np.nan, largest)[:, None], stop


def softmax_narrow(scores: Any, temperature: float, out: Any, space: Any) -> int:
    """Write the softmax of each row of float32 scores; return the first row whose largest is infinite, or -1.

    ``space`` takes a row of float64, up to a multiple of the lanes. NaN stay, and do not count.
    """
    norms = np.empty((len(scores), 2))
    stop = softmax_norms(scores, temperature, norms, space)
    rows = slice(None) if stop < 0 else slice(stop)
    softmax_part(scores[rows], temperature, norms[rows], out[rows])
    return stop


def softmax_norms(scores: Any, temperature: float, norms: Any, space: Any) -> int:
    """Write the largest of each row of float32 scores, and the factor that makes probabilities of its exponentials.

    NaN if a row has only NaN. ``space`` and the result are those of ``softmax_narrow``.
    """
    largest, stop = _largest(scores)
    rows = slice(None) if stop < 0 else slice(stop)
    x = (scores[rows].astype(np.float64) - largest[rows]) * (1.0 / temperature)
    n_blocks = -(-x.shape[1] // LANES)
    terms = np.zeros((len(x), n_blocks * LANES))
    terms[:, : x.shape[1]] = _exp(np.where(x > LEAST_EXPONENT, x, LEAST_EXPONENT), 0.0)
    lanes = np.zeros((len(x), LANES))
    for block in range(n_blocks):
        lanes += terms[:, block * LANES : (block + 1) * LANES]
    a = lanes.T
    factor = 1.0 / (((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7])))
    norms[rows, 0], norms[rows, 1] = largest[rows, 0], np.where(np.isnan(largest[rows, 0]), np.nan, factor)
    return stop


def softmax_part(scores: Any, temperature: float, norms: Any, out: Any) -> None:
    """Write what ``softmax_narrow`` gives for some classes of each row, given the norms of the whole rows."""
    x = (scores.astype(np.float64) - norms[:, :1]) * (1.0 / temperature)
    terms = _exp(np.where(x > LEAST_EXPONENT, x, LEAST_EXPONENT), 0.0)
    with np.errstate(under="ignore"):
        out[:] = np.where(np.isnan(x), np.nan, terms * norms[:, 1:])


def _divided(value: Any, low: Any, temperature: float) -> tuple[Any, Any]:
    """Return (value + low) / temperature, and its rounding error."""
    x = value / temperature
    product = x * temperature
    a, b = x * SPLITTER, temperature * SPLITTER
    a -= a - x
    b -= b - temperature
    off = (((a * b - product) + a * (temperature - b)) + (x - a) * b) + (x - a) * (temperature - b)
    carried = (((value - product) - off) + low) / temperature
    plain = (temperature == 1.0) | ~((x > LEAST_WIDE) & (x < -LEAST_WIDE))
    return x, np.where(plain, low, carried)


def _below(value: Any, largest: Any, temperature: float) -> tuple[Any, Any]:
    """Return (value - largest) / temperature, and its rounding error."""
    difference = value - largest
    taken = difference - value
    low = (value - (difference - taken)) - (largest + taken)
    return _divided(difference, low, temperature)


def _exp_where(which: Any, x: Any, low: Any) -> Any:
    """Return the exponentials of some values, and 0 for the others."""
    return np.where(which, _exp(np.where(which, x, 0.0), np.where(which, low, 0.0)), 0.0)


def _exp_over(x: Any, low: Any, divisor: Any) -> Any:
    """Return exp(x + low) / divisor for x up to 0, rounded once if that is not a normal number; NaN stays."""
    raised = x + 200.0 * LN2_HIGH
    off = ((x - raised) + 200.0 * LN2_HIGH) + (low + 200.0 * LN2_LOW)
    small = _exp_where((x > LEAST_WIDE) & ~(x > -600.0), raised, off) / divisor * 2.0**-200
    result = np.where(x > -600.0, _exp_where(x > -600.0, x, low) / divisor, small)
    return np.where(np.isnan(x), np.nan, result)


def softmax_wide(scores: Any, temperature: float, out: Any, space: Any) -> int:
    """Write the softmax of each row of float64 scores; return the first row whose largest is infinite, or -1.

    More exact than that of narrow scores: rounding errors are carried along. ``space`` takes two rows of float64. NaN stay,
    and do not count.
    """
    largest, stop = _largest(scores)
    rows = slice(None) if stop < 0 else slice(stop)
    with np.errstate(all="ignore"):
        x, low = _below(scores[rows], largest[rows], temperature)
        terms = _exp_where(x > LEAST_EXPONENT, x, low)
        total, carried = np.zeros(len(x)), np.zeros(len(x))
        for term in terms.T:
            new = total + term
            carried += np.where(total >= term, (total - new) + term, (term - new) + total)
            total = new
        out[rows] = _exp_over(x, low, (total + carried)[:, None])
    return stop


def sigmoid_narrow(scores: Any, temperature: float, out: Any, space: Any) -> None:
    """Write the sigmoid of a matrix of float32 scores; ``space`` takes a row of float64. NaN stay."""
    with np.errstate(all="ignore"):
        x = -np.abs(scores.astype(np.float64)) * (1.0 / temperature)
        e = _exp(np.where(x > LEAST_EXPONENT, x, LEAST_EXPONENT), 0.0)
        out[:] = np.where(np.isnan(scores), np.nan, np.where(scores >= 0, 1.0, e) / (1.0 + e))


def sigmoid_wide(scores: Any, temperature: float, out: Any) -> None:
    """Write the sigmoid of a matrix of float64 scores; NaN stay."""
    with np.errstate(all="ignore"):
        x, low = _divided(-np.abs(scores), 0.0, temperature)
        divisor = 1.0 + _exp_where(x > LEAST_EXPONENT, x, low)
        out[:] = np.where(scores >= 0, 1.0 / divisor, _exp_over(x, low, divisor))


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
    """Write -log p of each row's label, p the softmax of its scores times a scale, and two derivatives by the scale.

    All three by scale and row; 0 for rows with a negative label. A scale with parents, which are two places before it
    (-1 without), is the sum of theirs, and takes no exponentials. Returns the first row with NaN or whose largest is
    infinite, at which it stops, or -1.
    """
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


def mix_rows(rows: Any, weights: Any, bias: Any, out: Any) -> None:
    """Write rows times weights, plus the bias: for each row and class a sum over the classes in their order.

    The order does not depend on what else is in the matrix.
    """
    out[:] = 0.0
    for j in range(rows.shape[1]):
        out += rows[:, j : j + 1] * weights[j]
    out += bias
