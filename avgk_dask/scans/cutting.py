"""Cutting ties: a band read for the first of its scores that equal some keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from ..arrays import Array, Dtype
from ..exact.sums import ExactSums
from ..kernels.events import move_sizes
from ..kernels.keys import KEY_MAX
from ..kernels.zones import ZoneTable
from ..states.tie_cuts import TieCut, TieCuts
from .entries import Entries, TileReader, checked_slabs, streamed_rows
from .splitting import label_weights, split_entries


@dataclass(frozen=True)
class WantedTies:
    """The first ``n_ties`` scores of some bands that equal a key, wanted for the budget of a position."""

    bands: range
    budget: int
    key: int
    n_ties: int


@dataclass(frozen=True)
class CutPlan:
    """All ties that are wanted, of whichever band."""

    wanted: tuple[WantedTies, ...]
    dtype: Dtype
    n_classes: int
    tile_scores: int


def cut_band(slabs: Iterable[Array], labels: Array | None, band: int, plan: CutPlan) -> TieCuts:
    """Read a band once for the scores equal to some keys, and take the first ones, in row-major order."""
    takers = [_Taker(wanted, labels, plan.n_classes) for wanted in plan.wanted if band in wanted.bands]
    reader = TileReader(min(taker.wanted.key for taker in takers), plan.dtype, plan.tile_scores)
    for entries in _entries(reader, checked_slabs(slabs, plan.dtype, plan.n_classes, labels), plan.n_classes):
        for taker in takers:
            taker.take(entries)
    return TieCuts(tuple(taker.cut(band) for taker in takers))


class _Taker:
    """Takes the first ties at one key, stretch of rows by stretch of rows."""

    def __init__(self, wanted: WantedTies, labels: Array | None, n_classes: int) -> None:
        self.wanted, self.missing, self.labels = wanted, wanted.n_ties, labels
        self.zones = ZoneTable.from_intervals([(wanted.key, wanted.key)], KEY_MAX)
        self.row = self.last_class = -1
        self.changes, self.weight = np.zeros(n_classes + 1, np.int64), ExactSums.zeros(1)

    def take(self, entries: Entries) -> None:
        """Take what is still missing from a stretch of rows."""
        if not self.missing:
            return
        from_key = entries.at_least(self.wanted.key)
        _, split, n_events = split_entries(from_key, self.zones, self.zones.no_histogram())
        taken = min(n_events, self.missing)
        if taken:
            _, keys, rows, bases, classes, _ = (column[:taken] for column in split.columns)
            rows = rows + from_key.first_row
            self.row, self.last_class = int(rows[-1]), int(classes[-1])
            move_sizes(keys, rows, bases, self.wanted.key, taken, self.changes)
            self.weight.add(label_weights(self.labels, rows, classes), np.zeros(taken, np.int64))
            self.missing -= taken

    def cut(self, band: int) -> TieCut:
        """Return where the ties taken of a band end, and what they add."""
        wanted = self.wanted
        changes, n_taken = np.trim_zeros(self.changes, "b"), wanted.n_ties - self.missing
        return TieCut(band, wanted.budget, n_taken, self.row, self.last_class, changes, self.weight.settled())


def _entries(reader: TileReader, slabs: Iterable[Array], n_classes: int) -> Iterator[Entries]:
    parts = iter(slabs)
    first = next(parts)
    if first.shape[1] == n_classes:
        yield from reader.stretches(first)
    else:
        yield from streamed_rows(reader, chain([first], parts), None)
