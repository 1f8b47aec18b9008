"""Names that come with inputs: indexes, columns and coordinates, and the names in stores, files and lazy scores."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr

from ..arrays import Array
from ..axis_names import (
    Axes,
    AxisNames,
    as_positions,
    axes_of,
    check_axes,
    check_names,
    counted,
    listed_names,
)
from ..errors import LABELS_CURE, LabelsError, OptionError, ScoresError
from ..files import is_row_file
from ..masks import UNLABELLED, plain_array
from ..sources.lazy_arrays import stored_array
from ..store import StoredArrays, is_zarr, open_arrays, open_labels, shown
from ..store.read.coordinates import class_names_of_group, coordinate_of, is_text, read_values
from ..store.where.array_kinds import StoredArray
from .frames import frame_columns, is_frame
from .given import LabelsLike, ScoresLike, is_stored
from .lazy_scores import LazyScores


def in_memory(values: Any) -> Any:
    """Return a frame or column of Dask as one of pandas; anything else unchanged."""
    is_lazy = hasattr(values, "__dask_graph__") and hasattr(values, "npartitions") and hasattr(values, "index")
    return values.compute() if is_lazy else values


def names_of(values: object, owner: str, variable: str = "scores") -> Axes:
    """Return the names along each axis of an input; an empty tuple if it carries none. The last axis of scores is the classes.

    Reads metadata only: names in stores are read when they are compared. ``variable`` is the one to take of a Dataset.
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
    if isinstance(values, (str, os.PathLike)) or is_zarr(values):
        if variable == "scores":
            return _store_names(open_arrays(values), owner)
        array = None if isinstance(values, (str, os.PathLike)) and is_row_file(values) else open_labels(values)
        return () if array is None else _array_names(array, owner)
    if is_frame(values) and variable == "scores":
        rows, columns = axes_of(values, owner)
        assert columns is not None
        names = frame_columns(values).class_names
        return rows, replace(columns, read=lambda: listed_names(names, owner).read())
    return axes_of(values, owner)


def _dataset_names(values: xr.Dataset, owner: str, variable: str) -> Axes:
    if variable not in values:
        return ()
    axes = names_of(values[variable], owner)
    if "class_index" in values and "class" in values.coords:  # the columns of a truncated store are no classes
        return (*(axes[:-1] or (None,)), axes_of(values["class"], owner)[0])
    return axes


def _store_names(arrays: StoredArrays, owner: str) -> Axes:
    """Return the names of a store's samples and classes: its coordinates, and its attribute ``class_names``."""
    lead = arrays.scores.ndim - 1
    axes = _array_names(arrays.scores, owner) if is_stored(arrays.scores) else (None,) * (lead + 1)
    classes = None if arrays.class_index is not None else axes[-1]
    names = arrays.class_names
    if names is None and classes is None and arrays.class_index is None and is_stored(arrays.scores):
        names = class_names_of_group(arrays.scores)  # of an array that was opened on its own
    if names is not None:
        place = f"avgk.open_scores({shown(arrays.location)!r})['class'].values"
        classes = listed_names(names, owner, place)
    return (*axes[:lead], classes)


def _array_names(array: StoredArray, owner: str) -> Axes:
    return tuple(_coordinate_names(array, axis, owner) for axis in range(array.ndim))


def _coordinate_names(array: StoredArray, axis: int, owner: str) -> AxisNames | None:
    found = coordinate_of(array, axis)
    if found is None:
        return None
    place = f"xarray.open_zarr({shown(str(array.store_path.store))!r})[{found.path!r}].values"
    return AxisNames(owner, cache(lambda: read_values(found)), place)


def _first_known(several: Sequence[Axes]) -> Axes:
    """Return for each axis the names of the first input that has some, but for those that merely count."""
    several = [axes for axes in several if axes]
    found: list[AxisNames | None] = []
    for position in range(max((len(axes) for axes in several), default=0)):
        known = [axes[position] for axes in several if len(axes) > position and axes[position] is not None]
        found.append(next((names for names in known if names and not names.is_default), known[0] if known else None))
    return tuple(found)


def check_inputs(scores: Callable[[], Axes], lead: int, **others: LabelsLike) -> None:
    """Refuse labels, masks or groups whose names differ from those of the scores, or of each other.

    ``scores`` gives the names of the scores; ``lead`` is the number of their axes that are samples. Labels that are a
    matrix have class names as well.
    """
    named = [axes for owner, values in others.items() if any(axes := names_of(values, owner, "labels"))]
    if named:
        check_axes([scores(), *named], lead)


def check_same_names(scores: Mapping[str, ScoresLike]) -> None:
    """Refuse scores whose samples or classes are named otherwise than those of the first, or come in another order."""
    frames = {owner: frame for owner, values in scores.items() if (frame := frame_of(values)) is not None}
    for (first, ours), (owner, theirs) in combinations(frames.items(), 2):
        if theirs.dims != ours.dims:
            raise ScoresError(
                f"{owner} must have the dimensions of {first}, in the same order; got {theirs.dims} and {ours.dims}. "
                "Transpose or rename one of them."
            )
    axes = [names_of(values, owner) for owner, values in scores.items()]
    check_axes(axes, max(map(len, axes)) - 1, ScoresError)


def frame_of(values: ScoresLike) -> xr.DataArray | None:
    """Return the DataArray that scores are, or are made of, its classes last; None if there is none."""
    if isinstance(values, LazyScores):
        return values.frame
    frame = values["scores"] if isinstance(values, xr.Dataset) and "scores" in values else values
    if not isinstance(frame, xr.DataArray):
        return None
    return frame.transpose(..., "class") if "class" in frame.dims else frame


def check_same_classes(scores: ScoresLike, other: ScoresLike, owner: str) -> None:
    """Refuse scores of other samples whose classes are named otherwise, or come in another order."""
    ours, theirs = names_of(scores, "scores"), names_of(other, owner)
    if ours and theirs:
        check_names(ours[-1], theirs[-1], "class", ScoresError)


def check_class_names(scores: ScoresLike, classes: Sequence[str] | None, owner: str, expression: str) -> None:
    """Refuse scores whose class names are not those of a calibrator or predictor, in the same order."""
    if classes is not None and (axes := names_of(scores, "scores")):
        check_names(listed_names(classes, owner, expression), axes[-1], "class", ScoresError)


def recorded_names(scores: ScoresLike) -> tuple[str, ...] | None:
    """Return the names of the classes of scores as texts, for a file or a later call; None if they have none."""
    axes = names_of(scores, "scores")
    if not axes or axes[-1] is None or axes[-1].is_default:
        return None
    return tuple(str(name) for name in axes[-1].read())


def class_names_of(scores: ScoresLike) -> list[str] | None:
    """Return the names of the classes that come with scores; None if they have none, or are numbered."""
    axes = names_of(scores, "scores")
    if not axes or axes[-1] is None or axes[-1].is_default:
        return None
    names = axes[-1].read().tolist()
    return names if all(isinstance(name, str) for name in names) else None


def class_vector(values: Any, what: str, scores: ScoresLike, n_classes: int) -> Array:
    """Return one number per class, such as frequencies, as an array.

    Raises
    ------
    OptionError
        If some are masked or missing, or they name classes otherwise than the scores do, or in another order.

    """
    names = next(iter(axes_of(values, what)), None)
    if names is not None:
        axes = names_of(scores, "scores")
        classes = axes[-1] if axes and axes[-1] is not None else counted(n_classes, "scores")
        if as_positions(names.read(), n_classes) is not None and as_positions(classes.read(), n_classes) is None:
            classes = counted(n_classes, "scores")  # class numbers are right for classes of any names
        check_names(classes, names, "class", OptionError)
    return plain_array(values, what, OptionError)


def texts_of(labels: Any) -> Array | None:
    """Return labels that are texts, missing ones as None; or None if they are not texts."""
    if is_stored(labels):
        return read_values(labels) if is_text(labels) else None
    if isinstance(labels, xr.DataArray):
        labels = labels.data
    if isinstance(labels, da.Array):
        labels = labels.compute() if labels.dtype.kind in "OUT" else labels
    dtype = getattr(labels, "dtype", getattr(labels, "type", None))
    if isinstance(dtype, np.dtype) and dtype.kind not in "OUT":
        return None
    if re.match("u?int|float|double|bool", str(dtype).lower()):  # of pandas, polars and Arrow
        return None
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(labels, method):
            labels = getattr(labels, method)()
            break
    if not isinstance(labels, (list, tuple)) or not any(isinstance(label, str) for label in labels):
        return None
    present = [label if isinstance(label, str) else None for label in labels]
    return np.array(present, object)


def as_class_numbers(labels: LabelsLike, classes: Callable[[], AxisNames | None]) -> LabelsLike:
    """Return labels that are texts as the numbers of the classes of those names; others, or without names, unchanged.

    Raises
    ------
    LabelsError
        If a name is not that of a class, or two classes have it.

    """
    texts = texts_of(labels)
    known = None if texts is None else classes()
    if texts is None or known is None or known.is_default:
        return labels
    names = [str(name) for name in known.read()]
    numbers = {name: number for number, name in enumerate(names)}
    if len(numbers) < len(names):
        twice = next(name for number, name in enumerate(names) if numbers[name] != number)
        raise LabelsError(
            f"labels must be class numbers for classes that share a name; got names, and {twice!r} is that of several classes. "
            "Rename the classes, or pass numbers."
        )
    found = np.array([UNLABELLED if text is None else numbers.get(text, len(names)) for text in texts], np.int64)
    if (found == len(names)).any():
        sample = int((found == len(names)).argmax())
        near = difflib.get_close_matches(texts[sample], names, 1)
        hint = f"Did you mean {near[0]!r}?" if near else LABELS_CURE
        raise LabelsError(f"labels must be class names of the scores; got {texts[sample]!r} at sample {sample}. {hint}")
    return found
