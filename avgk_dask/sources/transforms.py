"""What may happen to scores between reading and ordering them.

The stored dtype and the one that is ranked are two things: a transform turns the slabs of a band, as they are stored, into
those that scans see. Kept apart from what builds graphs: it runs inside the tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ..arrays import Array, Dtype
from ..kernels.keys import encode
from ..kernels.order import spread_keys
from ..scans.entries import checked_slabs
from ..scans.promised import promised_block


@runtime_checkable
class GivesSlabs(Protocol):
    """A transform of whole rows that need not give them whole."""

    @property
    def gives_slabs(self) -> bool:
        """Whether it can give them in slabs."""

    def slabs(self, block: Array, first_row: int, classes: Sequence[int]) -> Iterator[Array]:
        """Return whole rows in slabs between some classes, one after the other."""


class Transform(Protocol):
    """Turns stored scores into those that are ranked, block by block."""

    @property
    def dtype(self) -> Dtype:
        """The dtype of what it gives."""

    @property
    def needs_rows(self) -> bool:
        """Whether it must see whole rows; else any block of the matrix will do."""

    @property
    def told(self) -> str:
        """What it does, in words; nothing where it only arranges the scores."""

    def width(self, n_stored: int) -> int:
        """Return the number of columns that it makes of those stored."""

    def apply(self, block: Array, first_row: int, first_class: int) -> Array:
        """Return a block that starts at this row and class of the matrix, transformed."""


def join_slabs(slabs: Iterable[Any], dtype: Dtype, n_classes: int) -> Array:
    """Return a band in one piece, which is good until the next band is asked for."""
    each = checked_slabs(slabs, dtype, n_classes, None)
    first = next(each)
    if first.shape[1] == n_classes:
        return first
    # A slab is good until the next is asked for.
    band = np.empty((len(first), n_classes), dtype)
    band[:, : first.shape[1]], done = first, first.shape[1]
    for slab in each:
        band[:, done : done + slab.shape[1]] = slab
        done += slab.shape[1]
    return band


def transform_slabs(
    transform: Transform, slabs: Iterable[Any], dtype: Dtype, first_row: int, first_class: int = 0
) -> Iterator[Array]:
    """Return slabs stored as ``dtype``, of which the first starts at this row and class of the matrix, transformed one by one."""
    for block in (promised_block(slab, dtype) for slab in slabs):
        yield transform.apply(block, first_row, first_class)
        first_class += block.shape[1]


@dataclass(frozen=True)
class SpreadTies:
    """Turns scores into keys in which the ties at the chosen keys, which ascend, are in a fixed pseudo-random order."""

    chosen: tuple[int, ...]
    n_classes: int
    stored: Dtype

    @property
    def dtype(self) -> Dtype:
        """The dtype of keys."""
        return np.dtype(np.int64)

    @property
    def needs_rows(self) -> bool:
        """Whether it must see whole rows: any block will do."""
        return False

    @property
    def told(self) -> str:
        """What it does, in words: nothing to the scores themselves."""
        return ""

    def width(self, n_stored: int) -> int:
        """Return the number of columns: the same."""
        return n_stored

    def apply(self, block: Array, first_row: int, first_class: int) -> Array:
        """Return the refined keys of a block."""
        keys = encode(np.ascontiguousarray(block, self.stored))
        return spread_keys(keys, np.array(self.chosen, np.int64), first_row, first_class, self.n_classes)
