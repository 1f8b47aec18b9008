"""Cutting ties: the first ones of a band, in row-major order, when not all are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.events import move_sizes
from ..kernels.keys import KEY_MAX
from .entries import Entries, TileReader, checked_slabs, streamed_rows
from .events import total
from .split import ZoneTable, label_weights, split_entries

Array = NDArray[Any]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class TieCut:
    """The first ties of a band: where they end, and what they add to sets and label weight."""

    row: int
    last_class: int
    #: By size, what the number of sets of that size changes by.
    changes: Ints
    weight: Fraction


@dataclass(frozen=True)
class TieSearch:
    """What to look for in a band: for each (key, n), the first n scores equal to the key."""

    wanted: list[tuple[int, int]]
    dtype: np.dtype[Any]
    n_classes: int
    tile_scores: int


def cut_band(slabs: Iterable[Array], labels: Array | None, ties: TieSearch) -> list[TieCut]:
    """Read a band once for the scores equal to some keys and take the first ones, in row-major order."""
    reader = TileReader(min(key for key, _ in ties.wanted), ties.dtype, ties.tile_scores)
    takers = [_Taker(key, n, labels, ties.n_classes) for key, n in ties.wanted]
    for entries in _entries(reader, checked_slabs(slabs, ties.dtype, ties.n_classes, labels), ties.n_classes):
        for taker in takers:
            taker.take(entries)
    return [taker.cut() for taker in takers]


class _Taker:
    """Takes the first ties at one key, run of rows by run of rows."""

    def __init__(self, key: int, n_ties: int, labels: Array | None, n_classes: int) -> None:
        self.zones = ZoneTable.from_intervals([(key, key)], KEY_MAX)
        self.key, self.missing, self.labels = key, n_ties, labels
        self.row = self.last_class = -1
        self.changes, self.weight = np.zeros(n_classes + 1, np.int64), Fraction(0)

    def take(self, entries: Entries) -> None:
        """Take what is still missing from a run of rows."""
        if not self.missing:
            return
        from_key = entries.at_least(self.key)
        _, split, n_events = split_entries(from_key, self.zones, self.zones.no_histogram())
        taken = min(n_events, self.missing)
        if taken:
            _, keys, rows, bases, classes, _ = (column[:taken] for column in split.columns)
            rows = rows + from_key.first_row
            self.row, self.last_class = int(rows[-1]), int(classes[-1])
            move_sizes(keys, rows, bases, self.key, taken, self.changes)
            self.weight += total(label_weights(self.labels, rows, classes))
            self.missing -= taken

    def cut(self) -> TieCut:
        """Give where the ties taken end, and what they add."""
        return TieCut(self.row, self.last_class, self.changes, self.weight)


def _entries(reader: TileReader, slabs: Iterable[Array], n_classes: int) -> Iterator[Entries]:
    parts = iter(slabs)
    first = next(parts)
    if first.shape[1] == n_classes:
        yield from reader.runs(first)
    else:
        yield from streamed_rows(reader, chain([first], parts), None)
