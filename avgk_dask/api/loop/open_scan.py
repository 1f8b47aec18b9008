"""Open scans: any number of bands arrive one by one, and the retained scores stay within a fixed limit.

Each bracket belongs to a *share* of all scores: in the end, k / C of the scores lie above the threshold of k. Brackets start
generous. When they contain more scores than planned, they are narrowed as far as the counts so far allow for an unlimited
number of further samples, and scores outside are folded into counts. At the end the counts prove, as after any scan, which
brackets contain their thresholds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction

import numpy as np

from ...arrays import Array, Ints
from ...engine.events import ROW_BITS, EventTally
from ...engine.pilot import Span, generous_brackets, plan_scan, sample_block
from ...engine.plan import N_BINS, ScanPlan, ScanShape, ZoneTable, shift_to_fit
from ...engine.search import ThresholdSearch
from ...engine.tally import BinCounts, ScanTally
from ...engine.waves import certain_bracket, fold, narrow
from ...exact.budgets import count_labels, window_start
from ...kernels.keys import key_range

#: A number of samples that is never reached.
UNLIMITED = 1 << 40
#: The number of bands that row numbers can distinguish; with this many counted together, all bands are one group.
ALL_BANDS = 1 << (63 - ROW_BITS)
#: Brackets are narrowed when they hold the first share of the largest number of events, to at most the second share. They
#: may be 16 times wider than usual, because later samples may differ from the first ones.
_PLANNED, _AFTER, _REACH = 1 / 2, 1 / 4, 16.0
#: Growth of the number of rows before brackets are narrowed again.
_GROWTH = 1.25
#: Number of tallies, of equally many bands, that are merged at once.
_FAN_IN = 32
#: The pilot samples at most this many scores, and takes the largest: this multiple of the largest budget's share, plus some.
_SAMPLED, _TAKEN, _MORE = 1 << 20, 3.0, 0.02


def first_plan(shape: ScanShape, block: Array, budgets: Sequence[Fraction]) -> ScanPlan:
    """Plan a scan with generous brackets from the first rows."""
    shares = [float(budget / shape.n_classes) for budget in budgets]
    sample = sample_block(block[:: -(-block.size // _SAMPLED)], 0, _TAKEN * max(shares) + _MORE)
    lowest, highest = (sample.lowest, sample.highest) if sample.keys.size else key_range(shape.dtype)
    return plan_brackets(shape, generous_brackets(sample, shares, shape.dtype), lowest, highest)


def plan_brackets(
    shape: ScanShape, brackets: Sequence[tuple[int, int]], lowest: int | None = None, highest: int | None = None
) -> ScanPlan:
    """Plan a scan that can merge with any other: each retains the highest key on its own, and samples in the same bins."""
    low, top = key_range(shape.dtype)
    lowest, highest = low if lowest is None else lowest, top if highest is None else highest
    below = [(first, min(last, top - 1)) for first, last in brackets if first < top]
    plan = plan_scan(shape, [*below, (top, top)], lowest, highest)
    return replace(plan, sample_base=low, sample_shift=shift_to_fit(top - low + 1, N_BINS))


@dataclass(frozen=True)
class OpenScan:
    """The state after the bands so far."""

    #: The plan of the next band; its shape has an unlimited number of samples.
    plan: ScanPlan
    #: The budgets, and whether the scores in their density windows are needed as well.
    budgets: tuple[Fraction, ...]
    windowed: bool
    #: The largest number of groups of bands whose equal events are counted together.
    n_groups: int
    n_bands: int = 0
    #: Tallies with the current brackets; the folded tally of all earlier bands; and the counts for the earlier brackets.
    parts: tuple[ScanTally, ...] = ()
    so_far: ScanTally | None = None
    waves: tuple[tuple[ZoneTable, BinCounts], ...] = ()
    #: Number of rows when brackets were last narrowed.
    n_narrowed: int = 0
    #: Whether brackets are known to contain the thresholds, from an earlier run, and need no narrowing.
    certain: bool = False

    @property
    def tallies(self) -> tuple[ScanTally, ...]:
        """All tallies, each of different rows."""
        return self.parts if self.so_far is None else (self.so_far, *self.parts)

    @property
    def n_rows(self) -> int:
        """Number of rows so far."""
        return sum(tally.n_rows for tally in self.tallies)

    def add(self, tally: ScanTally) -> OpenScan:
        """Add the tally of the next band."""
        after = replace(self, parts=_merge_parts((*self.parts, tally)), n_bands=self.n_bands + 1)
        n_held, most = sum(part.n_stored for part in after.tallies), self.plan.shape.all_events
        if not self.certain and n_held > _PLANNED * most and after.n_rows >= _GROWTH * self.n_narrowed:
            return after._narrow_brackets()
        return after._end_wave() if n_held > most else after

    def _end_wave(self) -> OpenScan:
        """Merge all tallies into one."""
        if not self.parts:
            return self
        wave = ScanTally.merge(list(self.parts))
        waves = (*self.waves, (self.plan.zones, wave.histogram))
        if self.waves and np.array_equal(self.waves[-1][0].floors, self.plan.zones.floors):
            merged = BinCounts.merge([self.waves[-1][1], wave.histogram])
            waves = (*self.waves[:-1], (self.plan.zones, merged))
        so_far = wave if self.so_far is None else ScanTally.merge([self.so_far, wave])
        return replace(self, parts=(), so_far=so_far, waves=waves)._group_bands(-(-self.n_bands // self.n_groups))

    def _narrow_brackets(self) -> OpenScan:
        """Narrow the brackets."""
        ended = self._end_wave()
        assert ended.so_far is not None
        so_far, plan = narrow(
            ended.so_far, ended.plan, ended._spans(), self.n_bands, share=_AFTER, reach=_REACH, looks_inside=True
        )
        return replace(ended, so_far=so_far, plan=plan, n_narrowed=so_far.n_rows)

    def _spans(self) -> list[Span]:
        """Return the rank of each threshold and the start rank of its window, for an unlimited number of samples.

        The fewer samples, the wider the share of a window: the current window is the widest.
        """
        shape, n_rows = self.plan.shape, self.n_rows
        spans = []
        for budget in self.budgets:
            last = min(count_labels(budget, shape.n_samples) + 1, shape.n_scores)
            first = window_start(count_labels(budget, n_rows)) * shape.n_samples // n_rows if self.windowed else last
            spans.append((max(1, min(first, last)), last))
        return spans

    def _group_bands(self, n_together: int) -> OpenScan:
        """Count the events of at least ``n_together`` bands together; requires a single tally."""
        now = self.plan.shape.n_together
        if n_together <= now or self.so_far is None:
            return self
        n_together = now * (1 << (-(-n_together // now) - 1).bit_length())
        tally, times = self.so_far, n_together // now
        counted = _regroup(tally.counted, lambda groups: groups // times).settled()
        plan = replace(self.plan, shape=replace(self.plan.shape, n_together=n_together))
        return replace(self, plan=plan, so_far=replace(tally, counted=counted, n_together=n_together))

    def merge(self, other: OpenScan) -> OpenScan:
        """Append the bands of another scan; the brackets become the intersections of both."""
        n_together = max(scan.plan.shape.n_together for scan in (self, other))
        a, b = (scan._end_wave()._group_bands(n_together) for scan in (self, other))
        n_together = max(scan.plan.shape.n_together for scan in (a, b))
        a, b = (scan._group_bands(n_together) for scan in (a, b))
        if a.so_far is None or b.so_far is None:
            return a if b.so_far is None else b
        zones = _common_zones(a, b)
        first = a.n_bands if n_together >= ALL_BANDS else -(-a.n_bands // n_together) * n_together
        both = [a._fold_into(zones), _shift_bands(b._fold_into(zones), first)]
        plan = replace(a.plan, zones=zones, highest=max(a.plan.highest, b.plan.highest))
        return replace(
            a,
            plan=plan,
            n_bands=first + b.n_bands,
            so_far=ScanTally.merge(both),
            waves=a.waves + b.waves,
            n_narrowed=max(a.n_narrowed, b.n_narrowed),
            certain=a.certain and b.certain,
        )

    def _fold_into(self, zones: ZoneTable) -> ScanTally:
        """Return the tally for other zones."""
        assert self.so_far is not None
        is_same = np.array_equal(zones.floors, self.plan.zones.floors)
        return self.so_far if is_same else fold(self.so_far, self.plan.zones, zones)

    def settle(self) -> ThresholdSearch:
        """Return the search after all bands; if it needs another pass, some threshold was not retained."""
        last = ScanTally.merge(list(self.parts)) if self.parts else None
        shape = replace(self.plan.shape, n_samples=self.n_rows, n_bands=2)
        counts = [count_labels(budget, self.n_rows) for budget in self.budgets]
        search = replace(
            ThresholdSearch.begin(shape, counts, windows=self._windows()),
            plan=replace(self.plan, shape=shape),
            so_far=self.so_far,
            waves=self.waves,
            n_seen=0 if self.so_far is None else 1,
            n_scans=int(self.certain),
        )
        if last is None:
            assert self.so_far is not None
            last = self.so_far.nothing()
        return search.advance(last)

    def _windows(self) -> list[int]:
        """Return the start rank of each budget's density window, or an empty list if windows are not needed."""
        return [window_start(count_labels(budget, self.n_rows)) for budget in self.budgets] if self.windowed else []

    def window_brackets(self) -> list[tuple[int, int]]:
        """Return brackets of the scores at the start ranks of windows, if these ranks are within the histograms."""
        waves = (*self.waves, *((self.plan.zones, part.histogram) for part in self.parts))
        n_listed = sum(int(tally.histogram.counts.sum()) for tally in self.tallies)
        top = key_range(self.plan.shape.dtype)[1]
        return [certain_bracket(waves, window + 1, top) for window in self._windows() if window < n_listed]


def _merge_parts(parts: tuple[ScanTally, ...]) -> tuple[ScanTally, ...]:
    """Merge tallies of equally many bands, so that each is copied only a few times."""
    while len(parts) >= _FAN_IN and parts[-_FAN_IN].n_bands == parts[-1].n_bands:
        parts = (*parts[:-_FAN_IN], ScanTally.merge(list(parts[-_FAN_IN:])))
    return parts


def _common_zones(a: OpenScan, b: OpenScan) -> ZoneTable:
    """Return the zones of the intervals that both scans retain, which include the highest key."""
    intervals = [
        (max(low, other_low), min(high, other_high))
        for low, high in _retained_intervals(a)
        for other_low, other_high in _retained_intervals(b)
        if low <= other_high and other_low <= high
    ]
    plan, highest = a.plan, max(a.plan.highest, b.plan.highest)
    top = key_range(plan.shape.dtype)[1]
    return ZoneTable.from_intervals(sorted(intervals, reverse=True), top, plan.shape.n_bins, usual_top=highest)


def _retained_intervals(scan: OpenScan) -> list[tuple[int, int]]:
    assert scan.so_far is not None
    zones, dropped = scan.plan.zones, scan.so_far.dropped
    top = key_range(scan.plan.shape.dtype)[1]
    return [
        (low, min(high, top)) for j in range(zones.n_intervals) if not dropped[j] for low, high in [zones.interval(j)]
    ]


def _shift_bands(tally: ScanTally, n_bands: int) -> ScanTally:
    """Add ``n_bands`` to the band numbers of a tally."""
    events = replace(tally.events, rows=tally.events.rows + (n_bands << ROW_BITS))
    counted = _regroup(tally.counted, lambda groups: groups + n_bands // tally.n_together)
    return replace(tally, events=events, counted=counted)


def _regroup(counted: EventTally, change: Callable[[Ints], Ints]) -> EventTally:
    """Renumber the groups of counted events in every column of groups."""
    names = [field.name for field in fields(counted) if field.name.endswith("groups")]
    return replace(counted, **{name: change(getattr(counted, name)) for name in names})
