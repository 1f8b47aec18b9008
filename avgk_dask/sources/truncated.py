"""Truncated scores: each row's largest ones, as a matrix of slots and one more column for all that was discarded.

The last column holds the lowest value there is. Slots are in rank order, and equal scores by class, so that ranks, ties in
row-major order and sets are those of the whole matrix, as long as no discarded score reaches the threshold: each is at
most the row's last stored score (``passes/certifying.py`` sees to that).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dask.array as da
import numpy as np

from ..arrays import Array, Dtype
from ..errors import ScoresError
from ..kernels.keys import decode, is_float, key_range
from .row_values import Labels
from .source import Source, Truncation
from .transformed import TransformedSource


@dataclass(frozen=True)
class Slots:
    """Adds the column of what was discarded to rows of stored scores; refuses rows that do not descend."""

    dtype: Dtype
    n_slots: int
    n_classes: int
    location: str
    #: Whether the rows are known to descend.
    in_order: bool

    @property
    def needs_rows(self) -> bool:
        """Whether it must see whole rows: yes."""
        return True

    @property
    def told(self) -> str:
        """What it does, in words: nothing to the scores themselves."""
        return ""

    def width(self, n_stored: int) -> int:
        """Return the number of slots, and one more if anything was discarded."""
        return n_stored + (self.n_classes > n_stored)

    def apply(self, block: Array, first_row: int, first_class: int) -> Array:
        """Return rows of slots with what stands for the rest."""
        bad = np.zeros(0, bool) if self.in_order else (block[:, 1:] > block[:, :-1]).any(1)
        if bad.any():
            raise ScoresError(
                "the scores of a truncated store must descend; those of sample "
                f"{first_row + int(np.flatnonzero(bad)[0])} of {self.location or 'them'} do not. "
                "Write it with ScoreWriter(..., top_m=...)."
            )
        if self.n_classes == self.n_slots:
            return block
        if is_float(self.dtype) and (block != block).any():
            row = first_row + int(np.flatnonzero((block != block).any(1))[0])
            raise ScoresError(
                f"the scores of a truncated store must not hold NaN; those of sample {row} of {self.location or 'them'} do. "
                "Write it with ScoreWriter(..., top_m=...)."
            )
        lowest = decode([key_range(self.dtype)[0]], self.dtype)
        return np.concatenate([block, np.broadcast_to(lowest, (len(block), 1)).astype(block.dtype)], axis=1)


class TruncatedSource(TransformedSource):
    """The slots of a truncated store; labels are the slots of the labels."""

    def __init__(self, inner: Source, slots: Slots, class_index: da.Array) -> None:
        super().__init__(inner, slots)
        self.truncation = Truncation(slots.n_slots, slots.n_classes, inner.location, class_index)

    def with_labels(self, labels: Labels) -> TruncatedSource:  # noqa: D102
        if labels is not None:
            raise ValueError("labels of truncated rows are slots: make another source for others")
        assert self.truncation is not None
        assert isinstance(self.transform, Slots)
        return TruncatedSource(self.inner.with_labels(None), self.transform, self.truncation.class_index)

    def with_slots(self, slots: Labels) -> TruncatedSource:  # noqa: D102
        return self.over(self.inner.with_labels(slots))

    def over(self, inner: Source) -> TruncatedSource:  # noqa: D102
        assert self.truncation is not None
        assert isinstance(self.transform, Slots)
        return TruncatedSource(inner, self.transform, self.truncation.class_index)

    def with_rows(self, rows: Sequence[int]) -> TruncatedSource:  # noqa: D102
        assert self.truncation is not None
        assert isinstance(self.transform, Slots)
        return TruncatedSource(self.inner.with_rows(rows), self.transform, self.truncation.class_index)


def scatter_slots(sets: da.Array, truncation: Truncation, *, by_threshold: bool) -> da.Array:
    """Return sets over the slots as sets over the classes.

    Sets above a threshold must not reach a row's last slot: what was discarded might then be in, too.
    """
    rows = sets.rechunk({1: -1})
    index = truncation.class_index.rechunk({0: rows.chunks[0], 1: -1})
    numbers = da.arange(sets.shape[0], chunks=(rows.chunks[0],))[:, None]
    checked = by_threshold and not truncation.is_whole
    return da.map_blocks(
        _scatter, rows, index, numbers, truncation.n_classes, truncation.location if checked else None,
        chunks=(rows.chunks[0], (truncation.n_classes,)), dtype=bool, meta=np.empty((0, 0), bool),
    )  # fmt: skip


def _scatter(sets: Array, index: Array, numbers: Array, n_classes: int, location: str | None) -> Array:
    n_slots = index.shape[1]
    if location is not None and sets[:, n_slots - 1].any():
        first = int(numbers[sets[:, n_slots - 1]][0, 0])
        raise ScoresError(
            f"threshold must exceed every row's last stored score to be certain from {location}, which keeps {n_slots} of "
            f"{n_classes} scores of each row; got one that sample {first} has more scores above. "
            "Use a higher threshold, or a store with more of them."
        )
    members = np.zeros((len(sets), n_classes), bool)
    rows, slots = np.nonzero(sets[:, :n_slots])
    members[rows, index[rows, slots]] = True
    return members
