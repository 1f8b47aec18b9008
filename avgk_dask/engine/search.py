"""The search for thresholds: a pilot, one scan, and another scan only of brackets that failed.

The pilot estimates a bracket of keys for each threshold. The scan counts everything and holds the scores inside the brackets,
either whole rows or events, in one pass or in waves with ever narrower brackets. The counts of its bins, added up over bands,
prove for each budget in which bin its (B + 1)-th largest score lies (``_locate``). If the scores of that bin were held, the
selection follows from them. If not, the bin is a bracket that must hold, and the store is scanned once more for these budgets
only. Finally, the bands in which a cut through counted ties falls are read again.

Each scan also samples about one score in a hundred of every band below the lowest bracket: that sample does not share the
pilot's blind spots. Brackets shrink at least 64-fold per scan and end at single keys, which always suffice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from ..arrays import Ints
from ..bands.passes import Pass
from ..errors import ScoresError
from ..kernels.keys import NAN_KEY, key_range
from . import waves
from .events import EventTally, HeldEvents, IntervalEvents
from .pilot import PilotSample, Span, bracket_below, plan_from_pilot, plan_rows, plan_scan
from .plan import N_BINS, ScanPlan, ScanShape, Script, ZoneTable, adopted_shape, fitting_script, grown_plan
from .rows import ThresholdBracket, select_from_rows
from .scan import scan_band
from .strata import StrataSums
from .tally import BinCounts, ScanTally
from .ties import CutPlan, Selection, TieCuts, WantedTies, changed_cells, cut_band, extreme_weights

#: More scans than any search needs: brackets shrink at least 64-fold with each, from 2**64 keys down to one.
MOST_SCANS = 30
#: Events that a band may hold in a second scan, whose brackets are narrow: in sorted data, one band may have all of them.
RESCAN_EVENTS = 1 << 19
_ZERO = Fraction(0)
_CHANGED = "the scores changed between two reads. Write them to a store first."


@dataclass(frozen=True)
class Evidence:
    """The tally of a scan, with tables that all budgets need."""

    tally: ScanTally
    plan: ScanPlan
    _events: dict[int, IntervalEvents] = field(default_factory=dict)

    @cached_property
    def table(self) -> Ints:
        """The listed scores by zone and bin."""
        return self.tally.histogram.table()

    def events(self, j: int) -> IntervalEvents:
        """Return the events of interval j. The last interval is cached, for budgets that share it."""
        if j not in self._events:
            tally, interval = self.tally, self.plan.zones.interval(j)
            single = tally.events.between(*interval).in_order()
            self._events.clear()
            self._events[j] = IntervalEvents(single, tally.counted.between(*interval), tally.n_together)
        return self._events[j]

    @cached_property
    def by_zone(self) -> Ints:
        """The number of listed scores down to the end of each zone."""
        return np.cumsum(self.table.sum(1))


def narrowest_bin(evidence: Evidence, zone: int, rank: int, top: int) -> tuple[int, int, int]:
    """Return the bounds of the bin with the score at a rank from a zone's top, and the count above it in the zone."""
    bins, plan = evidence.table[zone], evidence.plan
    from_top = np.cumsum(bins[::-1])
    index = int(np.searchsorted(from_top, rank))
    bin_ = bins.size - 1 - index
    shift, base = int(plan.zones.shifts[zone]), int(plan.zones.floors[zone])
    ceiling = plan.zones.zone_ceiling(zone, top)
    high = ceiling if bin_ == bins.size - 1 else min(base + ((bin_ + 1) << shift) - 1, ceiling)
    return base + (bin_ << shift), high, int(from_top[index - 1]) if index else 0


@dataclass(frozen=True)
class ThresholdInterval:
    """A budget whose threshold is at a rank in interval j, between two keys, with ``n_before`` scores above the interval."""

    j: int
    budget: int
    n_before: int
    rank: int
    near: tuple[int, int]

    def weight_before(self, tally: ScanTally) -> Fraction:
        """Return the label weight above the interval."""
        weight = Fraction(int(tally.hits[: 2 * self.j + 1].sum()))
        return weight + tally.weight_above[self.j] if len(tally.weight_above) else weight


def expected_weight(evidence: Evidence, at: ThresholdInterval) -> Fraction:
    """Return the label weight of a budget's highest scores, averaged over all ways to keep ties."""
    events = evidence.events(at.j)
    key = events.key_at_rank(at.rank, *at.near)
    n_above, weight_above = events.weigh(lambda keys: keys > key)
    n_ties, tie_weight = events.weigh(lambda keys: keys == key)
    n_kept = min(at.budget - at.n_before - n_above, n_ties)
    return at.weight_before(evidence.tally) + weight_above + Fraction(n_kept, n_ties) * tie_weight


def select_from_events(evidence: Evidence, at: ThresholdInterval) -> Selection:
    """Return a budget's selection from the events of the interval that provably holds its threshold."""
    tally, budget, events = evidence.tally, at.budget, evidence.events(at.j)
    key = events.key_at_rank(at.rank, *at.near)
    gains = events.take(key, budget - at.n_before, evidence.plan.shape.n_classes)
    n_above, n_ties = at.n_before + gains.n_above, gains.n_ties
    n_kept = min(budget - n_above, n_ties)
    soft = len(tally.weight_above) > 0
    above = at.weight_before(tally) + gains.weight_above
    weight, tie_weight = above + gains.weight_kept, gains.weight_ties
    extremes = None
    if not soft or gains.tie_weights is not None or n_kept in (0, n_ties) or not tie_weight:
        extremes = extreme_weights(n_ties, n_kept, tie_weight, gains.tie_weights if soft else None)
    cells = changed_cells(waves.base_cells(tally, at.j), gains.changes)
    strata = StrataSums.merge([tally.strata.columns([at.j]), gains.strata])
    counts = n_above, n_ties, n_kept, cells
    return Selection(budget, key, *counts, weight, gains.cut, above, tie_weight, extremes, strata)


@dataclass(frozen=True)
class ThresholdSearch:
    """The state of the search between two passes."""

    shape: ScanShape
    budgets: tuple[int, ...]
    #: The pilot, until it has been read.
    pilot: Pass | None
    #: The plan of the next scan; None before the pilot, and after every budget is settled.
    plan: ScanPlan | None = None
    #: Whether to read the bands with cuts through counted ties again.
    cuts_ties: bool = True
    selections: dict[int, Selection] = field(default_factory=dict)
    #: Start rank of each budget's density window, if needed, and the label weight of the scores above it.
    windows: tuple[int, ...] = ()
    window_weights: dict[int, Fraction] = field(default_factory=dict)
    n_scans: int = 0
    #: Positions of the unsettled budgets; windows come after the budgets.
    open: tuple[int, ...] = ()
    first_tally: ScanTally | None = None
    #: Whether the first tally keeps its rows, and the lowest key that it keeps.
    keeps_rows: bool = False
    kept_floor: int | None = None
    #: In a scan in waves: the number of bands read, their tally, and the zones and counts of each wave.
    n_seen: int = 0
    so_far: ScanTally | None = None
    waves: tuple[tuple[ZoneTable, BinCounts], ...] = ()
    #: The waves of an earlier run of the first scan, which come first, and the number of them that have been read.
    script: Script = ()
    n_scripted: int = 0

    @classmethod
    def begin(
        cls,
        shape: ScanShape,
        budgets: Sequence[int],
        pilot: Pass | None = None,
        *,
        cuts_ties: bool = True,
        windows: Sequence[int] = (),
        keeps_rows: bool = False,
        script: Script = (),
    ) -> ThresholdSearch:
        """Begin like an earlier run, or with the pilot if there is one, or else with a scan that holds everything."""
        search = cls(
            shape,
            tuple(budgets),
            pilot,
            cuts_ties=cuts_ties,
            windows=tuple(windows),
            open=tuple(range(len(budgets) + len(windows))),
            keeps_rows=keeps_rows,
        )
        script = fitting_script(script, shape)
        if script:
            plan = script[0].plan
            adopted = adopted_shape(shape, plan.shape)
            assert adopted is not None  # for the script fits
            return replace(search, shape=adopted, pilot=None, plan=plan, script=script)
        return search if pilot else replace(search, plan=search._first_plan(None))

    def _first_plan(self, sample: PilotSample | None) -> ScanPlan:
        shape = self.shape
        low, high = key_range(shape.dtype)
        if not self.budgets:  # nothing but the highest key needs to be listed
            return plan_scan(shape, [(high, high)], low, high)
        if sample is None or not sample.keys.size:
            hold_rows = shape.n_scores <= shape.max_held
            return plan_rows(shape, low, low, high) if hold_rows else plan_scan(shape, [(low, high)], low, high)
        return plan_from_pilot(shape, sample, self._spans())

    def next_pass(self) -> Pass | None:
        """Return the next pass, or None if every budget is settled, with its ties."""
        if self.pilot is not None:
            return self.pilot
        if self.plan is not None:
            name, n_next = "rescan" if self.n_scans else "scan", self._wave_size()
            scan = Pass(name, scan_band, self.plan, ScanTally, state_bytes=self.plan.shape.state_bytes)
            if n_next == self.shape.n_bands:
                return scan
            last = self.n_seen + n_next
            scripted = [band for wave in self.script for band in wave.bands.tolist()]
            bands = waves.spread_bands(self.shape.n_bands, self.n_seen, last, scripted)
            return replace(scan, bands=bands, is_wave=True, completes=last == self.shape.n_bands)
        cut = {i: s for i, s in self.selections.items() if s.cut is not None and s.cut.pending}
        return cut_pass(self.shape, cut) if cut and self.cuts_ties else None

    def advance(self, state: PilotSample | ScanTally | TieCuts) -> ThresholdSearch:
        """Return the search after a pass, given the state that it returned."""
        if isinstance(state, PilotSample):
            return replace(self, pilot=None, plan=self._first_plan(state))
        if isinstance(state, TieCuts):
            budgets = {cut.budget for cut in state.cuts}
            try:
                cut = {i: self.selections[i].with_ties(c for c in state.cuts if c.budget == i) for i in budgets}
            except AssertionError:
                raise ScoresError(_CHANGED) from None
            return replace(self, selections=self.selections | cut)
        return self._end_wave(state)

    def _wave_size(self) -> int:
        """Return the number of bands of the next wave."""
        assert self.plan is not None
        if self.n_scripted < len(self.script):
            return int(self.script[self.n_scripted].bands.size)
        if self.so_far is None:
            return waves.first_wave(self.shape, self.plan.expected_events)
        return waves.next_wave(self.shape, self.n_seen, int(self.so_far.stored_events().sum()))

    def _end_wave(self, tally: ScanTally) -> ThresholdSearch:
        assert self.plan is not None
        n_seen = self.n_seen + self._wave_size()
        waves = (*self.waves, (self.plan.zones, tally.histogram))
        merged = tally if self.so_far is None else ScanTally.merge([self.so_far, tally])
        after = replace(self, n_seen=n_seen, waves=waves)
        if n_seen == self.shape.n_bands:
            return after._end_scan(merged)
        return after._follow_script(merged, self.plan) or after._narrow(merged, self.plan)

    def _follow_script(self, merged: ScanTally, plan: ScanPlan) -> ThresholdSearch | None:
        """Continue with the next wave of the script; return None without one, or if its brackets do not fit the counts."""
        n_scripted = self.n_scripted + 1
        if n_scripted >= len(self.script):
            return None
        following = self.script[n_scripted].plan
        if plan.with_rows != following.with_rows or not waves.can_fold(merged, plan.zones, following.zones):
            return None
        same = np.array_equal(plan.zones.floors, following.zones.floors)
        so_far = merged if same else waves.fold(merged, plan.zones, following.zones)
        return replace(self, so_far=so_far, plan=following, n_scripted=n_scripted)

    def _narrow(self, merged: ScanTally, plan: ScanPlan) -> ThresholdSearch:
        """Continue with the narrower brackets that the counts allow.

        After a script, brackets stay wide while their events fit, for a store that grows again and for other budgets.
        """
        after, plan = replace(self, n_scripted=len(self.script)), grown_plan(plan, self.shape)
        if plan.with_rows or (self.script and waves.expected_held(plan.shape, self.n_seen, merged.n_stored) <= 1):
            return replace(after, so_far=merged, plan=plan)
        so_far, plan = waves.narrow(merged, plan, self._spans(merged.n_nan), self.n_seen)
        return replace(after, so_far=so_far, plan=plan)

    def _spans(self, n_nan: int = 0) -> list[Span]:
        """Return, for each open budget, the rank of its threshold and the rank of the start of its window."""
        spans: dict[int, list[int]] = {}
        for i in self.open:
            rank = min((*self.budgets, *self.windows)[i] + 1, self.shape.n_scores - n_nan)
            if rank:
                spans.setdefault(i % len(self.budgets), []).append(rank)
        return [(min(ranks), max(ranks)) for ranks in spans.values()]

    def _end_scan(self, tally: ScanTally) -> ThresholdSearch:
        """Settle the budgets that a scan proves, and plan another one for the rest."""
        assert self.plan is not None
        settled, again = self._settle_budgets(Evidence(tally, self.plan))
        n = len(self.budgets)
        if self.n_scans > MOST_SCANS:
            raise ScoresError(_CHANGED)
        keep = self.keeps_rows and self.plan.with_rows and not self.n_scans and not tally.dropped.any()
        kept = tally.rows if keep else ()
        slim = replace(tally, rows=kept, events=HeldEvents.empty(), counted=EventTally.empty())
        return replace(
            self,
            plan=self._next_plan(list(again.values())) if again else None,
            selections=self.selections | {i: s for i, s in settled.items() if isinstance(s, Selection)},
            window_weights=self.window_weights | {i - n: w for i, w in settled.items() if isinstance(w, Fraction)},
            kept_floor=self.plan.floor if keep else self.kept_floor,
            n_scans=self.n_scans + 1,
            open=tuple(again),
            first_tally=self.first_tally or slim,
            n_seen=0,
            so_far=None,
            waves=(),
            script=(),
            n_scripted=0,
        )

    def _settle_budgets(self, evidence: Evidence) -> tuple[dict[int, Selection | Fraction], dict[int, tuple[int, int]]]:
        """Return the selections of budgets and the weights of windows that a scan proves, and brackets for the rest."""
        settled: dict[int, Selection | Fraction] = {}
        again: dict[int, tuple[int, int]] = {}
        rows: dict[int, ThresholdBracket] = {}
        n, tally = len(self.budgets), evidence.tally
        for i in sorted(self.open, key=lambda i: (i % n, i)):  # a window after its budget: they share events
            budget, is_window = (*self.budgets, *self.windows)[i], i >= n
            place = self._locate(evidence, budget)
            if place is None:  # no score is a number
                settled[i] = _ZERO if is_window else _select_nothing(tally, budget)
            elif isinstance(place, ThresholdBracket):
                rows[i] = place
            elif isinstance(place, tuple):
                again[i] = place
            elif is_window:
                settled[i] = expected_weight(evidence, place)
            else:
                settled[i] = self._with_nan(select_from_events(evidence, place), tally)
        if rows:
            budgets, windows = [i for i in rows if i < n], [i for i in rows if i >= n]
            selections, weights = select_from_rows(tally.rows, [rows[i] for i in budgets], [rows[i] for i in windows])
            settled |= {i: self._with_nan(s, tally) for i, s in zip(budgets, selections, strict=True)}
            settled |= dict(zip(windows, weights, strict=True))
        return settled, again

    def _next_plan(self, brackets: list[tuple[int, int]]) -> ScanPlan:
        """Plan another scan, without ranks of labels, which the first one has counted, and with finer bins."""
        max_events = max(self.shape.max_events, min(RESCAN_EVENTS, 16 * self.shape.max_events))
        n_ranks = self.shape.n_ranks if self.shape.strata == "ranks" else 0
        shape = replace(self.shape, n_ranks=n_ranks, n_ranked=0, with_distance=False)
        rest = replace(shape, n_bins=8 * N_BINS, max_events=max_events)
        return plan_scan(rest, brackets, *key_range(rest.dtype))

    def _with_nan(self, s: Selection, tally: ScanTally) -> Selection:
        """Return the selection with NaN as its threshold if the budget exceeds all numbers, or else unchanged."""
        n_real = self.shape.n_scores - tally.n_nan
        if not tally.n_nan or s.budget < n_real:
            return s
        return replace(
            s, key=NAN_KEY, n_above=n_real, n_ties=tally.n_nan, n_kept=0, cut=None,
            weight_above=s.weight, tie_weight=_ZERO, extremes=(_ZERO, _ZERO),
        )  # fmt: skip

    def _locate(self, evidence: Evidence, budget: int) -> ThresholdInterval | ThresholdBracket | tuple[int, int] | None:
        """Return the place of a budget's threshold among events or held rows, or else a bracket that must be scanned.

        None if no score is a number.
        """
        tally, plan, by_zone = evidence.tally, evidence.plan, evidence.by_zone
        rank = min(budget + 1, self.shape.n_scores - tally.n_nan)
        if rank == 0:
            return None
        zone = int(np.searchsorted(by_zone, rank))
        if zone == by_zone.size:
            if self.n_scans >= 1:
                return key_range(self.shape.dtype)[0], plan.floor - 1
            return bracket_below(tally, plan, self.shape, rank, int(by_zone[-1]))
        n_before = int(by_zone[zone - 1]) if zone else 0
        low, high, n_higher = narrowest_bin(evidence, zone, rank - n_before, key_range(self.shape.dtype)[1])
        if plan.with_rows and not tally.dropped.any():
            return ThresholdBracket(budget, low, high, n_before + n_higher, rank - n_before - n_higher)
        if not plan.with_rows and zone % 2 and not tally.dropped[zone // 2]:
            return ThresholdInterval(zone // 2, budget, n_before, rank - n_before, (low, high))
        return waves.certain_bracket(self.waves, rank, key_range(self.shape.dtype)[1])


def _select_nothing(tally: ScanTally, budget: int) -> Selection:
    """Return the selection of empty sets."""
    cells = np.array([tally.n_rows, 0], np.int64)
    counts = 0, tally.n_nan, 0, cells
    return Selection(budget, NAN_KEY, *counts, _ZERO, None, _ZERO, _ZERO, (_ZERO, _ZERO), StrataSums.empty())


def cut_pass(shape: ScanShape, selections: Mapping[int, Selection]) -> Pass:
    """Return the pass over the bands with cuts; it finds the last kept tie of each selection."""
    wanted = tuple(WantedTies(s.cut.bands, i, s.key, s.cut.n_ties) for i, s in selections.items() if s.cut is not None)
    plan = CutPlan(wanted, shape.dtype, shape.n_classes, shape.tile_scores, shape.n_ranks, shape.strata)
    bands = {band for ties in wanted for band in ties.bands if not shape.n_bands or band < shape.n_bands}
    return Pass("cut", cut_band, plan, TieCuts, bands=tuple(sorted(bands)))
