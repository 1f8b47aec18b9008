"""Pairs of classes that are in sets together, counted sparsely."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np

from ..arrays import Bools, Ints
from ..records import JOINED, Counts
from .checks import CheckedTally
from .distinct import add_up

Column = Annotated[Ints, JOINED]
#: Pairs that are counted at a time.
_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class PairTally(CheckedTally):
    """How many sets hold each class, and each pair of them: the pair's code is ``a * C + b``, a < b."""

    codes: Column
    counts: Column
    n_sets: Counts

    def settled(self) -> Self:
        """Return the tally with equal pairs counted together."""
        (codes,), counts = add_up((self.codes,), self.counts)
        return replace(self, codes=codes, counts=counts)


def count_codes(sets: Bools) -> tuple[Ints, Ints]:
    """Return the code of each pair of classes in some sets, and how many sets hold it; few pairs are in memory at a time."""
    n_classes, rows = sets.shape[1], np.nonzero(sets)
    sizes = np.bincount(rows[0], minlength=len(sets))
    codes, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    waiting: list[Ints] = []
    for size in np.unique(sizes[sizes > 1]).tolist():
        members = rows[1][np.repeat(sizes == size, sizes)].reshape(-1, size).astype(np.int64)
        for i in range(size - 1):
            waiting.append((members[:, i : i + 1] * n_classes + members[:, i + 1 :]).reshape(-1))
            if sum(part.size for part in waiting) > _AT_ONCE:
                codes, counts, waiting = *_added(codes, counts, waiting), []
    return _added(codes, counts, waiting)


def _added(codes: Ints, counts: Ints, more: list[Ints]) -> tuple[Ints, Ints]:
    """Return codes with the counts that others add."""
    found = np.concatenate([codes, *more])
    ones = np.ones(found.size - codes.size, np.int64)
    (distinct,), sums = add_up((found,), np.concatenate([counts, ones]))
    return distinct, sums
