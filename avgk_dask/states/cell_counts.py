"""Counts of scores and labels by cells, with the range of keys that each holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np

from ..arrays import Array, Bools, Ints
from ..records import OWN, State

Column = Annotated[Ints, OWN]


@dataclass(frozen=True)
class CellCounts(State):
    """Of each cell that holds any scores, ascending: how many, the labels among them, and the lowest and the highest key."""

    cells: Column
    scores: Column
    labels: Column
    lows: Column
    highs: Column

    @classmethod
    def of(cls, cells: Ints, keys: Array, are_labels: Bools) -> Self:
        """Count scores, given the cell of each, its key, and whether it is the label."""
        wide = keys.astype(np.int64)
        return cls._joined(cells, np.ones_like(cells), are_labels.astype(np.int64), wide, wide)

    @classmethod
    def empty(cls) -> Self:
        """Return the counts of no score."""
        return cls(*(np.zeros((5, 0), np.int64)))

    def nothing(self) -> Self:
        """Return the counts of no score."""
        return self.empty()

    @classmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        """Return the counts of all scores together."""
        names = ("cells", "scores", "labels", "lows", "highs")
        return cls._joined(*(np.concatenate([getattr(state, name) for state in states]) for name in names))

    @classmethod
    def _joined(cls, cells: Ints, scores: Ints, labels: Ints, lows: Ints, highs: Ints) -> Self:
        """Return the counts with equal cells joined."""
        order = np.argsort(cells, kind="stable")  # which merges stretches that ascend
        ordered = cells[order]
        firsts = np.flatnonzero(np.diff(ordered, prepend=-1))
        if not firsts.size:
            return cls.empty()
        return cls(
            ordered[firsts],
            np.add.reduceat(scores[order], firsts),
            np.add.reduceat(labels[order], firsts),
            np.minimum.reduceat(lows[order], firsts),
            np.maximum.reduceat(highs[order], firsts),
        )
