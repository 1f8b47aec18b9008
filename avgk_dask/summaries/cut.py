"""Cutting ties: the first ones of a band, in row-major order, when not all are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.keys import KEY_MAX
from .entries import Entries, TileReader, streamed_rows
from .events import EventTally
from .split import ZoneTable, label_weights, split_entries

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


@dataclass(frozen=True)
class TieSearch:
    """What to look for in a band: the first ``n_ties`` scores equal to ``key``."""

    key: int
    n_ties: int
    dtype: np.dtype[Any]
    n_classes: int
    tile_scores: int


def cut_band(slabs: Iterable[Array], labels: Array | None, ties: TieSearch) -> TieCut:
    """Read a band for the scores equal to a key and take the first ones, in row-major order."""
    reader = TileReader(ties.key, ties.dtype, ties.tile_scores)
    zones = ZoneTable.from_intervals([(ties.key, ties.key)], KEY_MAX)
    n_ties = ties.n_ties
    total = EventTally.empty()
    row = last_class = -1
    for entries in _entries(reader, slabs, ties.n_classes):
        _, split = split_entries(entries, zones, zones.no_histogram())
        found = split.keys.size
        taken = min(found, n_ties)
        if taken:
            rows, classes = split.rows[:taken], split.classes[:taken]
            row, last_class = int(rows[-1]), int(classes[-1])
            weights = label_weights(labels, rows, classes)
            events = EventTally.from_rows(0, split.keys[:taken], rows, split.sizes[:taken], weights)
            total = EventTally.merge([total, events.coarsen()]).coarsen()
            n_ties -= taken
        if not n_ties:
            break
    return TieCut(row, last_class, *total.size_changes(), total.total_weight())


def _entries(reader: TileReader, slabs: Iterable[Array], n_classes: int) -> Iterator[Entries]:
    parts = iter(slabs)
    first = next(parts)
    if first.shape[1] == n_classes:
        yield from reader.runs(first)
    else:
        yield from streamed_rows(reader, _chain(first, parts), None)


def _chain(first: Array, rest: Iterable[Array]) -> Iterator[Array]:
    yield first
    yield from rest
