"""The first ties at a threshold that an earlier run has found: taken in row-major order as they come, however many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..arrays import Array
from ..exact.sums import ExactSums
from ..records import Record
from ..scans.cutting import CutPlan, WantedTies, cut_band
from ..scans.plan import ScanShape
from ..searches.threshold_search import ThresholdSearch
from ..states.strata import StrataSums
from ..states.tie_cuts import TieCut, TieCuts


@dataclass(frozen=True)
class FirstTies(Record):
    """The first ``n_wanted`` scores that equal a key, for the budget of a position, and what of them has come."""

    budget: int
    key: int
    n_wanted: int
    #: One cut, or none.
    cuts: tuple[TieCut, ...]

    @property
    def n_taken(self) -> int:
        """How many have come."""
        return sum(cut.n_taken for cut in self.cuts)

    def then(self, more: Sequence[TieCut]) -> FirstTies:
        """Return these and more of them."""
        cuts = [*self.cuts, *(cut for cut in more if cut.n_taken)]
        return replace(self, cuts=(_joined(cuts),) if cuts else ())

    @staticmethod
    def chained(first: Sequence[FirstTies], second: Sequence[FirstTies]) -> Iterator[FirstTies]:
        """Return the ties of two processes, one after the other, as far as they are known.

        Where only some of the second one's are wanted, nobody knows which those are.
        """
        for a, b in zip(first, second, strict=False):
            if (a.budget, a.key, a.n_wanted) == (b.budget, b.key, b.n_wanted) and a.n_taken + b.n_taken <= a.n_wanted:
                yield a.then(b.cuts)
            elif a.n_taken == a.n_wanted:
                yield a


def take_ties(
    wanted: Sequence[FirstTies], scores: Array, labels: Array | None, shape: ScanShape
) -> tuple[FirstTies, ...]:
    """Return the ties with those of some more rows."""
    asked = [WantedTies(range(1), t.budget, t.key, t.n_wanted - t.n_taken) for t in wanted if t.n_taken < t.n_wanted]
    if not asked:
        return tuple(wanted)
    of_scan = shape.dtype, shape.n_classes, shape.tile_scores, shape.n_ranks, shape.strata
    found = cut_band([scores], labels, 0, CutPlan(tuple(asked), *of_scan))
    return tuple(t.then([cut for cut in found.cuts if cut.budget == t.budget]) for t in wanted)


def with_first_ties(search: ThresholdSearch, ties: Sequence[FirstTies]) -> ThresholdSearch:
    """Return a search whose pending cuts are settled with the ties that it waits for, and that have come."""
    cuts: list[TieCut] = []
    for mine in ties:
        selection = search.found.get(mine.budget)
        if selection is None or selection.cut is None or not selection.cut.pending or selection.key != mine.key:
            continue
        if selection.cut.n_ties == selection.n_kept == mine.n_taken:
            cuts += mine.cuts
    return search.advance(TieCuts(tuple(cuts))) if cuts else search


def _joined(cuts: Sequence[TieCut]) -> TieCut:
    changes = np.zeros(max(cut.changes.size for cut in cuts), np.int64)
    for cut in cuts:
        changes[: cut.changes.size] += cut.changes
    last = cuts[-1]
    strata = StrataSums.merge([cut.strata for cut in cuts])
    weight = ExactSums.merge([cut.weight for cut in cuts]).settled()
    return TieCut(0, last.budget, sum(c.n_taken for c in cuts), last.row, last.last_class, changes, strata, weight)
