"""Splitting entries by intervals of keys: counts above, histograms by zone, and events inside."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.keys import KEY_MAX
from ..kernels.rows import split_rows
from .entries import Buffers, Entries

Array = NDArray[Any]
Ints = NDArray[np.int64]


#: Bins that all zones together share, and entries of the table that finds a key's zone.
N_BINS = 1 << 14
_N_STARTS = 1 << 12


@dataclass(frozen=True)
class ZoneTable:
    """Zones of keys, from the top down: zone 2 j is the gap above interval j, zone 2 j + 1 interval j.

    A zone reaches from its floor up to the floor of the zone before; what lies below the last
    interval has none. ``starts`` gives, for runs of ``2**table_shift`` keys from the last floor up,
    the first zone a key of that run can be in. Each zone has ``n_bins`` bins of ``2**shift`` keys.
    """

    floors: Ints
    shifts: NDArray[np.uint64]
    starts: NDArray[np.int32]
    table_shift: np.uint64
    n_bins: int

    @classmethod
    def from_intervals(cls, intervals: list[tuple[int, int]], top: int, all_bins: int = N_BINS) -> ZoneTable:
        """Give the zones of intervals [low, high] that descend and are disjoint; ``top`` is the highest key."""
        floors: list[int] = []
        spans: list[int] = []
        ceiling = top
        for low, high in intervals:
            floors += [min(high + 1, KEY_MAX), low]
            spans += [max(ceiling - high, 1), high - low + 1]
            ceiling = low - 1
        n_bins = max(64, all_bins // len(floors))
        table_shift = shift_to_fit(floors[0] - floors[-1] + 1, _N_STARTS - 1)
        tops = [floors[-1] + ((i + 1) << table_shift) - 1 for i in range(_N_STARTS - 1)]
        ascending = floors[::-1]
        # An interval up to the very highest int64 leaves no gap above it: no key starts there.
        first = int(intervals[0][1] == KEY_MAX)
        starts = [max(first, len(floors) - bisect_right(ascending, key)) for key in tops] + [first]
        shifts = np.array([shift_to_fit(span, n_bins) for span in spans], np.uint64)
        return cls(np.array(floors, np.int64), shifts, np.array(starts, np.int32), np.uint64(table_shift), n_bins)

    @property
    def n_intervals(self) -> int:
        """Number of intervals."""
        return self.floors.size // 2

    @property
    def first_zone(self) -> int:
        """The highest zone a key can be in: 1 where interval 0 reaches the highest int64, else 0."""
        return int(self.starts[-1])

    def interval(self, j: int) -> tuple[int, int]:
        """Give interval j as (low, high)."""
        return int(self.floors[2 * j + 1]), self.zone_ceiling(2 * j + 1, KEY_MAX)

    def zone_ceiling(self, zone: int, top: int) -> int:
        """Give the highest key of a zone, ``top`` for the first one in use."""
        return int(self.floors[zone - 1]) - 1 if zone > self.first_zone else top

    def intervals_of(self, keys: Ints) -> Ints:
        """Give the interval each key lies in (all must)."""
        return self.n_intervals - np.searchsorted(self.floors[1::2][::-1], keys, side="right")

    def arrays(self) -> tuple[Any, ...]:
        """Give the table in the form the kernels take."""
        return self.floors, self.shifts, self.starts, self.table_shift

    def no_histogram(self) -> Ints:
        """Give the histogram of no score."""
        return np.zeros((self.floors.size, self.n_bins), np.int64)


def shift_to_fit(span: int, n_bins: int) -> int:
    """Give the least shift with which ``span`` keys fit into ``n_bins`` bins."""
    return max(0, (-(-span // n_bins) - 1).bit_length())


@dataclass(frozen=True)
class Split:
    """The events of a run of rows."""

    keys: Ints
    rows: Ints
    sizes: NDArray[np.int32]
    classes: Ints


def split_of(buffers: Buffers, n_events: int, first_row: int) -> Split:
    """Give the events that a kernel left in the buffers, copied out of them."""
    return Split(
        buffers.event_keys[:n_events].copy(),
        buffers.event_rows[:n_events] + first_row,
        buffers.event_sizes[:n_events].astype(np.int32),
        buffers.event_classes[:n_events],
    )


def split_entries(
    entries: Entries, zones: ZoneTable, histogram: Ints, labels: Ints | None = None, hits: Ints | None = None
) -> tuple[NDArray[np.int32], Split]:
    """Split entries by the zones; adds to the histogram of each zone, and to its hits.

    Gives the number of scores of each row above each interval, and the events inside.
    """
    above = np.empty((entries.n_rows, zones.n_intervals), np.int32)
    if labels is None:
        labels = np.full(entries.n_rows, -1, np.int64)
    if hits is None:
        hits = np.zeros(zones.floors.size, np.int64)
    n = entries.keys.size
    keys, rows, sizes, classes = (np.empty(n, np.int64) for _ in range(4))
    n_events = split_rows(
        entries.offsets, entries.keys, entries.classes, zones.arrays(), above, histogram, labels, hits,
        keys, rows, sizes, classes,
    )  # fmt: skip
    rows = rows[:n_events] + entries.first_row
    return above, Split(keys[:n_events], rows, sizes[:n_events].astype(np.int32), classes[:n_events])


def label_weights(labels: Array | None, rows: Ints, classes: Ints) -> NDArray[np.float64] | None:
    """Give the weight that hard or soft labels put on each (row, class)."""
    if labels is None:
        return None
    if labels.ndim == 2:
        return np.asarray(labels[rows, classes], np.float64)
    return np.asarray(labels[rows] == classes, np.float64)
