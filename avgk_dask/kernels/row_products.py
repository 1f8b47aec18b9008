"""The compiled kernel that mixes the logits of a row: a product of matrices in a fixed order, which BLAS does not promise."""

from __future__ import annotations

from typing import Any

from numba import njit

from .constants import MIXED_CLASSES, MIXED_ROWS


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
    """Write rows times weights, plus the bias: for each row and class a sum over the classes in their order.

    The order does not depend on what else is in the matrix. Some rows at a time share what is read of the weights.
    """
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
