"""Truncated stores: each row's M largest scores. What the discarded ones could change is refused."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from ..budgets import show
from ..errors import LABELS_CURE, BudgetError, LabelsError, StoreError
from ..graph.source import lazy_array
from ..kernels.keys import decode, key_range
from ..store import StoredArrays, check_chunks, is_zarr
from .ambiguity import n_ranked
from .inputs import as_labels

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
        self._kept = _lazy(stored.scores).rechunk({1: -1})
        self.n_samples, self.n_slots = self._kept.shape
        if self.n_classes < self.n_slots:
            raise StoreError(
                f"n_classes of {self.location} must be at least {self.n_slots}, the scores it keeps of each row; "
                f"got {self.n_classes}. Correct the attribute, or write the store again."
            )

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
        """Give the slot of each label; the last column for labels that were discarded. None without labels."""
        labels = as_labels(self._stored.labels if labels is None else labels, (self.n_samples, self.n_classes))
        if labels is None:
            return None
        if labels.ndim == 2:
            raise LabelsError(
                "labels must be class numbers for a truncated store; got probabilities. Store whole rows for those."
            )
        index = _lazy(self._stored.class_index).rechunk({0: self._kept.chunks[0], 1: -1})
        column = _lazy(labels)
        column = column.rechunk((index.chunks[0],))[:, None]
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


def _lazy(array: Any) -> da.Array:
    return lazy_array(array) if is_zarr(array) else da.asarray(array)


def _find_slots(index: Array, labels: Array, n_classes: int) -> Array:
    if (labels >= n_classes).any():
        raise LabelsError(
            f"labels must lie in 0..{n_classes - 1} (or be negative: unlabelled); got {labels.max()}. {LABELS_CURE}"
        )
    here = index == labels
    slots = np.where(here.any(1), here.argmax(1), index.shape[1])
    return np.where(labels[:, 0] < 0, -1, slots)
