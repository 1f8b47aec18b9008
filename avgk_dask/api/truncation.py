"""Truncated stores, opened: each row's M largest scores and their classes become a source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import dask.array as da
import numpy as np

from ..arrays import Array
from ..errors import LabelsError, ScoresError, StoreError
from ..kernels.keys import check_dtype
from ..masks import check_label_range, plain_array
from ..sources.blocks import BlockSource
from ..sources.checked_blocks import checked_matrix
from ..sources.filtered import filtered_source
from ..sources.lazy_arrays import lazy_array
from ..sources.row_values import Labels
from ..sources.sample_masks import Condition, SampleMask, blank
from ..sources.source import Source
from ..sources.stored import StoredSource
from ..sources.truncated import Slots, TruncatedSource
from ..store import StoredArrays, check_chunks, is_sealed
from .given import Matrix, is_stored


def is_truncated(scores: object) -> TypeGuard[StoredArrays]:
    """Return whether opened scores are those of a truncated store."""
    return isinstance(scores, StoredArrays) and scores.class_index is not None


def truncated_source(stored: StoredArrays, labels: Labels, conditions: Sequence[Condition] = ()) -> Source:
    """Return the source of a truncated store; ``labels`` are class numbers that fit its rows, or None.

    Samples that do not meet the conditions do not exist, and what is stored of them is not looked at.
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
    bare = _inner_source(stored, None)
    mask = SampleMask(conditions, bare.rows) if conditions else None
    index = _checked_index(stored, n_classes, mask)
    slots = None if labels is None else _slots_of(labels, index, n_classes, mask)
    inner = filtered_source(bare.with_labels(slots), conditions)
    in_order = is_sealed(stored.scores)  # what ScoreWriter wrote is in order
    return TruncatedSource(inner, Slots(inner.dtype, n_slots, n_classes, stored.location, in_order=in_order), index)


def _inner_source(stored: StoredArrays, labels: Labels) -> Source:
    if is_stored(stored.scores):
        return StoredSource(stored.scores, labels, stored.location)
    return BlockSource(_lazy(stored.scores, "scores"), labels, stored.location)


def _checked_index(stored: StoredArrays, n_classes: int, mask: SampleMask | None) -> da.Array:
    """Return the classes of the slots, whole rows in each block; what no class can be is refused when it is read."""
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
    """Return the classes of kept scores; refuse what is no class, and one that comes twice in a row."""
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
