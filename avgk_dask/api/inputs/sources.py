"""Sources from user input: arrays, xarray objects, frames, paths and Zarr stores, whole or truncated.

The entry point is ``as_source``. Checks read metadata only; values are checked by the tasks that read them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Unpack

import dask.array as da
import numpy as np
import xarray as xr

from ...arrays import Array
from ...axis_names import Axes, check_class_numbers
from ...engine.progress import phase
from ...errors import DtypeError, LabelsError, ScoresError, StoreError
from ...files import is_row_file, open_label_file, open_mask_file
from ...kernels.keys import BFLOAT16, check_dtype
from ...masks import (
    block_to_ndarray,
    check_label_dtype,
    check_label_range,
    labels_to_ndarray,
    refuse_other_kinds,
    to_ndarray,
)
from ...sources.readers import BlockReader, StoredReader
from ...sources.row_values import (
    Condition,
    Labels,
    SampleMask,
    blank,
    checked_labels,
    checked_matrix,
    lazy_array,
    stored_array,
)
from ...sources.source import Source, Truncation
from ...sources.transforms import Slots
from ...store.read.encoding import SCALES, decoded_dtype
from ...store.read.opening import StoredArrays, dimensions_of, is_sealed, is_text, is_zarr, open_arrays, open_labels
from ...store.read.verification import check_chunks
from ...store.where.addresses import Options, StoredArray, redact
from ..options import LabelsLike, Matrix, Opening, ScoresLike, is_stored
from .lazy_scores import LazyScores, flat_labels, flat_rows, sample_conditions, scores_variable
from .names import as_class_numbers, check_inputs, compute_frame, frame_arrays, is_frame, is_place, names_of, texts_of


def truncated_source(stored: StoredArrays, labels: Labels, conditions: Sequence[Condition] = ()) -> Source:
    """Return the source of a truncated store; ``labels`` are class numbers that fit its rows, or None.

    Samples that do not meet the conditions are left out, and their stored values are not checked.
    """
    for array in filter(is_stored, (stored.scores, stored.class_index, labels)):
        check_chunks(array)
    n_slots = stored.scores.shape[1]
    n_classes = int(stored.n_classes or 0)
    if n_classes < n_slots:
        raise StoreError(
            f"n_classes of {stored.location} must be at least {n_slots}, the number of scores it keeps per row; "
            f"got {n_classes}. Correct the attribute, or write the store again."
        )
    if labels is not None and labels.ndim == 2:
        raise LabelsError(
            "labels must be class numbers for a truncated store; got probabilities. Store whole rows to use them."
        )
    scores, location = stored.scores, stored.location
    reader = StoredReader(scores, location) if is_stored(scores) else BlockReader(_lazy(scores, "scores"), location)
    bare = Source(reader)
    mask = SampleMask(conditions, bare.rows) if conditions else None
    index = _check_index(stored, n_classes, mask)
    slots = None if labels is None else _locate_labels(labels, index, n_classes, mask)
    in_order = is_sealed(stored.scores)  # ScoreWriter writes the slots in order
    transform = Slots(bare.dtype, n_slots, n_classes, location, in_order=in_order)
    source = bare.with_labels(slots).with_conditions(conditions).with_transform(transform)
    return replace(source, truncation=Truncation(n_slots, n_classes, location, index))


def _check_index(stored: StoredArrays, n_classes: int, mask: SampleMask | None) -> da.Array:
    """Return the classes of the slots in blocks of whole rows; invalid classes are refused when read."""
    index = _lazy(stored.class_index, "class_index").rechunk({1: -1})
    if index.dtype.kind not in "iu":
        raise ScoresError(
            f"class_index of {stored.location or 'the scores'} must hold integers; got {index.dtype}. Store class numbers, "
            "without attributes that make xarray decode them."
        )
    if mask is not None:
        index = blank(index, mask, np.arange(index.shape[1]))
    if is_sealed(stored.class_index):
        return index
    numbers = da.arange(index.shape[0], chunks=(index.chunks[0],))[:, None]
    return da.map_blocks(_check_classes, index, numbers, n_classes, stored.location, dtype=index.dtype)


def _locate_labels(labels: Matrix, index: da.Array, n_classes: int, mask: SampleMask | None) -> da.Array:
    """Return the slot of each label, or the number of slots if its score was discarded."""
    column = (lazy_array(labels) if is_stored(labels) else da.asarray(labels)).rechunk((index.chunks[0],))
    column = column if mask is None else blank(column, mask)
    return da.map_blocks(_find_slots, index, column[:, None], n_classes, drop_axis=1, dtype=np.int64)


def _lazy(array: Matrix, argument: str) -> da.Array:
    if is_stored(array):
        return lazy_array(array)
    array = array if isinstance(array, da.Array) else da.asarray(to_ndarray(array, argument))
    return checked_matrix(array, check_dtype(array.dtype), argument)


def _check_classes(index: Array, numbers: Array, n_classes: int, location: str) -> Array:
    """Return the classes of the kept scores; refuse invalid class numbers, and duplicates in a row."""
    bad = ((index < 0) | (index >= n_classes)).any(1) | (np.diff(np.sort(index, axis=1), axis=1) == 0).any(1)
    if bad.any():
        raise ScoresError(
            f"class_index must name classes in 0..{n_classes - 1}, each at most once per row; sample {numbers[bad][0, 0]} "
            f"of {location} does not. Write it with ScoreWriter(..., top_m=...)."
        )
    return index


def _find_slots(index: Array, labels: Array, n_classes: int) -> Array:
    check_label_range(labels, n_classes)
    matches = index == labels
    slots = np.where(matches.any(1), matches.argmax(1), index.shape[1])
    return np.where(labels[:, 0] < 0, -1, slots)


#: Arrays in memory are split into blocks of about this many bytes.
_BLOCK_BYTES = 8 << 20


@phase("opening")
def as_source(
    scores: ScoresLike,
    labels: LabelsLike = None,
    *,
    own_labels: bool = True,
    missing: str | None = None,
    where: LabelsLike = None,
    ignore_index: int | None = None,
) -> Source:
    """Return the source of scores and labels, by default the labels stored with the scores.

    ``missing`` is the meaning of a missing chunk: ``"raise"`` an error, ``"fill"`` the fill value, None that with which
    the store was opened (by default ``"raise"``). ``where`` and ``ignore_index`` select the samples that count; the latter
    uses the stored labels if no others are given.
    """
    if isinstance(scores, LazyScores):
        return scores.as_source(labels, own_labels=own_labels, missing=missing, where=where, ignore_index=ignore_index)
    scores, labels, where = compute_frame(scores), compute_frame(labels), compute_frame(where)
    frame = scores_variable(scores)
    arrays = open_input(scores, missing)
    names = cache(partial(names_of, arrays if is_place(scores) else scores, "scores"))
    truncated = arrays if isinstance(arrays, StoredArrays) and arrays.class_index is not None else None
    bare, own, location = _split_parts(arrays)
    matrix: Matrix = truncated.scores if truncated else _as_matrix(bare, missing)
    if not truncated:
        check_scores(matrix)
    shape = (*matrix.shape[:-1], int(truncated.n_classes or 0) if truncated else matrix.shape[-1])
    if isinstance(frame, xr.DataArray):
        frame = frame if truncated else _order_axes(frame)
        labels, where = align(frame, labels, "labels"), align(frame, where, "where")
        own = own if frame.ndim == 2 else align(frame, own, "labels")
    if is_place(labels):
        labels = find_labels(labels, missing=missing, most=math.prod(shape))
    where = _open_mask(where, shape[:-1])
    usable = own if labels is None and (own_labels or ignore_index is not None) else labels
    column = as_labels(usable, shape, missing, names)
    check_inputs(
        names, len(shape) - 1, labels=labels if labels is not None else _separate_labels(usable, matrix), where=where
    )
    if (
        column is not None
        and texts_of(_unwrap_labels(usable)) is None
        and not any(names_of(usable, "labels", "labels")[len(shape) - 1 :])
    ):
        check_class_numbers(names(), shape[-1])
    if is_stored(column):
        check_chunks(column)
    conditions = sample_conditions(where, ignore_index, column, shape[:-1])
    column = None if labels is None and not own_labels else column
    if truncated:
        return truncated_source(truncated, column, conditions)
    return _matrix_source(matrix, column, location).with_conditions(conditions)


def _matrix_source(matrix: Matrix, column: Labels, location: str) -> Source:
    """Return the source of whole rows."""
    if is_stored(matrix):
        check_chunks(matrix)
        return Source(StoredReader(matrix, location)).with_labels(column)
    lead, matrix = matrix.shape[:-1], flat_rows(matrix)
    if isinstance(matrix, np.ndarray):
        check_dtype(matrix.dtype)
        n_samples, n_classes = matrix.shape
        rows = max(1, _BLOCK_BYTES // (n_classes * matrix.itemsize))
        matrix = da.from_array(matrix, chunks=(min(rows, n_samples), -1), name=False)
    source = Source(BlockReader(matrix, location, lead))
    return source.with_labels(lazy_array(column) if is_stored(column) else column)


def select_samples(source: Source, where: LabelsLike, ignore_index: int | None) -> Source:
    """Return the source of the samples that count."""
    conditions = sample_conditions(
        _open_mask(where, source.sample_shape), ignore_index, source.labels, source.sample_shape
    )
    return source.with_conditions(conditions)


def _open_mask(where: LabelsLike, lead: tuple[int, ...]) -> LabelsLike:
    """Return ``where``, opened if it is stored. Zarr omits chunks that are all False: they are filled."""
    if isinstance(where, (str, os.PathLike)) and is_row_file(where):
        return open_mask_file(where, math.prod(lead))
    return open_labels(where, None, "fill") if is_place(where) else where


def _as_matrix(scores: object, missing: str | None) -> Matrix:
    """Return stored scores and blocks unchanged, anything else as a plain array."""
    if is_stored(scores) and missing is not None:
        return open_arrays(scores, missing=missing).scores
    return scores if is_stored(scores) or isinstance(scores, da.Array) else to_ndarray(scores)


def as_lazy(scores: ScoresLike, **opening: Unpack[Opening]) -> tuple[Source, xr.DataArray | None]:
    """Return the source of the scores without labels, and their DataArray, or None if they have none."""
    source = as_source(scores, own_labels=False, **opening)
    if isinstance(scores, LazyScores):
        return source, scores.frame
    frame = scores["scores"] if isinstance(scores, xr.Dataset) else scores
    if not isinstance(frame, xr.DataArray) or source.truncation is not None:  # a frame of slots does not fit the sets
        return source, None
    return source, _order_axes(frame)


def find_labels(
    labels: LabelsLike, storage_options: Options | None = None, missing: str | None = None, most: int | None = None
) -> Array | StoredArray:
    """Open labels in a store or file of their own, with at most ``most`` numbers."""
    if isinstance(labels, (str, os.PathLike)) and is_row_file(labels):
        return open_label_file(labels, most)
    array: StoredArray = open_labels(labels, storage_options, missing)
    return array


def lazy_matrix(values: object, argument: str) -> da.Array:
    """Return any matrix as a Dask array, in (sample, class) order if its dimensions have these names."""
    if isinstance(values, xr.DataArray):
        values = _unwrap_array(values)
    if isinstance(values, da.Array):
        return values
    if is_zarr(values):
        return lazy_array(open_labels(values, None, "fill"))  # zarr omits chunks of empty sets
    return da.from_array(to_ndarray(values, argument))


def open_input(scores: ScoresLike, missing: str | None = None) -> object:
    """Open the arrays of a store, file or frame; return anything else unchanged."""
    if isinstance(scores, xr.Dataset) and {"scores", "class_index"} <= set(scores.variables):
        labels = scores["labels"].data if "labels" in scores else None
        index, n_classes = scores["class_index"].data, int(scores.attrs["n_classes"])
        return StoredArrays(_unwrap_array(scores["scores"]), labels, _origin(scores), index, n_classes)
    if is_place(scores):
        return open_arrays(scores, missing=missing)
    return frame_arrays(scores) if is_frame(scores) else scores


def _separate_labels(labels: LabelsLike, scores: Matrix) -> LabelsLike:
    """Return stored labels whose sample dimension, and so its names, differs from the scores; None for others."""
    if not is_stored(labels) or not is_stored(scores):
        return None
    return labels if dimensions_of(labels)[:1] != dimensions_of(scores)[:1] else None


def _split_parts(scores: object) -> tuple[object, LabelsLike, str]:
    """Return the array of scores, their own labels, and their location."""
    if isinstance(scores, StoredArrays):
        return scores.scores, scores.labels, scores.location
    if isinstance(scores, xr.Dataset):
        if "scores" not in scores:
            raise ScoresError(
                f"scores must be a variable of the Dataset; got {', '.join(map(str, scores.data_vars)) or 'none'}. "
                "Rename the variable with the scores to 'scores'."
            )
        return _unwrap_array(scores["scores"]), scores.get("labels"), _origin(scores)
    if isinstance(scores, xr.DataArray):
        return _unwrap_array(scores), None, _origin(scores)
    if isinstance(scores, (list, tuple)) or hasattr(scores, "__array__"):
        return scores, None, ""
    refuse_other_kinds(scores, "scores", ScoresError)
    hint = "Call its method collect first." if hasattr(scores, "collect") else "Convert them with numpy.asarray."
    raise DtypeError(
        "scores must be a NumPy, Dask or Zarr array, an xarray object, a frame, or the path of a store or file; "
        f"got {type(scores).__name__}. {hint}"
    )


def align(frame: xr.DataArray, values: LabelsLike, argument: str) -> LabelsLike:
    """Return values in the order of the scores' dimensions; refuse values without one of the sample dimensions."""
    if not isinstance(values, xr.DataArray):
        return values
    for sample in frame.dims[:-1]:
        if sample not in values.dims:
            raise LabelsError(f"{argument} must have the scores' dimension {sample!r}; got {values.dims}. Rename it.")
    if frame.ndim > 2 and set(values.dims) <= set(frame.dims):
        return values.transpose(*(name for name in frame.dims if name in values.dims))
    return values


def _origin(frame: xr.Dataset | xr.DataArray) -> str:
    return redact(frame.encoding.get("source", ""))


def _order_axes(frame: xr.DataArray) -> xr.DataArray:
    """Return a frame in (sample, class) order if its dimensions have these names; with more dimensions, classes last."""
    if frame.ndim > 2:
        return frame.transpose(..., "class") if "class" in frame.dims else frame
    if set(frame.dims) == {"sample", "class"}:
        return frame.transpose("sample", "class")
    if frame.ndim == 2 and (frame.dims[0] == "class" or frame.dims[1] == "sample"):
        raise ScoresError(f"scores must have the dimensions (sample, class); got {frame.dims}. Transpose them first.")
    return frame


def _unwrap_array(frame: xr.DataArray) -> Matrix:
    """Return the array in a DataArray, as a Dask array if it may not be in memory yet."""
    frame = _order_axes(frame) if frame.ndim >= 2 else frame
    encoded = [name for name in SCALES if name in frame.attrs]
    if encoded:
        raise ScoresError(
            f"a DataArray must hold decoded values; got one with the attribute {' and '.join(encoded)}. "
            "Decode it with xarray.decode_cf, or drop the attribute if the values are already decoded."
        )
    if frame.chunks is None and "source" in frame.encoding:  # from a file, perhaps not read yet
        rows = max(1, _BLOCK_BYTES // max(1, frame[:1].nbytes))
        preferred = frame.encoding.get("preferred_chunks") or {frame.dims[0]: rows}
        frame = frame.chunk({d: preferred[d] for d in frame.dims if d in preferred})
    data = frame.data
    stored = stored_array(data)
    if stored is not None:  # from open_scores: read like the store
        return stored
    if frame.attrs.get("dtype") == "bfloat16" and data.dtype == np.uint16:
        return data.view(BFLOAT16)
    return data


def check_scores(scores: Matrix) -> None:
    """Refuse scores that are not a matrix of real numbers with samples and classes."""
    if isinstance(scores, da.Array):
        block_to_ndarray(scores._meta)
    location = str(scores.store_path.store) if is_stored(scores) else ""
    if scores.ndim < 2:
        raise ScoresError(
            f"scores must be a matrix (sample, class), or have more sample dimensions; got {scores.ndim} dimensions, "
            f"shape {scores.shape}{location and f' in {location}'}. Reshape them."
        )
    if any(n != n for n in scores.shape):
        raise ScoresError(
            "scores must have known chunk sizes; got unknown sizes. Call scores.compute_chunk_sizes() first."
        )
    if 0 in scores.shape:
        raise ScoresError(
            f"scores must hold at least one sample and one class; got shape {tuple(scores.shape)}{location and f' in {location}'}. Check how they were made."
        )
    check_dtype(decoded_dtype(scores) if is_stored(scores) else scores.dtype, location)


def as_labels(
    labels: LabelsLike, shape: tuple[int, ...], missing: str | None = None, names: Callable[[], Axes] | None = None
) -> Labels:
    """Return labels as a NumPy, Dask or Zarr column or matrix that fits the scores' shape.

    ``names`` gives the names of the scores' axes: class names as labels are replaced by class numbers.
    """
    if labels is None:
        return None
    if isinstance(labels, LazyScores):
        labels = labels.to_dask()
    if is_place(labels):
        labels = find_labels(labels, missing=missing, most=math.prod(shape))
    if names is not None:
        labels = as_class_numbers(_unwrap_labels(labels), lambda: next(iter(names()[-1:]), None))
    if len(shape) > 2:
        labels = flat_labels(_unwrap_labels(labels), shape)
        shape = math.prod(shape[:-1]), shape[-1]
    array = as_label_array(labels)
    expected = shape[:1] if array.ndim == 1 else shape
    if array.ndim not in (1, 2) or tuple(array.shape) != tuple(expected):
        hint = (
            "Labels or scores look transposed: the first axis of both is the samples."
            if shape[1] in array.shape[:1]
            else "Give one label for each sample, or a probability for each sample and class."
        )
        if any(n != n for n in array.shape):
            hint = "Call labels.compute_chunk_sizes() first."
        raise LabelsError(f"labels must fit the scores' shape {tuple(shape)}; got shape {tuple(array.shape)}. {hint}")
    return array


def as_label_array(labels: LabelsLike) -> Matrix:
    """Return labels as a NumPy, Dask or Zarr array of numbers; missing class numbers are -1."""
    labels = _unwrap_labels(labels)
    if is_stored(labels):
        check_label_dtype(labels.dtype if is_text(labels) else decoded_dtype(labels), labels.ndim)
        return labels
    array = checked_labels(labels) if isinstance(labels, da.Array) else labels_to_ndarray(labels)
    check_label_dtype(array.dtype, array.ndim)
    return array


def _unwrap_labels(labels: LabelsLike) -> LabelsLike:
    """Return the array in a Dataset or DataArray of labels; anything else unchanged."""
    if isinstance(labels, xr.Dataset):
        labels = labels.get("labels")
        if labels is None:
            raise LabelsError(
                "labels must be an array, or a Dataset with a variable 'labels'; got a Dataset without one. "
                "Select the variable with the labels."
            )
    return _unwrap_array(labels) if isinstance(labels, xr.DataArray) else labels
