"""Held rows: the keys of all listed scores, row by row, from which thresholds and sets follow without another read.

The simplest that can be held, and the fastest while it fits: one key for each listed score. Where it would
be too much, a scan holds only what lies close to the thresholds (``held_events``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, Ints
from ..kernels.chosen import collect_near, count_sets
from ..kernels.zones import ZoneTable, shift_to_fit
from ..records import Counts, Merging, Record, State
from .strata import StrataSums, local_strata

#: Stretches of keys in a table of brackets; the last one is never wanted.
_STRETCHES = 1 << 14


@dataclass(frozen=True)
class HeldRows(Record):
    """The listed keys of some rows of a band in row-major order, how many each row has, and its label's index among them."""

    band: int
    keys: Array
    lengths: NDArray[np.int32]
    #: -1 where the label is not listed, or there is none.
    label_indices: NDArray[np.int32]
    #: The stratum of each row.
    strata: Array

    def label_keys(self) -> Array:
        """Return the keys of the labels that are listed."""
        listed = self.label_indices >= 0
        places = (np.cumsum(self.lengths) - self.lengths)[listed] + self.label_indices[listed]
        return np.asarray(self.keys[places])

    def near(self, brackets: BracketTable) -> Array:
        """Return the keys inside the brackets, and some close by, ascending."""
        keys = np.empty(self.keys.size, self.keys.dtype)
        n = collect_near(self.keys, brackets.base, brackets.shift, brackets.wanted, keys)
        return np.sort(keys[:n])


@dataclass(frozen=True)
class BracketTable:
    """BracketTable of keys as a table: which stretches of ``2**shift`` keys from ``base`` up they touch."""

    base: int
    shift: int
    wanted: NDArray[np.uint8]

    @classmethod
    def table(cls, brackets: Sequence[tuple[int, int]]) -> BracketTable:
        """Return the table of brackets (keys, both ends in)."""
        base, top = min(low for low, _ in brackets), max(high for _, high in brackets)
        shift = shift_to_fit(top - base + 1, _STRETCHES - 1)
        wanted = np.zeros(_STRETCHES, np.uint8)
        for low, high in brackets:
            wanted[low - base >> shift : (high - base >> shift) + 1] = 1
        return cls(base, shift, wanted)


def _add_wide(tables: list[Array]) -> Array:
    total = np.zeros((tables[0].shape[0], max(table.shape[1] for table in tables)), np.int64)
    for table in tables:
        total[:, : table.shape[1]] += table
    return total


#: Tables of counts by cell, which end at different ones.
_WIDEST = Merging(_add_wide, lambda table: table[:, :0])


@dataclass(frozen=True)
class SetCounts(State):
    """For each budget: the sets by cell, and the sums of each stratum; and the labels in each zone."""

    cells: Annotated[Array, _WIDEST]
    hits: Counts
    strata: StrataSums

    @classmethod
    def count(cls, parts: Sequence[HeldRows], zones: ZoneTable, thresholds: Ints, ties: Ints) -> SetCounts:
        """Count the sets of some rows; ``ties[i]`` are the ties that each budget takes from part i."""
        width = 1 + max(int(part.lengths.max(initial=0)) for part in parts)
        n = thresholds.size
        cells, hits = np.zeros((n, 2 * width), np.int32), np.zeros(zones.floors.size, np.int64)
        names, strata = local_strata(np.concatenate([part.strata for part in parts]))
        sums = np.zeros((2, names.size, n), np.int64)
        mine = np.split(strata, np.cumsum([part.lengths.size for part in parts])[:-1])
        for part, left, of_rows in zip(parts, ties, mine, strict=True):
            count_sets(
                part.keys, part.lengths, part.label_indices, zones.arrays(), thresholds, left.copy(),
                cells, hits, of_rows, *sums,
            )  # fmt: skip
        return cls(cells, hits, StrataSums(names, *sums))
