"""Folding: what a scan found, as if it had looked for narrower intervals from the start.

Events that are no longer inside an interval are known one by one. So they become counts: of scores and labels above the
intervals that are left, and of the sets' sizes there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..arrays import Array, Bools, Ints
from ..exact.sums import ExactSums, total_weight
from ..kernels.chosen import count_bins, move_cells
from ..kernels.zones import ZoneTable, intervals_of
from ..records import BEYOND
from ..states.bin_counts import BinCounts
from ..states.counted_events import EventTally
from ..states.held_events import HeldEvents, IntervalEvents
from ..states.scan_tally import ScanTally
from ..states.strata import StrataSums


def fold(tally: ScanTally, old: ZoneTable, new: ZoneTable) -> ScanTally:
    """Return a tally by other zones, each of whose intervals lies within an old one.

    The bins of gaps are not known any more: what they hold is in the first one. An interval whose events were dropped must
    be left as it was.
    """
    within = intervals_of(old.floors, new.floors[1::2])
    parts = []
    for i, j in enumerate(within.tolist()):
        mine = IntervalEvents.of(tally.events.between(*old.interval(j)), tally.counted, old.interval(j))
        parts.append(_Folded.of(mine, new.interval(i), base_cells(tally, j), bool(tally.dropped[j])))
    soft = len(tally.weight_above) > 0
    by_zone = np.cumsum(tally.histogram.table().sum(1))
    hits = np.cumsum(tally.hits)
    dropped = tally.dropped[within]
    n_hits = [(0, 0) if soft else part.n_hits for part in parts]
    cells = [np.flatnonzero(part.cells) for part in parts]
    return replace(
        tally,
        cell_intervals=np.repeat(np.arange(len(parts)), [found.size for found in cells]),
        cells=np.concatenate(cells),
        cell_counts=np.concatenate([part.cells[found] for part, found in zip(parts, cells, strict=True)]),
        strata=_strata_above(tally, within, parts),
        hits=np.diff(_zone_ends(hits, within, n_hits, dropped), prepend=0),
        weight_above=_weights_above(tally, within, parts),
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
    """Return how many rows are in each cell with their scores above interval j."""
    mine = tally.cell_intervals == j
    counts = np.zeros(2 * (int(tally.cells[mine].max(initial=0)) // 2 + 1), np.int64)
    counts[tally.cells[mine]] = tally.cell_counts[mine]
    return counts


def cells_above(tally: ScanTally, zones: ZoneTable, j: int, key: int) -> Ints:
    """Return how many rows are in each cell with their scores above a key of interval j, whose events are held."""
    mine = IntervalEvents.of(tally.events.between(*zones.interval(j)), tally.counted, zones.interval(j))
    above = IntervalEvents(HeldEvents.empty(), mine.counted.select(lambda keys, _: keys > key))
    return _moved(base_cells(tally, j), above, mine.single, key)


@dataclass(frozen=True)
class _Folded:
    """One new interval: what lies inside, and of the old interval's events above it their scores, hits, cells and strata."""

    events: HeldEvents
    counted: EventTally
    cells: Ints
    strata: StrataSums
    #: Scores of the old interval above the new one, and down to its end; and the hard labels among them.
    n_scores: tuple[int, int]
    n_hits: tuple[int, int]
    #: The soft labels above it, one sum.
    weight_above: ExactSums

    @classmethod
    def of(cls, old: IntervalEvents, interval: tuple[int, int], cells: Ints, dropped: bool) -> _Folded:
        low, high = interval
        keys = old.single.keys
        if dropped:
            none = HeldEvents.empty(), EventTally.empty()
            return cls(*none, cells, StrataSums.empty(), (0, 0), (0, 0), ExactSums.zeros(1))
        above = IntervalEvents(old.single.select(keys > high), old.counted.select(lambda k, _: k > high))
        inside = (keys >= low) & (keys <= high)
        events = old.single.select(inside)
        events = replace(events, bases=(events.bases + _moved_in_row(old.single, high)[inside]).astype(np.int32))
        strata = StrataSums.merge([above.single.strata_sums(), above.counted.strata_sums()])
        counted = old.counted.select(lambda k, _: (k >= low) & (k <= high))
        cells = _moved(cells, above, old.single, high)
        inner = IntervalEvents(events, counted)
        n_scores, n_hits = (above.n_scores, inner.n_scores), (_hits(above), _hits(inner))
        ends = (n_scores[0], sum(n_scores)), (n_hits[0], sum(n_hits))
        return cls(events, counted, cells, strata, *ends, _soft_weight(above))


def _strata_above(tally: ScanTally, within: Ints, parts: list[_Folded]) -> StrataSums:
    """Return the sums of the strata above each new interval."""
    sums = [tally.strata.columns(within)]
    for i, part in enumerate(parts):
        sizes, hits = np.zeros((2, part.strata.strata.size, len(parts)), np.int64)
        sizes[:, i], hits[:, i] = part.strata.sizes[:, 0], part.strata.hits[:, 0]
        sums.append(StrataSums(part.strata.strata, sizes, hits))
    return StrataSums.merge(sums)


def _moved(cells: Ints, above: IntervalEvents, single: HeldEvents, high: int) -> Ints:
    """Return the cells of the sets with all events above a key taken in."""
    most = int(single.bases.max(initial=0)) + 2 * _longest_row(single) + 1, int(above.counted.steps.max(initial=0)) // 2
    changes = np.zeros(max(cells.size, *(cell + 2 for cell in most)), np.int64)
    move_cells(single.keys, single.rows, single.bases, single.hits, high, 0, changes)
    above.counted.add_cells(changes)
    changes[: cells.size] += cells
    return changes


def _row_starts(events: HeldEvents) -> Bools:
    """Return at which events a row begins."""
    starts = np.ones(events.rows.size, bool)
    starts[1:] = events.rows[1:] != events.rows[:-1]
    return starts


def _longest_row(events: HeldEvents) -> int:
    first = np.flatnonzero(_row_starts(events))
    return int(np.diff(first, append=events.rows.size).max(initial=0))


def _moved_in_row(events: HeldEvents, high: int) -> Ints:
    """Return, for each event, by how much the events of its row above a key change the cell of its set."""
    row = np.cumsum(_row_starts(events)) - 1
    moved = (events.keys > high) * (2 + (events.hits != 0))
    return np.asarray(np.bincount(row, moved).astype(np.int64)[row])


def _hits(events: IntervalEvents) -> int:
    """Return the hard labels among events; 0 for soft ones."""
    if events.single.weights.dtype.kind == "f":
        return 0
    return int(total_weight(events.single.weights) + events.counted.total_weight())


def _zone_ends(cumulative: Ints, within: Ints, parts: list[tuple[int, int]], dropped: Bools) -> Ints:
    """Return, for the new zones from the top down, a count of all down to the end of each."""
    ends = cumulative[2 * within][:, None] + np.array(parts, np.int64)
    ends[dropped, 1] = cumulative[2 * within + 1][dropped]
    return np.asarray(ends.reshape(-1))


def _weights_above(tally: ScanTally, within: Ints, parts: list[_Folded]) -> ExactSums:
    """Return the soft labels above each new interval."""
    if not len(tally.weight_above):
        return tally.weight_above
    sums = tally.weight_above.taken(within)
    for i, part in enumerate(parts):
        sums.limbs[i] += part.weight_above.limbs[0]
    return sums.settled()


def _soft_weight(events: IntervalEvents) -> ExactSums:
    """Return the soft labels of events, as one sum; nothing of hard ones."""
    total = ExactSums.of(events.single.weights) if events.single.weights.dtype.kind == "f" else ExactSums.zeros(1)
    total.add_scattered(0, events.counted.weight_limbs, events.counted.weight_amounts)
    return total


def _histogram(ends: Ints, parts: list[_Folded], new: ZoneTable) -> BinCounts:
    """Return the counts by zone and bin: of the events inside by bins, of all else in the first bin."""
    table = np.zeros((new.floors.size, new.n_bins), np.int64)
    for i, part in enumerate(parts):
        low, shift = int(new.floors[2 * i + 1]), new.shifts[2 * i + 1]
        count_bins(part.events.keys.astype(np.int64), low, shift, table[2 * i + 1])
        bins = (part.counted.keys - low).astype(np.uint64) >> shift
        np.add.at(table[2 * i + 1], np.minimum(bins.astype(np.int64), new.n_bins - 1), part.counted.counts)
    table[:, 0] += np.diff(ends, prepend=0) - table.sum(1)
    return BinCounts.of(table)


def certain_bracket(scans: Sequence[tuple[ZoneTable, BinCounts]], rank: int, top: int) -> tuple[int, int]:
    """Return two keys between which the score of a rank must lie, from the counts of several scans of different rows.

    Their bins differ. What is certain: at least so many scores are at or above a bin's lower end, and at most so many above
    its upper end.
    """
    lows, highs, counts = (np.concatenate(parts) for parts in zip(*(_bins(*one, top) for one in scans), strict=True))
    found = []
    for edges in (lows, highs):
        order = np.argsort(edges)[::-1]
        found.append(int(edges[order[np.searchsorted(np.cumsum(counts[order]), rank)]]))
    return found[0], found[1]


def _bins(zones: ZoneTable, histogram: BinCounts, top: int) -> tuple[Ints, Ints, Array]:
    """Return the first and last key of each bin that is not empty, and its count."""
    zone, bin_ = np.divmod(histogram.cells.astype(np.int64), zones.n_bins)
    lows, highs = [], []
    for z, b in zip(zone.tolist(), bin_.tolist(), strict=True):
        low, shift = int(zones.floors[z]), int(zones.shifts[z])
        ceiling = zones.zone_ceiling(z, top)
        lows.append(low + (b << shift))
        highs.append(ceiling if b == zones.n_bins - 1 else min(low + ((b + 1) << shift) - 1, ceiling, BEYOND))
    return np.array(lows, np.int64), np.array(highs, np.int64), histogram.counts.astype(np.int64)
