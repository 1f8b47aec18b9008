"""One read for the thresholds of groups: retains or counts the scores inside the brackets of each row's group."""

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

#: Cells of all brackets together, and the minimum (for up to ``MOST_GROUPS`` brackets) and maximum per bracket.
_ALL_CELLS, _LEAST_CELLS, _MOST_CELLS = 1 << 20, 1 << 8, 1 << 16
MOST_GROUPS = 1 << 14
#: Bytes per cell in a state: five numbers.
_CELL_BYTES = 40


@dataclass(frozen=True)
class CellCounts(State):
    """The nonempty cells, ascending: their scores and labels, and their lowest and highest key."""

    cells: Column
    scores: Column
    labels: Column
    lows: Column
    highs: Column

    @classmethod
    def from_cells(cls, cells: Ints, keys: Array, are_labels: Bools) -> Self:
        """Count scores, given the cell and key of each, and whether it is the label's."""
        wide = keys.astype(np.int64)
        return cls._joined(cells, np.ones_like(cells), are_labels.astype(np.int64), wide, wide)

    @classmethod
    def empty(cls) -> Self:
        """Return no cells."""
        return cls(*(np.zeros((5, 0), np.int64)))

    def nothing(self) -> Self:
        """Return no cells."""
        return self.empty()

    @classmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        """Return the counts of all scores together."""
        names = ("cells", "scores", "labels", "lows", "highs")
        return cls._joined(*(np.concatenate([getattr(state, name) for state in states]) for name in names))

    @classmethod
    def _joined(cls, cells: Ints, scores: Ints, labels: Ints, lows: Ints, highs: Ints) -> Self:
        """Return the counts with equal cells joined."""
        order = np.argsort(cells, kind="stable")  # fast, because the parts are sorted
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
    #: The keys of each row inside each bracket, as rows whose stratum is the bracket. They are dropped if there are more
    #: than ``max_held`` (0: keys are counted in cells instead).
    max_held: Annotated[int, SAME]
    rows: Annotated[tuple[HeldRows, ...], BY_BAND]
    dropped: Annotated[Bools, ANY]
    cells: CellCounts

    def settled(self) -> Self:
        """Return the tally without its rows if there are too many."""
        if self.rows and sum(part.keys.size for part in self.rows) > self.max_held:
            return replace(self, rows=(), dropped=np.ones_like(self.dropped))
        return self


@dataclass(frozen=True)
class GroupBrackets:
    """Brackets of groups, ascending by group, key and sample: intervals of keys or, at a single key, of samples.

    Each bracket has cells, in the order in which scores enter the sets: intervals of ``2**shift`` keys from the highest
    down, or of samples from the first up. They are numbered from ``base``; scores beyond the first or last cell belong to
    it. A single sample has two cells: its scores up to the label, and those after it.
    """

    #: Index of the first bracket of each group, and the number of brackets.
    starts: Ints
    lows: Ints
    highs: Ints
    first_samples: Ints
    last_samples: Ints
    bases: Ints
    shifts: Ints
    #: Index of the first cell of each bracket, and the number of cells.
    cells: Ints

    @classmethod
    def in_cells(
        cls, starts: Ints, lows: Ints, highs: Ints, firsts: Ints, lasts: Ints, usual: tuple[int, int]
    ) -> GroupBrackets:
        """Divide brackets into cells between the lowest and highest ``usual`` key, if the bracket holds such keys."""
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
        """Whether brackets are intervals of samples."""
        return np.asarray(self.lows == self.highs)

    @property
    def are_rows(self) -> Bools:
        """Whether brackets are single samples."""
        return np.asarray(self.are_samples & (self.first_samples == self.last_samples))

    def cells_of(self, brackets: Ints, keys: Array, samples: Ints, are_after: Bools) -> Ints:
        """Return the cells of scores inside brackets; ``are_after`` are scores after the label of their row."""
        by_sample = self.are_samples[brackets]
        values = np.where(by_sample, samples + (self.are_rows[brackets] & are_after), keys.astype(np.int64))
        base = self.bases[brackets]
        # Unsigned differences of keys cannot overflow.
        steps = (values.view(np.uint64) - base.view(np.uint64)) >> self.shifts[brackets].view(np.uint64)
        last = np.diff(self.cells)[brackets] - 1
        index = np.where(values < base, 0, np.minimum(steps, last.view(np.uint64)).view(np.int64))
        return np.asarray(self.cells[brackets] + np.where(by_sample, index, last - index))


@dataclass(frozen=True)
class GroupPlan:
    """The plan of the scan, the brackets of the groups, and the first rows of the bands."""

    scan: ScanPlan
    brackets: GroupBrackets
    first_rows: tuple[int, ...]
    #: Number of keys that may be held in total, or 0 to count them in cells.
    max_held: int
    #: Whether all rows are scanned and checked, or only rows of groups that have brackets.
    is_first: bool


def group_pass(plan: GroupPlan) -> Pass:
    """Return the pass over all bands."""
    shape = plan.scan.shape
    state = shape.strata_bytes + (0 if plan.max_held else _CELL_BYTES * int(plan.brackets.cells[-1]))
    n_keys = min(plan.max_held, shape.n_scores)
    n_rows = min(n_keys, shape.n_samples) if plan.is_first else n_keys  # later rows may have one key each
    held = n_keys * shape.key_bytes + n_rows * ROW_BYTES
    name = "scan" if plan.is_first else "rescan"
    per_row = -(-held // max(shape.n_samples, 1))
    return Pass(name, scan_groups, plan, GroupTally, holds_rows=True, state_bytes=state, sum_bytes=per_row)


def scan_groups(slabs: Iterable[Array], labels: Array, band: int, plan: GroupPlan) -> GroupTally:
    """Scan one band, with its whole rows in memory, and tally the scores inside the brackets."""
    shape, brackets = plan.scan.shape, plan.brackets
    usable = UsableLabels.of_column(labels, shape.n_classes, are_packed=shape.strata == "groups")
    groups = usable.strata(shape.strata, len(labels))
    selection = np.ones(len(labels), bool) if plan.is_first else np.diff(brackets.starts)[groups] > 0
    block = _select_rows(checked_slabs(slabs, shape.dtype, shape.n_classes, usable.array), selection, shape.n_classes)
    checks: dict[str, Any] = {"n_nan": 0, "first_nan": NOWHERE, **UsableLabels().faults(0), "n_labelled": 0}
    ranks, rows = StrataRanks.empty(), tuple[HeldRows, ...]()
    if selection.any():
        tally = scan_band([block], labels[selection], band, plan.scan)
        checks = {field.name: getattr(tally, field.name) for field in fields(CheckedTally)}
        ranks, rows = tally.strata_ranks if plan.is_first else ranks, tally.rows
    samples = plan.first_rows[band] + np.flatnonzero(selection)
    held, counts = [], [CellCounts.empty()]
    ends = np.cumsum([0, *(part.lengths.size for part in rows)])
    for part, (first, last) in zip(rows, pairwise(ends), strict=True):
        keys, key_samples, key_brackets, are_labels, are_after = _keys_inside(part, brackets, samples[first:last])
        if plan.max_held:
            several = bool((np.diff(brackets.starts) > 1).any())
            held.append(_rows_by_bracket(band, keys, key_samples, key_brackets, are_labels, several=several))
        else:
            cells = brackets.cells_of(key_brackets, keys, key_samples, are_after)
            counts.append(CellCounts.from_cells(cells, keys, are_labels))
    return GroupTally(
        **checks | {"n_rows": len(labels)},
        strata_ranks=ranks,
        max_held=plan.max_held,
        rows=tuple(held),
        dropped=np.zeros(1, bool),
        cells=CellCounts.merge(counts),
    ).settled()


def _select_rows(slabs: Iterable[Array], selection: Bools, n_classes: int) -> Array:
    """Return some rows of a band as one block, which is valid until the next band is requested."""
    parts = []
    for slab in slabs:
        if selection.all() and slab.shape[1] == n_classes:
            return slab
        parts.append(slab[selection])
    return np.concatenate(parts, axis=1)


def _keys_inside(part: HeldRows, brackets: GroupBrackets, samples: Ints) -> tuple[Array, Ints, Ints, Bools, Bools]:
    """Return the keys inside brackets, row by row, of rows whose strata are groups.

    The other columns are the sample and bracket of each key, and whether it is its row's label or comes after the label.
    """
    n, firsts, numbers = part.keys.size, np.cumsum(part.lengths) - part.lengths, np.empty(part.keys.size, np.int64)
    bounds = brackets.lows, brackets.highs, brackets.first_samples, brackets.last_samples
    find_brackets(part.keys, part.lengths, part.strata, samples, brackets.starts, bounds, numbers)
    labels = np.repeat(np.where(part.label_indices >= 0, firsts + part.label_indices, n), part.lengths)
    indices, inside = np.arange(n), numbers >= 0
    columns: list[Array] = [part.keys, np.repeat(samples, part.lengths), numbers, indices == labels, indices > labels]
    keys, key_samples, key_brackets, are_labels, are_after = (
        columns if inside.all() else [column[inside] for column in columns]
    )
    return keys, key_samples, key_brackets, are_labels, are_after


def _rows_by_bracket(
    band: int, keys: Array, samples: Ints, brackets: Ints, are_labels: Bools, *, several: bool
) -> HeldRows:
    """Return keys as one row per sample and bracket; ``several`` if samples may have more than one bracket."""
    if several:
        order = np.lexsort((brackets, samples))  # stable: ties stay in order
        keys, samples, brackets, are_labels = keys[order], samples[order], brackets[order], are_labels[order]
    firsts = np.flatnonzero(np.diff(samples, prepend=-1) | np.diff(brackets, prepend=-1))
    labels = np.flatnonzero(are_labels)
    rows = np.searchsorted(firsts, labels, side="right") - 1
    label_indices = np.full(firsts.size, -1, np.int32)
    label_indices[rows] = labels - firsts[rows]
    lengths, strata = np.diff(firsts, append=keys.size), brackets[firsts]
    return HeldRows(band, keys, lengths.astype(np.int32), label_indices, strata.astype(np.int32))
