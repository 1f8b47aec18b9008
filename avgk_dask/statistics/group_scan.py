"""Counts of scores and labels by cells, with the range of keys that each holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Annotated, Any, Self

import numpy as np

from ..arrays import Array, Bools, Ints
from ..bands.candidates import checked_slabs
from ..bands.passes import NOWHERE, CheckedTally, Pass, UsableLabels
from ..engine.plan import ROW_BYTES, ScanPlan
from ..engine.rows import HeldRows
from ..engine.scan import scan_band
from ..engine.strata import StrataRanks
from ..kernels.dispatch import find_brackets
from ..records import ANY, BY_BAND, OWN, SAME, State

Column = Annotated[Ints, OWN]


@dataclass(frozen=True)
class CellCounts(State):
    """Of each cell that holds any scores, ascending: how many, the labels among them, and the lowest and the highest key."""

    cells: Column
    scores: Column
    labels: Column
    lows: Column
    highs: Column

    @classmethod
    def of(cls, cells: Ints, keys: Array, are_labels: Bools) -> Self:
        """Count scores, given the cell of each, its key, and whether it is the label."""
        wide = keys.astype(np.int64)
        return cls._joined(cells, np.ones_like(cells), are_labels.astype(np.int64), wide, wide)

    @classmethod
    def empty(cls) -> Self:
        """Return the counts of no score."""
        return cls(*(np.zeros((5, 0), np.int64)))

    def nothing(self) -> Self:
        """Return the counts of no score."""
        return self.empty()

    @classmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        """Return the counts of all scores together."""
        names = ("cells", "scores", "labels", "lows", "highs")
        return cls._joined(*(np.concatenate([getattr(state, name) for state in states]) for name in names))

    @classmethod
    def _joined(cls, cells: Ints, scores: Ints, labels: Ints, lows: Ints, highs: Ints) -> Self:
        """Return the counts with equal cells joined."""
        order = np.argsort(cells, kind="stable")  # which merges stretches that ascend
        ordered = cells[order]
        firsts = np.flatnonzero(np.diff(ordered, prepend=-1))
        if not firsts.size:
            return cls.empty()
        return cls(
            ordered[firsts],
            np.add.reduceat(scores[order], firsts),
            np.add.reduceat(labels[order], firsts),
            np.minimum.reduceat(lows[order], firsts),
            np.maximum.reduceat(highs[order], firsts),
        )


# What one read of some bands contributes to the thresholds of groups.


@dataclass(frozen=True)
class GroupTally(CheckedTally):
    """The scores inside the brackets of all groups: their keys, or their counts in cells; and the ranks of the labels of each group."""

    strata_ranks: StrataRanks
    #: The keys of each row inside each bracket, as rows whose stratum is the bracket, as long as they are no more than ``max_held``
    #: in all (0: none are held); and whether they were more.
    max_held: Annotated[int, SAME]
    rows: Annotated[tuple[HeldRows, ...], BY_BAND]
    dropped: Annotated[Bools, ANY]
    #: Or what each cell holds.
    cells: CellCounts

    def settled(self) -> Self:
        """Return the tally without its rows if they are too many."""
        if self.rows and sum(part.keys.size for part in self.rows) > self.max_held:
            return replace(self, rows=(), dropped=np.ones_like(self.dropped))
        return self


# The scan of one band for thresholds of groups: the scores inside the brackets of each row's group, one by one or counted.


#: Bytes of a cell in a state: five numbers.
_CELL_BYTES = 40
#: What rows that are not scanned have of bad data.
_NO_CHECKS = {"n_nan": 0, "first_nan": NOWHERE, **UsableLabels().faults(0), "n_labelled": 0}


@dataclass(frozen=True)
class GroupBrackets:
    """Brackets of groups, ascending by group, key and sample: stretches of keys or, at a single key, of samples, both ends in.

    Each has cells, in the order in which scores enter the sets: stretches of ``2**shift`` keys, the highest first, or of
    samples, the first first. They are counted from ``base`` up; what lies beyond the first or the last belongs to it. A
    single sample has two: its scores up to the label, and those after it.
    """

    #: Where the brackets of each group begin, and the last one's end.
    starts: Ints
    lows: Ints
    highs: Ints
    first_samples: Ints
    last_samples: Ints
    bases: Ints
    shifts: Ints
    #: Where the cells of each bracket begin, and the last one's end.
    cells: Ints

    @property
    def n_cells(self) -> int:
        """Number of all cells."""
        return int(self.cells[-1])

    @property
    def are_samples(self) -> Bools:
        """Whether brackets are stretches of samples."""
        return np.asarray(self.lows == self.highs)

    @property
    def are_rows(self) -> Bools:
        """Whether brackets are single samples."""
        return np.asarray(self.are_samples & (self.first_samples == self.last_samples))

    def have(self, groups: Array) -> Bools:
        """Return whether groups have any brackets."""
        return np.asarray(np.diff(self.starts)[groups] > 0)

    def find(self, part: HeldRows, samples: Ints) -> Ints:
        """Return the bracket of each key of some rows, whose strata are their groups; -1 where it is in none."""
        found = np.empty(part.keys.size, np.int64)
        bounds = self.lows, self.highs, self.first_samples, self.last_samples
        find_brackets(part.keys, part.lengths, part.strata, samples, self.starts, bounds, found)
        return found

    def cells_of(self, brackets: Ints, keys: Array, samples: Ints, are_after: Bools) -> Ints:
        """Return the cells of scores inside brackets, given which come after the label of their row."""
        by_sample = self.are_samples[brackets]
        at = np.where(by_sample, samples + (self.are_rows[brackets] & are_after), keys.astype(np.int64))
        base = self.bases[brackets]
        # Unsigned differences of keys cannot overflow.
        steps = (at.view(np.uint64) - base.view(np.uint64)) >> self.shifts[brackets].view(np.uint64)
        last = np.diff(self.cells)[brackets] - 1
        index = np.where(at < base, 0, np.minimum(steps, last.view(np.uint64)).view(np.int64))
        return np.asarray(self.cells[brackets] + np.where(by_sample, index, last - index))


@dataclass(frozen=True)
class GroupPlan:
    """What a scan lists, the brackets of the groups, and where the bands begin."""

    scan: ScanPlan
    brackets: GroupBrackets
    first_rows: tuple[int, ...]
    #: How many keys may be held in all; 0 counts cells instead.
    max_held: int
    #: Whether all rows are scanned, to check them; else only those of groups that have brackets.
    is_first: bool


def group_pass(plan: GroupPlan) -> Pass:
    """Return the pass over all bands."""
    shape = plan.scan.shape
    state = shape.strata_bytes + (0 if plan.max_held else _CELL_BYTES * plan.brackets.n_cells)
    n_keys = min(plan.max_held, shape.n_scores)
    n_rows = min(n_keys, shape.n_samples) if plan.is_first else n_keys  # later ones may be of one key each
    held = n_keys * shape.key_bytes + n_rows * ROW_BYTES
    name = "scan" if plan.is_first else "rescan"
    per_row = -(-held // max(shape.n_samples, 1))
    return Pass(name, scan_groups, plan, GroupTally, holds_rows=True, state_bytes=state, sum_bytes=per_row)


def scan_groups(slabs: Iterable[Array], labels: Array, band: int, plan: GroupPlan) -> GroupTally:
    """Read one band, whose whole rows are held, and tally what lies inside the brackets."""
    shape = plan.scan.shape
    usable = UsableLabels.of_column(labels, shape.n_classes, are_packed=shape.strata == "groups")
    groups = usable.strata(shape.strata, len(labels))
    mine = np.ones(len(labels), bool) if plan.is_first else plan.brackets.have(groups)
    block = _whole_rows(checked_slabs(slabs, shape.dtype, shape.n_classes, usable.given), mine, shape.n_classes)
    if not mine.any():
        return _tally(plan, _NO_CHECKS | {"n_rows": len(labels)}, StrataRanks.empty(), (), np.zeros(0, np.int64))
    found = scan_band([block], labels[mine], band, plan.scan)
    checks = {field.name: getattr(found, field.name) for field in fields(CheckedTally)} | {"n_rows": len(labels)}
    ranks = found.strata_ranks if plan.is_first else StrataRanks.empty()
    return _tally(plan, checks, ranks, found.rows, plan.first_rows[band] + np.flatnonzero(mine))


def _whole_rows(slabs: Iterable[Array], mine: Bools, n_classes: int) -> Array:
    """Return some rows of a band as one block; a slab of all of them as it is: it is good until the next one is asked for."""
    parts = []
    for slab in slabs:
        if mine.all() and slab.shape[1] == n_classes:
            return slab
        parts.append(slab[mine])
    return np.concatenate(parts, axis=1)


def _tally(
    plan: GroupPlan, checks: Mapping[str, Any], ranks: StrataRanks, rows: Sequence[HeldRows], samples: Ints
) -> GroupTally:
    """Return what is inside the brackets of rows with these numbers."""
    ends = np.cumsum([0, *(part.lengths.size for part in rows)])
    held, counted = [], [CellCounts.empty()]
    for part, (first, last) in zip(rows, pairwise(ends), strict=True):
        inside = _Inside.of(part, plan.brackets, samples[first:last])
        if plan.max_held:
            held.append(inside.rows())
        else:
            cells = plan.brackets.cells_of(inside.brackets, inside.keys, inside.samples, inside.are_after)
            counted.append(CellCounts.of(cells, inside.keys, inside.are_labels))
    return GroupTally(
        **checks,
        strata_ranks=ranks,
        max_held=plan.max_held,
        rows=tuple(held),
        dropped=np.zeros(1, bool),
        cells=CellCounts.merge(counted),
    ).settled()


@dataclass(frozen=True)
class _Inside:
    """The keys of some rows that are inside brackets, row by row: the sample and the bracket of each, and whether it is, or comes after, the label."""

    band: int
    #: Whether groups have more than one bracket.
    several: bool
    keys: Array
    samples: Ints
    brackets: Ints
    are_labels: Bools
    are_after: Bools

    @classmethod
    def of(cls, part: HeldRows, brackets: GroupBrackets, samples: Ints) -> _Inside:
        """Look for the keys of rows with these numbers that are inside the brackets of their groups."""
        found = brackets.find(part, samples)
        n, firsts = part.keys.size, np.cumsum(part.lengths) - part.lengths
        labels = np.repeat(np.where(part.label_indices >= 0, firsts + part.label_indices, n), part.lengths)
        places = np.arange(n)
        columns: list[Array] = [part.keys, np.repeat(samples, part.lengths), found, places == labels, places > labels]
        inside = found >= 0
        if not inside.all():
            columns = [column[inside] for column in columns]
        return cls(part.band, bool((np.diff(brackets.starts) > 1).any()), *columns)

    def rows(self) -> HeldRows:
        """Return them as rows of one bracket each."""
        keys, samples, brackets, are_labels = self.keys, self.samples, self.brackets, self.are_labels
        if self.several:
            order = np.lexsort((brackets, samples))  # stable: ties stay in order
            keys, samples = keys[order], samples[order]
            brackets, are_labels = brackets[order], are_labels[order]
        firsts = np.flatnonzero(np.diff(samples, prepend=-1) | np.diff(brackets, prepend=-1))
        places = np.flatnonzero(are_labels)
        runs = np.searchsorted(firsts, places, side="right") - 1
        label_indices = np.full(firsts.size, -1, np.int32)
        label_indices[runs] = places - firsts[runs]
        lengths, strata = np.diff(firsts, append=keys.size), brackets[firsts]
        return HeldRows(self.band, keys, lengths.astype(np.int32), label_indices, strata.astype(np.int32))
