"""Frames of pandas, polars and Arrow as scores: columns are classes and their names travel, as those of a table in a file do."""

from __future__ import annotations

import re
from typing import Any

from ..errors import ScoresError
from ..files.names import LABEL_NAMES, listed
from ..masks import plain_array, plain_labels
from ..store import StoredArrays


def is_frame(values: Any) -> bool:
    """Return whether something is a frame in memory: of pandas, polars or Arrow, none of which is imported here."""
    if hasattr(values, "__dask_graph__"):
        return False
    pandas = hasattr(values, "iloc") and hasattr(values, "columns")
    return (
        pandas or hasattr(values, "get_columns") or (hasattr(values, "num_columns") and hasattr(values, "column_names"))
    )


def frame_arrays(frame: Any) -> StoredArrays:
    """Return the scores of a frame, the labels where it has a column ``labels`` or ``label``, and the names of its columns.

    Raises
    ------
    ScoresError
        Where columns of integers stand among others, as labels of another name would; or none are left, or one is missing.

    """
    names = list(frame.column_names if hasattr(frame, "column_names") else frame.columns)
    own = next((i for name in LABEL_NAMES for i, other in enumerate(names) if other == name), None)
    classes = [i for i in range(len(names)) if i != own]
    if not classes:
        raise ScoresError(f"scores must have columns of numbers; the frame has {listed([*map(str, names)])}. Check it.")
    whole = [str(names[i]) for i in classes if re.match("u?int", str(_kind(_column(frame, i))).lower())]
    if whole and len(whole) < len(classes):
        raise ScoresError(
            f"columns of scores must all be fractional numbers or all integers; {listed(whole)} {'is' if len(whole) == 1 else 'are'} "
            "integers among others. Call the one with the class numbers 'labels', and drop what is no score."
        )
    told = [names[i] for i in classes]
    # Columns of Arrow may have equal names: they are taken by number, which polars does not know.
    by_number = classes if hasattr(frame, "column_names") else told
    scores = plain_array(frame.iloc[:, classes] if hasattr(frame, "iloc") else frame.select(by_number))
    labels = None if own is None else plain_labels(_column(frame, own))
    return StoredArrays(scores, labels, "", class_names=told if all(isinstance(name, str) for name in told) else None)


def _column(frame: Any, i: int) -> Any:
    if hasattr(frame, "iloc"):
        return frame.iloc[:, i]
    return frame.column(i) if hasattr(frame, "column_names") else frame.get_columns()[i]


def _kind(column: Any) -> object:
    return column.dtype if hasattr(column, "dtype") else column.type
