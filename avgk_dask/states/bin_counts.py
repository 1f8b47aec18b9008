"""Counts by bins, as large as what was counted: most bins of a small band are empty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np

from ..arrays import Array, Ints
from ..records import OWN, State


@dataclass(frozen=True)
class BinCounts(State):
    """A table of counts, of which only those that are not zero are held: their flat indices, ascending, and the counts."""

    shape: Annotated[tuple[int, ...], OWN]
    cells: Annotated[Array, OWN]
    counts: Annotated[Array, OWN]

    @classmethod
    def of(cls, table: Array) -> Self:
        """Return the counts of a table."""
        flat = table.reshape(-1)
        cells = np.flatnonzero(flat)
        counts = flat[cells]
        narrow = np.int32 if counts.max(initial=0) < 1 << 31 else np.int64
        return cls(table.shape, cells.astype(np.int32), counts.astype(narrow))

    def table(self) -> Ints:
        """Return the whole table."""
        whole = np.zeros(math.prod(self.shape), np.int64)
        whole[self.cells] = self.counts
        return whole.reshape(self.shape)

    @classmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        """Return the sum of the tables."""
        if len(states) == 1:
            return states[0]
        whole = np.zeros(math.prod(states[0].shape), np.int64)
        for state in states:
            whole[state.cells] += state.counts
        return cls.of(whole.reshape(states[0].shape))

    def nothing(self) -> Self:
        """Return the table of zeros."""
        return type(self)(self.shape, self.cells[:0], np.zeros(0, np.int32))
