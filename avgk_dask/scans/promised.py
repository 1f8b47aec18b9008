"""Blocks of the users' own Dask arrays: plain NumPy arrays that are what the metadata promise, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import Array, Dtype
from ..errors import LabelsError, ScoresError, label_cure
from ..masks import plain_block, plain_labels, with_unlabelled

_CURE = "Correct the dtype and chunks of the array."


def promised_block(block: Any, dtype: Dtype, shape: tuple[int, ...] | None = None, what: str = "scores") -> Array:
    """Return a block of a matrix as a plain array in native byte order; refuse one of another dtype, or shape if that is known."""
    plain = plain_block(block, what)
    if plain.dtype.newbyteorder("=") != dtype or plain.ndim != 2 or shape not in (None, plain.shape):
        raise ScoresError(
            f"{what} must be what their metadata promise, {dtype}{'' if shape is None else f' of shape {shape}'}; "
            f"got a block of {plain.dtype} and shape {plain.shape}. {_CURE}"
        )
    return plain.astype(dtype, copy=False)  # of the other byte order, it would be taken for other numbers


def promised_labels(block: Any, shape: tuple[int, ...]) -> Array:
    """Return a block of labels as a plain array, hard ones as int64 with -1 where one is masked or missing."""
    hard = len(shape) == 1
    labels = plain_labels(block) if hard else plain_block(block, "labels", LabelsError)
    if labels.shape != shape:
        raise LabelsError(
            f"labels must be what their metadata promise, of shape {shape}; got a block of shape {labels.shape}. {_CURE}"
        )
    if labels.dtype.kind not in ("iu" if hard else "iufb") or labels.dtype.itemsize > 8:
        kind = "integers" if hard else "real numbers of up to 64 bits"
        cure = f"{_CURE} {label_cure(labels.dtype)}" if hard else _CURE
        raise LabelsError(f"labels must be {kind}, as their metadata promise; got a block of {labels.dtype}. {cure}")
    return with_unlabelled(labels, np.zeros(shape, bool)) if hard else labels


def check_block(block: Any, dtype: Dtype, what: str, block_info: Any = None) -> Array:
    """Do ``promised_block`` for ``map_blocks``."""
    return promised_block(block, dtype, _shape(block_info), what)


def check_labels(block: Any, block_info: Any = None) -> Array:
    """Do ``promised_labels`` for ``map_blocks``."""
    return promised_labels(block, _shape(block_info))


def check_where(block: Any, block_info: Any = None) -> Array:
    """Return a block of ``where`` as a plain array; refuse one of another dtype or shape."""
    plain, shape = plain_block(block, "where"), _shape(block_info)
    if plain.dtype != bool or plain.shape != shape:
        raise ScoresError(
            f"where must be what its metadata promise, bool of shape {shape}; got a block of {plain.dtype} and shape "
            f"{plain.shape}. {_CURE}"
        )
    return plain


def _shape(block_info: Any) -> tuple[int, ...]:
    return tuple(int(stop) - int(start) for start, stop in block_info[0]["array-location"])
