"""Plain twins of the kernels of ``gathering``; they need none of the space that those work in."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from .plain_tops import order_top


def keys_from_bits(bits: Any, magnitude: Any) -> Any:
    """Return the keys of scores given by their bits: the integers themselves, or sign and magnitude of floats."""
    found = bits.astype(np.int64)
    return np.where((found < 0) & (magnitude != 0), -(found & magnitude), found)


def gather_above(
    values: Any,
    bits: Any,
    magnitude: Any,
    floor: Any,
    first_row: int,
    offsets: Any,
    classes: Any,
    keys: Any,
    ranked: Any,
    width: int,
    missing: Any,
    scratch: Any,
) -> tuple[int, int, int]:
    """List the scores that are at least ``floor``, row by row, while there is space; rank the highest; count the NaN."""
    n_rows, n_classes = values.shape
    offsets[0] = n = n_nan = 0
    first_nan = -1
    for i in range(first_row, n_rows):
        if n + n_classes > keys.size or i - first_row == offsets.size - 1:
            return i, n_nan, first_nan
        row = values[i]
        listed = np.flatnonzero(row >= floor)
        mine = slice(n, n + listed.size)
        classes[mine], keys[mine] = listed, keys_from_bits(bits[i, listed], magnitude)
        offsets[i + 1 - first_row] = n = mine.stop
        real = row[row == row]
        order_top(real, real.size, missing, None, None, None, ranked, i)
        nan = np.flatnonzero(row != row)
        if nan.size and not n_nan:
            first_nan = i * n_classes + int(nan[0])
        n_nan += nan.size
    return n_rows, n_nan, first_nan


def find_labels(labels: Any, first_row: int, offsets: Any, classes: Any, indices: Any) -> None:
    """Write the index of each row's label among the listed scores of its row, -1 where it is not listed."""
    for i, (first, last) in enumerate(pairwise(offsets.tolist()), first_row):
        found = np.flatnonzero(classes[first:last] == labels[i])
        indices[i] = found[-1] if found.size else -1


def rank_labels(
    values: Any, labels: Any, indices: Any, first_row: int, offsets: Any, keys: Any, n_ranks: int, ranks: Any
) -> None:
    """Write the rank of each row's label, from the row itself: what is listed of it is not needed."""
    for i in range(first_row, first_row + offsets.size - 1):
        row, label = values[i], labels[i]
        x = row[label]
        higher = np.count_nonzero(row > x) + np.count_nonzero(row[:label] == x)
        beyond = x != x or higher > n_ranks
        ranks[i] = 0 if label < 0 else 1 + (n_ranks if beyond else higher)
