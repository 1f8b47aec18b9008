"""Told sets: of every row, for every budget, the size of its set and whether it holds the label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ..arrays import Array, Bools, Ints
from ..kernels.chosen import tell_sets
from ..records import BY_BAND, Record
from .checks import CheckedTally
from .held_rows import HeldRows


@dataclass(frozen=True)
class ToldRows(Record):
    """Rows of a band: the sizes of their sets and which hold the label, a column for each budget, and the labels' ranks."""

    band: int
    sizes: Array
    hits: Bools
    #: 0 for no label, one past the highest rank that is told apart for all beyond.
    ranks: Array

    @classmethod
    def of(cls, parts: Sequence[HeldRows], keys: Ints, ties: Ints) -> ToldRows:
        """Tell the sets of a band's held rows, whose strata are ranks, given how many ties each budget takes from the band."""
        left, n_rows = ties.copy(), [part.lengths.size for part in parts]
        shape = sum(n_rows), keys.size
        sizes, hits, first = np.empty(shape, np.int32), np.empty(shape, np.bool_), 0
        for part, n in zip(parts, n_rows, strict=True):
            mine = slice(first, first + n)
            tell_sets(part.keys, part.lengths, part.label_indices, keys, left, sizes[mine], hits[mine])
            first += n
        narrow = np.min_scalar_type(int(sizes.max(initial=0)))
        ranks = np.concatenate([part.strata for part in parts]).astype(np.int32)
        return cls(parts[0].band, sizes.astype(narrow), hits, ranks)

    @classmethod
    def joined(cls, parts: Sequence[ToldRows]) -> ToldRows:
        """Return rows of several bands in one, in their order."""
        columns = zip(*((part.sizes, part.hits, part.ranks) for part in parts), strict=True)
        return cls(0, *(np.concatenate(column) for column in columns))


@dataclass(frozen=True)
class ToldSets(CheckedTally):
    """The told rows of some bands."""

    told: Annotated[tuple[ToldRows, ...], BY_BAND]
