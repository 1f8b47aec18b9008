"""Whole rows of a band, and what every pass over probabilities or logits checks of them."""

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

#: Scores that are worked on at once: so many float64 stay in a core's cache.
_STRIP = 1 << 16


def whole_rows(slabs: Iterable[Array], dtype: Dtype, n_classes: int, labels: Array | None) -> Array:
    """Return the rows of a band in one piece, which is good until the next band is asked for."""
    parts = []
    for slab in checked_slabs(slabs, dtype, n_classes, labels):
        if slab.shape[1] == n_classes:
            return slab
        parts.append(slab.copy())
    return np.concatenate(parts, axis=1)


def row_strips(rows: Array, n_scores: int = 1 << 18) -> Iterator[slice]:
    """Return stretches of rows of about this many scores, for work that copies them: a band may be as large as a chunk is."""
    step = max(1, n_scores // max(1, rows.shape[1]))
    return (slice(first, first + step) for first in range(0, max(1, len(rows)), step))


@dataclass
class RowChecks:
    """The labels and the rows of a band, with what is wrong with them, found strip by strip."""

    rows: Array
    labels: UsableLabels
    band: int
    n_nan: int = 0
    first_nan: tuple[int, int, int] = NOWHERE
    n_refused: int = 0
    first_refused: tuple[int, int, int] = NOWHERE

    @classmethod
    def of(cls, slabs: Iterable[Array], labels: Array | None, band: int, dtype: Dtype, n_classes: int) -> RowChecks:
        """Return the rows of a band with nothing looked at yet."""
        usable = UsableLabels.of(labels, n_classes)
        return cls(whole_rows(slabs, dtype, n_classes, usable.given), usable, band)

    def strips(
        self, n_scores: int = _STRIP, n_rows: int = 1 << 16, *, in_one: bool = False, find_nan: bool = True
    ) -> Iterator[tuple[int, Array, Array | None]]:
        """Return (first row, scores, labels) of stretches of rows, with their NaN noted unless others find them.

        The scores are float32 where that holds them exactly, else float64; ``in_one`` all rows of a band that are such already.
        """
        given, rows = self.labels.given, self.rows
        dtype = _exact_float(rows.dtype)
        whole = in_one and rows.dtype == dtype and rows.flags.c_contiguous
        step = len(rows) if whole else max(1, min(n_rows, n_scores // rows.shape[1]))
        for first in range(0, len(rows), step):
            block, mine = rows[first : first + step], None if given is None else given[first : first + step]
            if find_nan:
                self.note_nan(block, first)
            yield first, np.ascontiguousarray(block, dtype), mine

    def note_nan(self, block: Array, first: int) -> None:
        """Note the NaN of a block that begins at this row of the band."""
        if not is_float(block.dtype):
            return
        nan = block != block
        if nan.any():
            row, class_ = divmod(int(nan.argmax()), block.shape[1])
            self.n_nan += int(nan.sum())
            self.first_nan = min(self.first_nan, (self.band, first + row, class_))

    def refuse(self, rows: Array) -> None:
        """Note rows, counted from the band's first, whose scores are not what they should be."""
        if rows.size:
            self.n_refused += rows.size
            self.first_refused = min(self.first_refused, (self.band, int(rows[0]), 0))

    @property
    def n_labelled(self) -> int:
        """Number of rows that have a label."""
        hard = self.labels.hard
        return (0 if self.labels.given is None else len(self.rows)) if hard is None else int((hard >= 0).sum())

    def fields(self) -> dict[str, Any]:
        """Return what a tally of probabilities keeps, by the names of its fields."""
        return {
            "n_rows": len(self.rows), "n_nan": self.n_nan, "first_nan": self.first_nan, **self.labels.faults(self.band),
            "n_labelled": self.n_labelled, "n_refused": self.n_refused, "first_refused": self.first_refused,
        }  # fmt: skip


def _exact_float(dtype: Dtype) -> Dtype:
    return np.dtype(np.float32 if dtype.itemsize < 4 or dtype == np.float32 else np.float64)


# Row outcomes: for every row and rule the size of its set, and the label weight inside, as a stream.
#
# Where the rules are known, one pass tells them for all rows, a stretch of rows at a time, to any reduction: by class, by group,
# jointly for two rules. A reduction turns a stretch of rows into a state; nothing that grows with N is held.


class Rule(Protocol):
    """Which scores are in the sets."""

    @property
    def needs_rows(self) -> bool:
        """Whether it must see whole rows at once; else any block of the matrix will do."""

    def choose(self, scores: Array, first_row: int, first_class: int, n_classes: int) -> Bools:
        """Return the members among a block of scores that starts at this row and class of a matrix of so many classes."""


@dataclass(frozen=True)
class RowOutcomes:
    """What the rules make of a stretch of rows."""

    #: The first of the rows, counted in the whole matrix.
    first_row: int
    #: By rule and row: the number of labels in the set, and the label weight inside. That is 1 or 0 for a hard label, the
    #: exact sum of the soft ones, rounded once, and 0 without a label.
    sizes: Ints
    weights: Floats
    #: The hard or the soft labels; None where there are none.
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
    usable = UsableLabels.of(labels, plan.n_classes)
    scores = np.ascontiguousarray(whole_rows(slabs, plan.dtype, plan.n_classes, usable.given), plan.dtype)
    nan = np.flatnonzero(scores != scores) if is_float(plan.dtype) else np.zeros(0, np.int64)
    n_labelled = 0 if usable.given is None else len(scores)
    checks = CheckedTally(
        n_rows=len(scores),
        n_nan=nan.size,
        first_nan=(band, *divmod(int(nan[0]), plan.n_classes)) if nan.size else NOWHERE,
        **usable.faults(band),
        n_labelled=n_labelled if usable.hard is None else int((usable.hard >= 0).sum()),
    )
    states = [plan.reduce(outcomes) for outcomes in _outcomes(scores, usable, plan.first_rows[band], plan)]
    return Several((checks, plan.state.merge(states)))


def _outcomes(scores: Array, labels: UsableLabels, first_row: int, plan: OutcomePlan) -> Iterator[RowOutcomes]:
    """Return the outcomes of stretches of rows that stay in cache."""
    step = max(1, plan.tile_scores // plan.n_classes)
    for first in range(0, len(scores), step):
        rows = slice(first, first + step)
        inside = [rule.choose(scores[rows], first_row + first, 0, plan.n_classes) for rule in plan.rules]
        sizes = np.array([members.sum(1) for members in inside], np.int64)
        mine = None if labels.given is None else labels.given[rows]
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
