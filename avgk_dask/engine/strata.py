"""Strata: rows that are counted together, such as those of a class or a cluster, or whose labels have the same rank.

For each stratum the scan adds up, above every bracket, the sizes of its rows' sets and their labels inside. Events carry the
stratum of their row, so that the sums at the threshold follow. Error bars use strata by rank, clusters and breakdowns by group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np

from ..arrays import Array, Ints
from ..kernels.dispatch import add_strata
from ..records import JOINED, State

#: Up to this number, all strata have an entry; beyond, only those that occur.
_FEW = 1 << 12

Column = Annotated[Ints, JOINED]


def distinct(columns: tuple[Ints, ...]) -> tuple[tuple[Ints, ...], Ints]:
    """Return the distinct rows of the columns in order, and for each row the number of its group."""
    n = columns[0].size
    if n == 0:
        return columns, np.zeros(0, np.int64)
    lows = [int(column.min()) for column in columns]
    spans = [int(column.max()) - low + 1 for column, low in zip(columns, lows, strict=True)]
    n_codes = math.prod(spans)
    if n_codes >= 1 << 62:
        order = np.lexsort(columns[::-1])
        is_new = np.arange(n) == 0
        for column in columns:
            is_new[1:] |= column[order][1:] != column[order][:-1]
        numbers = np.empty(n, np.int64)
        numbers[order] = np.cumsum(is_new) - 1
        return tuple(column[order][is_new] for column in columns), numbers
    code = np.zeros(n, np.int64)  # a row as one integer
    for column, low, span in zip(columns, lows, spans, strict=True):
        code = code * span + (column - low)
    if n_codes <= 4 * n:  # counting is faster than sorting
        present = np.bincount(code, minlength=n_codes) > 0
        values, numbers = np.flatnonzero(present), (np.cumsum(present) - 1)[code]
    else:
        values, numbers = np.unique(code, return_inverse=True)
    groups: list[Ints] = []
    for low, span in zip(lows[::-1], spans[::-1], strict=True):
        groups.insert(0, values % span + low)
        values = values // span
    return tuple(groups), numbers


def add_up(columns: tuple[Ints, ...], amounts: Array) -> tuple[tuple[Ints, ...], Ints]:
    """Return the distinct rows of the columns and the sum of the amounts of each."""
    groups, numbers = distinct(columns)
    if amounts.dtype == np.int8:  # single events: all ones
        return groups, np.bincount(numbers, minlength=groups[0].size)
    sums = np.zeros(groups[0].size, np.int64)
    np.add.at(sums, numbers, amounts)
    return groups, sums


@dataclass(frozen=True)
class StrataSums(State):
    """The sum of the set sizes of each stratum's rows, and the number of their labels inside, in one or more columns."""

    strata: Column
    sizes: Column
    hits: Column

    @classmethod
    def empty(cls, n_columns: int = 1) -> StrataSums:
        """Return the sums of no strata."""
        none = np.zeros((0, n_columns), np.int64)
        return cls(np.zeros(0, np.int64), none, none)

    @classmethod
    def above(cls, above: Array, label_zones: Array, strata: Array) -> StrataSums:
        """Return the sums over rows, given each row's number of scores above each interval and its label's zone."""
        names, indices = local_strata(strata)
        sizes = np.zeros((names.size, above.shape[1]), np.int64)
        hits = np.zeros_like(sizes)
        add_strata(above, label_zones, indices, sizes, hits)
        return cls(names, sizes, hits)

    @classmethod
    def added(cls, strata: Array, hits: Array, counts: Array | None = None) -> StrataSums:
        """Return the gains by entries of a stratum, with labels and, if not one each, numbers of scores."""
        names, indices = local_strata(strata)
        # Sums of integers are exact as floats up to 2**53.
        sums = (np.bincount(indices, column, names.size).astype(np.int64)[:, None] for column in (counts, hits))
        return cls(names, *sums)

    def settled(self) -> Self:
        """Return the sums with equal strata added up."""
        if (np.diff(self.strata) > 0).all():
            return self
        names, numbers = np.unique(self.strata, return_inverse=True)
        sizes = np.zeros((names.size, self.sizes.shape[1]), np.int64)
        hits = np.zeros_like(sizes)
        np.add.at(sizes, numbers, self.sizes)
        np.add.at(hits, numbers, self.hits)
        return type(self)(names, sizes, hits)

    def columns(self, numbers: Ints | list[int]) -> StrataSums:
        """Return some of the columns."""
        return StrataSums(self.strata, self.sizes[:, numbers], self.hits[:, numbers])


@dataclass(frozen=True)
class StrataRanks(State):
    """The number of rows by stratum and rank of the label: 0 without a label, the last rank for all beyond."""

    strata: Column
    ranks: Column
    counts: Column

    @classmethod
    def empty(cls) -> StrataRanks:
        """Return the counts of no rows."""
        none = np.zeros(0, np.int64)
        return cls(none, none, none)

    @classmethod
    def from_rows(cls, strata: Array, ranks: Array) -> StrataRanks:
        """Count rows."""
        wide = strata.astype(np.int64), ranks.astype(np.int64)
        (names, rank), counts = add_up(wide, np.ones(strata.size, np.int8))
        return cls(names, rank, counts)

    def settled(self) -> Self:
        """Return the counts with equal entries added up."""
        (names, rank), counts = add_up((self.strata, self.ranks), self.counts)
        return type(self)(names, rank, counts)


def local_strata(strata: Array) -> tuple[Ints, Array]:
    """Return the strata that occur, or all up to the highest if that is low, and the index of each row's stratum."""
    highest = int(strata.max(initial=0))
    if highest < _FEW:
        return np.arange(highest + 1), strata
    names, indices = np.unique(strata, return_inverse=True)
    return names.astype(np.int64), indices
