"""Evidence: what a scan found, and the outcome of a budget as it is read off it."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np

from ..arrays import Ints
from ..kernels.keys import NAN_KEY
from ..scans.plan import ScanPlan
from ..states.held_events import IntervalEvents
from ..states.scan_tally import ScanTally
from ..states.strata import StrataSums
from .folding import base_cells
from .selection import Selection, changed_cells
from .tie_extremes import extreme_weights


@dataclass(frozen=True)
class Evidence:
    """What a scan found, as all budgets look at it."""

    tally: ScanTally
    plan: ScanPlan
    _events: dict[int, IntervalEvents] = field(default_factory=dict)

    @cached_property
    def table(self) -> Ints:
        """The listed scores by zone and bin."""
        return self.tally.histogram.table()

    def events(self, j: int) -> IntervalEvents:
        """Return the events of interval j: those of the last one asked for are kept, for budgets that share it."""
        if j not in self._events:
            interval = self.plan.zones.interval(j)
            mine = self.tally.events.between(*interval).in_order()
            self._events.clear()
            self._events[j] = IntervalEvents.of(mine, self.tally.counted, interval, self.tally.n_together)
        return self._events[j]

    @cached_property
    def by_zone(self) -> Ints:
        """How many scores are listed down to the end of each zone."""
        return np.cumsum(self.table.sum(1))


def narrowest_bin(evidence: Evidence, zone: int, rank: int, top: int) -> tuple[int, int, int]:
    """Return the bin of a zone that holds the score of this rank from the zone's top, a hard bracket, and the count above."""
    bins, plan = evidence.table[zone], evidence.plan
    from_top = np.cumsum(bins[::-1])
    index = int(np.searchsorted(from_top, rank))
    bin_ = bins.size - 1 - index
    shift, base = int(plan.zones.shifts[zone]), int(plan.zones.floors[zone])
    ceiling = plan.zones.zone_ceiling(zone, top)
    high = ceiling if bin_ == bins.size - 1 else min(base + ((bin_ + 1) << shift) - 1, ceiling)
    return base + (bin_ << shift), high, int(from_top[index - 1]) if index else 0


@dataclass(frozen=True)
class Located:
    """A budget whose threshold is the score of a rank in interval j, between two keys, with the scores above the interval."""

    j: int
    budget: int
    n_before: int
    rank: int
    near: tuple[int, int]

    def weight_before(self, tally: ScanTally) -> Fraction:
        """Return the label weight above the interval."""
        weight = Fraction(int(tally.hits[: 2 * self.j + 1].sum()))
        return weight + tally.weight_above[self.j] if len(tally.weight_above) else weight


def expected_weight(evidence: Evidence, at: Located) -> Fraction:
    """Return the mean label weight that so many scores have, over all ways to keep ties."""
    events = evidence.events(at.j)
    key = events.key_at_rank(at.rank, *at.near)
    above, ties = events.weighed(lambda keys: keys > key), events.weighed(lambda keys: keys == key)
    n_kept = min(at.budget - at.n_before - above.n_scores, ties.n_scores)
    return at.weight_before(evidence.tally) + above.weight + Fraction(n_kept, ties.n_scores) * ties.weight


def select_from_events(evidence: Evidence, at: Located) -> Selection:
    """Read a budget's outcome off the events of the interval that provably holds its threshold."""
    tally, plan, budget, j = evidence.tally, evidence.plan, at.budget, at.j
    events = evidence.events(at.j)
    key = events.key_at_rank(at.rank, *at.near)
    taken = events.take(key, budget - at.n_before, plan.shape.n_classes)
    n_above, n_ties = at.n_before + taken.n_above, taken.n_ties
    n_kept = min(budget - n_above, n_ties)
    soft = len(tally.weight_above) > 0
    above = at.weight_before(tally) + taken.weight_above
    weight, tie_weight = above + taken.weight_kept, taken.weight_ties
    extremes = None
    if not soft or taken.tie_weights is not None or n_kept in (0, n_ties) or not tie_weight:
        extremes = extreme_weights(n_ties, n_kept, tie_weight, taken.tie_weights if soft else None)
    cells = changed_cells(base_cells(tally, j), taken.changes)
    strata = StrataSums.merge([tally.strata.columns([j]), taken.strata])
    counts = n_above, n_ties, n_kept, cells
    return Selection(budget, key, *counts, weight, taken.cut, above, tie_weight, extremes, strata)


def select_nan(tally: ScanTally, budget: int) -> Selection:
    """Return the outcome where no score is a number."""
    cells, none = np.array([tally.n_rows, 0], np.int64), Fraction(0)
    counts = 0, tally.n_nan, 0, cells
    return Selection(budget, NAN_KEY, *counts, none, None, none, none, (none, none), StrataSums.empty())
