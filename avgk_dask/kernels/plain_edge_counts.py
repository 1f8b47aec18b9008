"""Plain twins of the kernels of ``edge_counts``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .plain_gathering import count_nan, keys_from_bits, ranks_in_rows


def find_edge(edges: Any, starts: Any, shift: Any, key: Any) -> Any:
    """Return the number of ascending edges below a key."""
    return np.searchsorted(edges, key)


def count_at_edges(
    values: Any, bits: Any, magnitude: Any, edges: Any, starts: Any, shift: Any, labels: Any, counts: Any, orders: Any
) -> tuple[int, int]:
    """Count the scores between and at ascending edges, and how many in a label's cell come before it."""
    keys = keys_from_bits(bits, magnitude)
    n_lower = np.searchsorted(edges, keys)
    cells = 2 * n_lower + (edges[np.minimum(n_lower, edges.size - 1)] == keys)
    cells[values != values] = counts.size  # a cell that is not counted
    earlier = _equal_before(cells.reshape(-1)).reshape(cells.shape)
    rows = np.flatnonzero(labels >= 0)
    own = cells[rows, labels[rows]]
    rows, own = rows[own < counts.size], own[own < counts.size]
    orders[rows] = counts[own] + earlier[rows, labels[rows]]
    counts += np.bincount(cells.reshape(-1), minlength=counts.size + 1)[:-1]
    return count_nan(values)


def _equal_before(numbers: Any) -> Any:
    """Return how many numbers before each one equal it."""
    order = np.argsort(numbers, kind="stable")
    ordered, places = numbers[order], np.arange(numbers.size)
    is_first = np.concatenate([np.ones(min(1, numbers.size), bool), ordered[1:] != ordered[:-1]])
    found = np.empty_like(places)
    found[order] = places - np.maximum.accumulate(np.where(is_first, places, 0))
    return found


def rank_in_row(values: Any, labels: Any, ranks: Any) -> tuple[int, int]:
    """Write each label's rank in its row: 1 for the highest score, ties by class index."""
    higher, is_nan = ranks_in_rows(values, labels)
    ranks[:] = np.where(labels < 0, 0, np.where(is_nan, values.shape[1], higher) + 1)
    return count_nan(values)
