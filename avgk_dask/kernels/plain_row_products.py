"""Plain twin of the kernel of ``row_products``: the same operations in the same order, so the same bits."""

from __future__ import annotations

from typing import Any


def mix_rows(rows: Any, weights: Any, bias: Any, out: Any) -> None:
    """Write rows times weights, plus the bias: for each row and class a sum over the classes in their order."""
    out[:] = 0.0
    for j in range(rows.shape[1]):
        out += rows[:, j : j + 1] * weights[j]
    out += bias
