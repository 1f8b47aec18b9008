"""The scan of one band: from its slabs to its tally."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.bits import count_bins
from ..kernels.keys import HALF_NAN, encode, is_half
from ..kernels.rows import scan_rows
from .checked import NOWHERE
from .distance import DistanceTally
from .entries import (
    Buffers,
    Entries,
    TileReader,
    TopRanks,
    checked_slabs,
    ranking_room,
    streamed_rows,
)
from .events import EventTally
from .exact import add_weights, carry, zero_sums
from .labels import usable_labels
from .ranked import MOST_FUSED, RankedTally, partitioned_top
from .split import N_BINS, Split, label_weights, split_entries, split_of
from .tally import ScanPlan, ScanTally

Array = NDArray[Any]
Ints = NDArray[np.int64]


def sampled_rows(n_rows: int) -> int:
    """Give how many rows of a band enter the sample histogram whole: about one in a hundred."""
    return min(n_rows, max(16, n_rows >> 7))


def scan_band(slabs: Iterable[Array], labels: Array | None, band: int, plan: ScanPlan) -> ScanTally:
    """Read one band, given as blocks along the classes, and tally it.

    ``labels`` is one integer a row, or the soft labels of all classes, or None.
    """
    return _BandScan(labels, band, plan).run(slabs)


class _BandScan:
    """The state of one band's scan."""

    def __init__(self, labels: Array | None, band: int, plan: ScanPlan) -> None:
        self.plan, self.band = plan, band
        self.hard, self.soft, self.bad_labels = usable_labels(labels, plan.n_classes)
        n = plan.zones.n_intervals
        self.above_parts: list[NDArray[np.int32]] = []
        self.hits = np.zeros(2 * n, np.int64)
        self.weight_above = zero_sums(0 if self.soft is None else n)
        self.weight_at_rank = zero_sums(0 if self.soft is None else plan.n_ranks)
        self.histogram = plan.zones.no_histogram()
        self.sample = np.zeros(N_BINS, np.int64)
        self.events: list[EventTally] = [EventTally.empty()]
        self.coarse = False
        self.dropped = np.zeros(n, bool)
        self.rank_counts = np.zeros(plan.n_ranks + 2, np.int64)
        self.ranked: list[RankedTally] = []
        self.distance = DistanceTally.empty()

    def run(self, slabs: Iterable[Array]) -> ScanTally:
        plan = self.plan
        reader = TileReader(plan.floor, plan.dtype, plan.tile_scores)
        slabs = checked_slabs(slabs, plan.dtype, plan.n_classes, self.hard if self.soft is None else self.soft)
        first = next(slabs)
        n_rows = first.shape[0]
        self._take_sample(first)
        if first.shape[1] == plan.n_classes and self.soft is None:
            self._take_rows(reader, first)
        else:
            n_top = max(plan.n_ranks, plan.n_ranked)
            top = TopRanks(n_rows, n_top, plan.dtype) if n_top else None
            for entries in streamed_rows(reader, self._sampled(first, slabs), top):
                self._take(entries)
            if top is not None:
                self._take_ranks(top)
        return self._finish(n_rows, reader)

    def _take_rows(self, reader: TileReader, block: Array) -> None:
        """Scan a block of whole rows: the way of ordinary stores, in as few calls as possible."""
        plan = self.plan
        n_ranks = 0 if self.hard is None else plan.n_ranks
        labels = np.full(block.shape[0], -1, np.int64) if self.hard is None else self.hard
        for first, tile in reader.tiles(block):
            mine = labels[first : first + tile.shape[0]]
            if is_half(plan.dtype):
                reader.note_half_nan(tile, first)
                mine = self._without_nan(tile, mine)
            buffers, arguments = Buffers(*tile.shape), reader.as_arguments(tile)
            fused = plan.n_ranked if plan.n_ranked <= MOST_FUSED else 0
            ranking, n_nan_before = ranking_room(tile.shape, fused, plan.dtype), reader.n_nan
            row = 0
            while row < tile.shape[0]:
                above = np.empty((tile.shape[0] - row, plan.zones.n_intervals), np.int32)
                tallies = (self.rank_counts, above, self.histogram, self.hits)
                stop, n_nan, first_nan, n_events = scan_rows(
                    arguments, row, buffers.arrays(), plan.zones.arrays(), (mine, n_ranks), tallies, ranking
                )
                reader.note_nan(tile, n_nan, first_nan, first)
                self.above_parts.append(above[: stop - row])
                self._keep_events(split_of(buffers, n_events, first + row))
                row = stop
            if fused:
                self._keep_ranked(ranking[0])
            elif plan.n_ranked:
                self._rank_many(tile, has_nan=reader.n_nan > n_nan_before)

    def _rank_many(self, tile: Array, has_nan: bool) -> None:
        """Keep more ranks than are found while scanning."""
        n_ranked = self.plan.n_ranked
        step = max(1, self.plan.tile_scores // tile.shape[1])
        for first in range(0, tile.shape[0], step):
            rows = tile[first : first + step]
            if not has_nan or is_half(self.plan.dtype):  # a half float's NaN is the smallest number here
                self._keep_ranked(partitioned_top(rows, n_ranked))
                continue
            top = TopRanks(rows.shape[0], n_ranked, self.plan.dtype)
            top.insert(rows, 0, 0)
            self._keep_ranked(top.scores)

    def _keep_ranked(self, scores: Array) -> None:
        self.ranked.append(RankedTally.from_rows(scores, self.plan.dtype, self.plan.ranked_room))

    def _without_nan(self, tile: Array, labels: Ints) -> Ints:
        """Count half-float labels whose score is NaN as beyond all ranks; give the others."""
        is_nan = (labels >= 0) & (tile[np.arange(labels.size), np.maximum(labels, 0)] == HALF_NAN)
        if self.plan.n_ranks and self.hard is not None:
            self.rank_counts[-1] += is_nan.sum()
        return np.where(is_nan, -1, labels)

    def _sampled(self, first: Array, rest: Iterable[Array]) -> Iterable[Array]:
        self._take_distance(first, 0)
        yield first
        first_class = first.shape[1]
        for slab in rest:
            self._take_sample(slab)
            self._take_distance(slab, first_class)
            first_class += slab.shape[1]
            yield slab

    def _take_distance(self, slab: Array, first_class: int) -> None:
        """Add how far a slab's scores are from the soft labels."""
        if self.soft is None or not self.plan.with_distance:
            return
        step = max(1, self.plan.tile_scores // slab.shape[1])
        for first in range(0, slab.shape[0], step):
            rows = slice(first, first + step)
            labels = self.soft[rows, first_class : first_class + slab.shape[1]]
            self.distance = DistanceTally.merge([self.distance, DistanceTally.from_block(slab[rows], labels)])

    def _take_sample(self, block: Array) -> None:
        n_rows = block.shape[0]
        n_taken = sampled_rows(n_rows)
        rows = np.arange(n_taken) * n_rows // n_taken
        taken = np.zeros(N_BINS, np.int64)
        count_bins(
            encode(np.ascontiguousarray(block[rows], self.plan.dtype)).reshape(-1),
            self.plan.sample_base,
            self.plan.sample_shift,
            taken,
        )
        self.sample += taken * (n_rows // n_taken)

    def _take_ranks(self, top: TopRanks) -> None:
        if self.plan.n_ranked:
            self._keep_ranked(top.scores[:, : self.plan.n_ranked])
        if self.soft is not None:
            row, rank = np.nonzero(top.classes[:, : self.plan.n_ranks] >= 0)
            add_weights(self.weight_at_rank, self.soft[row, top.classes[row, rank]], rank)
        elif self.hard is not None and self.plan.n_ranks:
            self.rank_counts += np.bincount(top.ranks_of(self.hard, self.plan.n_ranks), minlength=self.rank_counts.size)

    def _take(self, entries: Entries) -> None:
        """Split a tile's entries by the intervals, and keep what the split yields."""
        plan = self.plan
        labels = None if self.hard is None else self.hard[entries.first_row : entries.first_row + entries.n_rows]
        above, split = split_entries(entries, plan.zones, self.histogram, labels, self.hits)
        self.above_parts.append(above)
        if self.soft is not None:
            self._take_weight_above(entries, self.soft)
        self._keep_events(split)

    def _keep_events(self, split: Split) -> None:
        weights = label_weights(self.hard if self.soft is None else self.soft, split.rows, split.classes)
        self._keep(EventTally.from_rows(self.band, split.keys, split.rows, split.sizes, weights))

    def _take_weight_above(self, entries: Entries, soft: NDArray[np.float64]) -> None:
        """Add each listed weight to the first interval that lies below its score."""
        weights = soft[entries.rows(), entries.classes]
        # Interval j lies below a key that is in its gap or higher, that is from the gap's floor up.
        zones = self.plan.zones
        gaps = zones.floors[0::2][zones.first_zone :]
        n_below = np.searchsorted(gaps[::-1], entries.keys, side="right")
        inner = n_below > 0
        add_weights(self.weight_above, weights[inner], zones.n_intervals - n_below[inner])

    def _keep(self, events: EventTally) -> None:
        """Keep a tile's events; count them together, and then drop them, when they grow too many."""
        if self.dropped.any():
            events = events.select(lambda keys: ~self.dropped[self.plan.zones.intervals_of(keys)])
        self.events.append(events)
        if sum(part.n_stored for part in self.events) <= self.plan.max_events:
            return
        merged = EventTally.merge(self.events).coarsen()
        self.coarse = True
        zones = self.plan.zones
        while merged.n_stored > self.plan.max_events:
            crowd = np.bincount(zones.intervals_of(merged.keys), minlength=zones.n_intervals)
            for j in range(zones.n_intervals):
                low, high = zones.interval(j)
                if low == high:  # one key has as many entries as there are set sizes: always kept
                    crowd[j] = 0
            if not crowd.any():
                break
            self.dropped[crowd.argmax()] = True
            merged = merged.select(lambda keys: ~self.dropped[self.plan.zones.intervals_of(keys)])
        self.events = [merged]

    def _finish(self, n_rows: int, reader: TileReader) -> ScanTally:
        above = np.concatenate(self.above_parts)
        size_intervals, sizes, size_counts = _count_sizes(above)
        events = EventTally.merge(self.events)
        bad = self.bad_labels
        return ScanTally(
            n_rows=n_rows,
            n_nan=reader.n_nan,
            first_nan=(self.band, *reader.first_nan) if reader.n_nan else NOWHERE,
            n_bad_labels=len(bad),
            first_bad_label=(self.band, int(bad[0]), 0) if len(bad) else NOWHERE,
            n_labelled=n_rows if self.soft is not None else 0 if self.hard is None else int((self.hard >= 0).sum()),
            rank_counts=self.rank_counts,
            size_intervals=size_intervals,
            sizes=sizes,
            size_counts=size_counts,
            hits=self.hits,
            weight_above=carry(np.cumsum(carry(self.weight_above), axis=0)),
            weight_at_rank=carry(self.weight_at_rank),
            events=(events.coarsen() if self.coarse else events,),
            dropped=self.dropped,
            histogram=self.histogram,
            sample=self.sample,
            n_sampled=sampled_rows(n_rows),
            ranked=RankedTally.merge(self.ranked),
            distance=self.distance,
        )


def _count_sizes(above: NDArray[np.int32]) -> tuple[Ints, Ints, Ints]:
    """Give (interval, size, count) of the set sizes in each column."""
    _n_rows, n_intervals = above.shape
    width = int(above.max(initial=0)) + 1
    flat = (above + np.arange(n_intervals) * width).reshape(-1)
    if n_intervals * width > 4 * flat.size:
        values, counts = np.unique(flat, return_counts=True)
    else:
        binned = np.bincount(flat)
        values = np.flatnonzero(binned)
        counts = binned[values]
    return values // width, values % width, counts
