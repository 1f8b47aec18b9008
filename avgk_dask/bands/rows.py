"""Whole rows of a band, the checks that every pass over probabilities or logits makes of them, and what a rule must offer.

``whole_rows`` joins the slabs of a band. ``RowChecks`` reads its rows strip by strip and counts NaN, bad labels and rows that are
refused. A ``Rule`` decides which scores are in the sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..arrays import Array, Bools, Dtype
from ..kernels.keys import is_float
from .candidates import checked_slabs
from .passes import NOWHERE, UsableLabels

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
        """Return the fields of a tally of probabilities, by their names."""
        return {
            **self.labels.faults(self.band),
            "n_rows": len(self.rows),
            "n_nan": self.n_nan,
            "first_nan": self.first_nan,
            "n_labelled": self.labels.n_labelled,
            "n_refused": self.n_refused,
            "first_refused": self.first_refused,
        }


class Rule(Protocol):
    """Decides which scores are in the sets."""

    @property
    def needs_rows(self) -> bool:
        """Whether it must see whole rows at once; else any block of the matrix will do."""

    def choose(self, scores: Array, first_row: int, first_class: int, n_classes: int) -> Bools:
        """Return the members among a block of scores that starts at this row and class of a matrix of ``n_classes``."""
