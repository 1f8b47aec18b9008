"""Told sets: of every row, for every budget, the size of its set and whether it holds the label."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated

import numpy as np

from ..arrays import Array, Bools, Ints
from ..bands.passes import CheckedTally, Pass
from ..engine.plan import ScanPlan, ScanShape
from ..engine.rows import HeldRows
from ..engine.scan import scan_band
from ..kernels.dispatch import tell_sets
from ..kernels.keys import key_range
from ..kernels.zones import ZoneTable
from ..records import BY_BAND, Record


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


# Telling the sets of every row, once the thresholds are known: sizes, hits and the ranks of labels.


#: More ties than any band has.
ALL_TIES = 1 << 62


@dataclass(frozen=True)
class KnownSets:
    """The sets of a budget: scores above a key, and ties with it, the first of all ``n_ties`` of ``band`` and all before."""

    key: int
    band: int
    n_ties: int

    def ties_in(self, band: int) -> int:
        """Return how many ties the sets take from a band."""
        return ALL_TIES if band < self.band else self.n_ties if band == self.band else 0


@dataclass(frozen=True)
class TellingPlan:
    """The sets to be told, and the scan that lists all scores that can be in them."""

    scan: ScanPlan
    sets: tuple[KnownSets, ...]

    @property
    def keys(self) -> Ints:
        """The keys of the thresholds."""
        return np.array([known.key for known in self.sets], np.int64)

    def ties_in(self, band: int) -> Ints:
        """Return how many ties each of the sets takes from a band."""
        return np.array([known.ties_in(band) for known in self.sets], np.int64)


def telling_pass(shape: ScanShape, sets: Sequence[KnownSets]) -> Pass:
    """Return the pass that tells the sets of all rows; what it gives has some bytes for each row and budget."""
    low, top = key_range(shape.dtype)
    floor = max(low, min(known.key for known in sets))
    scan = ScanPlan(shape, ZoneTable.from_intervals([(floor, top)], top), low, 63, top, with_rows=True)
    plan = TellingPlan(scan, tuple(sets))
    return Pass("tell", tell_band, plan, ToldSets, holds_rows=True, sum_bytes=4 + 5 * len(sets))


def tell_band(slabs: Iterable[Array], labels: Array | None, band: int, plan: TellingPlan) -> ToldSets:
    """Read one band, and tell its sets."""
    tally = scan_band(slabs, labels, band, plan.scan)
    told = ToldRows.of(tally.rows, plan.keys, plan.ties_in(band))
    checks = {field.name: getattr(tally, field.name) for field in fields(CheckedTally)}
    return ToldSets(**checks, told=(told,))
