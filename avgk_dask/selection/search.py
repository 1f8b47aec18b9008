"""The search for thresholds: scan, prove, and look again only where a bracket failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..errors import ScoresError
from ..kernels.keys import NAN_KEY, key_range
from ..summaries.cut import TieCut
from ..summaries.events import Cut, EventTally
from ..summaries.exact import as_fraction
from ..summaries.pilot import PilotSample
from ..summaries.split import N_BINS
from ..summaries.tally import ScanPlan, ScanTally
from .bracket import ScanShape, bracket_below, guess_brackets, plan_scan
from .ties import extreme_weights

Ints = NDArray[np.int64]

#: Scans no search can need: brackets shrink at least 64-fold with each, from 2**64 keys down to one.
MOST_SCANS = 30
#: Times as many events a band may keep in a second scan, whose brackets are narrow.
RESCAN_SHARE = 16


@dataclass(frozen=True)
class Selection:
    """The exact outcome for one budget.

    ``set_sizes[s]`` is the number of sets of size s, and ``weight`` the exact label weight inside
    the sets. Where the cut through the ties is pending, those of its band are still missing from both.
    """

    budget: int
    key: int
    n_above: int
    n_ties: int
    n_kept: int
    set_sizes: Ints
    weight: Fraction
    #: Where the kept ties end, if some are kept and some not.
    cut: Cut | None
    #: The weight above the threshold and that of all ties; the least and most any kept ties can bring, if known.
    weight_above: Fraction
    tie_weight: Fraction
    extremes: tuple[Fraction, Fraction] | None
    #: Row (in the cut's band) and class of the last kept tie, once the band has been read for it.
    last_tie: tuple[int, int] | None = None

    @property
    def expected_weight(self) -> Fraction:
        """The mean label weight inside the sets over all ways to keep so many of the ties."""
        return self.weight_above + (self.tie_weight * self.n_kept / self.n_ties if self.n_kept else 0)

    @property
    def is_cut(self) -> bool:
        """Whether some ties are kept and some are not."""
        return 0 < self.n_kept < self.n_ties

    def with_ties(self, ties: TieCut) -> Selection:
        """Give the outcome with the kept ties of the cut's band taken in."""
        return replace(
            self,
            set_sizes=_move_sizes(self.set_sizes, ties.sizes, ties.counts),
            weight=self.weight + ties.weight,
            last_tie=(ties.row, ties.last_class),
        )


@dataclass(frozen=True)
class Search:
    """What is known between two scans; ``plan`` is None once every budget is settled."""

    shape: ScanShape
    budgets: tuple[int, ...]
    plan: ScanPlan | None
    found: dict[int, Selection] = field(default_factory=dict)
    n_scans: int = 0
    #: Brackets still to be searched, by the budget's position.
    open: tuple[int, ...] = ()
    first_tally: ScanTally | None = None

    @classmethod
    def begin(cls, shape: ScanShape, budgets: Sequence[int], sample: PilotSample | None) -> Search:
        """Plan the first scan: everything where there is no pilot, else the pilot's brackets."""
        low, high = key_range(shape.dtype)
        todo = tuple(range(len(budgets)))
        if not budgets:  # nothing but the highest key needs to be listed
            plan = plan_scan(shape, [(high, high)], low, high)
        elif sample is None or not sample.keys.size:
            plan = plan_scan(shape, [(low, high)], low, high)
        else:
            ranks = [min(b + 1, shape.n_scores) for b in budgets]
            plan = plan_scan(shape, guess_brackets(sample, shape, ranks), sample.lowest, sample.highest)
        return cls(shape, tuple(budgets), plan, open=todo)

    def advance(self, tally: ScanTally) -> Search:
        """Take a scan's tally: settle the budgets it proves, and plan the next scan for the others."""
        assert self.plan is not None
        if tally.n_rows != self.shape.n_samples:
            raise ScoresError(
                f"scores must have the {self.shape.n_samples} rows their metadata say; got {tally.n_rows} when read."
            )
        events = EventTally.merge(list(tally.events))
        found = dict(self.found)
        again: dict[int, tuple[int, int]] = {}
        for i in self.open:
            outcome = self._settle(tally, events, self.plan, self.budgets[i])
            if isinstance(outcome, Selection):
                found[i] = outcome
            else:
                again[i] = outcome
        if self.n_scans > MOST_SCANS:
            raise ScoresError(
                "scores must stay the same from one read to the next; these seem to change. Store them first."
            )
        # The first scan has ranked all labels; with fewer budgets to find there is room for finer bins.
        # They are few, but may all lie in one band, as in sorted data.
        max_events = RESCAN_SHARE * self.shape.max_events
        rest = replace(self.shape, n_ranks=0, n_ranked=0, with_distance=False, n_bins=8 * N_BINS, max_events=max_events)
        low, high = key_range(rest.dtype)
        plan = plan_scan(rest, list(again.values()), low, high) if again else None
        slim = replace(tally, events=())
        return replace(
            self,
            plan=plan,
            found=found,
            n_scans=self.n_scans + 1,
            open=tuple(again),
            first_tally=self.first_tally or slim,
        )

    def _settle(
        self, tally: ScanTally, all_events: EventTally, plan: ScanPlan, budget: int
    ) -> Selection | tuple[int, int]:
        """Give the outcome for a budget, or a narrower bracket that must be searched."""
        n_real = self.shape.n_scores - tally.n_nan
        rank = min(budget + 1, n_real)
        if rank == 0:
            return _all_nan(tally, budget)
        by_zone = np.cumsum(tally.histogram.sum(1))
        zone = int(np.searchsorted(by_zone, rank))
        if zone == by_zone.size:
            n_listed = int(by_zone[-1])
            if self.n_scans >= 1:
                return key_range(self.shape.dtype)[0], plan.floor - 1
            return bracket_below(tally, plan, self.shape, rank, n_listed)
        n_before = int(by_zone[zone - 1]) if zone else 0
        if zone % 2 and not tally.dropped[zone // 2]:
            return _select(tally, all_events, plan, zone // 2, budget, n_before, n_real)
        return _narrow(tally, plan, zone, rank - n_before, key_range(self.shape.dtype)[1])


def _narrow(tally: ScanTally, plan: ScanPlan, zone: int, rank: int, top: int) -> tuple[int, int]:
    """Give the bin of a zone that holds the score of this rank from the zone's top: a hard bracket."""
    bins = tally.histogram[zone]
    from_top = np.cumsum(bins[::-1])
    bin_ = bins.size - 1 - int(np.searchsorted(from_top, rank))
    shift, base = int(plan.zones.shifts[zone]), int(plan.zones.floors[zone])
    ceiling = plan.zones.zone_ceiling(zone, top)
    high = ceiling if bin_ == bins.size - 1 else min(base + ((bin_ + 1) << shift) - 1, ceiling)
    return base + (bin_ << shift), high


def _select(
    tally: ScanTally, all_events: EventTally, plan: ScanPlan, j: int, budget: int, n_before: int, n_real: int
) -> Selection:
    """Read a budget's outcome off the events of the interval that provably holds its threshold."""
    low, high = plan.zones.interval(j)
    events = all_events.select(lambda keys: (keys >= low) & (keys <= high))
    key = events.key_at_rank(min(budget + 1, n_real) - n_before)
    higher, ties = events.select(lambda k: k > key), events.select(lambda k: k == key)
    n_above, n_ties = n_before + higher.n_scores, ties.n_scores
    n_kept = min(budget - n_above, n_ties)
    kept, cut = (EventTally.empty() if n_kept == 0 else ties), None
    if 0 < n_kept < n_ties:
        kept, cut = ties.first(n_kept)
    sizes = _base_sizes(tally, j)
    soft = tally.weight_above.size > 0
    above = Fraction(int(tally.hits[: 2 * j + 1].sum())) + (as_fraction(tally.weight_above[j]) if soft else 0)
    above += higher.total_weight()
    weight, tie_weight, extremes = above + kept.total_weight(), ties.total_weight(), extreme_weights(ties, n_kept, soft)
    for part in (higher, kept):
        sizes = _move_sizes(sizes, part.sizes, part.counts)
    if tally.n_nan and budget >= n_real:  # the (B+1)-th largest is a NaN: all numbers are above it
        key, n_above, n_ties, n_kept = NAN_KEY, n_real, tally.n_nan, 0
        above, tie_weight, extremes = weight, Fraction(0), (Fraction(0), Fraction(0))
    return Selection(budget, key, n_above, n_ties, n_kept, sizes, weight, cut, above, tie_weight, extremes)


def _all_nan(tally: ScanTally, budget: int) -> Selection:
    sizes = np.array([tally.n_rows], np.int64)
    none = Fraction(0)
    return Selection(budget, NAN_KEY, 0, tally.n_nan, 0, sizes, none, None, none, none, (none, none))


def _base_sizes(tally: ScanTally, j: int) -> Ints:
    """Give how many rows have each number of scores above interval j."""
    mine = tally.size_intervals == j
    counts = np.zeros(int(tally.sizes[mine].max(initial=0)) + 1, np.int64)
    np.add.at(counts, tally.sizes[mine], tally.size_counts[mine])
    return counts


def _move_sizes(counts: Ints, sizes: Ints, moved: Ints) -> Ints:
    """Turn ``moved`` sets of ``size - 1`` into sets of ``size``, for each size."""
    out = np.zeros(max(counts.size, int(sizes.max(initial=0)) + 1), np.int64)
    out[: counts.size] = counts
    np.add.at(out, sizes, moved)
    np.subtract.at(out, sizes - 1, moved)
    return out
