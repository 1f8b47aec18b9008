"""Telling the sets of every row, once the thresholds are known: sizes, hits and the ranks of labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from ..arrays import Array, Ints
from ..kernels.keys import key_range
from ..kernels.zones import ZoneTable
from ..states.checks import CheckedTally
from ..states.told_sets import ToldRows, ToldSets
from .band_pass import Pass
from .band_scan import scan_band
from .plan import ScanPlan, ScanShape

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
