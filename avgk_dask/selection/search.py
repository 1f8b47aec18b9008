"""The search for thresholds: scan, prove, and look again only where a bracket failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ScoresError
from ..kernels.keys import NAN_KEY, key_range
from ..summaries.events import EventTally
from ..summaries.exact import as_fraction
from ..summaries.kept import IntervalEvents
from ..summaries.pilot import PilotSample
from ..summaries.split import N_BINS
from ..summaries.tally import ScanPlan, ScanTally
from .bracket import ScanShape, bracket_below, plan_from_pilot, plan_rows, plan_scan
from .rows import Bracketed, Each, select_from_rows
from .selection import Selection, changed_sizes
from .ties import extreme_weights

Ints = NDArray[np.int64]

#: Scans no search can need: brackets shrink at least 64-fold with each, from 2**64 keys down to one.
MOST_SCANS = 30
#: Events a band may keep in a second scan, whose brackets are narrow: they may all lie in one band, as in sorted data.
RESCAN_EVENTS = 1 << 19


def _in_turn(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    return [function(item) for item in items]


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
            keep_rows = shape.n_scores <= shape.max_kept
            plan = plan_rows(shape, low, low, high) if keep_rows else plan_scan(shape, [(low, high)], low, high)
        else:
            ranks = [min(b + 1, shape.n_scores) for b in budgets]
            plan = plan_from_pilot(shape, sample, ranks)
        return cls(shape, tuple(budgets), plan, open=todo)

    def advance(self, tally: ScanTally, each: Each = _in_turn) -> Search:
        """Take a scan's tally: settle the budgets it proves, and plan the next scan for the others.

        ``each`` may use several threads.
        """
        assert self.plan is not None
        if tally.n_rows != self.shape.n_samples:
            raise ScoresError(
                f"scores must have the {self.shape.n_samples} rows their metadata say; got {tally.n_rows} when read. "
                "Correct the shape and chunks of the array."
            )
        found = dict(self.found)
        again: dict[int, tuple[int, int]] = {}
        rows: dict[int, Bracketed] = {}
        for i in self.open:
            outcome = self._settle(tally, self.plan, self.budgets[i])
            if isinstance(outcome, Selection):
                found[i] = outcome
            elif isinstance(outcome, Bracketed):
                rows[i] = outcome
            else:
                again[i] = outcome
        if rows:
            selections = select_from_rows(tally.kept, list(rows.values()), each)
            found |= {i: self._with_nan(s, tally) for i, s in zip(rows, selections, strict=True)}
        if self.n_scans > MOST_SCANS:
            raise ScoresError("scores must stay the same from one read to the next; got others. Store them first.")
        # The first scan has ranked all labels; with fewer budgets to find there is room for finer bins.
        max_events = max(self.shape.max_events, min(RESCAN_EVENTS, 16 * self.shape.max_events))
        rest = replace(self.shape, n_ranks=0, n_ranked=0, with_distance=False, n_bins=8 * N_BINS, max_events=max_events)
        low, high = key_range(rest.dtype)
        plan = plan_scan(rest, list(again.values()), low, high) if again else None
        slim = replace(tally, kept=(), events=(), counted=EventTally.empty())
        return replace(
            self,
            plan=plan,
            found=found,
            n_scans=self.n_scans + 1,
            open=tuple(again),
            first_tally=self.first_tally or slim,
        )

    def _with_nan(self, s: Selection, tally: ScanTally) -> Selection:
        """Give the outcome where the (B+1)-th largest is a NaN: all numbers are above it."""
        n_real = self.shape.n_scores - tally.n_nan
        if not tally.n_nan or s.budget < n_real:
            return s
        none = Fraction(0)
        return replace(
            s,
            key=NAN_KEY,
            n_above=n_real,
            n_ties=tally.n_nan,
            n_kept=0,
            cut=None,
            weight_above=s.weight,
            tie_weight=none,
            extremes=(none, none),
        )

    def _settle(self, tally: ScanTally, plan: ScanPlan, budget: int) -> Selection | Bracketed | tuple[int, int]:
        """Give the outcome for a budget, or how the kept rows give it, or a narrower bracket that must be searched."""
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
        low, high, n_higher = _narrow(tally, plan, zone, rank - n_before, key_range(self.shape.dtype)[1])
        if plan.max_kept and not tally.dropped.any():
            return Bracketed(budget, low, high, n_before + n_higher, rank - n_before - n_higher)
        if not plan.max_kept and zone % 2 and not tally.dropped[zone // 2]:
            return self._with_nan(_select(tally, plan, zone, budget, n_before, rank - n_before, (low, high)), tally)
        return low, high


def _narrow(tally: ScanTally, plan: ScanPlan, zone: int, rank: int, top: int) -> tuple[int, int, int]:
    """Give the bin of a zone that holds the score of this rank from the zone's top, a hard bracket, and the count above."""
    bins = tally.histogram[zone]
    from_top = np.cumsum(bins[::-1])
    place = int(np.searchsorted(from_top, rank))
    bin_ = bins.size - 1 - place
    shift, base = int(plan.zones.shifts[zone]), int(plan.zones.floors[zone])
    ceiling = plan.zones.zone_ceiling(zone, top)
    high = ceiling if bin_ == bins.size - 1 else min(base + ((bin_ + 1) << shift) - 1, ceiling)
    return base + (bin_ << shift), high, int(from_top[place - 1]) if place else 0


def _select(
    tally: ScanTally, plan: ScanPlan, zone: int, budget: int, n_before: int, rank: int, near: tuple[int, int]
) -> Selection:
    """Read a budget's outcome off the events of the interval that provably holds its threshold."""
    j = zone // 2
    events = IntervalEvents.gather(tally.events, tally.counted, j, plan.zones.interval(j))
    key = events.key_at_rank(rank, *near)
    taken = events.take(key, budget - n_before, plan.n_classes)
    n_above, n_ties = n_before + taken.n_above, taken.n_ties
    n_kept = min(budget - n_above, n_ties)
    soft = tally.weight_above.size > 0
    above = Fraction(int(tally.hits[: 2 * j + 1].sum())) + (as_fraction(tally.weight_above[j]) if soft else 0)
    above += taken.weight_above
    weight, tie_weight = above + taken.weight_kept, taken.weight_ties
    extremes = None
    if not soft or taken.tie_weights is not None or n_kept in (0, n_ties) or not tie_weight:
        extremes = extreme_weights(n_ties, n_kept, tie_weight, taken.tie_weights if soft else None)
    sizes = changed_sizes(_base_sizes(tally, j), taken.changes)
    return Selection(budget, key, n_above, n_ties, n_kept, sizes, weight, taken.cut, above, tie_weight, extremes)


def _all_nan(tally: ScanTally, budget: int) -> Selection:
    sizes = np.array([tally.n_rows], np.int64)
    none = Fraction(0)
    return Selection(budget, NAN_KEY, 0, tally.n_nan, 0, sizes, none, None, none, none, (none, none))


def _base_sizes(tally: ScanTally, j: int) -> Ints:
    """Give how many rows have each number of scores above interval j."""
    mine = slice(*np.searchsorted(tally.size_intervals, [j, j + 1]))
    counts = np.zeros(int(tally.sizes[mine].max(initial=0)) + 1, np.int64)
    counts[tally.sizes[mine]] = tally.size_counts[mine]
    return counts
