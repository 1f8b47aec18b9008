"""Plans of scans with their zones of keys, and their form in a checkpoint.

``ScanShape`` has the sizes and limits that all scans of a search share. ``ScanPlan`` adds the intervals of keys of one
scan as a ``ZoneTable``, which places keys among the intervals and the gaps above them, in the form that the kernels
take; all bands use the same plan. A ``Wave`` is the record of a plan and its bands. A script is a sequence of waves,
with which another run reads the same bands by the same plans.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, Dtype, Ints, Pool
from ..kernels.keys import KEY_MAX
from ..records import Record
from .ranked import BIN_BYTES

#: Bytes of a retained row in addition to its keys: for its length, its label's index and its stratum.
ROW_BYTES = 12
#: Bins that all zones together share, and entries of the table that finds a key's zone.
N_BINS = 1 << 14
_N_STARTS = 1 << 13


@dataclass(frozen=True)
class ZoneTable:
    """Zones of keys, from the top down: zone 2 j is the gap above interval j, zone 2 j + 1 interval j.

    A zone reaches from its floor up to the floor of the zone before; keys below the last interval have none. ``starts`` holds
    the first zone of each stretch of ``2**table_shift`` keys from the last floor up, and in its last entry that of all keys
    beyond. Each zone has ``n_bins`` bins of ``2**shift`` keys.
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
class ScanShape:
    """The sizes and limits that all scans of a search share."""

    n_samples: int
    n_classes: int
    dtype: Dtype
    n_ranks: int
    n_chunks: int
    #: Maximum number of events of a band, and of all bands together.
    max_events: int
    all_events: int
    tile_scores: int
    #: Number of ranks whose scores are retained, and bins of each rank's histogram (0: retain the scores themselves).
    n_ranked: int = 0
    ranked_bins: int = 0
    #: Whether to measure the distance of the scores from soft labels.
    with_distance: bool = False
    #: Total number of bins of all zones.
    n_bins: int = N_BINS
    #: Maximum number of keys of listed scores to retain (0: retain events instead), in general and if every key could
    #: be in a different row.
    max_held: int = 0
    max_apart: int = 0
    #: Number of bands (0: all bands are scanned in one wave), and of rows in the largest one.
    n_bands: int = 0
    band_rows: int = 1
    #: Number of consecutive bands whose equal events are counted together.
    n_together: int = 1
    #: Bytes of a retained key, and of an event.
    key_bytes: int = 8
    event_bytes: int = 28
    #: The stratum of a row: "" for no strata, "ranks" (of the label), "classes" (the label plus 1, or 0 without a
    #: label), or "groups" (packed with the labels).
    strata: str = ""
    #: Bytes of the counts by groups.
    strata_bytes: int = 0
    #: The bands and rows, as bytes, of the samples whose scores are examined. The samples do not depend on the bands.
    looked: bytes = b""

    def examined_rows(self, band: int) -> Ints:
        """Return the numbers of the rows of a band that are examined to see whether they are probabilities."""
        bands, rows = np.frombuffer(self.looked, np.int64).reshape(2, -1)
        return np.asarray(rows[bands == band])

    @property
    def by_group(self) -> bool:
        """Whether rows are counted by classes or groups."""
        return self.strata in ("classes", "groups")

    @property
    def n_scores(self) -> int:
        """N * C."""
        return self.n_samples * self.n_classes

    @property
    def sum_bytes(self) -> int:
        """Total bytes of the rows or events, and of the ranked scores, of all bands."""
        rows = self.max_held * self.key_bytes + (ROW_BYTES * self.n_samples if self.max_held else 0)
        events = self.all_events * self.event_bytes
        ranked = 0 if self.ranked_bins else self.n_samples * self.n_ranked * self.key_bytes
        return min(max(rows, events), self.n_scores * self.event_bytes) + ranked

    @property
    def state_bytes(self) -> int:
        """Bytes of a state that are independent of its rows: for histograms of ranked scores, and counts by group."""
        return self.n_ranked * self.ranked_bins * BIN_BYTES + self.strata_bytes

    @property
    def band_unit(self) -> int:
        """The number of bits by which to shift the counts of a band so that they fit into 21 bits."""
        return max(0, (self.band_rows * self.n_classes).bit_length() - 21)


@dataclass(frozen=True)
class ScanPlan:
    """The plan of one scan.

    The intervals of ``zones`` should hold the thresholds. Scores below the last interval are only sampled, in bins of
    ``2**sample_shift`` keys from ``sample_base`` up.
    """

    shape: ScanShape
    zones: ZoneTable
    sample_base: int
    sample_shift: int
    #: An estimate of the highest key.
    highest: int
    #: The expected number of events in the intervals.
    expected_events: float = 0.0
    #: Whether to hold the keys of all listed scores, up to the shape's ``max_held``, rather than events.
    with_rows: bool = False
    #: Buffers of the scans.
    pool: Pool = field(default_factory=Pool, compare=False, repr=False)

    @property
    def floor(self) -> int:
        """The lowest key that is listed."""
        return int(self.zones.floors[-1])


@dataclass(frozen=True)
class Wave(Record):
    """One wave: its bands, and its plan as numbers, arrays and text."""

    bands: Ints
    #: The shape as JSON.
    shape: str
    floors: Ints
    shifts: Ints
    starts: Ints
    table_shift: int
    n_bins: int
    sample_base: int
    sample_shift: int
    highest: int
    expected_events: float
    with_rows: bool

    @classmethod
    def from_plan(cls, plan: ScanPlan, bands: Sequence[int]) -> Wave:
        """Return the wave that scans these bands with a plan."""
        zones = plan.zones
        shape = asdict(plan.shape) | {"dtype": plan.shape.dtype.name, "looked": plan.shape.looked.hex()}
        arrays = zones.floors, zones.shifts.view(np.int64), zones.starts.astype(np.int64)
        numbers = int(zones.table_shift), zones.n_bins, plan.sample_base, plan.sample_shift, plan.highest
        rest = float(plan.expected_events), plan.with_rows
        return cls(np.asarray(bands, np.int64), json.dumps(shape, sort_keys=True), *arrays, *numbers, *rest)

    @property
    def plan(self) -> ScanPlan:
        """The plan of the wave."""
        starts, table_shift = self.starts.astype(np.int32), np.uint64(self.table_shift)
        zones = ZoneTable(self.floors, self.shifts.view(np.uint64), starts, table_shift, self.n_bins)
        values = json.loads(self.shape)
        shape = ScanShape(**values | {"dtype": np.dtype(values["dtype"]), "looked": bytes.fromhex(values["looked"])})
        sample = self.sample_base, self.sample_shift
        return ScanPlan(shape, zones, *sample, self.highest, self.expected_events, self.with_rows)


Script = tuple[Wave, ...]


def fitting_script(script: Script, shape: ScanShape) -> Script:
    """Return the script if a search of this shape can follow it and all its bands exist; otherwise an empty script."""
    numbers = np.concatenate([np.zeros(0, np.int64), *(wave.bands for wave in script)])
    if not script or numbers.size != np.unique(numbers).size or not 0 <= numbers.min() <= numbers.max() < shape.n_bands:
        return ()
    first, *others = (wave.plan.shape for wave in script)
    are_consistent = all(_with_samples_of(first, other) == first for other in others)
    return script if are_consistent and adopted_shape(shape, first) is not None else ()


def _with_samples_of(shape: ScanShape, other: ScanShape) -> ScanShape:
    return replace(
        other, n_samples=shape.n_samples, n_chunks=shape.n_chunks, n_bands=shape.n_bands, looked=shape.looked
    )


def adopted_shape(shape: ScanShape, other: ScanShape) -> ScanShape | None:
    """Return ``shape`` with the numbers of ranks of ``other``; None if these are smaller or other properties differ."""
    same = ("n_classes", "dtype", "with_distance", "ranked_bins", "strata")
    if any(getattr(shape, name) != getattr(other, name) for name in same):
        return None
    if other.n_ranks < shape.n_ranks or other.n_ranked < shape.n_ranked or bool(other.n_ranked) != bool(shape.n_ranked):
        return None
    if other.n_ranked != shape.n_ranked and shape.ranked_bins:  # the bins of a rank depend on the number of ranks
        return None
    return replace(shape, n_ranks=other.n_ranks, n_ranked=other.n_ranked)


def grown_plan(plan: ScanPlan, shape: ScanShape) -> ScanPlan:
    """Return the plan of a wave, adapted to the samples and bands of a shape."""
    return replace(plan, shape=_with_samples_of(shape, plan.shape))
