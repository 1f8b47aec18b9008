"""Compiled kernels that turn logits into probabilities, sum their losses, and mix them.

The docstrings are in ``kernels/numpy``. All kernels release the GIL and use one thread, since Dask uses the cores.

Exponentials and logarithms are our own: sums, products and divisions of float64 alone, never fused, in a fixed order. So the
same bits come out on any machine, which neither NumPy's nor the C library's promise.

Range reduction adds 1.5 * 2**52, a polynomial follows, and the exponent is added to the bits. A row is summed in eight
lanes, always whole. float32 results are the true value rounded (error below 0.5001 units in the last place in our
tests); for float64 the rounding errors are carried along in a second float. A test compares AVX-512, AVX2, with and
without FMA, SSE and NumPy bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

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
    MIXED_CLASSES,
    MIXED_ROWS,
    ROOT_BITS,
    ROUNDING,
    SPLITTER,
    SUM_LANES,
)
from . import notice_changes

_2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13 = EXP_TERMS
_U = np.uint64
_L3, _L5, _L7, _L9, _L11, _L13, _L15, _L17, _L19, _L21 = LOG_TERMS


@intrinsic
def _bits_of(typing_context: Any, value: Any) -> Any:
    """Return the bits of a float64 as an integer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.int64))

    return types.int64(types.float64), generate


@intrinsic
def _of_bits(typing_context: Any, bits: Any) -> Any:
    """Return the float64 of these bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float64))

    return types.float64(types.int64), generate


@njit(nogil=True, cache=True, inline="always")
def _exp(x: Any, low: Any) -> Any:
    """Return exp(x + low) for x from -708 to 709, ``low`` being the rounding error of x."""
    shifted = x * LOG2_E + ROUNDING
    k = shifted - ROUNDING
    r = (x - k * LN2_HIGH) + (low - k * LN2_LOW)
    r2 = r * r
    r4 = r2 * r2
    first = (_2 + _3 * r) + (_4 + _5 * r) * r2
    second = (_6 + _7 * r) + (_8 + _9 * r) * r2
    third = (_10 + _11 * r) + (_12 + _13 * r) * r2
    near_one = 1.0 + (((first + second * r4) + third * (r4 * r4)) * r2 + r)
    return _of_bits(_bits_of(near_one) + (_bits_of(shifted) << 52))


@njit(nogil=True, cache=True, inline="always")
def _log(x: Any) -> Any:
    """Return the natural logarithm of a positive, normal number."""
    # x = 2**k m, m from about sqrt(1/2) to sqrt(2), and m = (1 + s) / (1 - s).
    bits = _bits_of(x)
    k = (bits - ROOT_BITS) >> 52
    f = _of_bits(bits - (k << 52)) - 1.0
    s = f / (f + 2.0)
    z = s * s
    tail = _L13 + z * (_L15 + z * (_L17 + z * (_L19 + z * _L21)))
    series = z * (_L3 + z * (_L5 + z * (_L7 + z * (_L9 + z * (_L11 + z * tail)))))
    # 2 s is f - s f, so that nothing is rounded off f.
    return k * LN2_HIGH + (f - (s * (f - series) - k * LN2_LOW))


@njit(nogil=True, cache=True)
def exponentials(values: Any, out: Any) -> None:
    for t in range(values.size):
        out[t] = _exp(min(max(values[t], LEAST_EXPONENT), 709.0), 0.0)


@njit(nogil=True, cache=True)
def logarithms(values: Any, out: Any) -> None:
    for t in range(values.size):
        out[t] = _log(values[t])


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz"})
def _largest_number(row: Any) -> Any:
    """Return the largest of a row without NaN."""
    largest = row[0]
    for t in range(row.size):
        largest = max(largest, row[t])
    return largest


@njit(nogil=True, cache=True)
def _largest(row: Any) -> Any:
    """Return the largest number of a row (-inf if all are NaN), and the number of NaN."""
    n_nan = 0
    for t in range(row.size):
        n_nan += row[t] != row[t]
    if n_nan == 0:
        return np.float64(_largest_number(row)), n_nan
    largest = -np.inf
    for t in range(row.size):
        if row[t] > largest:
            largest = np.float64(row[t])
    return largest, n_nan


@njit(nogil=True, cache=True, inline="always")
def _lane_sum(terms: Any) -> Any:
    """Return the sum of terms in a fixed order: term c is added to lane c mod 8. Their number is a multiple of 8."""
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = 0.0
    for block in range(terms.size // LANES):
        at = _U(block) * _U(LANES)  # numba would test whether a signed index is negative
        a0 += terms[at]
        a1 += terms[at + _U(1)]
        a2 += terms[at + _U(2)]
        a3 += terms[at + _U(3)]
        a4 += terms[at + _U(4)]
        a5 += terms[at + _U(5)]
        a6 += terms[at + _U(6)]
        a7 += terms[at + _U(7)]
    return ((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7))


@njit(nogil=True, cache=True)
def _row_norm(row: Any, inverse: Any, space: Any) -> Any:
    """Write a row's exponentials; return its largest, the factor that makes them probabilities, and the number of NaN.

    The factor has no meaning if the largest is infinite. Both are NaN if all scores are.
    """
    largest, n_nan = _largest(row)
    if n_nan == row.size:
        return np.nan, np.nan, n_nan
    if np.isinf(largest):
        return largest, np.nan, n_nan
    for c in range(row.size):
        x = (np.float64(row[c]) - largest) * inverse
        space[c] = _exp(x if x > LEAST_EXPONENT else LEAST_EXPONENT, 0.0)
    return largest, 1.0 / _lane_sum(space), n_nan


@njit(nogil=True, cache=True)
def softmax_narrow(scores: Any, temperature: float, out: Any, space: Any) -> int:
    n_classes, inverse = scores.shape[1], 1.0 / temperature
    space[n_classes:] = 0.0
    for i in range(scores.shape[0]):
        row, mine = scores[i], out[i]
        largest, factor, n_nan = _row_norm(row, inverse, space)
        if np.isinf(largest):
            return i
        for c in range(n_classes):
            mine[c] = np.float32(space[c] * factor)
        if n_nan:
            for c in range(n_classes):
                if row[c] != row[c]:
                    mine[c] = np.nan
    return -1


@njit(nogil=True, cache=True)
def softmax_norms(scores: Any, temperature: float, norms: Any, space: Any) -> int:
    inverse = 1.0 / temperature
    space[scores.shape[1] :] = 0.0
    for i in range(scores.shape[0]):
        largest, factor, _ = _row_norm(scores[i], inverse, space)
        if np.isinf(largest):
            return i
        norms[i, 0], norms[i, 1] = largest, factor
    return -1


@njit(nogil=True, cache=True)
def softmax_part(scores: Any, temperature: float, norms: Any, out: Any) -> None:
    inverse = 1.0 / temperature
    for i in range(scores.shape[0]):
        row, mine = scores[i], out[i]
        largest, factor = norms[i, 0], norms[i, 1]
        for c in range(row.size):
            x = (np.float64(row[c]) - largest) * inverse
            mine[c] = np.float32(_exp(x if x > LEAST_EXPONENT else LEAST_EXPONENT, 0.0) * factor)
        for c in range(row.size):
            if row[c] != row[c]:
                mine[c] = np.nan


@njit(nogil=True, cache=True, inline="always")
def _divided(value: Any, low: Any, temperature: Any) -> Any:
    """Return (value + low) / temperature, and its rounding error."""
    x = value / temperature
    if temperature == 1.0 or not (x > LEAST_WIDE and x < -LEAST_WIDE):
        return x, low
    product = x * temperature
    # The rounding error of the product: products of halves of the factors are exact.
    a, b = x * SPLITTER, temperature * SPLITTER
    a -= a - x
    b -= b - temperature
    off = (((a * b - product) + a * (temperature - b)) + (x - a) * b) + (x - a) * (temperature - b)
    return x, (((value - product) - off) + low) / temperature


@njit(nogil=True, cache=True, inline="always")
def _below(value: Any, largest: Any, temperature: Any) -> Any:
    """Return (value - largest) / temperature, and its rounding error."""
    difference = value - largest
    taken = difference - value
    low = (value - (difference - taken)) - (largest + taken)
    return _divided(difference, low, temperature)


@njit(nogil=True, cache=True, inline="always")
def _exp_over(x: Any, low: Any, divisor: Any) -> Any:
    """Return exp(x + low) / divisor for x up to 0, rounded once if that is not a normal number; NaN stays."""
    if x > -600.0:
        return _exp(x, low) / divisor
    if not x > LEAST_WIDE:
        return 0.0 if x == x else x
    # 2**200 times as much first.
    raised = x + 200.0 * LN2_HIGH
    return (_exp(raised, ((x - raised) + 200.0 * LN2_HIGH) + (low + 200.0 * LN2_LOW)) / divisor) * 2.0**-200


@njit(nogil=True, cache=True)
def softmax_wide(scores: Any, temperature: float, out: Any, space: Any) -> int:
    n_classes, below, rounded = scores.shape[1], space[0], space[1]
    for i in range(scores.shape[0]):
        row, mine = scores[i], out[i]
        largest, n_nan = _largest(row)
        if n_nan == n_classes:
            mine[:] = np.nan
            continue
        if np.isinf(largest):
            return i
        total = carried = 0.0
        for c in range(n_classes):
            below[c], rounded[c] = _below(row[c], largest, temperature)
        for c in range(n_classes):
            term = _exp(below[c], rounded[c]) if below[c] > LEAST_EXPONENT else 0.0
            new = total + term
            carried += (total - new) + term if total >= term else (term - new) + total
            total = new
        total += carried
        for c in range(n_classes):
            mine[c] = _exp_over(below[c], rounded[c], total)
    return -1


@njit(nogil=True, cache=True)
def sigmoid_narrow(scores: Any, temperature: float, out: Any, space: Any) -> None:
    inverse = 1.0 / temperature
    for i in range(scores.shape[0]):
        row, mine = scores[i], out[i]
        for c in range(row.size):
            x = -abs(np.float64(row[c])) * inverse
            space[c] = _exp(x if x > LEAST_EXPONENT else LEAST_EXPONENT, 0.0)
        for c in range(row.size):
            z, e = row[c], space[c]
            p = np.float32((1.0 if z >= 0 else e) / (1.0 + e))
            mine[c] = p if z == z else z


@njit(nogil=True, cache=True)
def sigmoid_wide(scores: Any, temperature: float, out: Any) -> None:
    for i in range(scores.shape[0]):
        for c in range(scores.shape[1]):
            z = scores[i, c]
            x, low = _divided(-abs(z), 0.0, temperature)
            divisor = 1.0 + (_exp(x, low) if x > LEAST_EXPONENT else 0.0)
            out[i, c] = 1.0 / divisor if z >= 0 else _exp_over(x, low, divisor)


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
    """Write exp(d times the scale) of each difference d; add it, and that times d and d squared, to its lanes."""
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


@njit(nogil=True, cache=True)
def _add_scaled(factor: Any, values: Any, out: Any) -> None:
    """Add values times a factor."""
    for t in range(values.size):
        out[t] += factor * values[t]


@njit(nogil=True, cache=True)
def _add_four(row: Any, weights: Any, out: Any) -> None:
    """Add four rows of weights, one after the other, each times its factor."""
    z0, z1, z2, z3 = row[0], row[1], row[2], row[3]
    w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
    for t in range(out.size):
        out[t] = (((out[t] + z0 * w0[t]) + z1 * w1[t]) + z2 * w2[t]) + z3 * w3[t]


@njit(nogil=True, cache=True)
def mix_rows(rows: Any, weights: Any, bias: Any, out: Any) -> None:
    # Some rows at a time share the weights that are read. The order is fixed, which BLAS does not promise.
    n_rows, n_classes = rows.shape
    n_fours = n_classes // 4 * 4
    out[:] = 0.0
    for top in range(0, n_rows, MIXED_ROWS):
        for first in range(0, weights.shape[1], MIXED_CLASSES):
            last = min(first + MIXED_CLASSES, weights.shape[1])
            for j in range(0, n_fours, 4):
                for i in range(top, min(top + MIXED_ROWS, n_rows)):
                    _add_four(rows[i, j : j + 4], weights[j : j + 4, first:last], out[i, first:last])
            for j in range(n_fours, n_classes):
                for i in range(top, min(top + MIXED_ROWS, n_rows)):
                    _add_scaled(rows[i, j], weights[j, first:last], out[i, first:last])
    for i in range(n_rows):
        _add_scaled(1.0, bias, out[i])
