"""Waves: a large store is scanned in parts, each with narrower brackets from the counts so far.

Only the scores inside the current brackets are held. Brackets narrow with the square root of the number of rows read, so that they
fit a fixed limit for any number of samples, in one read of the store. ``narrow`` finds the next brackets, and ``fold`` turns a
tally into a tally of the narrower intervals: events outside become counts of scores, labels and set sizes.

Waves are spread over the store by the golden ratio. The reach of brackets follows from the spread between rows and between bands.
If there are more events than expected, equal events of groups of bands are counted together, and intervals that still exceed
their share are dropped: their budgets take one more read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..arrays import Array, Bools, Ints
from ..exact.sums import ExactSums, total_weight
from ..kernels.dispatch import count_bins, move_cells
from ..kernels.keys import KEY_MAX, key_range
from ..records import BEYOND
from .events import ROW_BITS, EventTally, HeldEvents, IntervalEvents
from .pilot import REACH, Span, join_brackets, reach_of
from .plan import ScanPlan, ScanShape, ZoneTable, intervals_of
from .strata import StrataSums
from .tally import BinCounts, ScanTally

#: Shares of the most events: waves are planned for the first, brackets are narrowed to the second, since the number of events in
#: them is an estimate.
_PLANNED, _BETWEEN = 1 / 3, 2 / 3
#: Minimum size of a wave: its share of the bands read before, and its number of bands.
_LEAST_GROWTH, _LEAST_BANDS = 1 / 4, 8
#: The least standard errors that brackets reach to either side: narrower ones would often fail, which costs a read.
_LEAST_REACH = 3.0
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def fold(tally: ScanTally, old: ZoneTable, new: ZoneTable) -> ScanTally:
    """Return a tally by other zones, whose intervals lie within old ones; those with dropped events must be unchanged.

    In gaps, all scores move to the first bin.
    """
    within = intervals_of(old.floors, new.floors[1::2])
    parts = []
    for i, j in enumerate(within.tolist()):
        inside = IntervalEvents(tally.events.between(*old.interval(j)), tally.counted.between(*old.interval(j)))
        parts.append(_FoldedInterval.from_events(inside, new.interval(i), base_cells(tally, j), bool(tally.dropped[j])))
    by_zone, dropped = np.cumsum(tally.histogram.table().sum(1)), tally.dropped[within]
    is_hard, weights = not len(tally.weight_above), tally.weight_above
    if not is_hard:
        weights = ExactSums(weights.limbs[within] + [part.weight_above.limbs[0] for part in parts]).settled()
    n_hits = [part.n_hits if is_hard else (0, 0) for part in parts]
    cells = [np.flatnonzero(part.cells) for part in parts]
    return replace(
        tally,
        cell_intervals=np.repeat(np.arange(len(parts)), [occurring.size for occurring in cells]),
        cells=np.concatenate(cells),
        cell_counts=np.concatenate([part.cells[own] for part, own in zip(parts, cells, strict=True)]),
        strata=_strata_above(tally, within, parts),
        hits=np.diff(_zone_ends(np.cumsum(tally.hits), within, n_hits, dropped), prepend=0),
        weight_above=weights,
        floors=new.floors,
        events=HeldEvents.merge([HeldEvents.empty(), *(part.events for part in parts)]),
        counted=EventTally.merge([EventTally.empty(), *(part.counted for part in parts)]),
        dropped=dropped,
        histogram=_histogram(_zone_ends(by_zone, within, [part.n_scores for part in parts], dropped), parts, new),
        n_bands=0,
        band_sums=np.zeros(len(parts), np.int64),
        band_squares=np.zeros(len(parts), np.int64),
    )


def can_fold(tally: ScanTally, old: ZoneTable, new: ZoneTable) -> bool:
    """Return whether each new interval lies within an old one, or is one whose events were dropped."""
    olds = [old.interval(j) for j in range(old.n_intervals)]
    for low, high in (new.interval(i) for i in range(new.n_intervals)):
        around = next((j for j, (a, b) in enumerate(olds) if a <= low and high <= b), None)
        if around is None or (tally.dropped[around] and olds[around] != (low, high)):
            return False
    return True


def base_cells(tally: ScanTally, j: int) -> Ints:
    """Return the number of rows in each cell, with their scores above interval j."""
    is_j = tally.cell_intervals == j
    counts = np.zeros(2 * (int(tally.cells[is_j].max(initial=0)) // 2 + 1), np.int64)
    counts[tally.cells[is_j]] = tally.cell_counts[is_j]
    return counts


@dataclass(frozen=True)
class _FoldedInterval:
    """A new interval: the events inside, and the scores, hits, cells and strata of the old interval's events above it."""

    events: HeldEvents
    counted: EventTally
    cells: Ints
    strata: StrataSums
    #: Scores of the old interval above the new one, and down to its end; the hard labels among them.
    n_scores: tuple[int, int]
    n_hits: tuple[int, int]
    #: The sum of the soft labels above it.
    weight_above: ExactSums

    @classmethod
    def from_events(cls, old: IntervalEvents, interval: tuple[int, int], cells: Ints, dropped: bool) -> _FoldedInterval:
        if dropped:
            none = HeldEvents.empty(), EventTally.empty()
            return cls(*none, cells, StrataSums.empty(), (0, 0), (0, 0), ExactSums.zeros(1))
        low, high = interval
        keys = old.single.keys
        above = IntervalEvents(old.single.select(keys > high), old.counted.above(high))
        inside = (keys >= low) & (keys <= high)
        events = old.single.select(inside)
        events = replace(events, bases=(events.bases + _row_changes(old.single, high)[inside]).astype(np.int32))
        counted = old.counted.between(low, high)
        inner = IntervalEvents(events, counted)
        return cls(
            events,
            counted,
            _add_to_cells(cells, old.single, above.counted, high),
            StrataSums.merge([above.single.strata_sums(), above.counted.strata_sums()]),
            (above.n_scores, above.n_scores + inner.n_scores),
            (_count_hits(above), _count_hits(above) + _count_hits(inner)),
            _soft_weight(above),
        )


def _strata_above(tally: ScanTally, within: Ints, parts: list[_FoldedInterval]) -> StrataSums:
    sums = [tally.strata.columns(within)]
    for i, part in enumerate(parts):
        sizes, hits = np.zeros((2, part.strata.strata.size, len(parts)), np.int64)
        sizes[:, i], hits[:, i] = part.strata.sizes[:, 0], part.strata.hits[:, 0]
        sums.append(StrataSums(part.strata.strata, sizes, hits))
    return StrataSums.merge(sums)


def _add_to_cells(cells: Ints, single: HeldEvents, counted: EventTally, high: int) -> Ints:
    """Return the cells of the sets with all single events above a key, and all counted ones."""
    starts = np.flatnonzero(_row_starts(single))
    longest = int(np.diff(starts, append=single.rows.size).max(initial=0))
    most = int(single.bases.max(initial=0)) + 2 * longest + 1, int(counted.steps.max(initial=0)) // 2
    changes = np.zeros(max(cells.size, *(cell + 2 for cell in most)), np.int64)
    move_cells(single.keys, single.rows, single.bases, single.hits, high, 0, changes)
    counted.add_cells(changes)
    changes[: cells.size] += cells
    return changes


def _row_starts(events: HeldEvents) -> Bools:
    starts = np.ones(events.rows.size, bool)
    starts[1:] = events.rows[1:] != events.rows[:-1]
    return starts


def _row_changes(events: HeldEvents, high: int) -> Ints:
    """Return, for each event, the change of its row's cell by the row's events above a key."""
    row = np.cumsum(_row_starts(events)) - 1
    moved = (events.keys > high) * (2 + (events.hits != 0))
    return np.asarray(np.bincount(row, moved).astype(np.int64)[row])


def _count_hits(events: IntervalEvents) -> int:
    if events.single.weights.dtype.kind == "f":
        return 0
    return int(total_weight(events.single.weights) + events.counted.total_weight())


def _zone_ends(cumulative: Ints, within: Ints, parts: list[tuple[int, int]], dropped: Bools) -> Ints:
    """Return the count of all scores down to the end of each new zone."""
    ends = cumulative[2 * within][:, None] + np.array(parts, np.int64)
    ends[dropped, 1] = cumulative[2 * within + 1][dropped]
    return np.asarray(ends.reshape(-1))


def _soft_weight(events: IntervalEvents) -> ExactSums:
    total = (
        ExactSums.from_values(events.single.weights) if events.single.weights.dtype.kind == "f" else ExactSums.zeros(1)
    )
    np.add.at(total.limbs[0], events.counted.weight_limbs, events.counted.weight_amounts)
    return total


def _histogram(ends: Ints, parts: list[_FoldedInterval], new: ZoneTable) -> BinCounts:
    table = np.zeros((new.floors.size, new.n_bins), np.int64)
    for i, part in enumerate(parts):
        low, shift = int(new.floors[2 * i + 1]), new.shifts[2 * i + 1]
        count_bins(part.events.keys.astype(np.int64), low, shift, table[2 * i + 1])
        bins = (part.counted.keys - low).astype(np.uint64) >> shift
        np.add.at(table[2 * i + 1], np.minimum(bins.astype(np.int64), new.n_bins - 1), part.counted.counts)
    table[:, 0] += np.diff(ends, prepend=0) - table.sum(1)
    return BinCounts.from_table(table)


def certain_bracket(scans: Sequence[tuple[ZoneTable, BinCounts]], rank: int, top: int) -> tuple[int, int]:
    """Return the bounds of the score at a rank, from the counts of scans of different rows with different bins."""
    lows, highs, counts = (np.concatenate(parts) for parts in zip(*(_bins(*one, top) for one in scans), strict=True))

    def at_rank(edges: Ints) -> int:
        order = np.argsort(edges)[::-1]
        return int(edges[order[np.searchsorted(np.cumsum(counts[order]), rank)]])

    return at_rank(lows), at_rank(highs)


def _bins(zones: ZoneTable, histogram: BinCounts, top: int) -> tuple[Ints, Ints, Array]:
    """Return the first and last key of each nonempty bin, and its count."""
    zone, bin_ = np.divmod(histogram.cells.astype(np.int64), zones.n_bins)
    lows, highs = [], []
    for z, b in zip(zone.tolist(), bin_.tolist(), strict=True):
        low, shift = int(zones.floors[z]), int(zones.shifts[z])
        ceiling = zones.zone_ceiling(z, top)
        lows.append(low + (b << shift))
        highs.append(ceiling if b == zones.n_bins - 1 else min(low + ((b + 1) << shift) - 1, ceiling, BEYOND))
    return np.array(lows, np.int64), np.array(highs, np.int64), histogram.counts.astype(np.int64)


def spread_bands(n_bands: int, first: int, last: int, read: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the bands from ``first`` to ``last`` in a fixed order, of which any first ones are spread evenly over the store.

    Bands that an earlier run has read come first.
    """
    with np.errstate(over="ignore"):
        order = np.argsort(np.arange(n_bands, dtype=np.uint64) * _GOLDEN, kind="stable")
    order = np.concatenate([np.asarray(read, np.int64), order[~np.isin(order, read)]])
    return tuple(np.sort(order[first:last]).tolist())


def first_wave(shape: ScanShape, expected: float) -> int:
    """Return the number of bands of the first wave: all if the expected events fit."""
    share = _PLANNED * shape.all_events / max(expected, 1.0)
    n_bands = max(int(share * shape.n_bands), _LEAST_BANDS)
    return shape.n_bands if share >= 1 or n_bands >= shape.n_bands else n_bands


def next_wave(shape: ScanShape, n_seen: int, n_held: int) -> int:
    """Return the number of bands of the next wave, given the bands read and the events held."""
    left = shape.n_bands - n_seen
    space = _PLANNED * shape.all_events - n_held
    fitting = int(space / max(n_held / n_seen, 1e-9)) if space > 0 else 0
    return min(left, max(fitting, math.ceil(_LEAST_GROWTH * n_seen), _LEAST_BANDS))


def expected_held(shape: ScanShape, n_seen: int, n_held: int) -> float:
    """Return the events that the same brackets will hold after all bands, as a share of the limit."""
    return n_held / n_seen * shape.n_bands / max(_BETWEEN * shape.all_events, 1)


def narrow(
    tally: ScanTally,
    plan: ScanPlan,
    spans: Sequence[Span],
    n_seen: int,
    *,
    share: float = _BETWEEN,
    reach: float = 1.0,
    looks_inside: bool = False,
) -> tuple[ScanTally, ScanPlan]:
    """Return the tally and the plan of a scan with narrower brackets, after ``n_seen`` bands.

    The new ones reach ``reach`` times as far as usual, or less if they would hold more than a share of the events. If the old ones
    are very wide, ``looks_inside`` estimates the spread between bands from the events inside rather than from the scores above.
    """
    seen = _SeenScores(tally, plan, n_seen, looks_inside)
    limit = share * plan.shape.all_events
    while True:
        brackets = join_brackets([seen.bracket(span, reach) for span in spans])
        n_held = sum(seen.count_from(low) - seen.count_from(high + 1) for low, high in brackets)
        if n_held <= limit or reach * REACH <= _LEAST_REACH:
            break
        reach = max(_LEAST_REACH / REACH, reach * limit / n_held)
    zones = _nest_zones(seen, brackets)
    return fold(tally, plan.zones, zones), replace(plan, zones=zones)


class _SeenScores:
    """The scores of the bands so far, by zones."""

    def __init__(self, tally: ScanTally, plan: ScanPlan, n_seen: int, looks_inside: bool) -> None:
        self.tally, self.plan, self.n_seen, self.looks_inside = tally, plan, n_seen, looks_inside
        self.by_zone = np.cumsum(tally.histogram.table().sum(1))
        # The keys of events, ascending, and the number of counted scores from each key up.
        order = np.argsort(tally.counted.keys)
        self.single, self.counted = np.sort(tally.events.keys), tally.counted.keys[order]
        self.n_from = np.cumsum(tally.counted.counts[order][::-1])[::-1]
        self.left_out = 1 - tally.n_rows / plan.shape.n_samples
        self.margins: dict[float, float] = {}

    def count_from(self, key: int) -> int:
        """Return the number of scores of the events from a key up."""
        n = 0
        ends = np.iinfo(self.single.dtype)
        if key <= ends.max:  # in their own dtype: otherwise NumPy would convert all keys
            n += self.single.size - int(np.searchsorted(self.single, self.single.dtype.type(max(key, ends.min))))
        if key <= KEY_MAX:
            counted = int(np.searchsorted(self.counted, key))
            n += int(self.n_from[counted]) if counted < self.n_from.size else 0
        return n

    def bracket(self, span: Span, reach: float) -> tuple[int, int]:
        """Return the probable bounds, within the old intervals, of the scores of some ranks."""
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
        count = position - float(self.by_zone[zone - 1]) + self.count_from(high + 1)
        while low < high:  # the highest key with at least this count from it up
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.count_from(middle) >= count else (low, middle - 1)
        return low

    def _margin(self, target: float) -> float:
        """Return the error, in scores, of estimating the share of all scores above a position from those read so far.

        The larger of two estimates: from the spread between rows, and between bands if there are two or more.
        """
        if target not in self.margins:
            tally, zones = self.tally, self.plan.zones
            # The interval of the position, or the one below the gap of the position.
            j = min(int(np.searchsorted(self.by_zone, target)) // 2, zones.n_intervals - 1)
            key, (low, high) = self._key_at(target, lower=True), zones.interval(j)
            is_inside = low <= key <= high and not tally.dropped[j]
            cells = base_cells(tally, j)
            if is_inside:
                cells = _add_to_cells(
                    cells, tally.events.between(low, high), tally.counted.between(low, high).above(key), key
                )
            by_row = REACH * math.sqrt(tally.n_rows * _variance(cells, np.arange(cells.size) // 2) * self.left_out)
            n_bands, spread = tally.n_bands, self._band_spread(j)
            if is_inside and self.looks_inside:
                n_bands, spread = self.n_seen, self._spread_above(key, high, spread)
            by_band = reach_of(n_bands) * math.sqrt(self.n_seen * spread * self.left_out) if n_bands >= 2 else 0.0
            self.margins[target] = max(by_row, by_band)
        return self.margins[target]

    def _spread_above(self, key: int, high: int, spread: float) -> float:
        """Return the variance between bands of the scores above a key, given that of those above its interval."""
        inside = (self.tally.events.keys > key) & (self.tally.events.keys <= high)
        counts = np.bincount(self.tally.events.rows[inside] >> ROW_BITS, minlength=self.n_seen)
        return (math.sqrt(spread) + float(counts.std())) ** 2

    def _band_spread(self, j: int) -> float:
        """Return the variance between bands of the number of scores above interval j."""
        m = self.tally.n_bands
        mean = float(self.tally.band_sums[j]) / max(m, 1)
        spread = max(0.0, float(self.tally.band_squares[j]) / max(m, 1) - mean**2)
        return spread * m / max(m - 1, 1) * 4.0**self.plan.shape.band_unit


def _variance(counts: Ints, values: Ints) -> float:
    n = max(int(counts.sum()), 1)
    mean = float((counts * values).sum()) / n
    return float((counts * (values - mean) ** 2).sum()) / n


def _nest_zones(seen: _SeenScores, brackets: Sequence[tuple[int, int]]) -> ZoneTable:
    """Return zones whose intervals are the parts of the old ones inside the brackets.

    Intervals of a single key stay. Those with dropped events go, except the lowest, whose floor is that of the scan.
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
