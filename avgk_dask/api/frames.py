"""Frames of pandas, polars and Arrow as scores: columns are classes and their names travel, as those of a table in a file do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..errors import ScoresError
from ..files.names import LABEL_NAMES, listed
from ..masks import plain_array
from ..store import StoredArrays


def is_frame(values: Any) -> bool:
    """Return whether something is a frame in memory: of pandas, polars or Arrow, none of which is imported here."""
    if hasattr(values, "__dask_graph__"):
        return False
    pandas = hasattr(values, "iloc") and hasattr(values, "columns")
    return (
        pandas or hasattr(values, "get_columns") or (hasattr(values, "num_columns") and hasattr(values, "column_names"))
    )


@dataclass(frozen=True)
class FrameColumns:
    """The columns of a frame: the numbers and names of those that are scores, and the number of the one with the labels."""

    scores: list[int]
    class_names: list[Any]
    labels: int | None


def frame_columns(frame: Any) -> FrameColumns:
    """Return which columns of a frame are scores: all but one called ``labels`` or ``label``. Reads no values."""
    names = list(frame.column_names if hasattr(frame, "column_names") else frame.columns)
    own = next(
        (i for name in LABEL_NAMES for i, other in enumerate(names) if isinstance(other, str) and other == name), None
    )
    scores = [i for i in range(len(names)) if i != own]
    return FrameColumns(scores, [names[i] for i in scores], own)


def frame_arrays(frame: Any) -> StoredArrays:
    """Return the scores of a frame, the labels if it has a column ``labels`` or ``label``, and the names of its columns.

    Raises
    ------
    ScoresError
        If some columns are integers and others are not, as labels of another name would be; or if no column is left.

    """
    columns = frame_columns(frame)
    if not columns.scores:
        raise ScoresError("scores must have columns of numbers; the frame has labels alone. Check it.")
    kinds = [str(_kind(_column(frame, i))).lower() for i in columns.scores]
    whole = [str(name) for name, kind in zip(columns.class_names, kinds, strict=True) if re.match("u?int", kind)]
    if whole and len(whole) < len(kinds):
        raise ScoresError(
            f"columns of scores must all be fractional numbers or all integers; {listed(whole)} {'is' if len(whole) == 1 else 'are'} "
            "integers among others. Call the one with the class numbers 'labels', and drop what is no score."
        )
    # Columns of Arrow may have equal names: they are taken by number, which polars does not know.
    by_number = columns.scores if hasattr(frame, "column_names") else columns.class_names
    scores = plain_array(frame.iloc[:, columns.scores] if hasattr(frame, "iloc") else frame.select(by_number))
    labels = None if columns.labels is None else _column(frame, columns.labels)
    texts = all(isinstance(name, str) for name in columns.class_names)
    return StoredArrays(scores, labels, "", class_names=columns.class_names if texts else None)


def _column(frame: Any, i: int) -> Any:
    if hasattr(frame, "iloc"):
        return frame.iloc[:, i]
    return frame.column(i) if hasattr(frame, "column_names") else frame.get_columns()[i]


def _kind(column: Any) -> object:
    return column.dtype if hasattr(column, "dtype") else column.type
