"""Kept rows: the keys of all listed scores, row by row, from which thresholds and sets follow without another read.

The simplest that can be kept, and the fastest while it fits: one key for each listed score. Where it would
be too much, a scan keeps only what lies close to the thresholds (``kept``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.rows import collect_near, count_sets
from .entries import Entries
from .split import ZoneTable, shift_to_fit

Array = NDArray[Any]
Ints = NDArray[np.int64]

#: Runs of keys in a table of brackets; the last one is never wanted.
_RUNS = 1 << 14


@dataclass(frozen=True)
class KeptRows:
    """The listed keys of some rows of a band in row-major order, how many each row has, and its label's place among them."""

    band: int
    keys: Array
    lengths: NDArray[np.int32]
    #: -1 where the label is not listed, or there is none.
    label_places: NDArray[np.int32]

    @classmethod
    def from_entries(cls, band: int, entries: Entries, labels: Ints | None, dtype: np.dtype[Any]) -> KeptRows:
        """Keep a run of entries."""
        lengths = np.diff(entries.offsets).astype(np.int32)
        places = np.full(lengths.size, -1, np.int32)
        if labels is not None:
            rows = entries.rows() - entries.first_row
            hits = np.flatnonzero(entries.classes == labels[rows])
            places[rows[hits]] = hits - entries.offsets[rows[hits]]
        return cls(band, entries.keys.astype(dtype), lengths, places)

    def near(self, brackets: Brackets) -> Array:
        """Give the keys inside the brackets, and some close by, ascending."""
        keys = np.empty(self.keys.size, self.keys.dtype)
        n = collect_near(self.keys, brackets.base, brackets.shift, brackets.wanted, keys)
        return np.sort(keys[:n])


@dataclass(frozen=True)
class Brackets:
    """Brackets of keys as a table: which runs of ``2**shift`` keys from ``base`` up they touch."""

    base: int
    shift: int
    wanted: NDArray[np.uint8]

    @classmethod
    def table(cls, brackets: Sequence[tuple[int, int]]) -> Brackets:
        """Give the table of brackets (keys, both ends in)."""
        base, top = min(low for low, _ in brackets), max(high for _, high in brackets)
        shift = shift_to_fit(top - base + 1, _RUNS - 1)
        wanted = np.zeros(_RUNS, np.uint8)
        for low, high in brackets:
            wanted[low - base >> shift : (high - base >> shift) + 1] = 1
        return cls(base, shift, wanted)


@dataclass(frozen=True)
class SetCounts:
    """For thresholds from the highest down: sets by size, labels in each zone, and labels among the ties taken."""

    sizes: Array
    hits: Ints
    kept_hits: Ints

    @classmethod
    def count(cls, parts: Sequence[KeptRows], zones: ZoneTable, ties: Ints, width: int) -> SetCounts:
        """Count the sets of some rows; ``ties[i]`` are the ties that each threshold takes from part i."""
        n = zones.n_intervals
        counts = cls(np.zeros((n, width), np.int32), np.zeros(2 * n, np.int64), np.zeros(n, np.int64))
        for part, left in zip(parts, ties, strict=True):
            count_sets(
                part.keys, part.lengths, part.label_places, zones.arrays(), left.copy(),
                counts.sizes, counts.hits, counts.kept_hits,
            )  # fmt: skip
        return counts

    @classmethod
    def merge(cls, counts: Sequence[SetCounts]) -> SetCounts:
        """Give the counts of all rows together."""
        sums: list[Any] = [
            np.sum([getattr(c, name) for c in counts], axis=0, dtype=np.int64) for name in cls.__dataclass_fields__
        ]
        return cls(*sums)
