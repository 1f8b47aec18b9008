"""Any rows of a table: the parts they lie in, row groups or record batches, are decoded."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from ..arrays import Array, Dtype
from ..errors import ReadError
from ..masks import with_unlabelled
from .any_rows import PART_BYTES, AnyRows, FileMark, rows_of_bytes
from .arrow_kinds import ArrowBatch, Part
from .arrow_tables import PartedTable, TableFile
from .ipc import ArrowTable
from .matrices import label_block, score_block
from .parquet import ParquetTable
from .table_columns import Columns

#: Bytes of scores that a part may have; a file of larger ones is held whole, which takes less memory.
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class TableRows(AnyRows):
    """Rows of the scores or of the labels of a table that has parts."""

    table: PartedTable
    columns: Columns
    is_label: bool
    n_classes: int
    parts: tuple[Part, ...]
    #: Rows at which the parts end.
    ends: tuple[int, ...]
    marks: tuple[FileMark, ...]

    def fill(self, first: int, last: int, out: Array) -> None:
        """Read some rows into an array."""
        at = first
        while at < last:
            number = bisect_right(self.ends, at)
            end = min(last, self.ends[number])
            self._fill_from(number, at, end, out[at - first : end - first])
            at = end

    def _fill_from(self, number: int, first: int, last: int, out: Array) -> None:
        """Read rows that lie in one part."""
        part = self.parts[number]
        mark = next(mark for mark in self.marks if mark.path == part.path)
        mark.check()
        at = self.ends[number] - part.n_rows
        rows = rows_of_bytes(self.shape, self.dtype, PART_BYTES)
        names = [self.columns.label] if self.is_label and self.columns.label else list(self.columns.scores)
        for batch in self.table.part_batches(part, names, rows):
            begin, end = max(first, at), min(last, at + batch.num_rows)
            if begin < end:
                out[begin - first : end - first] = self._values(batch.slice(begin - at, end - begin), begin)
            at += batch.num_rows
            if at >= last:
                break
        mark.check()
        if at < last:
            raise ReadError(
                f"{part.path} must have the {part.n_rows} rows that it tells of; got fewer. Write or copy it again."
            )

    def _values(self, batch: ArrowBatch, start: int) -> Array:
        if not self.is_label:
            return score_block(batch, self.columns, self.n_classes, start, self.location)
        found = label_block(batch, self.columns, self.n_classes, start, self.location)
        assert found is not None
        return in_range(found)


def in_range(labels: Array) -> Array:
    """Return labels that int64 can hold: too large a class number must be refused, and not become a negative one."""
    return with_unlabelled(labels, np.zeros(labels.shape, bool)) if labels.dtype == np.uint64 else labels


def table_rows(file: TableFile, marks: tuple[FileMark, ...]) -> tuple[TableRows, TableRows | None] | None:
    """Return the scores and labels of a table as rows that can be read in any order.

    None where they cannot: the table has no parts, or such large ones that all of it is better held at once.
    """
    table = file.table
    if not isinstance(table, (ParquetTable, ArrowTable)):
        return None
    parts = [part for part in table.parts() or () if part.n_rows]
    row_bytes = file.n_classes * file.dtype.itemsize
    if not parts or max(part.n_rows for part in parts) * row_bytes > _MOST_BYTES:
        return None
    shape = sum(part.n_rows for part in parts), file.n_classes

    def rows(shape: tuple[int, ...], dtype: Dtype, is_label: bool) -> TableRows:
        return TableRows(
            location=file.location, shape=shape, dtype=dtype, part_rows=_together(parts, rows_of_bytes(shape, dtype)),
            table=table, columns=file.columns, is_label=is_label, n_classes=file.n_classes, parts=tuple(parts),
            ends=tuple(accumulate(part.n_rows for part in parts)), marks=marks,
        )  # fmt: skip

    scores = rows(shape, file.dtype, False)
    if file.columns.label is None:
        return scores, None
    soft = file.columns.label_dtype
    return scores, rows(shape[:1], np.dtype(np.int64), True) if soft is None else rows(shape, soft, True)


def _together(parts: list[Part], rows: int) -> int:
    """Return how many rows to read together, so that no part, or few of them, are decoded twice.

    Examples
    --------
    >>> _together([Part("a", 0, 100), Part("a", 1, 100), Part("a", 2, 7)], 250)
    200
    >>> _together([Part("a", 0, 100), Part("b", 0, 30), Part("b", 1, 100)], 50)
    100

    """
    first = parts[0].n_rows
    if all(part.n_rows == first for part in parts[:-1]) and parts[-1].n_rows <= first:
        return first * max(1, rows // first)
    return max(rows, *(part.n_rows for part in parts))
