"""Plain twins of the kernels of ``edge_counts``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .plain_gathering import keys_from_bits


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
    for i, label in enumerate(labels.tolist()):
        real = values[i] == values[i]
        if label >= 0 and real[label]:
            before = cells[i, :label][real[:label]]
            orders[i] = counts[cells[i, label]] + np.count_nonzero(before == cells[i, label])
        np.add.at(counts, cells[i, real], 1)
    return _count_nan(values)


def rank_in_row(values: Any, labels: Any, ranks: Any) -> tuple[int, int]:
    """Write each label's rank in its row: 1 for the highest score, ties by class index."""
    for i, label in enumerate(labels.tolist()):
        row, x = values[i], values[i, label]
        rank = 1 + np.count_nonzero(row > x) + np.count_nonzero(row[:label] == x)
        ranks[i] = 0 if label < 0 else rank if x == x else row.size + 1
    return _count_nan(values)


def _count_nan(values: Any) -> tuple[int, int]:
    """Return the number of NaN and the flat index of the first one, -1 for none."""
    nan = np.flatnonzero(values != values)
    return nan.size, int(nan[0]) if nan.size else -1
