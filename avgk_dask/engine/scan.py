"""The scan of one band, from its slabs to its ``ScanTally``.

If rows come whole, with hard labels, one compiled call per stretch of rows lists the candidates above the plan's floor, ranks the
label, counts the scores by bins, and holds the candidates' keys (``_hold_rows``) or the events inside the plan's intervals
(``_scan_rows``). If they come in several slabs, or with soft labels, candidates are listed slab by slab, and then split by the
intervals (``_take``), with the same tally. If many events are ties, equal events are counted together. Intervals with too many
events are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, Ints
from ..bands.passes import NOWHERE, UsableLabels
from ..bands.rows import Candidates, Listing, TileReader, TopRanks, checked_slabs, ranking_space, streamed_rows
from ..exact.sums import ExactSums
from ..kernels import lanes_for
from ..kernels.dispatch import count_bins, count_cells, hold_rows, scan_rows
from ..kernels.keys import HALF_NAN, KEY_MAX, encode, is_half, key_range, narrow_dtype, narrow_keys
from .events import EventTally, HeldEvents, Split, split_candidates
from .plan import N_BINS, ScanPlan, ScanShape, intervals_of
from .ranked import MOST_FUSED, RankedTally, partitioned_top
from .rows import HeldRows
from .strata import StrataRanks, StrataSums
from .tally import BinCounts, DistanceTally, RowLook, ScanTally

#: Events that a scan writes before it returns from its kernel.
EVENT_SPACE = 1 << 17
#: If a band holds more than ``_MANY`` of the events that it may hold, ``_EXAMINED`` of their keys are examined. The events are
#: ties if these keys occur more than ``_TIED`` times on average.
_MANY, _EXAMINED, _TIED = 1 / 16, 1 << 12, 8
#: Minimum number of scores in a band's sample.
_LEAST_SAMPLE = 1 << 13


def scan_band(slabs: Iterable[Array], labels: Array | None, band: int, plan: ScanPlan) -> ScanTally:
    """Scan the slabs of one band, with one integer label per row, soft labels of all classes, or no labels."""
    return _BandScan(labels, band, plan).scan(slabs)


class _BandScan:
    def __init__(self, labels: Array | None, band: int, plan: ScanPlan) -> None:
        self.plan, self.band = plan, band
        self.labels = UsableLabels.of_column(labels, plan.shape.n_classes, are_packed=plan.shape.strata == "groups")
        self.hard, self.soft = self.labels.hard, self.labels.soft
        n = plan.zones.n_intervals
        #: By stretch of rows: the number of scores of each row above each interval, and the zones of the labels.
        self.above_parts: list[NDArray[np.int32]] = []
        self.zone_parts: list[NDArray[np.int32]] = []
        #: The soft labels' weight above each interval, and at each rank.
        self.weights = None if self.soft is None else (ExactSums.zeros(n), ExactSums.zeros(plan.shape.n_ranks))
        self.sample = np.zeros(N_BINS, np.int64)
        self.rows: list[HeldRows] = []
        self.held: list[HeldEvents] = []
        self.counted = EventTally.empty()
        self.counting = False
        self.dropped = np.zeros(n, bool)
        self.ranked: list[RankedTally] = []
        self.distances: list[DistanceTally] = []

    def scan(self, slabs: Iterable[Array]) -> ScanTally:
        plan = self.plan
        reader = TileReader(plan.floor, plan.shape.dtype, plan.shape.tile_scores)
        slabs = checked_slabs(slabs, plan.shape.dtype, plan.shape.n_classes, self.labels.array)
        first = next(slabs)
        n_rows = first.shape[0]
        self.histogram = plan.zones.no_histogram(n_rows * plan.shape.n_classes)
        looked = plan.shape.examined_rows(self.band)
        # A plan from a checkpoint may list rows of longer bands.
        self.look = RowLook(looked[looked < n_rows], plan.shape.dtype)
        self._take_sample(first)
        self.look.take(first)
        # The ranks and strata of all rows. At first, every label ranks beyond all ranks.
        self.ranks = np.zeros(n_rows, np.int32)
        if self.hard is not None:
            self.ranks[self.hard >= 0] = plan.shape.n_ranks + 1
        by_rank = plan.shape.strata == "ranks"
        self.strata: Array = self.ranks if by_rank else self.labels.strata(plan.shape.strata, n_rows)
        if first.shape[1] == plan.shape.n_classes and self.soft is None:
            self._take_rows(reader, first)
        else:
            n_top = max(plan.shape.n_ranks, plan.shape.n_ranked)
            top = TopRanks(n_rows, n_top, plan.shape.dtype) if n_top else None
            for candidates in streamed_rows(reader, self._sample_slabs(first, slabs), top):
                if top is not None and candidates.first_row == 0:  # all slabs have been read
                    self._take_ranks(top)
                self._take(candidates)
        return self._finish(n_rows, reader)

    def _take_rows(self, reader: TileReader, block: Array) -> None:
        plan, dtype = self.plan, self.plan.shape.dtype
        n_ranks = 0 if self.hard is None else plan.shape.n_ranks
        labels = np.full(block.shape[0], -1, np.int64) if self.hard is None else self.hard
        fused = plan.shape.n_ranked if plan.shape.n_ranked <= MOST_FUSED else 0
        scan = self._hold_rows if plan.with_rows else self._scan_rows

        def make_space() -> tuple[Any, Any]:
            listing = Listing(plan.shape.n_classes, lanes_for(fused, plan.shape.n_classes), dtype)
            return listing.arrays(), Split(listing.keys.size + EVENT_SPACE, narrow_dtype(dtype))

        with plan.pool.lend(make_space) as space:
            for first, tile in reader.tiles(block):
                tile_labels = labels[first : first + tile.shape[0]]
                if is_half(dtype):
                    reader.note_half_nan(tile, first)
                    is_nan = (tile_labels >= 0) & (
                        tile[np.arange(tile_labels.size), np.maximum(tile_labels, 0)] == HALF_NAN
                    )
                    tile_labels = np.where(is_nan, -1, tile_labels)  # a label whose score is NaN is in no set
                label_space = (
                    tile_labels,
                    np.empty(tile_labels.size, np.int32),
                    self.ranks[first : first + tile.shape[0]],
                    n_ranks,
                )
                ranking, n_nan_before = ranking_space(tile.shape, fused, dtype), reader.n_nan
                for n_nan, first_nan in scan(reader.as_arguments(tile), first, label_space, ranking, space):
                    reader.note_nan(tile, n_nan, first_nan, first)
                self._rank_nan_labels(first, tile.shape[0])
                if fused:
                    self._hold_ranked(ranking[0])
                elif plan.shape.n_ranked:
                    self._rank_many(tile, has_nan=reader.n_nan > n_nan_before)

    def _hold_rows(self, tile: Any, first: int, labels: Any, ranking: Any, space: Any) -> Iterator[tuple[int, int]]:
        """Scan a tile and hold its rows; yield the number of NaN in each call of the kernel, and the index of the first."""
        n_rows, zones, (listing, events) = tile[0].shape[0], self.plan.zones.arrays(), space
        lengths, indices = np.empty(n_rows, np.int32), labels[1]
        held, strata = (events.columns[1], lengths), self.strata[first : first + n_rows]
        row = 0
        while row < n_rows:
            stop, *nan, n = hold_rows(tile, row, listing, held, zones, labels, self.histogram, ranking)
            span = slice(row, stop)
            self.rows.append(HeldRows(self.band, held[0][:n].copy(), lengths[span], indices[span], strata[span]))
            yield nan[0], nan[1]
            row = stop

    def _scan_rows(self, tile: Any, first: int, labels: Any, ranking: Any, space: Any) -> Iterator[tuple[int, int]]:
        """Scan a tile and hold its events; yield the number of NaN in each call of the kernel, and the index of the first."""
        n_rows, zones, (listing, events) = tile[0].shape[0], self.plan.zones.arrays(), space
        above = np.empty((n_rows, self.plan.zones.n_intervals), np.int32)
        label_zones = np.empty(n_rows, np.int32)
        self.above_parts.append(above)
        self.zone_parts.append(label_zones)
        tallies = above, label_zones, self.histogram
        row = 0
        while row < n_rows:
            row, *nan, n = scan_rows(tile, row, listing, events.columns, zones, labels, tallies, ranking)
            self._rank_nan_labels(first, n_rows)
            self._hold(events, n, first)
            yield nan[0], nan[1]

    def _rank_nan_labels(self, first: int, n_rows: int) -> None:
        """Rank half-float labels whose score is NaN after all others."""
        if self.hard is not None and is_half(self.plan.shape.dtype):
            span = slice(first, first + n_rows)
            ranks = self.ranks[span]
            ranks[(ranks == 0) & (self.hard[span] >= 0)] = self.plan.shape.n_ranks + 1

    def _rank_many(self, tile: Array, has_nan: bool) -> None:
        """Hold the ranked scores of a tile if there are more than ``MOST_FUSED`` ranks."""
        shape = self.plan.shape
        step = max(1, shape.tile_scores // tile.shape[1])
        for first in range(0, tile.shape[0], step):
            rows = tile[first : first + step]
            if not has_nan or is_half(shape.dtype):  # NaN of half floats are converted to the smallest number
                self._hold_ranked(partitioned_top(rows, shape.n_ranked))
            else:
                top = TopRanks(rows.shape[0], shape.n_ranked, shape.dtype)
                top.insert(rows, 0, 0)
                self._hold_ranked(top.scores)

    def _hold_ranked(self, scores: Array) -> None:
        keys = np.ascontiguousarray(narrow_keys(scores, self.plan.shape.dtype).T)
        self.ranked.append(RankedTally(keys, (), self.plan.shape.ranked_bins))

    def _sample_slabs(self, first: Array, rest: Iterable[Array]) -> Iterable[Array]:
        self._take_distance(first, 0)
        yield first
        first_class = first.shape[1]
        for slab in rest:
            self._take_sample(slab)
            self.look.take(slab)
            self._take_distance(slab, first_class)
            first_class += slab.shape[1]
            yield slab

    def _take_distance(self, slab: Array, first_class: int) -> None:
        if self.soft is None or not self.plan.shape.with_distance:
            return
        step = max(1, self.plan.shape.tile_scores // slab.shape[1])
        for first in range(0, slab.shape[0], step):
            rows = slice(first, first + step)
            labels = self.soft[rows, first_class : first_class + slab.shape[1]]
            self.distances.append(DistanceTally.from_block(slab[rows], labels))

    def _take_sample(self, block: Array) -> None:
        """Count a sample of all scores, unless every score is listed."""
        dtype, n_rows = self.plan.shape.dtype, block.shape[0]
        if self.plan.floor <= key_range(dtype)[0]:
            return
        n_taken, step = _sample_size(n_rows, self.plan.shape.n_classes)
        some = block[(2 * np.arange(n_taken) + 1) * n_rows // (2 * n_taken), ::step]
        keys = encode(np.ascontiguousarray(some, dtype)).reshape(-1)
        taken = np.zeros(N_BINS, np.int64)
        count_bins(keys, self.plan.sample_base, self.plan.sample_shift, taken)
        self.sample += taken * (step * n_rows // n_taken)

    def _take_ranks(self, top: TopRanks) -> None:
        shape = self.plan.shape
        if shape.n_ranked:
            self._hold_ranked(top.scores[:, : shape.n_ranked])
        if self.soft is not None and self.weights is not None:
            row, rank = np.nonzero(top.classes[:, : shape.n_ranks] >= 0)
            self.weights[1].add(self.soft[row, top.classes[row, rank]], rank)
        elif self.hard is not None and shape.n_ranks:
            self.ranks[:] = top.ranks_of(self.hard, shape.n_ranks)

    def _take(self, candidates: Candidates) -> None:
        """Hold the candidates of a stretch of rows, or the events inside the intervals."""
        zones = self.plan.zones
        span = slice(candidates.first_row, candidates.first_row + candidates.n_rows)
        labels = None if self.hard is None else self.hard[span]
        if self.plan.with_rows:
            for zone, floor in list(enumerate(zones.floors.tolist()))[zones.first_zone :]:
                ceiling = zones.zone_ceiling(zone, KEY_MAX)
                inside = candidates.keys[(candidates.keys >= floor) & (candidates.keys <= ceiling)]
                count_bins(inside, floor, zones.shifts[zone], self.histogram[zone])
            self._hold_candidates(candidates, labels)
            return
        above, label_zones, split, n_events = split_candidates(candidates, zones, self.histogram, labels)
        self.above_parts.append(above)
        self.zone_parts.append(label_zones)
        if self.soft is not None and self.weights is not None:
            # Each weight is added at the first interval below its score; ``_finish`` accumulates. A score is above interval j if
            # its key reaches the floor of the gap above the interval.
            weights = self.soft[candidates.rows(), candidates.classes]
            gaps = zones.floors[0::2][zones.first_zone :]
            n_below = np.searchsorted(gaps[::-1], candidates.keys, side="right")
            inner = n_below > 0
            self.weights[0].add(weights[inner], zones.n_intervals - n_below[inner])
        self._hold(split, n_events, candidates.first_row)

    def _hold_candidates(self, candidates: Candidates, labels: Ints | None) -> None:
        lengths = np.diff(candidates.offsets).astype(np.int32)
        indices = np.full(lengths.size, -1, np.int32)
        if labels is not None:
            rows = candidates.rows() - candidates.first_row
            hits = np.flatnonzero(candidates.classes == labels[rows])
            indices[rows[hits]] = hits - candidates.offsets[rows[hits]]
        keys = candidates.keys.astype(narrow_dtype(self.plan.shape.dtype))
        strata = self.strata[candidates.first_row : candidates.first_row + candidates.n_rows]
        self.rows.append(HeldRows(self.band, keys, lengths, indices, strata))

    def _hold(self, split: Split, n_events: int, first_row: int) -> None:
        """Hold the events of some rows; count equal events together if most are ties, or once there are too many."""
        plan = self.plan
        self.held.append(split.held(n_events, self.band, first_row, self.strata, self.soft))
        n_held = sum(part.keys.size for part in self.held)
        are_ties = n_held > _MANY * plan.shape.max_events and _are_ties(self.held[-1].keys)
        if not self.counting and n_held <= plan.shape.max_events and not are_ties:
            return
        self.counting = True
        counted = EventTally.merge([part.counted(plan.zones.floors, plan.shape.n_together) for part in self.held])
        self.held = []
        self.counted = EventTally.merge([self.counted, self._without_dropped(counted)])
        self._drop_crowds()

    def _without_dropped(self, events: EventTally) -> EventTally:
        if not self.dropped.any():
            return events
        return events.select(lambda keys, _: ~self.dropped[intervals_of(self.plan.zones.floors, keys)])

    def _drop_crowds(self) -> None:
        """Drop the intervals whose counted events are too many."""
        zones, counted, most = self.plan.zones, self.counted, self.plan.shape.max_events
        if counted.n_stored <= most:
            return
        crowd = counted.stored_by_interval(zones.floors)
        # An interval of a single key is never dropped: it has one entry per set size and stratum.
        low, high = np.array([zones.interval(j) for j in range(zones.n_intervals)], object).T
        crowd[low == high] = 0
        excess = int(crowd.sum()) - most
        if excess <= 0:
            return
        fullest = np.argsort(crowd)[::-1]
        n_dropped = int(np.searchsorted(np.cumsum(crowd[fullest]), excess)) + 1
        self.dropped[[j for j in fullest[:n_dropped] if crowd[j]]] = True
        self.counted = self._without_dropped(self.counted)

    def _finish(self, n_rows: int, reader: TileReader) -> ScanTally:
        zones, shape = self.plan.zones, self.plan.shape
        weight_above, weight_at_rank = self.weights or (ExactSums.zeros(0), ExactSums.zeros(0))
        above = np.concatenate(self.above_parts or [np.zeros((0, zones.n_intervals), np.int32)])
        label_zones = np.concatenate(self.zone_parts or [np.zeros(0, np.int32)])
        cell_intervals, cells, cell_counts = _sparse_cells(above, label_zones)
        strata = self.strata[: len(above)]  # empty if rows are held, since their sets are not known yet
        sums = StrataSums.above(above, label_zones, strata) if shape.strata else StrataSums.empty(zones.n_intervals)
        n_taken, step = _sample_size(n_rows, shape.n_classes)
        in_band = band_counts(above, shape) if above.size else np.zeros(zones.n_intervals, np.int64)
        return ScanTally(
            n_rows=n_rows,
            n_nan=reader.n_nan,
            first_nan=(self.band, *reader.first_nan) if reader.n_nan else NOWHERE,
            **self.labels.faults(self.band),
            n_labelled=self.labels.n_labelled,
            rank_counts=np.bincount(self.ranks, minlength=shape.n_ranks + 2),
            cell_intervals=cell_intervals,
            cells=cells,
            cell_counts=cell_counts,
            strata=sums,
            strata_ranks=StrataRanks.from_rows(self.strata, self.ranks) if shape.by_group else StrataRanks.empty(),
            hits=np.bincount(label_zones, minlength=zones.floors.size + 1)[: zones.floors.size],
            weight_above=weight_above.running(),
            weight_at_rank=weight_at_rank.settled(),
            max_held=shape.max_held if self.plan.with_rows else 0,
            rows=tuple(self.rows),
            floors=zones.floors,
            max_events=shape.all_events,
            events=HeldEvents.merge([HeldEvents.empty(), *self.held]),
            counted=self.counted,
            n_together=shape.n_together,
            dropped=self.dropped,
            histogram=BinCounts.from_table(self.histogram),
            sample=BinCounts.from_table(self.sample),
            n_sampled=n_taken * -(-shape.n_classes // step),
            ranked=RankedTally.merge([RankedTally.empty(), *self.ranked]),
            distance=DistanceTally.merge([DistanceTally.empty(), *self.distances]),
            looked=self.look.counts(),
            n_bands=1,
            band_sums=in_band,
            band_squares=in_band**2,
        ).settled()


def _sample_size(n_rows: int, n_classes: int) -> tuple[int, int]:
    """Return the number of rows in a band's sample, of about 1 % of its scores, and the step between the sampled classes."""
    n_scores = max(_LEAST_SAMPLE, n_rows * n_classes >> 7)
    n_taken = min(n_rows, -(-n_scores // n_classes))
    return n_taken, max(1, n_taken * n_classes // n_scores)


def band_counts(above: NDArray[np.int32], shape: ScanShape) -> Ints:
    """Return the number of scores of a band above each interval, scaled to the number of rows of the largest band.

    It is counted in units of ``2**band_unit``, so that the sum of a million squares fits into an int64.
    """
    return np.asarray(above.sum(0, dtype=np.int64) * shape.band_rows // above.shape[0] >> shape.band_unit)


def _are_ties(keys: Array) -> bool:
    some = keys[:: max(1, keys.size // _EXAMINED)][:_EXAMINED]
    return np.unique(some).size * _TIED < some.size


def _sparse_cells(above: NDArray[np.int32], label_zones: NDArray[np.int32]) -> tuple[Ints, Ints, Ints]:
    """Return (interval, cell, count) of the cells, given each row's number of scores above intervals and its label's zone."""
    n_intervals, width = above.shape[1], 2 * int(above.max(initial=0)) + 2
    if n_intervals * width > 4 * above.size:
        intervals = np.arange(n_intervals)
        cells = 2 * above.astype(np.int64) + (label_zones[:, None] <= 2 * intervals)
        values, counts = np.unique(cells + intervals * width, return_counts=True)
        return values // width, values % width, counts
    table = np.zeros((n_intervals, width), np.int64)
    count_cells(above, label_zones, table)
    intervals, occurring = np.nonzero(table)
    return intervals, occurring, table[intervals, occurring]
