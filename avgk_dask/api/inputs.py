"""Inputs: NumPy, Dask, Zarr and xarray objects, and paths, become a source; checks read metadata only."""

from __future__ import annotations

import os
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr

from ..errors import DtypeError, LabelsError, ScoresError
from ..files import is_row_file, open_label_file
from ..kernels.keys import BFLOAT16, check_dtype
from ..masks import check_label_dtype, plain_array, plain_block, plain_labels, refuse_other_kinds
from ..sources.blocks import BlockSource
from ..sources.checked_blocks import checked_labels
from ..sources.lazy_arrays import lazy_array, stored_array
from ..sources.source import Source
from ..sources.stored import StoredSource
from ..store import StoredArrays, check_chunks, is_zarr, open_arrays, open_labels, shown
from ..store.read.bands import read_array
from ..store.read.encoding import SCALES, decoded_dtype
from ..store.read.grids import grid_of
from .truncation import is_truncated, truncated_source

#: Rows of an array in memory are handed to the tasks in blocks of about this many bytes.
_BLOCK_BYTES = 8 << 20
#: Stored labels up to this many are read at once.
_LABELS_AT_ONCE = 1 << 24


def as_source(scores: Any, labels: Any = None, *, own_labels: bool = True, missing: str | None = None) -> Source:
    """Return the source of the scores and labels; the store's own labels where none are given.

    ``missing`` is what a stored chunk that is not there means: ``"raise"`` an error, ``"fill"`` the
    fill value, None what was said when the store was opened (by default ``"raise"``).
    """
    frame = scores["scores"] if isinstance(scores, xr.Dataset) and "scores" in scores else scores
    arrays = opened(scores, missing)
    if is_truncated(arrays):
        given = arrays.labels if labels is None and own_labels else labels
        if isinstance(frame, xr.DataArray) and isinstance(labels, xr.DataArray):
            _check_alignment(frame, labels)
        shape = arrays.scores.shape[0], int(arrays.n_classes or 0)
        return truncated_source(arrays, as_labels(given, shape, missing))
    scores, found, location = _unwrap(arrays)
    if labels is None and own_labels:
        labels = found
    if missing is not None and is_zarr(scores):
        scores = open_arrays(scores, missing=missing).scores
    if not isinstance(scores, da.Array) and not is_zarr(scores):
        scores = plain_array(scores)
    check_scores(scores)
    if isinstance(frame, xr.DataArray) and isinstance(labels, xr.DataArray):
        _check_alignment(_ordered(frame), labels)
    labels = as_labels(labels, scores.shape, missing)
    if is_zarr(labels):
        check_chunks(labels)
    if is_zarr(scores):
        check_chunks(scores)
        return StoredSource(scores, _fit_rows(labels, scores), location)
    if isinstance(scores, np.ndarray):
        check_dtype(scores.dtype)
        rows = max(1, _BLOCK_BYTES // (scores.shape[1] * scores.itemsize))
        scores = da.from_array(scores, chunks=(min(rows, scores.shape[0]), -1), name=False)
    if is_zarr(labels):
        labels = lazy_array(labels)
    return BlockSource(scores, labels, location)


def as_lazy(scores: Any) -> tuple[Source, Any]:
    """Return the source of the scores alone, and the DataArray they came in (None otherwise)."""
    frame = scores["scores"] if isinstance(scores, xr.Dataset) else scores
    source = as_source(scores, own_labels=False)
    whole = isinstance(frame, xr.DataArray) and source.truncation is None  # the frame of slots fits no sets
    return source, _ordered(frame) if whole else None


def find_labels(labels: Any, storage_options: Any = None, missing: str | None = None) -> Any:
    """Open labels kept on their own: a Zarr array or store, or a file such as .npy."""
    if isinstance(labels, (str, os.PathLike)) and is_row_file(labels):
        return open_label_file(labels)
    return open_labels(labels, storage_options, missing)


def lazy_matrix(values: Any, what: str) -> da.Array:
    """Return any matrix as a Dask array, in (sample, class) order where its dimensions are so named."""
    if isinstance(values, xr.DataArray):
        values = _bare(values)
    if isinstance(values, da.Array):
        return values
    if is_zarr(values):
        return lazy_array(open_labels(values))
    return da.from_array(plain_array(values, what))


def opened(scores: Any, missing: str | None = None) -> Any:
    """Return the arrays of a store, whole or truncated, opened; anything else as it is."""
    if isinstance(scores, xr.Dataset) and {"scores", "class_index"} <= set(scores.variables):
        labels = scores["labels"].data if "labels" in scores else None
        index, n_classes = scores["class_index"].data, int(scores.attrs["n_classes"])
        return StoredArrays(_bare(scores["scores"]), labels, _origin(scores), index, n_classes)
    if isinstance(scores, (str, os.PathLike)) or is_zarr(scores):
        return open_arrays(scores, missing=missing)
    return scores


def _unwrap(scores: Any) -> tuple[Any, Any, str]:
    """Return the bare array of scores, the labels found beside them, and where they are stored."""
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
    raise DtypeError(
        "scores must be a NumPy, Dask or Zarr array, an xarray object, or the path of a store; "
        f"got {type(scores).__name__}. Convert them with numpy.asarray."
    )


def _check_alignment(frame: xr.DataArray, labels: xr.DataArray) -> None:
    """Refuse labels whose samples are not those of the scores, in the same order."""
    sample = frame.dims[0]
    if sample not in labels.dims:
        raise LabelsError(f"labels must have the scores' dimension {sample!r}; got {labels.dims}. Rename it.")
    if (
        sample in frame.indexes
        and sample in labels.indexes
        and not frame.indexes[sample].equals(labels.indexes[sample])
    ):
        raise LabelsError(
            f"labels must have the scores' {sample!r} coordinate, in the same order; got another. Align them with xarray.align."
        )


def _origin(frame: Any) -> str:
    return shown(frame.encoding.get("source", ""))


def _ordered(frame: xr.DataArray) -> xr.DataArray:
    """Return a frame in (sample, class) order where its dimensions are so named."""
    if set(frame.dims) == {"sample", "class"}:
        return frame.transpose("sample", "class")
    if frame.ndim == 2 and (frame.dims[0] == "class" or frame.dims[1] == "sample"):
        raise ScoresError(f"scores must be (sample, class); got the dimensions {frame.dims}. Transpose them first.")
    return frame


def _bare(frame: xr.DataArray) -> Any:
    """Return the array in a DataArray, as Dask blocks where it is not in memory yet."""
    frame = _ordered(frame) if frame.ndim == 2 else frame
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


def check_scores(scores: Any) -> None:
    """Refuse scores that are no matrix of real numbers with samples and classes."""
    if isinstance(scores, da.Array):
        plain_block(scores._meta)
    where = str(scores.store_path.store) if is_zarr(scores) else ""
    if scores.ndim != 2:
        raise ScoresError(
            f"scores must be a matrix (sample, class); got {scores.ndim} dimensions, shape {scores.shape}{where and f' in {where}'}. Reshape them."
        )
    if any(n != n for n in scores.shape):
        raise ScoresError(
            "scores must have known chunk sizes; got unknown ones. Call scores.compute_chunk_sizes() first."
        )
    if 0 in scores.shape:
        raise ScoresError(
            f"scores must hold at least one sample and one class; got shape {tuple(scores.shape)}{where and f' in {where}'}. Check where they come from."
        )
    check_dtype(decoded_dtype(scores) if is_zarr(scores) else scores.dtype, where)


def as_labels(labels: Any, shape: tuple[int, int], missing: str | None = None) -> Any:
    """Return labels as a NumPy, Dask or Zarr array that fits the scores' shape."""
    if labels is None:
        return None
    if isinstance(labels, (str, os.PathLike)) or is_zarr(labels):
        labels = find_labels(labels, missing=missing)
    labels = in_numpy(labels)
    wanted = shape[:1] if labels.ndim == 1 else shape
    if labels.ndim not in (1, 2) or tuple(labels.shape) != tuple(wanted):
        hint = (
            "One of the two looks transposed: both go by sample first."
            if shape[1] in labels.shape[:1]
            else "Give one label for each sample, or a probability for each sample and class."
        )
        if any(n != n for n in labels.shape):
            hint = "Call labels.compute_chunk_sizes() first."
        raise LabelsError(f"labels must fit the scores' shape {tuple(shape)}; got shape {tuple(labels.shape)}. {hint}")
    return labels


def in_numpy(labels: Any) -> Any:
    """Return labels as a NumPy, Dask or Zarr array of numbers; missing class numbers are -1."""
    if isinstance(labels, xr.Dataset):
        labels = labels.get("labels")
        if labels is None:
            raise LabelsError(
                "labels must be an array, or a Dataset with a variable 'labels'; got a Dataset without one. "
                "Select the variable that holds them."
            )
    if isinstance(labels, xr.DataArray):
        labels = _bare(labels)
    if isinstance(labels, da.Array):
        labels = checked_labels(labels)
    elif not is_zarr(labels):
        labels = plain_labels(labels)
    check_label_dtype(decoded_dtype(labels) if is_zarr(labels) else labels.dtype, labels.ndim)
    return labels


def _fit_rows(labels: Any, scores: Any) -> Any:
    """Read stored labels now where that is cheap, or where their chunks span many bands.

    One read of all is much faster than one for each band, and no chunk of labels is read twice.
    """
    if not is_zarr(labels) or labels.ndim == 2:
        return labels
    if labels.shape[0] <= _LABELS_AT_ONCE:
        return read_array(labels, ())
    aligned = set(grid_of(scores)[0].bounds()) <= set(grid_of(labels)[0].bounds())
    return labels if aligned else read_array(labels, ())
