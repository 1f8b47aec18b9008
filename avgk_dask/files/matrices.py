"""Columns of a record batch as matrices of scores and arrays of labels; ragged lists are refused.

A missing class number means unlabelled, -1; any other null is refused.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array
from ..errors import LabelsError, ScoresError
from ..masks import first_inexact, inexact_text, with_unlabelled
from .arrow_kinds import ArrowBatch, ArrowColumn
from .row_blocks import reading
from .table_columns import Columns, is_list

Refusal = type[ScoresError] | type[LabelsError]
_WHAT = {ScoresError: "scores", LabelsError: "labels"}


def score_block(batch: ArrowBatch, columns: Columns, n_classes: int, start: int, location: str) -> Array:
    """Return the scores of a batch whose first row is row ``start`` of the file."""
    if columns.is_list:
        name = columns.scores[0]
        where = f"column {name!r} of {location}"
        matrix = list_matrix(batch.column(name), n_classes, start, ScoresError, where)
        return np.array(matrix, columns.dtype, order="C")
    parts = {name: batch.column(name) for name in columns.scores}
    holes = [(_first_null(part), name) for name, part in parts.items() if part.null_count]
    for _, name in sorted(holes):
        _check_nulls(parts[name], start, 1, ScoresError, f"column {name!r} of {location}")
    block = np.empty((batch.num_rows, n_classes), columns.dtype)
    for index, (name, part) in enumerate(parts.items()):
        values = part.to_numpy(zero_copy_only=True)
        row = first_inexact(values, columns.dtype)
        if row is not None:
            place = f"row {start + row} (from 0) of column {name!r} of {location}"
            raise ScoresError(inexact_text("scores", values[row], place))
        block[:, index] = values
    return block


def label_block(batch: ArrowBatch, columns: Columns, n_classes: int, start: int, location: str) -> Array | None:
    """Return the labels of a batch: class numbers, a matrix of probabilities, or None where there are none."""
    if columns.label is None:
        return None
    return label_array(batch.column(columns.label), n_classes, start, f"column {columns.label!r} of {location}")


def label_array(column: ArrowColumn, n_classes: int | None, start: int, where: str) -> Array:
    """Return a column of labels as an array of its own: integers, -1 where one is missing, or a matrix where it holds lists."""
    if is_list(column.type):
        return np.array(list_matrix(column, n_classes, start, LabelsError, where), order="C")
    if not column.null_count:
        return np.array(column.to_numpy(zero_copy_only=True))
    present = column.drop_null().to_numpy(zero_copy_only=False)
    return with_unlabelled(present, np.asarray(column.is_null(), bool))


def list_matrix(column: ArrowColumn, n_columns: int | None, start: int, refusal: Refusal, where: str) -> Array:
    """Return a column of lists as a matrix, a view where Arrow allows; each list must be as long as the first."""
    # Offsets are read from the file as they are, and a wrong one would point outside of it.
    with reading(where, ValueError):
        column.validate(full=True)
    _check_nulls(column, start, 1, refusal, where)
    values = column.flatten()
    lengths = _lengths(column)
    width = n_columns if n_columns is not None else int(lengths[0])
    odd = np.flatnonzero(lengths != width)
    if odd.size:
        raise refusal(
            f"{_WHAT[refusal]} must have {width} numbers in each row; row {start + odd[0]} (from 0) of {where} has "
            f"{lengths[odd[0]]}. Write rows of one length."
        )
    _check_nulls(values, start, max(width, 1), refusal, where)
    matrix: Array = values.to_numpy(zero_copy_only=True).reshape(len(column), width)
    return matrix


def _lengths(column: ArrowColumn) -> Array:
    fixed = getattr(column.type, "list_size", None)
    return np.diff(np.asarray(column.offsets)) if fixed is None else np.full(len(column), fixed)


def _first_null(column: ArrowColumn) -> int:
    return int(np.argmax(np.asarray(column.is_null())))


def _check_nulls(column: ArrowColumn, start: int, per_row: int, refusal: Refusal, where: str) -> None:
    if column.null_count:
        row = start + _first_null(column) // per_row
        raise refusal(
            f"{_WHAT[refusal]} must not be missing; row {row} (from 0) of {where} has a null. Fill it, or drop the row."
        )
