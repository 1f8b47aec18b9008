"""From what users pass to a source: arrays, xarray objects, frames, paths and Zarr stores, whole or truncated.

``as_source`` is the way in. Checks read metadata only; values are checked by the tasks that read them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TypeGuard

import dask.array as da
import numpy as np
import xarray as xr

from ...arrays import Array
from ...axis_names import Axes, check_class_numbers
from ...engine.progress import phase
from ...errors import DtypeError, LabelsError, ScoresError, StoreError
from ...files import is_row_file, open_label_file, open_mask_file
from ...kernels.keys import BFLOAT16, check_dtype
from ...masks import check_label_dtype, check_label_range, plain_array, plain_block, plain_labels, refuse_other_kinds
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
from ...store import StoredArrays, check_chunks, is_sealed, is_zarr, open_arrays, open_labels, shown
from ...store.read.encoding import SCALES, decoded_dtype
from ...store.read.opening import dimensions_of, is_text
from ...store.where.addresses import Options, StoredArray
from ..options import LabelsLike, Matrix, ScoresLike, is_stored
from .lazy_scores import LazyScores, flat_labels, flat_rows, sample_conditions
from .names import as_class_numbers, check_inputs, compute_frame, frame_arrays, is_frame, names_of, texts_of


def is_truncated(scores: object) -> TypeGuard[StoredArrays]:
    """Return whether opened scores are those of a truncated store."""
    return isinstance(scores, StoredArrays) and scores.class_index is not None


def truncated_source(stored: StoredArrays, labels: Labels, conditions: Sequence[Condition] = ()) -> Source:
    """Return the source of a truncated store; ``labels`` are class numbers that fit its rows, or None.

    Samples that do not meet the conditions are left out, and their stored values are not looked at.
    """
    for array in filter(is_stored, (stored.scores, stored.class_index, labels)):
        check_chunks(array)
    n_slots = stored.scores.shape[1]
    n_classes = int(stored.n_classes or 0)
    if n_classes < n_slots:
        raise StoreError(
            f"n_classes of {stored.location} must be at least {n_slots}, the scores it keeps of each row; "
            f"got {n_classes}. Correct the attribute, or write the store again."
        )
    if labels is not None and labels.ndim == 2:
        raise LabelsError(
            "labels must be class numbers for a truncated store; got probabilities. Store whole rows for those."
        )
    scores, location = stored.scores, stored.location
    reader = StoredReader(scores, location) if is_stored(scores) else BlockReader(_lazy(scores, "scores"), location)
    bare = Source(reader)
    mask = SampleMask(conditions, bare.rows) if conditions else None
    index = _checked_index(stored, n_classes, mask)
    slots = None if labels is None else _slots_of(labels, index, n_classes, mask)
    in_order = is_sealed(stored.scores)  # what ScoreWriter wrote is in order
    transform = Slots(bare.dtype, n_slots, n_classes, location, in_order=in_order)
    source = bare.with_labels(slots).with_conditions(conditions).with_transform(transform)
    return replace(source, truncation=Truncation(n_slots, n_classes, location, index))


def _checked_index(stored: StoredArrays, n_classes: int, mask: SampleMask | None) -> da.Array:
    """Return the classes of the slots, whole rows in each block; impossible classes are refused when read."""
    index = _lazy(stored.class_index, "class_index").rechunk({1: -1})
    if index.dtype.kind not in "iu":
        raise ScoresError(
            f"class_index of {stored.location or 'the scores'} must hold integers; got {index.dtype}. Store class numbers, "
            "without attributes by which xarray decodes them to something else."
        )
    if mask is not None:
        index = blank(index, mask, np.arange(index.shape[1]))
    if is_sealed(stored.class_index):
        return index
    numbers = da.arange(index.shape[0], chunks=(index.chunks[0],))[:, None]
    return da.map_blocks(_check_classes, index, numbers, n_classes, stored.location, dtype=index.dtype)


def _slots_of(labels: Matrix, index: da.Array, n_classes: int, mask: SampleMask | None) -> da.Array:
    """Return the slot of each label; the last column for labels that were discarded."""
    column = (lazy_array(labels) if is_stored(labels) else da.asarray(labels)).rechunk((index.chunks[0],))
    column = column if mask is None else blank(column, mask)
    return da.map_blocks(_find_slots, index, column[:, None], n_classes, drop_axis=1, dtype=np.int64)


def _lazy(array: Matrix, what: str) -> da.Array:
    if is_stored(array):
        return lazy_array(array)
    array = array if isinstance(array, da.Array) else da.asarray(plain_array(array, what))
    return checked_matrix(array, check_dtype(array.dtype), what)


def _check_classes(index: Array, numbers: Array, n_classes: int, location: str) -> Array:
    """Return the classes of kept scores; refuse numbers that are not a class, and duplicates in a row."""
    bad = ((index < 0) | (index >= n_classes)).any(1) | (np.diff(np.sort(index, axis=1), axis=1) == 0).any(1)
    if bad.any():
        raise ScoresError(
            f"class_index must name classes in 0..{n_classes - 1}, each once in a row; sample {numbers[bad][0, 0]} of "
            f"{location} does not. Write it with ScoreWriter(..., top_m=...)."
        )
    return index


def _find_slots(index: Array, labels: Array, n_classes: int) -> Array:
    check_label_range(labels, n_classes)
    here = index == labels
    slots = np.where(here.any(1), here.argmax(1), index.shape[1])
    return np.where(labels[:, 0] < 0, -1, slots)


#: Rows of an array in memory are handed to the tasks in blocks of about this many bytes.
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
    """Return the source of the scores and labels; the store's own labels where none are given.

    ``missing`` is what a stored chunk that is not there means: ``"raise"`` an error, ``"fill"`` the
    fill value, None what the store was opened with (by default ``"raise"``). ``where`` and ``ignore_index`` say
    which samples count; the latter looks at the store's own labels if there are no others.
    """
    if isinstance(scores, LazyScores):
        return scores.as_source(labels, own_labels=own_labels, missing=missing, where=where, ignore_index=ignore_index)
    scores, labels, where = compute_frame(scores), compute_frame(labels), compute_frame(where)
    frame = scores["scores"] if isinstance(scores, xr.Dataset) and "scores" in scores else scores
    arrays = opened(scores, missing)
    names = cache(partial(names_of, arrays if _is_store(scores) else scores, "scores"))
    truncated = arrays if is_truncated(arrays) else None
    bare, found, location = _unwrap(arrays)
    matrix: Matrix = truncated.scores if truncated else _as_matrix(bare, missing)
    if not truncated:
        check_scores(matrix)
    shape = (*matrix.shape[:-1], int(truncated.n_classes or 0) if truncated else matrix.shape[-1])
    if isinstance(frame, xr.DataArray):
        frame = frame if truncated else _ordered(frame)
        labels, where = aligned(frame, labels, "labels"), aligned(frame, where, "where")
        found = found if frame.ndim == 2 else aligned(frame, found, "labels")
    if _is_store(labels):
        labels = find_labels(labels, missing=missing, most=math.prod(shape))
    where = _opened_where(where, shape[:-1])
    given = found if labels is None and (own_labels or ignore_index is not None) else labels
    column = as_labels(given, shape, missing, names)
    check_inputs(names, len(shape) - 1, labels=labels if labels is not None else _apart(given, matrix), where=where)
    if (
        column is not None
        and texts_of(_bare_labels(given)) is None
        and not any(names_of(given, "labels", "labels")[len(shape) - 1 :])
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


def existing(source: Source, where: LabelsLike, ignore_index: int | None) -> Source:
    """Return a source of the samples that count."""
    conditions = sample_conditions(_opened_where(where, source.lead), ignore_index, source.labels, source.lead)
    return source.with_conditions(conditions)


def _opened_where(where: LabelsLike, lead: tuple[int, ...]) -> LabelsLike:
    """Return ``where``, opened if it is stored. Zarr leaves out chunks that are all False: they are filled."""
    if isinstance(where, (str, os.PathLike)) and is_row_file(where):
        return open_mask_file(where, math.prod(lead))
    return open_labels(where, None, "fill") if isinstance(where, (str, os.PathLike)) or is_zarr(where) else where


def _as_matrix(scores: object, missing: str | None) -> Matrix:
    """Return stored scores and blocks unchanged, anything else as a plain array."""
    if is_stored(scores) and missing is not None:
        return open_arrays(scores, missing=missing).scores
    return scores if is_stored(scores) or isinstance(scores, da.Array) else plain_array(scores)


def as_lazy(
    scores: ScoresLike,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    missing: str | None = None,
) -> tuple[Source, xr.DataArray | None]:
    """Return the source of the scores alone, and the DataArray they came in, or None."""
    source = as_source(scores, own_labels=False, where=where, ignore_index=ignore_index, missing=missing)
    if isinstance(scores, LazyScores):
        return source, scores.frame
    frame = scores["scores"] if isinstance(scores, xr.Dataset) else scores
    if not isinstance(frame, xr.DataArray) or source.truncation is not None:  # the frame of slots fits no sets
        return source, None
    return source, _ordered(frame)


def find_labels(
    labels: LabelsLike, storage_options: Options | None = None, missing: str | None = None, most: int | None = None
) -> Array | StoredArray:
    """Open labels stored on their own: a Zarr array or store, or a file such as .npy, of ``most`` numbers at most."""
    if isinstance(labels, (str, os.PathLike)) and is_row_file(labels):
        return open_label_file(labels, most)
    found: StoredArray = open_labels(labels, storage_options, missing)
    return found


def lazy_matrix(values: object, what: str) -> da.Array:
    """Return any matrix as a Dask array, in (sample, class) order where its dimensions are so named."""
    if isinstance(values, xr.DataArray):
        values = _bare(values)
    if isinstance(values, da.Array):
        return values
    if is_zarr(values):
        return lazy_array(open_labels(values, None, "fill"))  # zarr leaves out chunks of empty sets
    return da.from_array(plain_array(values, what))


def opened(scores: ScoresLike, missing: str | None = None) -> object:
    """Open the arrays of a store, file or frame; return anything else unchanged."""
    if isinstance(scores, xr.Dataset) and {"scores", "class_index"} <= set(scores.variables):
        labels = scores["labels"].data if "labels" in scores else None
        index, n_classes = scores["class_index"].data, int(scores.attrs["n_classes"])
        return StoredArrays(_bare(scores["scores"]), labels, _origin(scores), index, n_classes)
    if _is_store(scores):
        return open_arrays(scores, missing=missing)
    return frame_arrays(scores) if is_frame(scores) else scores


def _apart(labels: LabelsLike, scores: Matrix) -> LabelsLike:
    """Return stored labels whose samples have a dimension, and so names, of their own; None for all others."""
    if not is_stored(labels) or not is_stored(scores):
        return None
    return labels if dimensions_of(labels)[:1] != dimensions_of(scores)[:1] else None


def _is_store(scores: ScoresLike) -> bool:
    return isinstance(scores, (str, os.PathLike)) or is_zarr(scores)


def _unwrap(scores: object) -> tuple[object, LabelsLike, str]:
    """Return the bare array of scores, the labels found with them, and their location."""
    if isinstance(scores, StoredArrays):
        return scores.scores, scores.labels, scores.location
    if isinstance(scores, xr.Dataset):
        if "scores" not in scores:
            raise ScoresError(
                f"scores must be a variable of the Dataset; got {', '.join(map(str, scores.data_vars)) or 'none'}. "
                "Rename the one that holds them to 'scores'."
            )
        return _bare(scores["scores"]), scores.get("labels"), _origin(scores)
    if isinstance(scores, xr.DataArray):
        return _bare(scores), None, _origin(scores)
    if isinstance(scores, (list, tuple)) or hasattr(scores, "__array__"):
        return scores, None, ""
    refuse_other_kinds(scores, "scores", ScoresError)
    todo = "Call its method collect first." if hasattr(scores, "collect") else "Convert them with numpy.asarray."
    raise DtypeError(
        "scores must be a NumPy, Dask or Zarr array, an xarray object, a frame, or the path of a store or file; "
        f"got {type(scores).__name__}. {todo}"
    )


def aligned(frame: xr.DataArray, values: LabelsLike, what: str) -> LabelsLike:
    """Return values in the order of the scores' dimensions; refuse those that lack one of the samples' dimensions."""
    if not isinstance(values, xr.DataArray):
        return values
    for sample in frame.dims[:-1]:
        if sample not in values.dims:
            raise LabelsError(f"{what} must have the scores' dimension {sample!r}; got {values.dims}. Rename it.")
    if frame.ndim > 2 and set(values.dims) <= set(frame.dims):
        return values.transpose(*(name for name in frame.dims if name in values.dims))
    return values


def _origin(frame: xr.Dataset | xr.DataArray) -> str:
    return shown(frame.encoding.get("source", ""))


def _ordered(frame: xr.DataArray) -> xr.DataArray:
    """Return a frame in (sample, class) order where its dimensions are so named; of more, the classes go last."""
    if frame.ndim > 2:
        return frame.transpose(..., "class") if "class" in frame.dims else frame
    if set(frame.dims) == {"sample", "class"}:
        return frame.transpose("sample", "class")
    if frame.ndim == 2 and (frame.dims[0] == "class" or frame.dims[1] == "sample"):
        raise ScoresError(f"scores must be (sample, class); got the dimensions {frame.dims}. Transpose them first.")
    return frame


def _bare(frame: xr.DataArray) -> Matrix:
    """Return the array in a DataArray, as Dask blocks where it is not in memory yet."""
    frame = _ordered(frame) if frame.ndim >= 2 else frame
    encoded = [name for name in SCALES if name in frame.attrs]
    if encoded:
        raise ScoresError(
            f"a DataArray must hold decoded values; got one with the attribute {' and '.join(encoded)}. "
            "Decode it with xarray.decode_cf, or drop the attribute if its values are meant as they are."
        )
    if frame.chunks is None and "source" in frame.encoding:  # of a file: perhaps not read yet
        rows = max(1, _BLOCK_BYTES // max(1, frame[:1].nbytes))
        preferred = frame.encoding.get("preferred_chunks") or {frame.dims[0]: rows}
        frame = frame.chunk({d: preferred[d] for d in frame.dims if d in preferred})
    data = frame.data
    stored = stored_array(data)
    if stored is not None:  # what open_scores gave is read as the store is
        return stored
    if frame.attrs.get("dtype") == "bfloat16" and data.dtype == np.uint16:
        return data.view(BFLOAT16)
    return data


def check_scores(scores: Matrix) -> None:
    """Refuse scores that are not a matrix of real numbers with samples and classes."""
    if isinstance(scores, da.Array):
        plain_block(scores._meta)
    where = str(scores.store_path.store) if is_stored(scores) else ""
    if scores.ndim < 2:
        raise ScoresError(
            f"scores must be a matrix (sample, class), or have more dimensions of samples; got {scores.ndim} dimensions, "
            f"shape {scores.shape}{where and f' in {where}'}. Reshape them."
        )
    if any(n != n for n in scores.shape):
        raise ScoresError(
            "scores must have known chunk sizes; got unknown ones. Call scores.compute_chunk_sizes() first."
        )
    if 0 in scores.shape:
        raise ScoresError(
            f"scores must hold at least one sample and one class; got shape {tuple(scores.shape)}{where and f' in {where}'}. Check where they come from."
        )
    check_dtype(decoded_dtype(scores) if is_stored(scores) else scores.dtype, where)


def as_labels(
    labels: LabelsLike, shape: tuple[int, ...], missing: str | None = None, names: Callable[[], Axes] | None = None
) -> Labels:
    """Return labels as a NumPy, Dask or Zarr column or matrix that fits the scores' shape.

    ``names`` are those of the scores: labels that are texts are looked up among the names of the classes.
    """
    if labels is None:
        return None
    if isinstance(labels, LazyScores):
        labels = labels.to_dask()
    if _is_store(labels):
        labels = find_labels(labels, missing=missing, most=math.prod(shape))
    if names is not None:
        labels = as_class_numbers(_bare_labels(labels), lambda: next(iter(names()[-1:]), None))
    if len(shape) > 2:
        labels = flat_labels(_bare_labels(labels), shape)
        shape = math.prod(shape[:-1]), shape[-1]
    found = in_numpy(labels)
    wanted = shape[:1] if found.ndim == 1 else shape
    if found.ndim not in (1, 2) or tuple(found.shape) != tuple(wanted):
        hint = (
            "One of the two looks transposed: both go by sample first."
            if shape[1] in found.shape[:1]
            else "Give one label for each sample, or a probability for each sample and class."
        )
        if any(n != n for n in found.shape):
            hint = "Call labels.compute_chunk_sizes() first."
        raise LabelsError(f"labels must fit the scores' shape {tuple(shape)}; got shape {tuple(found.shape)}. {hint}")
    return found


def in_numpy(labels: LabelsLike) -> Matrix:
    """Return labels as a NumPy, Dask or Zarr array of numbers; missing class numbers are -1."""
    labels = _bare_labels(labels)
    if is_stored(labels):
        check_label_dtype(labels.dtype if is_text(labels) else decoded_dtype(labels), labels.ndim)
        return labels
    found = checked_labels(labels) if isinstance(labels, da.Array) else plain_labels(labels)
    check_label_dtype(found.dtype, found.ndim)
    return found


def _bare_labels(labels: LabelsLike) -> LabelsLike:
    """Return the array in a Dataset or DataArray of labels; anything else unchanged."""
    if isinstance(labels, xr.Dataset):
        labels = labels.get("labels")
        if labels is None:
            raise LabelsError(
                "labels must be an array, or a Dataset with a variable 'labels'; got a Dataset without one. "
                "Select the variable that holds them."
            )
    return _bare(labels) if isinstance(labels, xr.DataArray) else labels
