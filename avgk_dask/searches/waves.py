"""Waves: a large store is scanned a part at a time, each with the narrower brackets that the counts so far allow.

What must be held at any moment is what lies inside the current brackets. They narrow with the square root of what was read,
so that it fits a fixed limit for any number of samples, in one read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from ..arrays import Array, Ints
from ..kernels.keys import KEY_MAX, key_range
from ..kernels.zones import ZoneTable
from ..scans.plan import ScanPlan, ScanShape
from ..states.held_events import ROW_BITS
from ..states.scan_tally import ScanTally
from .brackets import REACH, Span, join_brackets, reach_of
from .folding import base_cells, cells_above, fold

#: The share of the events that may be held which waves are planned for, and the most that brackets may hold between them:
#: brackets are guessed, and so is what they will hold.
_PLANNED, _BETWEEN = 1 / 3, 2 / 3
#: A wave reads at least this share of what was read before it, and this many bands.
_LEAST_GROWTH, _LEAST_BANDS = 1 / 4, 8
#: The least standard errors that brackets reach to either side; fewer would often fail, and cost a read.
_LEAST_REACH = 3.0
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def spread_bands(n_bands: int, first: int, last: int, read: Sequence[int] = ()) -> tuple[int, ...]:
    """Return some bands of a fixed order in which any first ones are spread evenly over the store, and of no fixed period.

    Those that were read before come before all others.

    Examples
    --------
    >>> spread_bands(10, 0, 4), spread_bands(10, 4, 10)
    ((0, 2, 5, 7), (1, 3, 4, 6, 8, 9))
    >>> spread_bands(4, 2, 4, read=(0, 3))
    (1, 2)

    """
    with np.errstate(over="ignore"):
        order = np.argsort(np.arange(n_bands, dtype=np.uint64) * _GOLDEN, kind="stable")
    order = np.concatenate([np.asarray(read, np.int64), order[~np.isin(order, read)]])
    return tuple(np.sort(order[first:last]).tolist())


def first_wave(shape: ScanShape, expected: float) -> int:
    """Return how many bands the first wave reads, given the events expected in all; all of them where those fit."""
    share = _PLANNED * shape.all_events / max(expected, 1.0)
    n_bands = max(int(share * shape.n_bands), _LEAST_BANDS)
    return shape.n_bands if share >= 1 or n_bands >= shape.n_bands else n_bands


def next_wave(shape: ScanShape, n_seen: int, n_held: int) -> int:
    """Return how many bands the next wave reads: as many as may be held of."""
    left = shape.n_bands - n_seen
    space = _PLANNED * shape.all_events - n_held
    fitting = int(space / max(n_held / n_seen, 1e-9)) if space > 0 else 0
    return min(left, max(fitting, math.ceil(_LEAST_GROWTH * n_seen), _LEAST_BANDS))


def expected_held(shape: ScanShape, n_seen: int, n_held: int) -> float:
    """Return what the same brackets will hold of all bands, as a share of what they may."""
    return n_held / n_seen * shape.n_bands / max(_BETWEEN * shape.all_events, 1)


def narrow(tally: ScanTally, plan: ScanPlan, spans: Sequence[Span], n_seen: int) -> tuple[ScanTally, ScanPlan]:
    """Return what was found so far by narrower brackets, and the plan with them."""
    return _narrowed(_Seen.of(tally, plan, n_seen), spans, _BETWEEN, 1.0)


def narrow_wide(
    tally: ScanTally, plan: ScanPlan, spans: Sequence[Span], n_seen: int, share: float, reach: float
) -> tuple[ScanTally, ScanPlan]:
    """Do the same where brackets are so wide that what lies above them tells nothing of what lies above the thresholds.

    The new ones reach ``reach`` times as far as is usual, or less where they would hold more than a share of the events.
    """
    return _narrowed(_WideSeen.of(tally, plan, n_seen), spans, share, reach)


def _narrowed(seen: _Seen, spans: Sequence[Span], share: float, reach: float) -> tuple[ScanTally, ScanPlan]:
    tally, plan = seen.tally, seen.plan
    limit = share * plan.shape.all_events
    while True:
        brackets = join_brackets([seen.bracket(span, reach) for span in spans])
        n_held = sum(seen.count_from(low) - seen.count_from(high + 1) for low, high in brackets)
        if n_held <= limit or reach * REACH <= _LEAST_REACH:
            break
        reach = max(_LEAST_REACH / REACH, reach * limit / n_held)
    zones = _nested(seen, brackets)
    return fold(tally, plan.zones, zones), replace(plan, zones=zones)


@dataclass(frozen=True)
class _Seen:
    """The scores of the bands so far, by zones."""

    tally: ScanTally
    plan: ScanPlan
    n_seen: int
    by_zone: Ints
    #: The keys of single events, ascending; those of counted ones, and how many scores there are from each up.
    single: Array
    counted: Ints
    n_from: Ints
    #: Whether bands are looked at inside the intervals.
    looks_inside: ClassVar[bool] = False

    @classmethod
    def of(cls, tally: ScanTally, plan: ScanPlan, n_seen: int) -> Self:
        order = np.argsort(tally.counted.keys)
        n_from = np.cumsum(tally.counted.counts[order][::-1])[::-1]
        by_zone = np.cumsum(tally.histogram.table().sum(1))
        return cls(tally, plan, n_seen, by_zone, np.sort(tally.events.keys), tally.counted.keys[order], n_from)

    def count_from(self, key: int) -> int:
        """Return how many scores the events from a key up stand for."""
        n = 0
        ends = np.iinfo(self.single.dtype)
        if key <= ends.max:  # of its own dtype: else NumPy would convert all the keys
            n += self.single.size - int(np.searchsorted(self.single, self.single.dtype.type(max(key, ends.min))))
        if key <= KEY_MAX:
            counted = int(np.searchsorted(self.counted, key))
            n += int(self.n_from[counted]) if counted < self.n_from.size else 0
        return n

    def bracket(self, span: Span, reach: float) -> tuple[int, int]:
        """Return the keys between which the scores of some ranks among all probably lie; nothing beyond the old intervals."""
        shape = self.plan.shape
        n_numbers = self.tally.n_rows * shape.n_classes - self.tally.n_nan
        first, last = (min(rank * self.tally.n_rows / shape.n_samples, n_numbers) for rank in span)
        low = self._key_at(last + reach * self._margin(last) + 1, lower=True)
        return low, max(low, self._key_at(first - reach * self._margin(first) - 1, lower=False))

    def _key_at(self, position: float, *, lower: bool) -> int:
        """Return the key at a position from the top; in a gap, the end of the next interval on the other side."""
        floors = self.plan.zones.floors
        zone = int(np.searchsorted(self.by_zone, position))
        if zone == self.by_zone.size:
            return int(floors[-1])
        j = zone // 2
        low, high = self.plan.zones.interval(j)
        if zone % 2 == 0:
            return int(floors[zone - 1]) if lower and zone else high
        if self.tally.dropped[j]:
            return low if lower else high
        wanted = position - float(self.by_zone[zone - 1]) + self.count_from(high + 1)
        while low < high:  # the highest key with so many from it up
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.count_from(middle) >= wanted else (low, middle - 1)
        return low

    def _interval(self, position: float) -> int:
        """Return the interval that a position from the top lies in, or in the gap above which."""
        return min(int(np.searchsorted(self.by_zone, position)) // 2, self.plan.zones.n_intervals - 1)

    @cached_property
    def _margins(self) -> dict[float, float]:
        """What is known, by position: each looks at all events of an interval."""
        return {}

    def _margin(self, target: float) -> float:
        """Return how far the number of scores above a position, as seen so far, may be from its share of all."""
        if target not in self._margins:
            j = self._interval(target)
            key, (low, high) = self._key_at(target, lower=True), self.plan.zones.interval(j)
            is_inside = low <= key <= high and not self.tally.dropped[j]
            zones = self.plan.zones
            cells = cells_above(self.tally, zones, j, key) if is_inside else base_cells(self.tally, j)
            spread = self._spread_inside(j, key, high) if is_inside else self._band_spread(j)
            n_bands = self.n_seen if is_inside and self.looks_inside else self.tally.n_bands
            self._margins[target] = max(self._by_row(cells), self._by_band(n_bands, spread))
        return self._margins[target]

    def _spread_inside(self, j: int, key: int, high: int) -> float:
        """Return the variance between bands of the number of scores above a key of interval j: that above the interval, here."""
        return self._band_spread(j)

    def _by_row(self, cells: Ints) -> float:
        """Return the margin where rows differ as the sets of these cells do."""
        return REACH * math.sqrt(self.tally.n_rows * _variance(cells, np.arange(cells.size) // 2) * self._left_out)

    def _by_band(self, m: int, spread: float) -> float:
        """Return the margin where bands differ by a variance that m of them have."""
        return reach_of(m) * math.sqrt(self.n_seen * spread * self._left_out) if m >= 2 else 0.0

    @property
    def _left_out(self) -> float:
        return 1 - self.tally.n_rows / self.plan.shape.n_samples

    def _band_spread(self, j: int) -> float:
        """Return the variance between bands of the number of scores above interval j."""
        m = self.tally.n_bands
        mean = float(self.tally.band_sums[j]) / max(m, 1)
        spread = max(0.0, float(self.tally.band_squares[j]) / max(m, 1) - mean**2)
        return spread * m / max(m - 1, 1) * 4.0**self.plan.shape.band_unit


class _WideSeen(_Seen):
    """The same, where bands are looked at inside the intervals, too."""

    looks_inside = True

    def _spread_inside(self, j: int, key: int, high: int) -> float:
        tally = self.tally
        inside = (tally.events.keys > key) & (tally.events.keys <= high)
        counts = np.bincount(tally.events.rows[inside] >> ROW_BITS, minlength=self.n_seen)
        return (math.sqrt(self._band_spread(j)) + float(counts.std())) ** 2


def _variance(counts: Ints, values: Ints) -> float:
    n = max(int(counts.sum()), 1)
    mean = float((counts * values).sum()) / n
    return float((counts * (values - mean) ** 2).sum()) / n


def _nested(seen: _Seen, brackets: Sequence[tuple[int, int]]) -> ZoneTable:
    """Return zones whose intervals are what the brackets leave of the old ones.

    Intervals of a single key stay. Those whose events were dropped are of no more use, but for the lowest, whose floor is
    that of the scan.
    """
    plan, old = seen.plan, seen.plan.zones
    intervals: list[tuple[int, int]] = []
    for j in range(old.n_intervals):
        low, high = old.interval(j)
        if seen.tally.dropped[j] and j < old.n_intervals - 1:
            continue
        if low == high or seen.tally.dropped[j]:
            intervals.append((low, high))
            continue
        intervals += [(max(low, a), min(high, b)) for a, b in brackets if a <= high and b >= low]
    if not intervals:
        intervals = [(plan.floor, plan.floor)]
    return ZoneTable.from_intervals(
        intervals, key_range(plan.shape.dtype)[1], plan.shape.n_bins, usual_top=plan.highest
    )
