"""The sets above given keys: their labels, the squares of their sizes, and the label weight inside.

They are counted slab by slab while the first scan of a search for thresholds reads the same bands: no read of their
own.
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

#: Scores that are looked at together.
_TILE = 1 << 16


@dataclass(frozen=True)
class AboveTally(State):
    """Counts of the sets {key >= first} of the rows read so far, for each first key; these ascend."""

    #: Labels in all sets, and the sum of the squared set sizes: at most C times as many, which fits up to 2**63.
    n_labels: Counts
    squares: Counts
    #: Hard labels whose keys lie from each first key up to the next, and the exact sums of soft labels there.
    hits: Counts
    weights: ExactSums

    def weight_from(self, number: int) -> Fraction:
        """Return the label weight inside the sets of a first key, given its number."""
        return sum(self.weights.fractions()[number:], Fraction(int(self.hits[number:].sum())))


@dataclass(frozen=True)
class AbovePlan:
    """The first keys of the sets, ascending, each one of the dtype."""

    dtype: Dtype
    n_classes: int
    firsts: tuple[int, ...]


@dataclass(frozen=True)
class BesidePlan:
    """The work of a scan and its plan, and the sets that are counted with it."""

    work: Work
    plan: Any
    above: AbovePlan


def beside(scan: Pass, above: AbovePlan) -> dict[str, Any]:
    """Return what changes in a pass that also counts sets: it holds a count for each row and set, and no more."""
    return {"work": scan_beside, "plan": BesidePlan(scan.work, scan.plan, above), "state": Several}


def scan_beside(slabs: Iterable[Array], labels: Array | None, band: int, plan: BesidePlan) -> Several:
    """Do the work of a scan on one band, and count the sets in each slab on its way there."""
    counter = _Counter(labels, plan.above)
    found: State = plan.work(counter.watch(slabs), labels, band, plan.plan)
    return Several((found, counter.tally()))


class _Counter:
    """Counts of one band; bad labels are for the scan to report."""

    def __init__(self, labels: Array | None, plan: AbovePlan) -> None:
        self.plan, self.labels, self.firsts = plan, labels, np.array(plan.firsts, np.int64)
        self.first_class = 0
        #: Scores of each row, and hard labels, from each first key up to the next.
        self.sizes = np.zeros((0, self.firsts.size), np.int32)
        self.hits = np.zeros(self.firsts.size, np.int64)
        soft = labels is not None and labels.ndim == 2
        self.weights = ExactSums.zeros(self.firsts.size if soft else 0)

    def watch(self, slabs: Iterable[Array]) -> Iterator[Array]:
        """Return the slabs unchanged, each once it has been counted."""
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
        places = np.searchsorted(self.firsts, carrier_keys(tile[rows, classes], dtype), "right") - 1
        mine = self.sizes[first_row : first_row + len(tile)]
        mine += np.bincount(rows * n + places, minlength=mine.size).reshape(mine.shape).astype(np.int32)
        if self.labels is None:
            return
        labels = self.labels[first_row : first_row + len(tile)]
        if labels.ndim == 1:
            inside = labels[rows] == self.first_class + classes
            self.hits += np.bincount(places[inside], minlength=n)
        else:
            weights = labels[rows, self.first_class + classes].astype(np.float64)
            self.weights.add(np.where((weights >= 0) & (weights <= 1), weights, 0.0), places)  # the scan refuses others

    def tally(self) -> AboveTally:
        """Return what was counted."""
        sizes = np.cumsum(self.sizes[:, ::-1], axis=1, dtype=np.int64)[:, ::-1]
        return AboveTally(sizes.sum(0), (sizes**2).sum(0), self.hits, self.weights.settled())


@dataclass(frozen=True)
class BesideSearch:
    """A search for thresholds whose first scan, in one pass or in waves, also counts the sets in every band."""

    search: ThresholdSearch
    above: AbovePlan
    tallies: tuple[AboveTally, ...] = ()

    @property
    def tally(self) -> AboveTally:
        """The counts of all bands."""
        return AboveTally.merge(self.tallies)

    def next_pass(self) -> Pass | None:
        """Return the next pass of the search; a first scan also counts the sets."""
        what = self.search.next_pass()
        return replace(what, **beside(what, self.above)) if what is not None and what.name == "scan" else what

    def advance(self, state: State) -> BesideSearch:
        """Take the state of the last pass."""
        found, *counted = state.parts if isinstance(state, Several) else (state,)
        tallies: Any = (*self.tallies, *counted)
        return replace(self, search=self.search.advance(found), tallies=tallies)  # type: ignore[arg-type]
