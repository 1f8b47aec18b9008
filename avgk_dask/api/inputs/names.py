"""Names of samples and classes in inputs: from frames, coordinates, stores, files and lazy scores.

Frames of pandas, polars and Arrow are scores whose columns are classes. The names of several inputs must be equal, in the
same order.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr

from ...arrays import Array
from ...axis_names import (
    Axes,
    AxisNames,
    as_positions,
    axes_of,
    check_axes,
    check_names,
    default_names,
    names_from_list,
)
from ...errors import LABELS_HINT, LabelsError, OptionError, ScoresError
from ...files import is_row_file
from ...files.rows import LABEL_NAMES, listed
from ...masks import UNLABELLED, is_missing, to_ndarray
from ...sources.row_values import stored_array
from ...store.read.opening import StoredArrays, coordinate_of, is_text, is_zarr, open_arrays, open_labels, read_values
from ...store.where.addresses import StoredArray, bare_store, redact
from ..options import LabelsLike, ScoresLike, check_missing, is_stored
from .lazy_scores import LazyScores, frame_of


def is_place(values: object) -> bool:
    """Return whether an input is a path or URL, or a Zarr store, group or array already opened."""
    return isinstance(values, (str, os.PathLike)) or is_zarr(values)


def is_frame(values: Any) -> bool:
    """Return whether values are a frame of pandas, polars or Arrow in memory; imports no such library."""
    if hasattr(values, "__dask_graph__"):
        return False
    pandas = hasattr(values, "iloc") and hasattr(values, "columns")
    return (
        pandas or hasattr(values, "get_columns") or (hasattr(values, "num_columns") and hasattr(values, "column_names"))
    )


def frame_columns(frame: Any) -> tuple[list[int], list[Any], int | None]:
    """Return the positions and names of a frame's score columns, and the position of its labels, or None.

    All columns are scores except one called ``labels`` or ``label``. Reads no values.
    """
    names = list(frame.column_names if hasattr(frame, "column_names") else frame.columns)
    texts = [name if isinstance(name, str) else None for name in names]
    labels = next((texts.index(name) for name in LABEL_NAMES if name in texts), None)
    scores = [i for i in range(len(names)) if i != labels]
    return scores, [names[i] for i in scores], labels


def frame_arrays(frame: Any) -> StoredArrays:
    """Return the scores of a frame, its labels, and its column names.

    Refuses a mix of integers and other columns: the integers may be labels under another name.
    """
    scores, class_names, labels = frame_columns(frame)
    if not scores:
        raise ScoresError(
            "scores must have columns of numbers; got a frame with only labels. Pass the columns of scores as well."
        )
    kinds = [str(_kind(_column(frame, i))).lower() for i in scores]
    integers = [str(name) for name, kind in zip(class_names, kinds, strict=True) if re.match("u?int", kind)]
    if integers and len(integers) < len(kinds):
        raise ScoresError(
            f"score columns must be either all floats or all integers; {listed(integers)} "
            f"{'holds' if len(integers) == 1 else 'hold'} integers, the others floats. Name the column with the class "
            "numbers 'labels', and drop columns that are not scores."
        )
    # Columns of Arrow may have equal names: they are selected by position, which polars does not support.
    selection = scores if hasattr(frame, "column_names") else class_names
    matrix = to_ndarray(frame.iloc[:, scores] if hasattr(frame, "iloc") else frame.select(selection))
    are_texts = all(isinstance(name, str) for name in class_names)
    column = None if labels is None else _column(frame, labels)
    return StoredArrays(matrix, column, "", class_names=class_names if are_texts else None)


def _column(frame: Any, i: int) -> Any:
    if hasattr(frame, "iloc"):
        return frame.iloc[:, i]
    return frame.column(i) if hasattr(frame, "column_names") else frame.get_columns()[i]


def _kind(column: Any) -> object:
    return column.dtype if hasattr(column, "dtype") else column.type


def compute_frame(values: Any) -> Any:
    """Return a Dask frame or column as one of pandas; anything else unchanged."""
    is_lazy = hasattr(values, "__dask_graph__") and hasattr(values, "npartitions") and hasattr(values, "index")
    return values.compute() if is_lazy else values


def open_once(scores: ScoresLike, missing: str | None = None) -> ScoresLike:
    """Open a store, or compute a Dask frame, that is used several times; return other scores unchanged."""
    check_missing(missing)
    if is_place(scores):
        return open_arrays(scores, missing=missing)
    return compute_frame(scores)


def names_of(values: object, owner: str, variable: str = "scores") -> Axes:
    """Return the names along each axis of an input, classes last, or an empty tuple if it has no names.

    Reads metadata only: stored names are read when they are compared. ``variable`` is the variable of a Dataset.
    """
    if isinstance(values, LazyScores):
        return _first_known([names_of(part, owner) for part in values.parts])
    if isinstance(values, xr.Dataset):
        return _dataset_names(values, owner, variable)
    if isinstance(values, xr.DataArray):
        frame = values.transpose(..., "class") if "class" in values.dims else values
        stored = stored_array(frame.data)
        return _first_known([axes_of(frame, owner), () if stored is None else _array_names(stored, owner)])
    if isinstance(values, StoredArrays):
        return _store_names(values, owner)
    if is_place(values):
        if variable == "scores":
            return _store_names(open_arrays(values), owner)
        array = None if isinstance(values, (str, os.PathLike)) and is_row_file(values) else open_labels(values)
        return () if array is None else _array_names(array, owner)
    if is_frame(values) and variable == "scores":
        rows, columns = axes_of(values, owner)
        assert columns is not None
        names = frame_columns(values)[1]
        return rows, replace(columns, load=lambda: names_from_list(names, owner).values)
    return axes_of(values, owner)


def _dataset_names(values: xr.Dataset, owner: str, variable: str) -> Axes:
    if variable not in values:
        return ()
    axes = names_of(values[variable], owner)
    if "class_index" in values and "class" in values.coords:  # the columns of a truncated store are not classes
        return (*(axes[:-1] or (None,)), axes_of(values["class"], owner)[0])
    return axes


def _store_names(arrays: StoredArrays, owner: str) -> Axes:
    """Return the names of a store's samples and classes, from its coordinates and its attribute ``class_names``."""
    lead = arrays.scores.ndim - 1
    axes = _array_names(arrays.scores, owner) if is_stored(arrays.scores) else (None,) * (lead + 1)
    classes = None if arrays.class_index is not None else axes[-1]
    if arrays.class_names is not None:
        place = f"avgk.open_scores({redact(arrays.location)!r})['class'].values"
        classes = names_from_list(arrays.class_names, owner, place)
    return (*axes[:lead], classes)


def _array_names(array: StoredArray, owner: str) -> Axes:
    return tuple(_coordinate_names(array, axis, owner) for axis in range(array.ndim))


def _coordinate_names(array: StoredArray, axis: int, owner: str) -> AxisNames | None:
    coordinate = coordinate_of(array, axis)
    if coordinate is None:
        return None
    folder, _, name = coordinate.path.rpartition("/")
    root = redact(str(array.store_path.store)).removesuffix(f"/{array.path}")
    group = f", group={folder!r}" if folder else ""
    place = f"xarray.open_zarr({root!r}{group})[{name!r}].values"
    return AxisNames(
        owner,
        lambda: read_values(coordinate),
        place,
        stored_as=(bare_store(coordinate.store_path.store), coordinate.path),
    )


def _first_known(several: Sequence[Axes]) -> Axes:
    """Return for each axis the names of the first input that has names other than 0, 1, ..., or else any names."""
    merged: list[AxisNames | None] = []
    for position in range(max(map(len, several), default=0)):
        known = [axes[position] for axes in several if len(axes) > position and axes[position] is not None]
        merged.append(next((names for names in known if names and not names.is_default), known[0] if known else None))
    return tuple(merged)


def check_inputs(scores: Callable[[], Axes], lead: int, **others: LabelsLike) -> None:
    """Raise if the names of labels, masks or groups differ from the scores or from each other.

    ``scores`` returns the names of the scores, whose first ``lead`` axes are samples. A matrix of labels may also have
    class names.
    """
    named = [axes for owner, values in others.items() if any(axes := names_of(values, owner, "labels"))]
    if named:
        check_axes([scores(), *named], lead)


def check_same_names(scores: Mapping[str, ScoresLike]) -> None:
    """Raise if sample or class names differ from the first scores, or are in another order."""
    frames = {owner: frame for owner, values in scores.items() if (frame := frame_of(values)) is not None}
    for (first, ours), (owner, theirs) in combinations(frames.items(), 2):
        if theirs.dims != ours.dims:
            raise ScoresError(
                f"{owner} must have the dimensions of {first}, in the same order; got {theirs.dims} and {ours.dims}. "
                "Transpose or rename one of them."
            )
    axes = [names_of(values, owner) for owner, values in scores.items()]
    check_axes(axes, max(map(len, axes)) - 1, ScoresError)


def check_same_classes(scores: ScoresLike, other: ScoresLike, owner: str) -> None:
    """Refuse scores of other samples whose class names differ, or are in another order."""
    axes = names_of(scores, "scores"), names_of(other, owner)
    check_axes([each[-1:] for each in axes], 0, ScoresError)


def check_class_names(scores: ScoresLike, classes: Sequence[str] | None, owner: str, expression: str) -> None:
    """Raise if class names differ from a calibrator or predictor, or are in another order."""
    theirs = () if classes is None else (names_from_list(classes, owner, expression),)
    check_axes([theirs, names_of(scores, "scores")[-1:]], 0, ScoresError)


def recorded_names(scores: ScoresLike) -> tuple[str, ...] | None:
    """Return the class names of scores as texts, for a file or a later call; None if they have none."""
    names = next(iter(names_of(scores, "scores")[-1:]), None)
    return None if names is None or names.is_default else tuple(str(name) for name in names.values)


def class_names_of(scores: ScoresLike) -> list[str] | None:
    """Return the class names of scores; None if they have none, or numbers as names."""
    names = next(iter(names_of(scores, "scores")[-1:]), None)
    if names is None or names.is_default or not all(isinstance(name, str) for name in names.values):
        return None
    return [str(name) for name in names.values]


def class_vector(values: Any, argument: str, scores: ScoresLike, n_classes: int) -> Array:
    """Return one number per class, such as frequencies, as an array; refuse class names that differ from the scores'."""
    names = next(iter(axes_of(values, argument)), None)
    if names is not None:
        axes = names_of(scores, "scores")
        classes = axes[-1] if axes and axes[-1] is not None else default_names(n_classes, "scores")
        if as_positions(names.values, n_classes) is not None and as_positions(classes.values, n_classes) is None:
            classes = default_names(n_classes, "scores")  # class numbers fit classes with any names
        check_names(classes, names, "class", OptionError)
    else:
        check_axes([(), names_of(scores, "scores")[-1:]], 0, OptionError)
    return to_ndarray(values, argument, OptionError)


def texts_of(labels: Any) -> Array | None:
    """Return text labels as an array with None for missing labels; return None if the labels are not texts."""
    if is_stored(labels):
        if not is_text(labels) or labels.ndim != 1:
            return None
        texts = read_values(labels)
        texts[texts == ""] = None  # as xarray stores a missing text
        return texts
    if isinstance(labels, xr.DataArray):
        labels = labels.data
    if getattr(labels, "ndim", 1) != 1 or is_frame(labels):
        return None
    if isinstance(labels, da.Array):
        labels = labels.compute() if labels.dtype.kind in "OUT" else labels
    dtype = getattr(labels, "dtype", getattr(labels, "type", None))
    if isinstance(dtype, np.dtype) and dtype.kind not in "OUT":
        return None
    if re.search(
        r"(^|\.)(u?int|float|double|half|bool|bfloat|complex)", str(dtype).lower()
    ):  # dtypes of other libraries
        return None
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(labels, method):
            labels = getattr(labels, method)()
            break
    if not isinstance(labels, (list, tuple)) or not any(isinstance(label, str) for label in labels):
        return None
    texts = np.array([label if isinstance(label, str) else None for label in labels], object)
    for sample, label in enumerate(labels):
        if texts[sample] is None and not is_missing(label):
            raise LabelsError(
                f"labels must be all class names or all class numbers; got {label!r:.80} at sample {sample} among names. "
                "Pass one kind; None means unlabelled."
            )
    return texts


def as_class_numbers(labels: LabelsLike, classes: Callable[[], AxisNames | None]) -> LabelsLike:
    """Replace class names as labels by class numbers; return labels unchanged if either has no names."""
    texts = texts_of(labels)
    known = None if texts is None else classes()
    if texts is None or known is None or known.is_default:
        return labels
    names = [str(name) for name in known.values]
    numbers = {name: number for number, name in enumerate(names)}
    if len(numbers) < len(names):
        shared = next(name for number, name in enumerate(names) if numbers[name] != number)
        raise LabelsError(
            f"labels must be class numbers if classes share a name; got names, and several classes are called {shared!r}. "
            "Rename the classes, or pass numbers."
        )
    column = np.array([UNLABELLED if text is None else numbers.get(text, len(names)) for text in texts], np.int64)
    if (column == len(names)).any():
        sample = int((column == len(names)).argmax())
        near = difflib.get_close_matches(texts[sample], names, 1)
        hint = f"Did you mean {near[0]!r}?" if near else LABELS_HINT
        raise LabelsError(f"labels must be class names of the scores; got {texts[sample]!r} at sample {sample}. {hint}")
    return column
