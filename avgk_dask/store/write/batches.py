"""Batches: what a model's loop hands over becomes rows of one dtype; any rounding is named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...arrays import Array, Bools, Dtype
from ...errors import DtypeError, LabelsError, ScoresError, label_cure
from ...kernels.keys import BFLOAT16, check_dtype, encode, is_float
from ...masks import check_label_range, check_soft_labels, plain_array, plain_labels


def as_scores(values: object) -> Array:
    """Return a batch of scores as a NumPy array; refuse what is masked, missing or sparse."""
    return plain_array(as_numpy(values))


def as_labels(values: object) -> Array:
    """Return a batch of labels as a NumPy array, hard ones with -1 where they are masked or missing."""
    return plain_labels(as_numpy(values))


def as_numpy(values: Any) -> object:
    """Return a tensor as NumPy's array, through ``__array__`` or DLPack, from whichever device; anything else as it is.

    Tensors that need gradients are detached, and copied from a device first. Where NumPy has no such
    dtype (torch's bfloat16), values are widened to float32, which is exact.
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
    """From the dtype of the batches to the stored one."""

    given: Dtype
    stored: Dtype

    @classmethod
    def to(cls, given: DTypeLike, stored: DTypeLike | None) -> Conversion:
        """Return the conversion; refuse one that would do more than round."""
        given = check_dtype(given)
        stored = given if stored is None else check_dtype(stored)
        if is_float(given) and not is_float(stored):
            raise DtypeError(
                f"dtype must be a floating-point one for scores of dtype {given}; got {stored}. Quantise the scores first."
            )
        if not is_float(given) and not is_float(stored) and not np.can_cast(given, stored):
            raise DtypeError(f"dtype must hold all values of dtype {given}; got {stored}. Choose a wider one.")
        return cls(given, stored)

    @property
    def rounding(self) -> str | None:
        """The name of the rounding; None if every value is stored as it is."""
        if self.given == self.stored or (
            BFLOAT16 not in (self.given, self.stored) and np.can_cast(self.given, self.stored)
        ):
            return None
        if self.given == BFLOAT16 and self.stored in (np.float32, np.float64):
            return None
        return f"{self.given} rounded to {self.stored}, to nearest, ties to even"

    def apply(self, block: Array, first: int = 0) -> Array:
        """Return the block, from sample ``first`` on, in the stored dtype; refuse finite values that would become infinite."""
        if block.dtype == self.stored:
            return block
        with np.errstate(over="ignore"):
            stored = block.astype(self.stored)
        if self.rounding and is_float(self.stored):
            lost = np.isinf(stored) & np.isfinite(block)
            if lost.any():
                row, class_ = np.argwhere(lost)[0]
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
        """Add copies of the same rows of some arrays; the caller may change them afterwards."""
        if arrays[0].shape[0]:
            self._blocks.append(tuple(array.copy() for array in arrays))
            self._n_rows += arrays[0].shape[0]

    def take(self, n_rows: int) -> tuple[Array, ...]:
        """Take that many rows from the front."""
        taken, left = [], n_rows
        while left:
            block = self._blocks.pop(0)
            if block[0].shape[0] > left:
                self._blocks.insert(0, tuple(array[left:] for array in block))
                block = tuple(array[:left] for array in block)
            taken.append(block)
            left -= block[0].shape[0]
        self._n_rows -= n_rows
        return tuple(np.concatenate(parts) for parts in zip(*taken, strict=True))


def check_scores(block: Array, n_classes: int) -> None:
    """Refuse a batch of scores that is not rows of this many classes."""
    if block.ndim != 2 or block.shape[1] != n_classes:
        raise ScoresError(
            f"a batch of scores must have the shape (samples, {n_classes}); got {block.shape}. Check n_classes."
        )


def check_labels(labels: Array, n_rows: int, n_classes: int, first: int = 0, exists: Bools | None = None) -> Array:
    """Return the labels from sample ``first`` on as int64, or soft ones unchanged; refuse those that do not fit the scores.

    Soft labels of samples that do not exist may hold anything.
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
                "Convert them to floats, one row for each row of scores."
            )
        return labels
    if labels.dtype.kind not in "iu" or labels.shape != (n_rows,):
        cure = "Give one for each row." if labels.dtype.kind in "iu" else label_cure(labels.dtype)
        raise LabelsError(
            f"labels must be {n_rows} integers, one for each row of scores; got {labels.dtype}, {labels.shape}. {cure}"
        )
    check_label_range(labels, n_classes, first)
    return labels.astype(np.int64)


def truncate(block: Array, top_m: int, first: int = 0) -> tuple[Array, NDArray[np.int32]]:
    """Return each row's ``top_m`` largest scores, descending, with their classes; equal ones by class index.

    Examples
    --------
    >>> truncate(np.array([[0.1, 0.4, 0.4, 0.1]]), 3)
    (array([[0.4, 0.4, 0.1]]), array([[1, 2, 0]], dtype=int32))

    """
    if is_float(block.dtype) and (block != block).any():
        row, class_ = np.argwhere(block != block)[0]
        raise ScoresError(
            f"scores must not hold NaN for a truncated store; got one at sample {first + row}, class {class_}. "
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
