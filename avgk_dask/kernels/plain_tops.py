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


def order_rows(rows: Any, missing: Any, top: Any) -> None:
    """Write the highest scores of each row in descending order, and ``missing`` where NaN leave too few."""
    nan = rows != rows
    least = -np.inf if rows.dtype.kind == "f" else np.iinfo(rows.dtype).min
    top[:] = np.sort(np.where(nan, rows.dtype.type(least), rows), axis=1)[:, ::-1][:, : top.shape[1]]
    top[np.arange(top.shape[1]) >= rows.shape[1] - np.count_nonzero(nan, axis=1)[:, None]] = missing


def rank_top(values: Any, first_class: int, top: Any, classes: Any, n_top: Any, width: int) -> None:
    """Insert a slab's scores into each row's running list of its highest ones, in rank order."""
    r, names = top.shape[1], np.broadcast_to(first_class + np.arange(values.shape[1]), values.shape)
    scores, names = np.hstack([top, values])[:, ::-1], np.hstack([classes, names])[:, ::-1]
    counts = np.hstack([np.arange(r) < n_top[:, None], values == values])[:, ::-1]
    # The highest last, and of equal ones the last first; what does not count comes before all.
    ascending = np.lexsort((scores, counts), axis=1)
    descending = ascending[:, ::-1][:, :r]
    n_top[:] = np.minimum(np.count_nonzero(counts, axis=1), r)
    filled = np.arange(descending.shape[1]) < n_top[:, None]
    for column, found in ((top, scores), (classes, names)):
        column[:, : filled.shape[1]][filled] = np.take_along_axis(found, descending, 1)[filled]
