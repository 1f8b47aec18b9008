"""Inputs: NumPy, Dask, Zarr and xarray objects, and paths, become a source; checks read metadata only."""

from __future__ import annotations

import os
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr

from ..errors import DtypeError, LabelsError, ScoresError
from ..graph.source import BlockSource, Source, StoredSource
from ..kernels.keys import check_dtype
from ..store import is_zarr, open_arrays

#: Rows of an array in memory are handed to the tasks in blocks of about this many bytes.
_BLOCK_BYTES = 8 << 20
#: Stored labels up to this many are read at once.
_LABELS_AT_ONCE = 1 << 24


def as_source(scores: Any, labels: Any = None, *, own_labels: bool = True) -> Source:
    """Give the source of the scores and labels; the store's own labels where none are given."""
    scores, found, location = _unwrap(scores)
    if labels is None and own_labels:
        labels = found
    _check_scores(scores)
    labels = _as_labels(labels, scores.shape)
    if is_zarr(scores):
        return StoredSource(scores, _fit_rows(labels, scores), location)
    if isinstance(scores, np.ndarray):
        check_dtype(scores.dtype)
        rows = max(1, _BLOCK_BYTES // (scores.shape[1] * scores.itemsize))
        scores = da.from_array(scores, chunks=(min(rows, scores.shape[0]), -1), name=False)
    if is_zarr(labels):
        labels = da.from_zarr(labels)
    return BlockSource(scores, labels, location)


def as_lazy(scores: Any) -> tuple[Source, Any]:
    """Give the source of the scores alone, and the DataArray they came in (None otherwise)."""
    frame = scores["scores"] if isinstance(scores, xr.Dataset) else scores
    source = as_source(scores, own_labels=False)
    return source, _ordered(frame) if isinstance(frame, xr.DataArray) else None


def _unwrap(scores: Any) -> tuple[Any, Any, str]:
    """Give the bare array of scores, the labels found beside them, and where they are stored."""
    if isinstance(scores, xr.Dataset):
        if "scores" not in scores:
            raise ScoresError(
                f"scores must be a variable of the Dataset; it has {', '.join(map(str, scores.data_vars)) or 'none'}."
            )
        return _bare(scores["scores"]), scores.get("labels"), _origin(scores)
    if isinstance(scores, xr.DataArray):
        return _bare(scores), None, _origin(scores)
    if isinstance(scores, (str, os.PathLike)) or is_zarr(scores):
        stored = open_arrays(scores)
        return stored.scores, stored.labels, stored.location
    if isinstance(scores, (np.ndarray, da.Array)):
        return scores, None, ""
    if isinstance(scores, (list, tuple)) or hasattr(scores, "__array__"):
        return np.asarray(scores), None, ""
    raise DtypeError(
        "scores must be a NumPy, Dask or Zarr array, an xarray object, or the path of a store; "
        f"got {type(scores).__name__}."
    )


def _origin(frame: Any) -> str:
    return str(frame.encoding.get("source", ""))


def _ordered(frame: xr.DataArray) -> xr.DataArray:
    """Give a frame in (sample, class) order where its dimensions are so named."""
    return frame.transpose("sample", "class") if set(frame.dims) == {"sample", "class"} else frame


def _bare(frame: xr.DataArray) -> Any:
    """Give the array in a DataArray, as Dask blocks where it is not in memory yet."""
    frame = _ordered(frame) if frame.ndim == 2 else frame
    preferred = frame.encoding.get("preferred_chunks")
    if frame.chunks is None and preferred:
        frame = frame.chunk({d: preferred[d] for d in frame.dims if d in preferred})
    return frame.data


def _check_scores(scores: Any) -> None:
    if scores.ndim != 2:
        raise ScoresError(
            f"scores must be a matrix (sample, class); got {scores.ndim} dimensions, shape {scores.shape}."
        )
    if any(n != n for n in scores.shape):
        raise ScoresError(
            "scores must have known chunk sizes; got unknown ones. Call scores.compute_chunk_sizes() first."
        )
    if 0 in scores.shape:
        raise ScoresError(f"scores must hold at least one sample and one class; got shape {tuple(scores.shape)}.")
    check_dtype(scores.dtype)


def _as_labels(labels: Any, shape: tuple[int, int]) -> Any:
    """Give labels as a NumPy, Dask or Zarr array that fits the scores' shape."""
    if labels is None:
        return None
    if isinstance(labels, xr.DataArray):
        labels = _bare(labels)
    elif isinstance(labels, (str, os.PathLike)):
        labels = open_arrays(labels).scores
    elif not isinstance(labels, da.Array) and not is_zarr(labels):
        labels = np.asarray(labels)
    dtype = np.dtype(labels.dtype)
    if labels.ndim == 1 and dtype.kind not in "iu":
        raise DtypeError(f"labels must be integers (or an N x C matrix of probabilities); got dtype {dtype}.")
    if labels.ndim == 2 and (dtype.kind not in "fiu" or dtype.itemsize > 8):
        raise DtypeError(f"soft labels must be real numbers; got dtype {dtype}.")
    wanted = shape[:1] if labels.ndim == 1 else shape
    if labels.ndim not in (1, 2) or tuple(labels.shape) != tuple(wanted):
        hint = (
            "The scores look transposed: they must be (sample, class)."
            if shape[1] in labels.shape[:1]
            else "Give one label for each sample, or a probability for each sample and class."
        )
        raise LabelsError(f"labels must fit the scores' shape {tuple(shape)}; got shape {tuple(labels.shape)}. {hint}")
    return labels


def _fit_rows(labels: Any, scores: Any) -> Any:
    """Read stored labels now where that is cheap, or where their chunks span many bands.

    One read of all is much faster than one for each band, and no chunk of labels is read twice.
    """
    if not is_zarr(labels) or labels.ndim == 2:
        return labels
    rows = (scores.shards or scores.chunks)[0]
    label_rows = (labels.shards or labels.chunks)[0]
    aligned = label_rows <= rows and rows % label_rows == 0
    return labels if aligned and labels.shape[0] > _LABELS_AT_ONCE else labels[:]
