"""Whole rows of a band, and what every pass over probabilities or logits checks of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array, Dtype
from ..kernels.keys import is_float
from ..states.checks import NOWHERE
from .entries import checked_slabs
from .usable_labels import UsableLabels

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
