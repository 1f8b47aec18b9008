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


def pair_codes(sets: Bools) -> Ints:
    """Return the code of each pair of classes in each of some sets."""
    n_classes, rows = sets.shape[1], np.nonzero(sets)
    sizes = np.bincount(rows[0], minlength=len(sets))
    codes = []
    for size in np.unique(sizes[sizes > 1]).tolist():
        members = rows[1][np.repeat(sizes == size, sizes)].reshape(-1, size)
        first, second = np.triu_indices(size, 1)
        codes.append((members[:, first].astype(np.int64) * n_classes + members[:, second]).reshape(-1))
    return np.concatenate([np.zeros(0, np.int64), *codes])
