"""Writing stores: score matrices chunk by chunk, and results."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec

from ..errors import StoreError
from ..kernels.keys import BFLOAT16, check_dtype

#: Chunks of whole rows of about this many bytes read fastest.
_CHUNK_BYTES = 10_000_000
#: Labels are few bytes, and many small chunks of them would cost more to read than the scores.
_LABEL_ROWS = 1 << 20


def create_scores(
    path: Any,
    shape: tuple[int, int],
    dtype: Any,
    *,
    chunks: tuple[int, int] | None = None,
    soft: bool = False,
    overwrite: bool = False,
) -> tuple[Any, Any]:
    """Create a store with ``scores`` and ``labels`` to be filled; gives both arrays.

    Chunks are whole rows of about 10 MB, compressed with blosc lz4 and bit shuffle. bfloat16, which
    Zarr does not know, is stored as uint16 with the attribute ``dtype``.
    """
    _check_target(path, overwrite)
    dtype = check_dtype(dtype)
    stored = np.dtype("uint16") if dtype == BFLOAT16 else dtype
    rows = max(1, min(shape[0], _CHUNK_BYTES // (shape[1] * dtype.itemsize)))
    chunks = chunks or (rows, shape[1])
    group = zarr.open_group(path, mode="w" if overwrite else "w-", zarr_format=3)
    codec = BloscCodec(cname="lz4", clevel=5, shuffle="bitshuffle", typesize=dtype.itemsize)
    scores = group.create_array(
        "scores", shape=shape, chunks=chunks, dtype=stored, compressors=codec, dimension_names=("sample", "class")
    )
    if dtype == BFLOAT16:
        scores.attrs["dtype"] = "bfloat16"
    if soft:
        labels = group.create_array(
            "labels",
            shape=shape,
            chunks=chunks,
            dtype="float64",
            compressors=codec,
            dimension_names=("sample", "class"),
        )
    else:
        labels = group.create_array(
            "labels", shape=shape[:1], chunks=(min(shape[0], _LABEL_ROWS),), dtype="int64", dimension_names=("sample",)
        )
    return scores, labels


def _check_target(path: Any, overwrite: bool) -> None:
    """Refuse a local path that holds anything, unless it is a store that may be overwritten."""
    if not isinstance(path, (str, os.PathLike)) or not os.path.lexists(path):
        return
    if os.path.isdir(path) and not os.listdir(path):
        return
    if not overwrite:
        raise StoreError(f"store must be new; {os.fspath(path)!r} exists. Choose another path, or overwrite it.")
    if not is_store(path):
        raise StoreError(
            f"only a Zarr store can be overwritten; {os.fspath(path)!r} is something else. Choose another path."
        )


def is_store(path: Any) -> bool:
    """Whether a local path is the root of a Zarr store."""
    return any(os.path.isfile(os.path.join(path, name)) for name in ("zarr.json", ".zgroup", ".zarray"))


def write_result(dataset: Any, path: Any) -> None:
    """Write a result Dataset to a new Zarr store."""
    dataset.to_zarr(path, mode="w", consolidated=False)
