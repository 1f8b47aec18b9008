"""Columns of a table (Parquet, CSV, Arrow): choosing the columns of scores and labels, and converting them to arrays.

pyarrow is imported late and has no type annotations. Column types are recognised by their names.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from ..arrays import Array, Dtype
from ..errors import DtypeError, LabelsError, ScoresError, StoreError, label_hint
from ..kernels.keys import check_dtype
from ..masks import first_inexact, inexact_text, with_unlabelled
from .rows import LABEL_NAMES, OTHER_LABEL_NAMES, SCORE_NAMES, check_distinct, find_name, listed, reading

# Objects of pyarrow.
ArrowType: TypeAlias = Any
ArrowColumn: TypeAlias = Any
ArrowBatch: TypeAlias = Any
ArrowSchema: TypeAlias = Any

#: The column in which pandas stores a frame's index.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


def load_arrow(module: str = "pyarrow") -> Any:
    """Import pyarrow or one of its modules."""
    try:
        return import_module(module)
    except ImportError as error:
        raise StoreError(
            "pyarrow, which reads Parquet, CSV and Arrow files, is not installed. Run: pip install 'avgk_dask[arrow]'."
        ) from error


@dataclass(frozen=True)
class Columns:
    """The columns to read: scores in one column of lists or in one column per class, and labels or None."""

    scores: tuple[str, ...]
    is_list: bool
    dtype: Dtype
    label: str | None
    width: int | None
    #: All other columns.
    ignored: tuple[str, ...]
    #: The dtype of soft labels, or None.
    label_dtype: Dtype | None

    @property
    def names(self) -> list[str]:
        """The names of all columns to read."""
        return [*self.scores] if self.label is None else [*self.scores, self.label]


def choose_columns(schema: ArrowSchema, scores: str | None, labels: str | None, location: str) -> Columns:
    """Choose the columns by the user's names, or by the names and types of the columns.

    The labels are the column ``labels`` or ``label`` of integers or lists; otherwise the only column of integers with
    another usual name (``y``, ``target``), if the scores are not integers. The scores are the column of lists ``scores``,
    ``logits``, ``probabilities`` and so on; otherwise the only column of lists of numbers; otherwise all columns of numbers,
    in file order, except the labels and the index of a pandas frame.
    """
    check_distinct(scores, labels)
    types = _types(schema, location)
    label = label_column(types, labels, location)
    soft = _dtype(types[label].value_type) if label is not None and is_list(types[label]) else None
    candidates = {name: kind for name, kind in types.items() if name != label}
    list_column = _list_column(candidates, scores, location)
    if list_column is not None:
        kind, used = candidates[list_column], [list_column]
        dtype, width = _dtype(kind.value_type), getattr(kind, "list_size", None)
    else:
        used = _class_columns(candidates, location)
        dtype, width = check_dtype(np.result_type(*map(_dtype, {candidates[name] for name in used}))), len(used)
    unused = candidates.keys() - set(used)
    ignored = tuple(name for name in candidates if name in unused and not _PANDAS_INDEX.fullmatch(name))
    return Columns(tuple(used), list_column is not None, dtype, label, width, ignored, soft)


def label_column(types: dict[str, ArrowType], labels: str | None, location: str) -> str | None:
    """Return the name of the label column, or None."""
    if labels is not None:
        find_name(labels, [*types], "column", location)
    for name in LABEL_NAMES if labels is None else (labels,):
        if name not in types:
            continue
        if _is_integer(types[name]) or is_list(types[name]) or str(types[name]) == "null":
            return name
        if labels is not None or _is_number(types[name]) or _is_decimal(types[name]):
            raise LabelsError(
                f"labels must be class numbers or lists of probabilities; column {name!r} of {location} holds "
                f"{types[name]}. {_label_hint(types[name])}"
            )
    return _usual_label(types) if labels is None else None


def _usual_label(types: dict[str, ArrowType]) -> str | None:
    """Return the column of integers with another usual name for labels, if it is unique and cannot be a class."""
    if any(name in types for name in LABEL_NAMES):
        return None
    candidates = [name for name in OTHER_LABEL_NAMES if name in types and _is_integer(types[name])]
    rest = [kind for name, kind in types.items() if name not in candidates and _is_number(kind)]
    may_be_class = not any(map(is_list, types.values())) and (not rest or any(map(_is_integer, rest)))
    return candidates[0] if len(candidates) == 1 and not may_be_class else None


def _label_hint(kind: ArrowType) -> str:
    if _is_number(kind) or _is_decimal(kind):
        return "Convert it to integers, missing or -1 for unlabelled samples, or rename it if it holds scores."
    return label_hint("string")


def _types(schema: ArrowSchema, location: str) -> dict[str, ArrowType]:
    types = {field.name: field.type for field in schema}
    if len(types) < len(schema.names):
        repeated = sorted(name for name, n in Counter(schema.names).items() if n > 1)
        raise StoreError(f"columns must have different names; {location} repeats {listed(repeated)}. Rename them.")
    return types


def _list_column(types: dict[str, ArrowType], scores: str | None, location: str) -> str | None:
    if scores is not None:
        find_name(scores, [*types], "column", location)
        if not is_list(types[scores]):
            raise ScoresError(
                f"scores must name a column of lists of numbers; column {scores!r} of {location} holds "
                f"{types[scores]}. Drop the name if each column is a class."
            )
        return scores
    lists = [name for name, kind in types.items() if is_list(kind)]
    for name in SCORE_NAMES:
        if name in lists:
            return name
    if len(lists) > 1:
        raise StoreError(f"{location} has several columns of lists: {listed(lists)}. Name the one with the scores.")
    return lists[0] if lists else None


def _class_columns(types: dict[str, ArrowType], location: str) -> list[str]:
    for name, kind in types.items():
        if _is_decimal(kind):
            raise DtypeError(
                f"scores must be binary numbers of at most 64 bits; column {name!r} of {location} holds {kind}. "
                "Cast it to float64."
            )
    classes = [name for name, kind in types.items() if _is_number(kind) and not _PANDAS_INDEX.fullmatch(name)]
    whole = [name for name in classes if _is_integer(types[name])]
    if whole and len(whole) < len(classes):
        raise ScoresError(mixed_columns(whole, location))
    if not classes:
        raise ScoresError(
            f"scores must be columns of numbers or of lists of numbers; {location} has only {listed([*types])}. "
            "Convert them first."
        )
    return classes


def mixed_columns(integers: list[str], location: str) -> str:
    """Return the error text for columns of integers, which may be labels or sample numbers, among fractional ones."""
    return (
        f"score columns must be either all floats or all integers; {listed(integers)} of {location} "
        f"{'holds' if len(integers) == 1 else 'hold'} integers, the others floats. Name the labels, and drop columns "
        "that are not scores."
    )


def _is_integer(kind: ArrowType) -> bool:
    return re.fullmatch(r"u?int(8|16|32|64)", str(kind)) is not None


def _is_decimal(kind: ArrowType) -> bool:
    return str(kind).startswith("decimal")


def _is_number(kind: ArrowType) -> bool:
    return _is_integer(kind) or str(kind) in ("halffloat", "float16", "float", "double")


def is_list(kind: ArrowType) -> bool:
    """Whether the type is a list of numbers, of fixed or variable size."""
    return re.match(r"(list|large_list|fixed_size_list)<", str(kind)) is not None and _is_number(kind.value_type)


def _dtype(kind: ArrowType) -> Dtype:
    return check_dtype(kind.to_pandas_dtype())


# Values of record batches as matrices of scores and arrays of labels. Ragged lists raise an error. A missing class number means
# unlabelled, -1; any other null raises an error.

ErrorClass = type[ScoresError] | type[LabelsError]
_CONTENT = {ScoresError: "scores", LabelsError: "labels"}


def score_block(batch: ArrowBatch, columns: Columns, n_classes: int, start: int, location: str) -> Array:
    """Return the scores of a batch whose first row is row ``start`` of the file."""
    if columns.is_list:
        name = columns.scores[0]
        matrix = list_matrix(batch.column(name), n_classes, start, ScoresError, f"column {name!r} of {location}")
        return np.array(matrix, columns.dtype, order="C")
    parts = {name: batch.column(name) for name in columns.scores}
    nulls = [(_first_null(part), name) for name, part in parts.items() if part.null_count]
    if nulls:
        name = min(nulls)[1]
        _check_nulls(parts[name], start, 1, ScoresError, f"column {name!r} of {location}")
    block = np.empty((batch.num_rows, n_classes), columns.dtype)
    for index, (name, part) in enumerate(parts.items()):
        values = part.to_numpy(zero_copy_only=True)
        row = first_inexact(values, columns.dtype)
        if row is not None:
            row_text = f"row {start + row} (from 0) of column {name!r} of {location}"
            raise ScoresError(inexact_text("scores", values[row], row_text))
        block[:, index] = values
    return block


def label_array(batch: ArrowBatch, name: str, n_classes: int | None, start: int, location: str) -> Array:
    """Return a copy of a column of labels: integers, with -1 for missing ones, or a matrix if it consists of lists."""
    column = batch.column(name)
    if is_list(column.type):
        return np.array(list_matrix(column, n_classes, start, LabelsError, f"column {name!r} of {location}"), order="C")
    if not column.null_count:
        return np.array(column.to_numpy(zero_copy_only=True))
    present = column.drop_null().to_numpy(zero_copy_only=False)
    return with_unlabelled(present, np.asarray(column.is_null(), bool))


def list_matrix(column: ArrowColumn, n_columns: int | None, start: int, error: ErrorClass, location: str) -> Array:
    """Return a column of lists as a matrix, without a copy if possible; all lists must have the same length."""
    with reading(location, ValueError):  # in a damaged file, offsets may point outside of it
        column.validate(full=True)
    _check_nulls(column, start, 1, error, location)
    values, fixed = column.flatten(), getattr(column.type, "list_size", None)
    lengths = np.diff(np.asarray(column.offsets)) if fixed is None else np.full(len(column), fixed)
    width = n_columns if n_columns is not None else int(lengths[0])
    other = np.flatnonzero(lengths != width)
    if other.size:
        raise error(
            f"{_CONTENT[error]} must have {width} numbers in each row; row {start + other[0]} (from 0) of {location} has "
            f"{lengths[other[0]]}. Write rows of one length."
        )
    _check_nulls(values, start, max(width, 1), error, location)
    matrix: Array = values.to_numpy(zero_copy_only=True).reshape(len(column), width)
    return matrix


def _first_null(column: ArrowColumn) -> int:
    return int(np.argmax(np.asarray(column.is_null())))


def _check_nulls(column: ArrowColumn, start: int, per_row: int, error: ErrorClass, location: str) -> None:
    if column.null_count:
        row = start + _first_null(column) // per_row
        raise error(
            f"{_CONTENT[error]} must not be missing; row {row} (from 0) of {location} has a null. Fill it, or drop the row."
        )
