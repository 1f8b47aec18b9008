"""Compiled kernels that count scores at and between given keys, and find labels in their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def find_edge(edges: Any, starts: Any, shift: Any, key: Any) -> Any:
    """Return the number of ascending edges below a key.

    ``starts[i]`` is the number of edges below the i-th stretch of ``2**shift`` keys from the first edge up.
    """
    if key <= edges[0]:
        return 0
    stretch = (np.uint64(key) - np.uint64(edges[0])) >> shift
    if stretch >= np.uint64(starts.size - 1):
        low, high = starts[starts.size - 1], edges.size
    else:
        low, high = starts[stretch], starts[stretch + np.uint64(1)]
    while low < high:
        middle = (low + high) // 2
        if edges[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low


@njit(nogil=True, cache=True)
def count_at_edges(
    values: Any, bits: Any, magnitude: Any, edges: Any, starts: Any, shift: Any, labels: Any, counts: Any, orders: Any
) -> tuple[int, int]:
    """Count the scores between and at ascending edges: ``counts[2 j]`` before edge j, ``counts[2 j + 1]`` at it.

    ``orders[i]`` becomes the number of scores counted so far, row by row, that equal the score of row
    i's label (negative: none), where that is an edge. ``bits`` and ``magnitude`` are those of
    ``gather_above``. Returns the number of NaN met, which are not counted, and the first one's flat index.
    """
    n_rows, n_classes = values.shape
    n_nan = 0
    first_nan = -1
    last = edges.size - 1
    for i in range(n_rows):
        label = labels[i]
        for t in range(n_classes):
            if values[i, t] != values[i, t]:
                if n_nan == 0:
                    first_nan = i * n_classes + t
                n_nan += 1
                continue
            key = np.int64(bits[i, t])
            if key < 0 and magnitude != 0:
                key = -(key & magnitude)
            j = find_edge(edges, starts, shift, key)
            cell = 2 * j
            if j <= last and edges[j] == key:
                cell += 1
            if t == label:
                orders[i] = counts[cell]
            counts[cell] += 1
    return n_nan, first_nan


@njit(nogil=True, cache=True)
def rank_in_row(values: Any, labels: Any, ranks: Any) -> tuple[int, int]:
    """Write each label's rank in its row: 1 for the highest score, ties by class index.

    0 for a negative label, one past the last for a label whose score is NaN. Returns the number of NaN
    and the flat index of the first one.
    """
    n_rows, n_classes = values.shape
    n_nan = 0
    first_nan = -1
    for i in range(n_rows):
        row = values[i]
        n_here = 0
        for t in range(n_classes):
            n_here += row[t] != row[t]
        if n_here > 0 and n_nan == 0:
            first_nan = 0
            while row[first_nan] == row[first_nan]:
                first_nan += 1
            first_nan += i * n_classes
        n_nan += n_here
        label = labels[i]
        if label < 0:
            ranks[i] = 0
            continue
        x = row[label]
        rank = 1
        for t in range(n_classes):
            rank += row[t] > x
        for t in range(label):
            rank += row[t] == x
        ranks[i] = rank if x == x else n_classes + 1
    return n_nan, first_nan
