"""Batches of scores and labels from a model's loop: conversion to NumPy arrays of one dtype, checks, and buffering."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...arrays import Array, Bools, Dtype
from ...errors import DtypeError, LabelsError, ScoresError, label_hint
from ...kernels.keys import BFLOAT16, check_dtype, encode, is_float
from ...masks import check_label_range, check_soft_labels, labels_to_ndarray, to_ndarray


def as_scores(values: object) -> Array:
    """Return a batch of scores as a NumPy array; refuse masked, missing or sparse values."""
    return to_ndarray(as_numpy(values))


def as_labels(values: object) -> Array:
    """Return a batch of labels as a NumPy array, with -1 for masked or missing class numbers."""
    return labels_to_ndarray(as_numpy(values))


def as_numpy(values: Any) -> object:
    """Return a tensor on any device as a NumPy array, through ``__array__`` or DLPack; return anything else unchanged.

    Tensors are first detached from gradients and copied to the CPU. torch's bfloat16, which NumPy lacks, becomes float32, which
    is exact.
    """
    for step in ("detach", "cpu"):
        values = getattr(values, step)() if hasattr(values, step) else values
    if isinstance(values, np.ndarray) or hasattr(values, "is_null") or not hasattr(values, "__dlpack__"):
        return values
    try:
        return np.asarray(values)
    except (TypeError, BufferError, RuntimeError):
        if hasattr(values, "float") and "bfloat16" in str(getattr(values, "dtype", "")).lower():
            return np.asarray(values.float())
        return np.from_dlpack(values)


@dataclass(frozen=True)
class Conversion:
    """Conversion from the dtype of a batch to the stored one."""

    source: Dtype
    stored: Dtype

    @classmethod
    def to(cls, source: DTypeLike, stored: DTypeLike | None) -> Conversion:
        """Return the conversion; refuse one that would do more than round."""
        source = check_dtype(source)
        stored = source if stored is None else check_dtype(stored)
        if is_float(source) and not is_float(stored):
            raise DtypeError(
                f"dtype must be a floating-point one for scores of dtype {source}; got {stored}. Quantise the scores first."
            )
        if not is_float(source) and not is_float(stored) and not np.can_cast(source, stored):
            raise DtypeError(f"dtype must represent all values of dtype {source}; got {stored}. Choose a wider one.")
        return cls(source, stored)

    @property
    def rounding(self) -> str | None:
        """The name of the rounding, or None if values are stored exactly."""
        if self.source == BFLOAT16:
            is_exact = self.stored in (BFLOAT16, np.float32, np.float64)
        else:
            is_exact = self.stored != BFLOAT16 and np.can_cast(self.source, self.stored)
        return None if is_exact else f"{self.source} rounded to {self.stored}, to nearest, ties to even"

    def apply(self, block: Array, first: int) -> Array:
        """Return the block, whose first sample is ``first``, in the stored dtype; refuse finite values that would overflow."""
        if block.dtype == self.stored:
            return block
        with np.errstate(over="ignore"):
            stored = block.astype(self.stored)
        if self.rounding and is_float(self.stored):
            overflows = np.isinf(stored) & np.isfinite(block)
            if overflows.any():
                row, class_ = np.argwhere(overflows)[0]
                raise ScoresError(
                    f"scores must fit {self.stored}; got {block[row, class_]} at sample {first + row}, class {class_}. "
                    "Write them in a wider dtype."
                )
        return stored


class RowBuffer:
    """Rows of several arrays waiting to be written; first in, first out."""

    def __init__(self) -> None:
        self._blocks: list[tuple[Array, ...]] = []
        self._n_rows = 0

    def __len__(self) -> int:
        return self._n_rows

    def add(self, *arrays: Array) -> None:
        """Add copies of the same rows of each array."""
        if arrays[0].shape[0]:
            self._blocks.append(tuple(array.copy() for array in arrays))
            self._n_rows += arrays[0].shape[0]

    def take(self, n_rows: int) -> tuple[Array, ...]:
        """Remove and return rows from the front."""
        blocks, missing = [], n_rows
        while missing:
            block = self._blocks.pop(0)
            if block[0].shape[0] > missing:
                self._blocks.insert(0, tuple(array[missing:] for array in block))
                block = tuple(array[:missing] for array in block)
            blocks.append(block)
            missing -= block[0].shape[0]
        self._n_rows -= n_rows
        return tuple(np.concatenate(parts) for parts in zip(*blocks, strict=True))


def check_scores(block: Array, n_classes: int) -> None:
    """Refuse a batch of scores that is not a matrix with ``n_classes`` columns."""
    if block.ndim != 2 or block.shape[1] != n_classes:
        raise ScoresError(
            f"a batch of scores must have the shape (samples, {n_classes}); got {block.shape}. Check n_classes."
        )


def check_labels(labels: Array, n_rows: int, n_classes: int, first: int = 0, exists: Bools | None = None) -> Array:
    """Return labels as int64, or soft labels unchanged; refuse labels that do not fit the scores.

    ``first`` is the first sample. Soft labels of samples excluded by ``exists`` may have any value.
    """
    if labels.ndim == 2 and labels.shape[1] == 1 != n_classes and labels.dtype.kind in "iu":
        raise LabelsError(
            f"labels must be {n_rows} integers; got the shape {labels.shape}. Flatten them with labels[:, 0]."
        )
    if labels.ndim == 2:
        if labels.shape == (n_rows, n_classes) and labels.dtype.kind in "biuf":
            check_soft_labels(
                labels if exists is None else np.where(exists[:, None], labels, np.eye(1, n_classes)), first
            )
        if labels.shape != (n_rows, n_classes) or labels.dtype.kind != "f":
            raise LabelsError(
                f"soft labels must be probabilities of shape {(n_rows, n_classes)}; got {labels.dtype}, {labels.shape}. "
                "Convert them to floats, one row per row of scores."
            )
        return labels
    if labels.dtype.kind not in "iu" or labels.shape != (n_rows,):
        hint = "Give one per row." if labels.dtype.kind in "iu" else label_hint(labels.dtype)
        raise LabelsError(
            f"labels must be {n_rows} integers, one per row of scores; got {labels.dtype}, {labels.shape}. {hint}"
        )
    check_label_range(labels, n_classes, first)
    return labels.astype(np.int64)


def truncate(block: Array, top_m: int, first: int = 0) -> tuple[Array, NDArray[np.int32]]:
    """Return the ``top_m`` largest scores of each row and their classes, by descending score, then class index.

    Examples
    --------
    >>> truncate(np.array([[0.1, 0.4, 0.4, 0.1]]), 3)
    (array([[0.4, 0.4, 0.1]]), array([[1, 2, 0]], dtype=int32))
    """
    if is_float(block.dtype) and (block != block).any():
        row, class_ = np.argwhere(block != block)[0]
        raise ScoresError(
            f"scores must not contain NaN for a truncated store; got one at sample {first + row}, class {class_}. "
            "Repair the scores, or leave top_m out."
        )
    order_keys = encode(block)
    n_left = block.shape[1] - top_m
    least = np.partition(order_keys, n_left, axis=1)[:, n_left]
    rows, classes = np.nonzero(order_keys >= least[:, None])
    order = np.lexsort((classes, ~order_keys[rows, classes], rows))
    starts = np.searchsorted(rows, np.arange(block.shape[0]))
    chosen = classes[order[starts[:, None] + np.arange(top_m)]]
    return np.take_along_axis(block, chosen, axis=1), chosen.astype(np.int32)
