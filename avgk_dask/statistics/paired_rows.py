"""The sets of every row, once the thresholds are known: their sizes, their labels, and the labels' ranks.

They follow from held rows; where a scan has not held those, one more read lists the scores again.

While rows are held, a kernel reads sizes and hits off them once thresholds are known. Otherwise one more read lists
the scores from the lowest threshold up. Either way some three bytes per sample, budget and model come together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import numpy as np

from ..arrays import Array, Bools
from ..bands.passes import CheckedTally, Pass
from ..engine.plan import ScanPlan, ScanShape
from ..engine.rows import HeldRows
from ..engine.scan import scan_band
from ..engine.search import ThresholdSearch
from ..engine.ties import Selection
from ..kernels.dispatch import tell_sets
from ..kernels.keys import key_range
from ..kernels.zones import ZoneTable
from ..records import BY_BAND, Record
from ..threads import in_threads

if TYPE_CHECKING:  # they bring Dask arrays and xarray, which workers do without
    from ..engine.run import Run

#: More ties than any band has.
ALL_TIES = 1 << 62


@dataclass(frozen=True)
class ToldRows(Record):
    """Rows of a band: the sizes of their sets, and which hold the label, by budget; and the labels' ranks."""

    band: int
    sizes: Array
    hits: Bools
    #: 0 for no label; one past the highest rank that is distinguished for all beyond.
    ranks: Array

    @classmethod
    def joined(cls, parts: Sequence[ToldRows]) -> ToldRows:
        """Return rows of several bands in one, in their order."""
        columns = zip(*((part.sizes, part.hits, part.ranks) for part in parts), strict=True)
        return cls(0, *(np.concatenate(column) for column in columns))


@dataclass(frozen=True)
class ToldSets(CheckedTally):
    """The told rows of some bands."""

    told: Annotated[tuple[ToldRows, ...], BY_BAND]


@dataclass(frozen=True)
class KnownSets:
    """The sets of a budget: scores above a key, all its ties in bands before ``band``, and the first ``n_ties`` of that."""

    key: int
    band: int
    n_ties: int

    @classmethod
    def of(cls, selection: Selection, n_bands: int) -> KnownSets:
        """Return the sets of a selection whose ties have been cut."""
        if selection.cut is not None:
            return cls(selection.key, selection.cut.band, selection.cut.n_ties)
        return cls(selection.key, n_bands if selection.n_kept else -1, 0)

    def ties_in(self, band: int) -> int:
        """Return how many ties the sets take from a band."""
        return ALL_TIES if band < self.band else self.n_ties if band == self.band else 0


@dataclass(frozen=True)
class TellingPlan:
    """The sets, and the scan that lists all scores that can be in them."""

    scan: ScanPlan
    sets: tuple[KnownSets, ...]


def told_rows(parts: Sequence[HeldRows], sets: Sequence[KnownSets]) -> ToldRows:
    """Return the sets of a band's held rows, whose strata are ranks."""
    keys, ties = ([known.key for known in sets], [known.ties_in(parts[0].band) for known in sets])
    left, n_rows = np.array(ties, np.int64), [part.lengths.size for part in parts]
    shape = sum(n_rows), len(sets)
    sizes, hits, first = np.empty(shape, np.int32), np.empty(shape, np.bool_), 0
    for part, n in zip(parts, n_rows, strict=True):
        mine = slice(first, first + n)
        tell_sets(part.keys, part.lengths, part.label_indices, np.array(keys, np.int64), left, sizes[mine], hits[mine])
        first += n
    narrow = np.min_scalar_type(int(sizes.max(initial=0)))
    ranks = np.concatenate([part.strata for part in parts]).astype(np.int32)
    return ToldRows(parts[0].band, sizes.astype(narrow), hits, ranks)


def telling_pass(shape: ScanShape, sets: Sequence[KnownSets]) -> Pass:
    """Return the pass that finds the sets of all rows; its state has some bytes per row and budget."""
    low, top = key_range(shape.dtype)
    floor = max(low, min(known.key for known in sets))
    scan = ScanPlan(shape, ZoneTable.from_intervals([(floor, top)], top), low, 63, top, with_rows=True)
    row_bytes = 4 + 5 * len(sets)
    return Pass("tell", tell_band, TellingPlan(scan, tuple(sets)), ToldSets, holds_rows=True, sum_bytes=row_bytes)


def tell_band(slabs: Iterable[Array], labels: Array | None, band: int, plan: TellingPlan) -> ToldSets:
    """Read one band, and return its sets."""
    tally = scan_band(slabs, labels, band, plan.scan)
    checks = {field.name: getattr(tally, field.name) for field in fields(CheckedTally)}
    return ToldSets(**checks, told=(told_rows(tally.rows, plan.sets),))


def tell_rows(run: Run, search: ThresholdSearch) -> ToldRows:
    """Return sizes and hits of every row's sets, and the rank of its label: from held rows, or in one more read."""
    known = [KnownSets.of(search.found[i], run.source.n_bands) for i in range(len(search.found))]
    assert search.first_tally is not None
    rows, floor = search.first_tally.rows, search.kept_floor
    if not rows or floor is None or floor > min(sets.key for sets in known):
        shape = replace(search.shape, max_held=ALL_TIES, n_ranked=0, with_distance=False, strata="ranks")
        return ToldRows.joined(run.read(telling_pass(shape, known)).told)
    by_band = [list(parts) for _, parts in groupby(rows, key=lambda part: part.band)]
    return ToldRows.joined(in_threads(lambda parts: told_rows(parts, known), by_band))
