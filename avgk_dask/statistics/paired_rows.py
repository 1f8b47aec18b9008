"""The set of every row once thresholds are known: its size, whether it contains the label, and the label's rank.

They are computed from the rows that the scan retained. If it retained none, one more read lists the scores from the lowest
threshold up. The results need about three bytes per sample, budget and model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import numpy as np

from ..arrays import Array, Bools
from ..bands.passes import CheckedTally, Pass
from ..engine.plan import ScanPlan, ScanShape, ZoneTable
from ..engine.rows import HeldRows
from ..engine.scan import scan_band
from ..engine.search import ThresholdSearch
from ..engine.ties import Selection
from ..kernels.dispatch import measure_sets
from ..kernels.keys import key_range
from ..records import BY_BAND, Record
from ..threads import in_threads

if TYPE_CHECKING:  # loads xarray, which workers do not need
    from ..engine.run import Run

#: More ties than any band has.
ALL_TIES = 1 << 62


@dataclass(frozen=True)
class RowSets(Record):
    """For each row of a band: the size of its set and whether it contains the label, by budget, and the label's rank."""

    band: int
    sizes: Array
    hits: Bools
    #: 0 for unlabelled rows. Ranks above the highest one that is distinguished are stored as that rank plus 1.
    ranks: Array

    @classmethod
    def joined(cls, parts: Sequence[RowSets]) -> RowSets:
        """Concatenate the rows of several bands, in order."""
        columns = zip(*((part.sizes, part.hits, part.ranks) for part in parts), strict=True)
        return cls(0, *(np.concatenate(column) for column in columns))


@dataclass(frozen=True)
class RowSetTally(CheckedTally):
    """The sets of the rows of some bands."""

    rows: Annotated[tuple[RowSets, ...], BY_BAND]


@dataclass(frozen=True)
class BudgetSets:
    """The sets of a budget, described by its threshold.

    They have the scores above ``key``, all ties of it in bands before ``band``, and the first ``n_ties`` ties of
    ``band``.
    """

    key: int
    band: int
    n_ties: int

    @classmethod
    def from_selection(cls, selection: Selection, n_bands: int) -> BudgetSets:
        """Return the sets of a selection."""
        if selection.cut is not None:
            return cls(selection.key, selection.cut.band, selection.cut.n_ties)
        return cls(selection.key, n_bands if selection.n_kept else -1, 0)

    def ties_in(self, band: int) -> int:
        """Return how many ties of a band the sets include."""
        return ALL_TIES if band < self.band else self.n_ties if band == self.band else 0


@dataclass(frozen=True)
class RowSetPlan:
    """The sets, and the plan of a scan that lists every score that may be in one."""

    scan: ScanPlan
    sets: tuple[BudgetSets, ...]


def count_row_sets(parts: Sequence[HeldRows], sets: Sequence[BudgetSets]) -> RowSets:
    """Measure the sets of a band's retained rows. The strata of the rows are the ranks of their labels."""
    keys = np.array([known.key for known in sets], np.int64)
    left = np.array([known.ties_in(parts[0].band) for known in sets], np.int64)
    n_rows = [part.lengths.size for part in parts]
    shape = sum(n_rows), len(sets)
    sizes, hits, first = np.empty(shape, np.int32), np.empty(shape, np.bool_), 0
    for part, n in zip(parts, n_rows, strict=True):
        rows = slice(first, first + n)
        measure_sets(part.keys, part.lengths, part.label_indices, keys, left, sizes[rows], hits[rows])
        first += n
    narrow = np.min_scalar_type(int(sizes.max(initial=0)))
    ranks = np.concatenate([part.strata for part in parts]).astype(np.int32)
    return RowSets(parts[0].band, sizes.astype(narrow), hits, ranks)


def row_set_pass(shape: ScanShape, sets: Sequence[BudgetSets]) -> Pass:
    """Return the pass that computes the sets of all rows. Its state takes a few bytes per row and budget."""
    low, top = key_range(shape.dtype)
    floor = max(low, min(known.key for known in sets))
    scan = ScanPlan(shape, ZoneTable.from_intervals([(floor, top)], top), low, 63, top, with_rows=True)
    row_bytes = 4 + 5 * len(sets)
    return Pass(
        "sets", tally_row_sets, RowSetPlan(scan, tuple(sets)), RowSetTally, holds_rows=True, sum_bytes=row_bytes
    )


def tally_row_sets(slabs: Iterable[Array], labels: Array | None, band: int, plan: RowSetPlan) -> RowSetTally:
    """Return the sets of one band."""
    tally = scan_band(slabs, labels, band, plan.scan)
    checks = {field.name: getattr(tally, field.name) for field in fields(CheckedTally)}
    return RowSetTally(**checks, rows=(count_row_sets(tally.rows, plan.sets),))


def find_row_sets(run: Run, search: ThresholdSearch) -> RowSets:
    """Return the sets of every row: from the retained rows, or with one more read."""
    sets = [BudgetSets.from_selection(search.selections[i], run.source.n_bands) for i in range(len(search.selections))]
    assert search.first_tally is not None
    rows, floor = search.first_tally.rows, search.kept_floor
    if not rows or floor is None or floor > min(known.key for known in sets):
        shape = replace(search.shape, max_held=ALL_TIES, n_ranked=0, with_distance=False, strata="ranks")
        return RowSets.joined(run.read(row_set_pass(shape, sets)).rows)
    by_band = [list(parts) for _, parts in groupby(rows, key=lambda part: part.band)]
    return RowSets.joined(in_threads(lambda parts: count_row_sets(parts, sets), by_band))
