"""Plain twins of the kernels of ``tops``; they need none of the space that those work in."""

from __future__ import annotations

from typing import Any

import numpy as np


def row_floor(row: Any, n_ranks: int, width: int, lanes: Any, ranks: Any) -> tuple[Any, bool]:
    """Return a score that at least ``n_ranks`` scores of the row reach, and whether there is one."""
    maxima = np.array([np.fmax.reduce(row[lane::width]) for lane in range(width)], row.dtype)
    ascending = np.sort(maxima[maxima == maxima])
    if width == 0 or ascending.size < n_ranks:
        return row[0], False
    return ascending[-n_ranks], True


def order_top(near: Any, n: int, rest: Any, ranks: Any, ordered: Any, taken: Any, top: Any, i: int) -> None:
    """Write the highest of n scores to row i of ``top`` in descending order, and ``rest`` behind them."""
    highest = np.sort(near[:n])[::-1][: top.shape[1]]
    top[i, : highest.size], top[i, highest.size :] = highest, rest


def rank_top(values: Any, first_class: int, top: Any, classes: Any, n_top: Any, width: int) -> None:
    """Insert a slab's scores into each row's running list of its highest ones, in rank order."""
    for i, row in enumerate(values):
        real = np.flatnonzero(row == row)
        scores = np.concatenate([top[i, : n_top[i]], row[real]])
        names = np.concatenate([classes[i, : n_top[i]], first_class + real])
        ascending = np.argsort(scores[::-1], kind="stable")  # of equal ones the last first
        descending = (scores.size - 1 - ascending[::-1])[: top.shape[1]]
        n_top[i] = n = descending.size
        top[i, :n], classes[i, :n] = scores[descending], names[descending]
