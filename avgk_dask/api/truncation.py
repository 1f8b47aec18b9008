"""Truncated stores: each row's M largest scores. What the discarded ones could change is refused."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from ..errors import BudgetError, LabelsError, ScoresError, StoreError
from ..exact.budgets import show
from ..kernels.keys import check_dtype, decode, key_range
from ..masks import check_label_range, plain_array
from ..sources.checked_blocks import checked_matrix
from ..sources.lazy_arrays import lazy_array
from ..store import StoredArrays, check_chunks, is_sealed, is_zarr
from .inputs import as_labels
from .straddling import n_ranked

Array = NDArray[Any]


def is_truncated(scores: Any) -> bool:
    """Whether opened scores are those of a truncated store."""
    return isinstance(scores, StoredArrays) and scores.class_index is not None


class TruncatedScores:
    """A truncated store as a matrix of its M slots and one more column, which stands for all that was discarded.

    The last column holds the lowest value there is. Slots are in rank order, and equal scores by class, so
    that ranks, ties in row-major order and sets are those of the whole matrix, as long as no discarded
    score reaches the threshold: each is at most the row's last kept score.
    """

    def __init__(self, stored: StoredArrays) -> None:
        for array in (stored.scores, stored.class_index, stored.labels):
            if is_zarr(array):
                check_chunks(array)
        self._stored = stored
        self.n_classes = int(stored.n_classes or 0)
        self.location = stored.location
        self._kept = _lazy(stored.scores, "scores").rechunk({1: -1})
        self.n_samples, self.n_slots = self._kept.shape
        if self.n_classes < self.n_slots:
            raise StoreError(
                f"n_classes of {self.location} must be at least {self.n_slots}, the scores it keeps of each row; "
                f"got {self.n_classes}. Correct the attribute, or write the store again."
            )
        #: The number of each sample, as a column in blocks like those of the scores.
        self._numbers = da.arange(self.n_samples, chunks=(self._kept.chunks[0],))[:, None]
        if not is_sealed(stored.scores):  # what ScoreWriter wrote is in order
            self._kept = da.map_blocks(_check_order, self._kept, self._numbers, self.location, dtype=self._kept.dtype)

    @property
    def scores(self) -> da.Array:
        """The matrix of slots, and the column of what was discarded, if anything was."""
        if self.n_slots == self.n_classes:
            return self._kept
        dtype = self._kept.dtype
        lowest = decode([key_range(dtype)[0]], dtype)[0]
        rest = da.full((self.n_samples, 1), lowest, dtype=dtype, chunks=(self._kept.chunks[0], 1))
        return da.concatenate([self._kept, rest], axis=1)

    def labels(self, labels: Any) -> Any:
        """Return the slot of each label; the last column for labels that were discarded. None without labels."""
        labels = as_labels(self._stored.labels if labels is None else labels, (self.n_samples, self.n_classes))
        if labels is None:
            return None
        if labels.ndim == 2:
            raise LabelsError(
                "labels must be class numbers for a truncated store; got probabilities. Store whole rows for those."
            )
        index = _lazy(self._stored.class_index, "class_index").rechunk({0: self._kept.chunks[0], 1: -1})
        column = lazy_array(labels) if is_zarr(labels) else da.asarray(labels)
        column = column.rechunk((index.chunks[0],))[:, None]
        if not is_sealed(self._stored.class_index):
            index = da.map_blocks(
                _check_classes, index, self._numbers, self.n_classes, self.location, dtype=index.dtype
            )
        return da.map_blocks(_find_slots, index, column, self.n_classes, drop_axis=1, dtype=np.int64)

    def certify(self, budgets: Sequence[Fraction], thresholds: Sequence[Any], *, straddle: bool) -> None:
        """Refuse budgets whose answer the discarded scores could change.

        Raises
        ------
        BudgetError
            With the largest budget that is certified.

        """
        cut = self._kept[:, -1].max().compute()
        for budget, threshold in zip(budgets, thresholds, strict=True):
            needed = n_ranked([budget], self.n_classes) if straddle else budget
            if self.n_slots < self.n_classes and not (threshold > cut and needed <= self.n_slots):
                raise BudgetError(self._refusal(budget, cut, straddle))

    def _refusal(self, budget: Fraction, cut: Any, straddle: bool) -> str:
        n_sure = int((self._kept > cut).sum().compute())
        most = max(0, -(-n_sure // self.n_samples) - 1)  # budgets k with floor(N k) < n_sure
        most = min(most, self.n_slots // 2 if straddle else self.n_slots)
        hint = ""
        if straddle and self.n_slots // 2 == most:
            hint = " With straddle=False (on the command line --no-straddle) a larger k may be certain."
        rule = f"at most {most}" if most else f"below {show(Fraction(n_sure, self.n_samples))}"
        kept = f"{self.location}, which keeps {self.n_slots} of {self.n_classes} scores of each row"
        if not most and (not n_sure or (straddle and self.n_slots < 2)):
            return (
                f"k must be certain; got {show(budget)}, and none is from {kept}. Use a store with more of them.{hint}"
            )
        return f"k must be {rule} to be certain from {kept}; got {show(budget)}. Use a smaller k, or a store with more of them.{hint}"


def _lazy(array: Any, what: str) -> da.Array:
    if is_zarr(array):
        return lazy_array(array)
    array = array if isinstance(array, da.Array) else da.asarray(plain_array(array, what))
    return checked_matrix(array, check_dtype(array.dtype), what)


def _check_order(kept: Array, numbers: Array, location: str) -> Array:
    """Return rows of kept scores; refuse one that does not descend."""
    bad = (kept[:, 1:] > kept[:, :-1]).any(1)
    if bad.any():
        raise ScoresError(
            f"the scores of a truncated store must descend; those of sample {numbers[bad][0, 0]} of {location} do not. "
            "Write it with ScoreWriter(..., top_m=...)."
        )
    return kept


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
