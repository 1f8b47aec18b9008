"""Plain twins of the kernels of ``gathering``; they need none of the space that those work in."""

from __future__ import annotations

from typing import Any

import numpy as np

from .plain_tops import order_rows


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
    last = min(n_rows, first_row + offsets.size - 1)
    offsets[0] = n = n_nan = 0
    first_nan, row = -1, first_row
    while row < last and n + n_classes <= keys.size:
        # If all of them were listed, so many rows would fit.
        mine = slice(row, min(last, row + (keys.size - n) // n_classes))
        listed_rows, listed = np.nonzero(values[mine] >= floor)
        found = slice(n, n + listed.size)
        classes[found], keys[found] = listed, keys_from_bits(bits[mine][listed_rows, listed], magnitude)
        counts = np.bincount(listed_rows, minlength=mine.stop - row)
        offsets[row + 1 - first_row : mine.stop + 1 - first_row] = n + np.cumsum(counts)
        if ranked.shape[1]:
            order_rows(values[mine], missing, ranked[mine])
        more_nan, nan = count_nan(values[mine])
        first_nan = row * n_classes + nan if more_nan and not n_nan else first_nan
        n, n_nan, row = found.stop, n_nan + more_nan, mine.stop
    return row, n_nan, first_nan


def count_nan(values: Any) -> tuple[int, int]:
    """Return the number of NaN and the flat index of the first one, -1 for none."""
    nan = np.flatnonzero(values != values)
    return nan.size, int(nan[0]) if nan.size else -1


def rows_of(offsets: Any) -> Any:
    """Return the row of each listed score."""
    return np.repeat(np.arange(offsets.size - 1), np.diff(offsets))


def find_labels(labels: Any, first_row: int, offsets: Any, classes: Any, indices: Any) -> None:
    """Write the index of each row's label among the listed scores of its row, -1 where it is not listed."""
    mine = slice(first_row, first_row + offsets.size - 1)
    rows = rows_of(offsets)
    found = np.flatnonzero(classes[offsets[0] : offsets[-1]] == labels[mine][rows])
    indices[mine] = -1
    indices[mine][rows[found]] = found + offsets[0] - offsets[rows[found]]


def ranks_in_rows(values: Any, labels: Any) -> tuple[Any, Any]:
    """Return how many scores of its row rank before each label, and whether its score is NaN; labels below 0 mean nothing."""
    own = np.take_along_axis(values, np.maximum(labels, 0).astype(np.int64)[:, None], 1)
    before = (values == own) & (np.arange(values.shape[1]) < labels[:, None])
    higher = np.count_nonzero(values > own, axis=1) + np.count_nonzero(before, axis=1)
    return higher, (own != own)[:, 0]


def rank_labels(
    values: Any, labels: Any, indices: Any, first_row: int, offsets: Any, keys: Any, n_ranks: int, ranks: Any
) -> None:
    """Write the rank of each row's label, from the row itself: what is listed of it is not needed."""
    mine = slice(first_row, first_row + offsets.size - 1)
    higher, is_nan = ranks_in_rows(values[mine], labels[mine])
    beyond = is_nan | (higher > n_ranks)
    ranks[mine] = np.where(labels[mine] < 0, 0, 1 + np.where(beyond, n_ranks, higher))
