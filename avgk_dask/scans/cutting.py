"""Cutting ties: a band read for the first of its scores that equal some keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from ..arrays import Array, Dtype
from ..exact.sums import ExactSums
from ..kernels.chosen import move_cells
from ..kernels.keys import KEY_MAX
from ..kernels.zones import ZoneTable
from ..states.strata import StrataSums
from ..states.tie_cuts import TieCut, TieCuts
from .entries import Entries, TileReader, TopRanks, checked_slabs, streamed_rows
from .splitting import label_weights, split_entries
from .usable_labels import UsableLabels


@dataclass(frozen=True)
class WantedTies:
    """The first ``n_ties`` scores of some bands that equal a key, wanted for the budget of a position."""

    bands: range
    budget: int
    key: int
    n_ties: int


@dataclass(frozen=True)
class CutPlan:
    """All ties that are wanted, of whichever band; ranks and strata are those of the scan."""

    wanted: tuple[WantedTies, ...]
    dtype: Dtype
    n_classes: int
    tile_scores: int
    n_ranks: int = 0
    strata: str = ""


def cut_band(slabs: Iterable[Array], labels: Array | None, band: int, plan: CutPlan) -> TieCuts:
    """Read a band once for the scores equal to some keys, and take the first ones, in row-major order."""
    usable = UsableLabels.of_column(labels, plan.n_classes, are_packed=plan.strata == "groups")
    rows = _Rows(usable, plan)
    takers = [_Taker(wanted, rows) for wanted in plan.wanted if band in wanted.bands]
    reader = TileReader(min(taker.wanted.key for taker in takers), plan.dtype, plan.tile_scores)
    for entries in rows.entries(reader, checked_slabs(slabs, plan.dtype, plan.n_classes, rows.labels.given)):
        for taker in takers:
            taker.take(entries)
    return TieCuts(tuple(taker.cut(band) for taker in takers))


class _Rows:
    """The rows of a band: their labels and strata, known once all slabs have been read."""

    def __init__(self, labels: UsableLabels, plan: CutPlan) -> None:
        self.labels, self.plan = labels, plan
        self.top: TopRanks | None = None

    def entries(self, reader: TileReader, slabs: Iterable[Array]) -> Iterator[Entries]:
        """Return the listed scores of stretches of rows."""
        parts = iter(slabs)
        first = next(parts)
        if self.plan.strata == "ranks" and self.plan.n_ranks and self.labels.hard is not None:
            self.top = TopRanks(first.shape[0], self.plan.n_ranks, self.plan.dtype)
        if first.shape[1] == self.plan.n_classes and self.top is None:
            yield from reader.stretches(first)
        else:
            yield from streamed_rows(reader, chain([first], parts), self.top)

    @cached_property
    def strata(self) -> Array | None:
        """The stratum of each row; None where all are of one."""
        hard, plan = self.labels.hard, self.plan
        if plan.strata != "ranks" or hard is None:
            return None if hard is None else self.labels.strata(plan.strata, hard.size)
        return (hard >= 0).astype(np.int64) if self.top is None else self.top.ranks_of(hard, plan.n_ranks)


class _Taker:
    """Takes the first ties at one key, stretch of rows by stretch of rows."""

    def __init__(self, wanted: WantedTies, rows: _Rows) -> None:
        self.wanted, self.missing, self.rows = wanted, wanted.n_ties, rows
        self.zones = ZoneTable.from_intervals([(wanted.key, wanted.key)], KEY_MAX)
        self.row = self.last_class = -1
        self.changes, self.weight = np.zeros(2 * rows.plan.n_classes + 2, np.int64), ExactSums.zeros(1)
        self.strata = StrataSums.empty()

    def take(self, entries: Entries) -> None:
        """Take what is still missing from a stretch of rows."""
        if not self.missing:
            return
        from_key, labels = entries.at_least(self.wanted.key), self.rows.labels
        mine = slice(from_key.first_row, from_key.first_row + from_key.n_rows)
        hard = None if labels.hard is None else labels.hard[mine]
        _, _, split, n_events = split_entries(from_key, self.zones, self.zones.no_histogram(), hard)
        taken = min(n_events, self.missing)
        if taken:
            _, keys, rows, bases, classes, hits = (column[:taken] for column in split.columns)
            rows = rows + from_key.first_row
            self.row, self.last_class = int(rows[-1]), int(classes[-1])
            move_cells(keys, rows, bases, hits, self.wanted.key, taken, self.changes)
            self.weight.add(label_weights(labels.given, rows, classes), np.zeros(taken, np.int64))
            strata = np.zeros(taken, np.int64) if self.rows.strata is None else self.rows.strata[rows]
            self.strata = StrataSums.merge([self.strata, StrataSums.added(strata, hits)])
            self.missing -= taken

    def cut(self, band: int) -> TieCut:
        """Return where the ties taken of a band end, and what they add."""
        wanted = self.wanted
        changes, n_taken = np.trim_zeros(self.changes, "b"), wanted.n_ties - self.missing
        where = band, wanted.budget, n_taken, self.row, self.last_class
        return TieCut(*where, changes, self.strata, self.weight.settled())
