"""Whole rows of a band: their checks, and the outcome of known rules on every row.

``whole_rows`` joins the slabs of a band. ``RowChecks`` reads its rows strip by strip and counts NaN, bad labels and rows that are
refused, for every pass over probabilities or logits. ``outcome_pass`` applies known rules to all rows and hands the size and the
label weight of each set, a stretch of rows at a time, to any reduction: by class, by group, jointly for two rules. A reduction
turns a stretch into a state, so that nothing that grows with N is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..arrays import Array, Bools, Dtype, Floats, Ints
from ..exact.sums import ExactSums
from ..kernels.keys import is_float
from ..records import Several, State
from .candidates import checked_slabs
from .passes import NOWHERE, CheckedTally, Pass, UsableLabels

#: Scores of a strip: as many float64 as stay in a core's cache.
_STRIP = 1 << 16


def whole_rows(slabs: Iterable[Array], dtype: Dtype, n_classes: int, labels: Array | None) -> Array:
    """Return the rows of a band in one piece, which is valid until the next band is read."""
    each = checked_slabs(slabs, dtype, n_classes, labels)
    first = next(each)
    if first.shape[1] == n_classes:
        return first
    rows = np.empty((len(first), n_classes), dtype)
    rows[:, : first.shape[1]], done = first, first.shape[1]
    for slab in each:  # a slab is valid until the next one is read
        rows[:, done : done + slab.shape[1]] = slab
        done += slab.shape[1]
    return rows


def row_strips(rows: Array, n_scores: int = 1 << 18) -> Iterator[slice]:
    """Return strips of rows of about this many scores, for work that copies them: a band may be as large as a chunk."""
    step = max(1, n_scores // max(1, rows.shape[1]))
    return (slice(first, first + step) for first in range(0, max(1, len(rows)), step))


@dataclass
class RowChecks:
    """The labels and the rows of a band, with counts of bad data, which grow strip by strip."""

    rows: Array
    labels: UsableLabels
    band: int
    n_nan: int = 0
    first_nan: tuple[int, int, int] = NOWHERE
    n_refused: int = 0
    first_refused: tuple[int, int, int] = NOWHERE

    @classmethod
    def of(cls, slabs: Iterable[Array], labels: Array | None, band: int, dtype: Dtype, n_classes: int) -> RowChecks:
        """Return the rows of a band before any is checked."""
        usable = UsableLabels.of(labels, n_classes)
        return cls(whole_rows(slabs, dtype, n_classes, usable.given), usable, band)

    def strips(
        self, n_scores: int = _STRIP, n_rows: int = 1 << 16, *, in_one: bool = False, find_nan: bool = True
    ) -> Iterator[tuple[int, Array, Array | None]]:
        """Return (first row, scores, labels) of strips of rows, with their NaN counted unless ``find_nan`` is false.

        The scores are float32 if that holds them exactly, else float64; with ``in_one``, rows that are so already are one strip.
        """
        given, rows = self.labels.given, self.rows
        is_narrow = rows.dtype.itemsize < 4 or rows.dtype == np.float32
        dtype = np.dtype(np.float32 if is_narrow else np.float64)
        whole = in_one and rows.dtype == dtype and rows.flags.c_contiguous
        step = len(rows) if whole else max(1, min(n_rows, n_scores // rows.shape[1]))
        for first in range(0, len(rows), step):
            block, mine = rows[first : first + step], None if given is None else given[first : first + step]
            if find_nan:
                self.note_nan(block, first)
            yield first, np.ascontiguousarray(block, dtype), mine

    def note_nan(self, block: Array, first: int) -> None:
        """Count the NaN of a block that begins at this row of the band."""
        if not is_float(block.dtype):
            return
        nan = block != block
        if nan.any():
            row, class_ = divmod(int(nan.argmax()), block.shape[1])
            self.n_nan += int(nan.sum())
            self.first_nan = min(self.first_nan, (self.band, first + row, class_))

    def refuse(self, rows: Array) -> None:
        """Count rows, numbered from the band's first, whose scores are not what they should be."""
        if rows.size:
            self.n_refused += rows.size
            self.first_refused = min(self.first_refused, (self.band, int(rows[0]), 0))

    def fields(self) -> dict[str, Any]:
        """Return the fields of a tally that also counts refused rows, by their names."""
        return self.checked_fields() | {"n_refused": self.n_refused, "first_refused": self.first_refused}

    def checked_fields(self) -> dict[str, Any]:
        """Return the fields of a ``CheckedTally``, by their names."""
        labels, n_rows = self.labels, len(self.rows)
        n_labelled = 0 if labels.given is None else n_rows if labels.hard is None else int((labels.hard >= 0).sum())
        counts = {"n_rows": n_rows, "n_nan": self.n_nan, "first_nan": self.first_nan, "n_labelled": n_labelled}
        return counts | labels.faults(self.band)


class Rule(Protocol):
    """Decides which scores are in the sets."""

    @property
    def needs_rows(self) -> bool:
        """Whether it must see whole rows at once; else any block of the matrix will do."""

    def choose(self, scores: Array, first_row: int, first_class: int, n_classes: int) -> Bools:
        """Return the members among a block of scores that starts at this row and class of a matrix of ``n_classes``."""


@dataclass(frozen=True)
class RowOutcomes:
    """The sets that the rules give a stretch of rows."""

    #: The first of the rows, counted in the whole matrix.
    first_row: int
    #: By rule and row: the size of the set, and the label weight inside. The weight is 1 or 0 for a hard label, the exact
    #: sum of soft ones, rounded once, and 0 without a label.
    sizes: Ints
    weights: Floats
    #: The hard or the soft labels, or None if there are none.
    labels: Array | None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.sizes.shape[1])


Reduction = Callable[[RowOutcomes], State]


@dataclass(frozen=True)
class OutcomePlan:
    """The rules, what to reduce their outcomes to, and where the bands begin."""

    dtype: Dtype
    n_classes: int
    rules: tuple[Rule, ...]
    reduce: Reduction
    state: type[State]
    first_rows: tuple[int, ...]
    tile_scores: int


def outcome_pass(
    rules: Sequence[Rule],
    reduce: Reduction,
    state: type[State],
    *,
    dtype: Dtype,
    n_classes: int,
    first_rows: Sequence[int],
    tile_scores: int = 1 << 18,
) -> Pass:
    """Return the pass that reduces the outcomes of all rows; its state is ``Several`` of the checks and the reduction's."""
    plan = OutcomePlan(dtype, n_classes, tuple(rules), reduce, state, tuple(first_rows), tile_scores)
    return Pass("outcomes", tally_outcomes, plan, Several, holds_rows=True)


def tally_outcomes(slabs: Iterable[Array], labels: Array | None, band: int, plan: OutcomePlan) -> Several:
    """Return the reduction of one band, whose whole rows are held, with the counts that every pass checks."""
    checks = RowChecks.of(slabs, labels, band, plan.dtype, plan.n_classes)
    scores = np.ascontiguousarray(checks.rows, plan.dtype)
    checks.note_nan(scores, 0)
    outcomes = _outcomes(scores, checks.labels.given, plan.first_rows[band], plan)
    return Several(
        (CheckedTally(**checks.checked_fields()), plan.state.merge([plan.reduce(each) for each in outcomes]))
    )


def _outcomes(scores: Array, labels: Array | None, first_row: int, plan: OutcomePlan) -> Iterator[RowOutcomes]:
    """Return the outcomes of stretches of rows that stay in cache."""
    step = max(1, plan.tile_scores // plan.n_classes)
    for first in range(0, len(scores), step):
        rows = slice(first, first + step)
        inside = [rule.choose(scores[rows], first_row + first, 0, plan.n_classes) for rule in plan.rules]
        sizes = np.array([members.sum(1) for members in inside], np.int64)
        mine = None if labels is None else labels[rows]
        weights = np.array([_weights(members, mine) for members in inside])
        yield RowOutcomes(first_row + first, sizes, weights, mine)


def _weights(members: Bools, labels: Array | None) -> Floats:
    """Return the label weight inside each set."""
    if labels is None:
        return np.zeros(len(members))
    if labels.ndim == 2:
        rows, classes = np.nonzero(members)
        sums = ExactSums.zeros(len(members))
        sums.add(labels[rows, classes], rows)
        return np.array([float(weight) for weight in sums.fractions()])
    inside = members[np.arange(labels.size), np.maximum(labels, 0)]
    return (inside & (labels >= 0)).astype(np.float64)
