"""What may happen to scores between reading and ordering them.

The stored dtype and the one that is ranked are two things: a transform turns the slabs of a band, as they are stored, into
those that scans see. Kept apart from what builds graphs: it runs inside the tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..kernels.keys import encode
from ..kernels.order import spread_keys
from ..scans.promised import promised_block

Array = NDArray[Any]


class Transform(Protocol):
    """Turns stored scores into those that are ranked, block by block."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of what it gives."""

    @property
    def needs_rows(self) -> bool:
        """Whether it must see whole rows; else any block of the matrix will do."""

    def apply(self, block: Array, first_row: int, first_class: int) -> Array:
        """Return a block that starts at this place of the matrix, transformed."""


def transformed(
    transform: Transform, slabs: Iterable[Any], dtype: np.dtype[Any], first_row: int, first_class: int = 0
) -> Iterator[Array]:
    """Return the slabs of a band, stored as ``dtype``, transformed one after the other, or joined where whole rows are needed."""
    blocks = (promised_block(slab, dtype) for slab in slabs)
    if transform.needs_rows:
        whole = np.concatenate([block.copy() for block in blocks], axis=1)
        yield transform.apply(whole, first_row, 0)
        return
    for block in blocks:
        yield transform.apply(block, first_row, first_class)
        first_class += block.shape[1]


class SpreadTies:
    """Turns scores into keys in which the ties at the chosen keys are in a fixed pseudo-random order."""

    dtype = np.dtype(np.int64)
    needs_rows = False

    def __init__(self, chosen: Iterable[int], n_classes: int, stored: np.dtype[Any]) -> None:
        self.chosen = np.array(sorted(set(chosen)), np.int64)
        self.n_classes, self.stored = n_classes, stored

    def apply(self, block: Array, first_row: int, first_class: int) -> Array:
        """Return the refined keys of a block."""
        keys = encode(np.ascontiguousarray(block, self.stored))
        return spread_keys(keys, self.chosen, first_row, first_class, self.n_classes)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return type(self).__name__, self.chosen, self.n_classes, self.stored
