"""One read for the thresholds of groups: the scores inside the brackets of each row's group, held or counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Annotated, Any, Self

import numpy as np

from ..arrays import Array, Bools, Ints
from ..bands.passes import NOWHERE, CheckedTally, Pass, UsableLabels
from ..bands.rows import checked_slabs
from ..engine.plan import ROW_BYTES, ScanPlan
from ..engine.rows import HeldRows
from ..engine.scan import scan_band
from ..engine.strata import StrataRanks
from ..kernels.dispatch import find_brackets
from ..records import ANY, BY_BAND, OWN, SAME, State

Column = Annotated[Ints, OWN]

#: Cells that all brackets share; and the least number that each has, for up to ``MOST_GROUPS`` brackets, and the most.
_ALL_CELLS, _LEAST_CELLS, _MOST_CELLS = 1 << 20, 1 << 8, 1 << 16
MOST_GROUPS = 1 << 14
#: Bytes of a cell in a state: five numbers.
_CELL_BYTES = 40


@dataclass(frozen=True)
class CellCounts(State):
    """The cells that hold any scores, ascending: their scores and labels, and their lowest and highest key."""

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
        n_scores, n_labels = (np.add.reduceat(column[order], firsts) for column in (scores, labels))
        low, high = np.minimum.reduceat(lows[order], firsts), np.maximum.reduceat(highs[order], firsts)
        return cls(ordered[firsts], n_scores, n_labels, low, high)


@dataclass(frozen=True)
class GroupTally(CheckedTally):
    """The scores inside all brackets, as keys or counted in cells; and the ranks of each group's labels."""

    strata_ranks: StrataRanks
    #: The keys of each row inside each bracket, as rows whose stratum is the bracket, while there are at most
    #: ``max_held`` in all (0: none are held); and whether there were more.
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


@dataclass(frozen=True)
class GroupBrackets:
    """Brackets of groups, ascending by group, key and sample: stretches of keys or, at a single key, of samples.

    Each has cells, in the order in which scores enter the sets: stretches of ``2**shift`` keys, the highest first, or
    of samples, the first first. They are counted from ``base`` up; what lies beyond the first or the last belongs to
    it. A single sample has two: its scores up to the label, and those after it.
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

    @classmethod
    def in_cells(
        cls, starts: Ints, lows: Ints, highs: Ints, firsts: Ints, lasts: Ints, usual: tuple[int, int]
    ) -> GroupBrackets:
        """Cut brackets into cells between the lowest and the highest ``usual`` key, if a bracket holds such keys."""
        by_sample = lows == highs
        low, high = np.maximum(lows, usual[0]), np.minimum(highs, usual[1])
        low, high = np.where(low < high, (low, high), (lows, highs))
        base, top = np.where(by_sample, (firsts, lasts), (low, high))
        spans = np.maximum(
            top.view(np.uint64) - base.view(np.uint64), (by_sample & (firsts == lasts)).astype(np.uint64)
        )
        least = min(_LEAST_CELLS, _LEAST_CELLS * MOST_GROUPS // lows.size)
        most = min(_MOST_CELLS, max(_ALL_CELLS // lows.size, least, 2))
        shifts = np.zeros(lows.size, np.uint64)
        while (wide := (spans >> shifts) >= most).any():
            shifts += wide
        cells = np.concatenate([[0], np.cumsum((spans >> shifts).astype(np.int64) + 1)])
        return cls(starts, lows, highs, firsts, lasts, base, shifts.view(np.int64), cells)

    @property
    def are_samples(self) -> Bools:
        """Whether brackets are stretches of samples."""
        return np.asarray(self.lows == self.highs)

    @property
    def are_rows(self) -> Bools:
        """Whether brackets are single samples."""
        return np.asarray(self.are_samples & (self.first_samples == self.last_samples))

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
    state = shape.strata_bytes + (0 if plan.max_held else _CELL_BYTES * int(plan.brackets.cells[-1]))
    n_keys = min(plan.max_held, shape.n_scores)
    n_rows = min(n_keys, shape.n_samples) if plan.is_first else n_keys  # later ones may be of one key each
    held = n_keys * shape.key_bytes + n_rows * ROW_BYTES
    name = "scan" if plan.is_first else "rescan"
    per_row = -(-held // max(shape.n_samples, 1))
    return Pass(name, scan_groups, plan, GroupTally, holds_rows=True, state_bytes=state, sum_bytes=per_row)


def scan_groups(slabs: Iterable[Array], labels: Array, band: int, plan: GroupPlan) -> GroupTally:
    """Read one band, whose whole rows are held, and tally the scores inside the brackets."""
    shape, brackets = plan.scan.shape, plan.brackets
    usable = UsableLabels.of_column(labels, shape.n_classes, are_packed=shape.strata == "groups")
    groups = usable.strata(shape.strata, len(labels))
    mine = np.ones(len(labels), bool) if plan.is_first else np.diff(brackets.starts)[groups] > 0
    block = _rows_of(checked_slabs(slabs, shape.dtype, shape.n_classes, usable.given), mine, shape.n_classes)
    checks: dict[str, Any] = {"n_nan": 0, "first_nan": NOWHERE, **UsableLabels().faults(0), "n_labelled": 0}
    ranks, rows = StrataRanks.empty(), tuple[HeldRows, ...]()
    if mine.any():
        found = scan_band([block], labels[mine], band, plan.scan)
        checks = {field.name: getattr(found, field.name) for field in fields(CheckedTally)}
        ranks, rows = found.strata_ranks if plan.is_first else ranks, found.rows
    samples = plan.first_rows[band] + np.flatnonzero(mine)
    held, counted = [], [CellCounts.empty()]
    ends = np.cumsum([0, *(part.lengths.size for part in rows)])
    for part, (first, last) in zip(rows, pairwise(ends), strict=True):
        keys, at, which, are_labels, are_after = _keys_inside(part, brackets, samples[first:last])
        if plan.max_held:
            several = bool((np.diff(brackets.starts) > 1).any())
            held.append(_rows_by_bracket(band, keys, at, which, are_labels, several=several))
        else:
            counted.append(CellCounts.of(brackets.cells_of(which, keys, at, are_after), keys, are_labels))
    return GroupTally(
        **checks | {"n_rows": len(labels)},
        strata_ranks=ranks,
        max_held=plan.max_held,
        rows=tuple(held),
        dropped=np.zeros(1, bool),
        cells=CellCounts.merge(counted),
    ).settled()


def _rows_of(slabs: Iterable[Array], mine: Bools, n_classes: int) -> Array:
    """Return some rows of a band as one block; it is good until the next one is asked for."""
    parts = []
    for slab in slabs:
        if mine.all() and slab.shape[1] == n_classes:
            return slab
        parts.append(slab[mine])
    return np.concatenate(parts, axis=1)


def _keys_inside(part: HeldRows, brackets: GroupBrackets, samples: Ints) -> tuple[Array, Ints, Ints, Bools, Bools]:
    """Return the keys of rows, whose strata are their groups, that are inside brackets, row by row.

    And of each the sample, the bracket, whether it is its row's label, and whether it comes after that.
    """
    n, firsts, which = part.keys.size, np.cumsum(part.lengths) - part.lengths, np.empty(part.keys.size, np.int64)
    bounds = brackets.lows, brackets.highs, brackets.first_samples, brackets.last_samples
    find_brackets(part.keys, part.lengths, part.strata, samples, brackets.starts, bounds, which)
    labels = np.repeat(np.where(part.label_indices >= 0, firsts + part.label_indices, n), part.lengths)
    places, inside = np.arange(n), which >= 0
    columns: list[Array] = [part.keys, np.repeat(samples, part.lengths), which, places == labels, places > labels]
    keys, at, brackets_of, are_labels, are_after = columns if inside.all() else [column[inside] for column in columns]
    return keys, at, brackets_of, are_labels, are_after


def _rows_by_bracket(
    band: int, keys: Array, samples: Ints, brackets: Ints, are_labels: Bools, *, several: bool
) -> HeldRows:
    """Return keys as rows of one sample and bracket each; ``several`` if samples may have more than one bracket."""
    if several:
        order = np.lexsort((brackets, samples))  # stable: ties stay in order
        keys, samples, brackets, are_labels = keys[order], samples[order], brackets[order], are_labels[order]
    firsts = np.flatnonzero(np.diff(samples, prepend=-1) | np.diff(brackets, prepend=-1))
    places = np.flatnonzero(are_labels)
    runs = np.searchsorted(firsts, places, side="right") - 1
    label_indices = np.full(firsts.size, -1, np.int32)
    label_indices[runs] = places - firsts[runs]
    lengths, strata = np.diff(firsts, append=keys.size), brackets[firsts]
    return HeldRows(band, keys, lengths.astype(np.int32), label_indices, strata.astype(np.int32))
