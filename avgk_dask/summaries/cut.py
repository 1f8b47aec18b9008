"""Cutting ties: the first ones of a band, in row-major order, when not all are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import compiled
from .entries import Entries, TileReader, streamed_rows, whole_rows
from .events import EventTally

Array = NDArray[Any]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class TieCut:
    """The first ties of a band: where they end, and what they add to sets and label weight."""

    row: int
    last_class: int
    sizes: Ints
    counts: Ints
    weight: Fraction


def cut_band(
    slabs: Iterable[Array],
    labels: Array | None,
    key: int,
    n_ties: int,
    dtype: np.dtype[Any],
    n_classes: int,
    tile_scores: int,
) -> TieCut:
    """Read a band for the scores equal to ``key`` and take the first ``n_ties`` of them."""
    reader = TileReader(key, dtype, tile_scores)
    one = np.array([key], np.int64)
    total = EventTally.empty()
    row = last_class = -1
    for entries in _entries(reader, slabs, n_classes):
        n, n_rows = entries.keys.size, entries.offsets.size - 1
        above, bins = np.empty((n_rows, 1), np.int64), np.zeros((2, 1), np.int64)
        keys, rows, sizes, classes = (np.empty(n, np.int64) for _ in range(4))
        shifts = np.array([63, 0], np.int64)
        found = compiled.split_rows(
            entries.offsets,
            entries.keys,
            entries.classes,
            one,
            one,
            np.repeat(one, 2),
            shifts,
            above,
            bins,
            keys,
            rows,
            sizes,
            classes,
        )
        taken = min(found, n_ties)
        if taken:
            rows, classes = rows[:taken] + entries.first_row, classes[:taken]
            row, last_class = int(rows[-1]), int(classes[-1])
            events = EventTally.from_rows(0, keys[:taken], rows, sizes[:taken], _weights(labels, rows, classes))
            total = EventTally.merge([total, events.coarsen()]).coarsen()
            n_ties -= taken
        if not n_ties:
            break
    return TieCut(row, last_class, *total.size_changes(), total.total_weight())


def _entries(reader: TileReader, slabs: Iterable[Array], n_classes: int) -> Iterator[Entries]:
    parts = iter(slabs)
    first = next(parts)
    if first.shape[1] == n_classes:
        yield from (entries for _, entries in whole_rows(reader, first))
    else:
        yield from streamed_rows(reader, _chain(first, parts), None)


def _chain(first: Array, rest: Iterable[Array]) -> Iterator[Array]:
    yield first
    yield from rest


def _weights(labels: Array | None, rows: Ints, classes: Ints) -> NDArray[np.float64] | None:
    if labels is None:
        return None
    if labels.ndim == 2:
        return labels[rows, classes].astype(np.float64)
    return (labels[rows] == classes).astype(np.float64)
