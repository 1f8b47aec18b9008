"""The sets above some keys: their sizes, the squares of the sizes, and the label weight inside.

They are counted slab by slab in the first scan of a search for thresholds, without a read of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from ..arrays import Array, Dtype
from ..bands.passes import Pass, Work
from ..bands.rows import checked_slabs
from ..engine.search import ThresholdSearch
from ..exact.sums import ExactSums
from ..kernels.keys import carrier, carrier_floor
from ..records import Counts, Several, State
from .label_ranks import carrier_keys

#: Scores per tile.
_TILE = 1 << 16


@dataclass(frozen=True)
class AboveTally(State):
    """Counts of the sets {key >= first} for each first key, in ascending order."""

    #: Sum of the set sizes; and sum of their squares, which is at most C times the first sum and must be below 2**63.
    n_labels: Counts
    squares: Counts
    #: Hard labels with keys from each first key up to the next, and the exact sums of soft labels there.
    hits: Counts
    weights: ExactSums

    def weight_from(self, number: int) -> Fraction:
        """Return the label weight inside the sets of a first key, given its index."""
        return sum(self.weights.fractions()[number:], Fraction(int(self.hits[number:].sum())))


@dataclass(frozen=True)
class AbovePlan:
    """The first keys of the sets, ascending, all within the dtype's range."""

    dtype: Dtype
    n_classes: int
    firsts: tuple[int, ...]


@dataclass(frozen=True)
class BesidePlan:
    """A scan with the sets that are counted in the same read."""

    work: Work
    plan: Any
    above: AbovePlan


def scan_beside(slabs: Iterable[Array], labels: Array | None, band: int, plan: BesidePlan) -> Several:
    """Scan one band, and count the sets in each slab before the scan gets it."""
    counter = _Counter(labels, plan.above)
    tally: State = plan.work(counter.count_slabs(slabs), labels, band, plan.plan)
    return Several((tally, counter.tally()))


class _Counter:
    """Counts the sets of one band. Bad labels are reported by the scan."""

    def __init__(self, labels: Array | None, plan: AbovePlan) -> None:
        self.plan, self.labels, self.firsts = plan, labels, np.array(plan.firsts, np.int64)
        self.first_class = 0
        # Scores of each row, and hard labels, from each first key up to the next.
        self.sizes = np.zeros((0, self.firsts.size), np.int32)
        self.hits = np.zeros(self.firsts.size, np.int64)
        soft = labels is not None and labels.ndim == 2
        self.weights = ExactSums.zeros(self.firsts.size if soft else 0)

    def count_slabs(self, slabs: Iterable[Array]) -> Iterator[Array]:
        """Yield the slabs unchanged after counting them."""
        for slab in checked_slabs(slabs, self.plan.dtype, self.plan.n_classes, self.labels):
            if not len(self.sizes):
                self.sizes = np.zeros((len(slab), self.firsts.size), np.int32)
            step = max(1, _TILE // slab.shape[1])
            for first in range(0, len(slab) if self.firsts.size else 0, step):
                self._count(carrier(slab[first : first + step]), first)
            self.first_class += slab.shape[1]
            yield slab

    def _count(self, tile: Array, first_row: int) -> None:
        """Count the few scores of a tile that are in the largest sets."""
        n, dtype = self.firsts.size, self.plan.dtype
        rows, classes = np.nonzero(tile >= carrier_floor(int(self.firsts[0]), dtype))
        indices = np.searchsorted(self.firsts, carrier_keys(tile[rows, classes], dtype), "right") - 1
        sizes = self.sizes[first_row : first_row + len(tile)]
        sizes += np.bincount(rows * n + indices, minlength=sizes.size).reshape(sizes.shape).astype(np.int32)
        if self.labels is None:
            return
        labels = self.labels[first_row : first_row + len(tile)]
        if labels.ndim == 1:
            inside = labels[rows] == self.first_class + classes
            self.hits += np.bincount(indices[inside], minlength=n)
        else:
            weights = labels[rows, self.first_class + classes].astype(np.float64)
            weights = np.where((weights >= 0) & (weights <= 1), weights, 0.0)  # the scan reports other weights
            self.weights.add(weights, indices)

    def tally(self) -> AboveTally:
        """Return the counts."""
        sizes = np.cumsum(self.sizes[:, ::-1], axis=1, dtype=np.int64)[:, ::-1]
        return AboveTally(sizes.sum(0), (sizes**2).sum(0), self.hits, self.weights.settled())


@dataclass(frozen=True)
class SetCountingSearch:
    """A search for thresholds whose first scan, in one pass or in waves, also counts the sets of every band."""

    search: ThresholdSearch
    above: AbovePlan
    tallies: tuple[AboveTally, ...] = ()

    @property
    def tally(self) -> AboveTally:
        """The counts of all bands."""
        return AboveTally.merge(self.tallies)

    def next_pass(self) -> Pass | None:
        """Return the next pass of the search; the first scan also counts the sets."""
        scan = self.search.next_pass()
        if scan is None or scan.name != "scan":
            return scan
        return replace(scan, work=scan_beside, plan=BesidePlan(scan.work, scan.plan, self.above), state=Several)

    def advance(self, state: State) -> SetCountingSearch:
        """Return the search after the state of its last pass."""
        scan, *sets = state.parts if isinstance(state, Several) else (state,)
        tallies: Any = (*self.tallies, *sets)
        return replace(self, search=self.search.advance(scan), tallies=tallies)  # type: ignore[arg-type]
