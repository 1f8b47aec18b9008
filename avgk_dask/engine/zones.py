"""Tables that place keys among intervals and gaps, or among single keys, in the form that the kernels take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, Ints
from ..kernels.keys import KEY_MAX

#: Bins that all zones together share, and entries of the table that finds a key's zone.
N_BINS = 1 << 14
_N_STARTS = 1 << 13
#: Stretches of keys in the table that finds an edge.
_N_EDGE_STARTS = 1 << 16


@dataclass(frozen=True)
class ZoneTable:
    """Zones of keys, from the top down: zone 2 j is the gap above interval j, zone 2 j + 1 interval j.

    A zone reaches from its floor up to the floor of the zone before; keys below the last interval have none. ``starts``
    holds the first zone of each stretch of ``2**table_shift`` keys from the last floor up, and in its last entry that
    of all keys beyond. Each zone has ``n_bins`` bins of ``2**shift`` keys.
    """

    floors: Ints
    shifts: NDArray[np.uint64]
    starts: NDArray[np.int32]
    table_shift: np.uint64
    n_bins: int

    @classmethod
    def from_intervals(
        cls, intervals: list[tuple[int, int]], top: int, all_bins: int = N_BINS, usual_top: int | None = None
    ) -> ZoneTable:
        """Return the zones of intervals [low, high] that descend and are disjoint; ``top`` is the highest key.

        Keys up to ``usual_top`` are found fast.
        """
        floors: list[int] = []
        spans: list[int] = []
        ceiling = top
        for low, high in intervals:
            floors += [min(high + 1, KEY_MAX), low]
            spans += [max(ceiling - high, 1), high - low + 1]
            ceiling = low - 1
        n_bins = max(64, all_bins // len(floors))
        highest = floors[0] if usual_top is None else min(floors[0], max(usual_top, floors[-1]))
        table_shift = shift_to_fit(highest - floors[-1] + 1, _N_STARTS - 1)
        # An interval up to the very highest int64 leaves no gap above it: no key starts there.
        first = int(intervals[0][1] == KEY_MAX)
        starts = np.full(_N_STARTS, first, np.int32)
        # The last number of each stretch of 2**table_shift from 0 on, at most the highest uint64.
        ends, most = np.arange(1, _N_STARTS, dtype=np.uint64), (1 << 64 - table_shift) - 1
        lasts = np.where(ends > most, np.uint64(2**64 - 1), (ends << np.uint64(table_shift)) - np.uint64(1))
        ascending = np.array([floor - floors[-1] for floor in floors[::-1]], np.uint64)
        starts[:-1] = np.maximum(first, len(floors) - np.searchsorted(ascending, lasts, side="right"))
        shifts = np.array([shift_to_fit(span, n_bins) for span in spans], np.uint64)
        return cls(np.array(floors, np.int64), shifts, starts, np.uint64(table_shift), n_bins)

    @property
    def n_intervals(self) -> int:
        """Number of intervals."""
        return self.floors.size // 2

    @property
    def first_zone(self) -> int:
        """The highest zone that a key can be in: 1 if interval 0 reaches the highest int64, else 0."""
        return int(self.starts[-1])

    def interval(self, j: int) -> tuple[int, int]:
        """Return interval j as (low, high)."""
        return int(self.floors[2 * j + 1]), self.zone_ceiling(2 * j + 1, KEY_MAX)

    def zone_ceiling(self, zone: int, top: int) -> int:
        """Return the highest key of a zone; ``top`` for the first zone."""
        return int(self.floors[zone - 1]) - 1 if zone > self.first_zone else top

    def arrays(self) -> tuple[Any, ...]:
        """Return the table in the form the kernels take."""
        return self.floors, self.shifts, self.starts, self.table_shift

    def no_histogram(self, n_scores: int = 0) -> Array:
        """Return an empty histogram: of int32, to stay in cache, unless ``n_scores`` might be too many for that."""
        return np.zeros((self.floors.size, self.n_bins), np.int32 if n_scores < 1 << 31 else np.int64)


def intervals_of(floors: Ints, keys: Array) -> Ints:
    """Return the interval of each key, given the floors of a ``ZoneTable``; every key must lie in one."""
    return np.asarray(floors.size // 2 - np.searchsorted(floors[1::2][::-1], keys, side="right"))


def shift_to_fit(span: int, n_bins: int) -> int:
    """Return the least shift with which ``span`` keys fit into ``n_bins`` bins."""
    return max(0, (-(-span // n_bins) - 1).bit_length())


@dataclass(frozen=True)
class EdgeTable:
    """Ascending, distinct keys, at least one, that scores are placed among."""

    edges: Ints
    starts: Ints
    shift: np.uint64

    @classmethod
    def from_edges(cls, edges: Ints) -> EdgeTable:
        """Return the table of some keys."""
        low, high = int(edges[0]), int(edges[-1])
        shift = shift_to_fit(high - low + 1, _N_EDGE_STARTS)
        n_stretches = ((high - low) >> shift) + 1
        stretch_of = ((edges.view(np.uint64) - np.uint64(low % 2**64)) >> np.uint64(shift)).astype(np.int64)
        starts = np.searchsorted(stretch_of, np.arange(n_stretches))
        return cls(edges, starts, np.uint64(shift))

    @property
    def n_cells(self) -> int:
        """Number of cells: before, at and after the edges."""
        return 2 * self.edges.size + 1
