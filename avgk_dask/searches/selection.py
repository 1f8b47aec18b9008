"""The outcome for one budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ..arrays import Ints
from ..states.held_events import Cut
from ..states.strata import StrataSums
from ..states.tie_cuts import TieCut


@dataclass(frozen=True)
class Selection:
    """The exact outcome for one budget.

    ``cells[2 s]`` is the number of sets of size s without their label, ``cells[2 s + 1]`` that of sets with it, and
    ``weight`` the exact label weight inside the sets. Where the cut through the ties is pending, those of its band are still missing from them, and from the strata.
    """

    budget: int
    key: int
    n_above: int
    n_ties: int
    n_kept: int
    cells: Ints
    weight: Fraction
    #: Where the kept ties end, if some are kept and some not.
    cut: Cut | None
    #: The weight above the threshold and that of all ties; the least and most any kept ties can bring, if known.
    weight_above: Fraction
    tie_weight: Fraction
    extremes: tuple[Fraction, Fraction] | None
    #: Sums of sizes, and hits, of the strata.
    strata: StrataSums
    #: Row (in the cut's band) and class of the last kept tie, once the band has been read for it.
    last_tie: tuple[int, int] | None = None

    @property
    def set_sizes(self) -> Ints:
        """The number of sets of each size."""
        return np.asarray(self.cells[0::2] + self.cells[1::2])

    @property
    def hit_sizes(self) -> Ints:
        """The number of sets of each size that hold their hard label."""
        return self.cells[1::2]

    @property
    def expected_weight(self) -> Fraction:
        """The mean label weight inside the sets over all ways to keep so many of the ties."""
        return self.weight_above + (self.tie_weight * self.n_kept / self.n_ties if self.n_kept else 0)

    @property
    def is_cut(self) -> bool:
        """Whether some ties are kept and some are not."""
        return 0 < self.n_kept < self.n_ties

    def with_ties(self, cuts: Iterable[TieCut]) -> Selection:
        """Return the outcome with the kept ties taken in, given the first ties of each of the cut's bands, in order.

        The band in which the cut falls may have given more than are left: then it must be read again, for fewer.
        """
        assert self.cut is not None
        taken, left = self, self.cut.n_ties
        for ties in cuts:
            if ties.n_taken > left:
                return replace(taken, cut=Cut(ties.band, left, pending=True))
            left -= ties.n_taken
            taken = replace(
                taken,
                cells=changed_cells(taken.cells, ties.changes),
                strata=StrataSums.merge([taken.strata, ties.strata]),
                weight=taken.weight + ties.weight[0],
                last_tie=(ties.row, ties.last_class),
            )
            if left == 0:
                return replace(taken, cut=Cut(ties.band, ties.n_taken, pending=False))
        raise AssertionError("ties are gone that were counted before")


def changed_cells(counts: Ints, changes: Ints) -> Ints:
    """Return the number of sets of each cell after a change, up to the largest there is."""
    out = np.zeros(max(counts.size, changes.size) + 1, np.int64)
    out[: counts.size] += counts
    out[: changes.size] += changes
    return trimmed_cells(out)


def trimmed_cells(counts: Ints) -> Ints:
    """Return the number of sets of each cell, up to the largest size there is."""
    return counts[: 2 * (int(np.flatnonzero(counts)[-1]) // 2 + 1)]
