"""The memory bound: upper estimates of the peaks of a task, the process that merges and the client, checked before reading.

``Caps`` limit the rows, events and ranked scores of a scan over all bands. ``fitting_shape`` lowers them until the ``Projection`` of
the scan fits the smallest worker, and refuses a scan that never fits. ``check_pass_memory`` checks any other pass. Slow tests
compare the estimates with measured peaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..bands.passes import Pass
from ..bands.rows import LISTED
from ..errors import MemoryLimitError
from ..kernels.keys import narrow_dtype
from ..settings import setting
from ..sources.planning import band_bytes, count_chunks, held_bytes, is_computed, slab_bytes
from ..sources.source import Source
from ..store.read.ahead import AHEAD_SHARE
from ..threads import cluster_workers, machine_memory, n_threads
from .graph import fan_in_of
from .plan import ROW_BYTES, ScanShape
from .ranked import LEAST_BINS, MOST_FUSED
from .scan import EVENT_SPACE
from .search import RESCAN_EVENTS

#: Maximum number of events of a band, and the least number of events with which waves make progress.
_MOST_BAND_EVENTS, _LEAST_EVENTS = 1 << 20, 1 << 20
#: Samples whose rows are examined, to distinguish probabilities from other scores.
_LOOKED = 1 << 10
#: The share to which caps may be lowered for small workers.
_LOWEST = 1 / 16
#: Bytes of a process before it reads, mostly numba's compiler and zarr.
IDLE_BYTES = 250 << 20
#: The share of its limit up to which a worker neither spills nor pauses, and beyond which its nanny ends it.
_USABLE, _MOST = 0.7, 0.95
#: The share that caps are lowered to, as long as straddle strengths stay exact: distributed begins to watch there.
_EASY = 0.55
#: The factor from the bytes of histograms of ranked scores to the bytes of the exact integers in their analysis.
_ANALYSED = 10


class Strata(NamedTuple):
    """The strata of rows (see ``ScanShape``), and the bytes of their counts if these are many."""

    kind: str
    n_bytes: int = 0


NO_STRATA = Strata("")


@dataclass(frozen=True)
class Caps:
    """Bytes of held rows, number of events, and bytes and bins of ranked scores, over all bands together."""

    held_bytes: int
    max_events: int
    ranked_bytes: int
    ranked_bins: int

    @classmethod
    def configured(cls) -> Caps:
        """Return the caps of the settings."""
        return cls(setting("kept-bytes"), setting("max-events"), setting("ranked-bytes"), setting("ranked-bins"))

    def lowered(self) -> tuple[list[Caps], list[Caps]]:
        """Return these and lower caps, and the lowest ones without ranked scores, so that straddle strengths are not exact."""
        exact, share = [self], 0.5
        while share >= _LOWEST:
            events = min(self.max_events, max(int(self.max_events * share), _LEAST_EVENTS))
            exact.append(replace(self, held_bytes=int(self.held_bytes * share), max_events=events))
            share /= 2
        return exact, [replace(exact[-1], ranked_bytes=0, ranked_bins=self.ranked_bins // n) for n in (1, 4)]

    def rank_bins(self, source: Source, n_ranked: int) -> int:
        """Return the number of bins of each rank's histogram, or 0 if all ranked scores fit."""
        if source.shape[0] * n_ranked * narrow_dtype(source.dtype).itemsize <= self.ranked_bytes:
            return 0
        return max(LEAST_BINS, self.ranked_bins // n_ranked)

    def scan_shape(
        self,
        source: Source,
        n_ranks: int = 0,
        n_ranked: int = 0,
        with_distance: bool = False,
        strata: Strata = NO_STRATA,
    ) -> ScanShape:
        """Return the shape of all scans of a source."""
        soft = source.has_soft_labels
        item = narrow_dtype(source.dtype).itemsize
        return ScanShape(
            n_samples=source.shape[0],
            n_classes=source.shape[1],
            dtype=source.dtype,
            n_ranks=n_ranks,
            n_chunks=count_chunks(source),
            max_events=max(setting("least-events"), min(self.max_events // 6, _MOST_BAND_EVENTS)),
            all_events=self.max_events,
            tile_scores=setting("tile-scores"),
            n_ranked=n_ranked,
            ranked_bins=self.rank_bins(source, n_ranked) if n_ranked else 0,
            with_distance=with_distance,
            max_held=0 if soft else max(self.held_bytes - ROW_BYTES * source.shape[0], 0) // item,
            max_apart=self.held_bytes // (item + ROW_BYTES),
            n_bands=source.n_bands,
            n_together=-(-source.n_bands // setting("tie-groups")),
            band_rows=int(np.diff(source.rows).max()),
            key_bytes=item,
            event_bytes=item + 12 + (8 if soft else 1) + (4 if strata.kind else 1),
            strata=strata.kind,
            strata_bytes=strata.n_bytes,
            looked=_choose_rows(source.rows),
        )


def _choose_rows(rows: Sequence[int]) -> bytes:
    bounds = np.asarray(rows, np.int64)
    samples = np.unique(np.linspace(0, bounds[-1] - 1, _LOOKED).astype(np.int64))
    bands = np.searchsorted(bounds, samples, side="right") - 1
    return np.stack([bands, samples - bounds[bands]]).tobytes()


@dataclass(frozen=True)
class MergeLimit:
    """The bytes of the smallest worker, or of this machine without a cluster, and the number of tasks at a time."""

    n_bytes: int
    n_threads: int
    is_cluster: bool


def merge_limit() -> MergeLimit:
    """Return the limit of the process that merges."""
    workers = _workers()
    if workers:
        limit, threads = min((w["memory_limit"], -w["nthreads"]) for w in workers)
        return MergeLimit(int(limit * _USABLE), -threads, is_cluster=True)
    return MergeLimit(machine_memory(), n_threads(), is_cluster=False)


def _workers() -> list[dict[str, Any]]:
    """Return the workers with a memory limit."""
    return [worker for worker in cluster_workers() if worker["memory_limit"]]


def memory_limit() -> int:
    """Return the bytes of a task: the setting, or a worker thread's share of the memory that an idle worker leaves free."""
    configured = setting("memory-limit")
    if configured is not None:
        from dask.utils import parse_bytes

        return int(parse_bytes(configured))
    return _thread_memory(_MOST, IDLE_BYTES)


def _thread_memory(share: float = 1, idle: int = 0) -> int:
    """Return a thread's part of a share of a worker's memory, less the memory of the idle worker."""
    parts = [(worker["memory_limit"] * share - idle) / max(worker["nthreads"], 1) for worker in _workers()]
    return max(0, int(min(parts))) if parts else machine_memory() // n_threads()


@dataclass(frozen=True)
class Projection:
    """Upper estimates of the bytes of a pass, in addition to an idle process."""

    #: One task; the process that merges states; the client, which works on the merged state.
    task: int
    merge: int
    client: int

    @classmethod
    def of_states(cls, task: int, sum_bytes: int, state_bytes: int) -> Projection:
        """Project a pass, given the bytes of a task, of the parts that grow with the rows, and of any state."""
        merge = 2 * sum_bytes + (fan_in_of(state_bytes) + 2) * state_bytes + (32 << 20)
        return cls(task, merge, 5 * sum_bytes // 2 + _ANALYSED * state_bytes + (32 << 20))

    @classmethod
    def from_source(cls, source: Source, shape: ScanShape, budgets: Sequence[int]) -> Projection:
        """Project a scan for budgets, which are numbers of labels in total."""
        return cls.of_states(_scan_task_bytes(source, shape, budgets), shape.sum_bytes, shape.state_bytes)

    def merging(self, limit: MergeLimit) -> int:
        """Return the bytes of the process that merges while its other threads run tasks."""
        client = 0 if limit.is_cluster else self.client
        return IDLE_BYTES + self.merge + client + (limit.n_threads - 1) * self.task

    def fits(self, limit: MergeLimit, share: float = 1.0) -> bool:
        """Return whether merging fits a limit, or the share of a worker's limit."""
        return self.merging(limit) <= (limit.n_bytes * share if limit.is_cluster else limit.n_bytes)

    def check(self, source: Source) -> None:
        """Refuse a pass that cannot fit."""
        most = memory_limit()
        if self.task > most:
            raise MemoryLimitError(
                f"a task needs {self.task / 1e6:,.0f} MB for a band of {source.rows[1] - source.rows[0]} rows x "
                f"{source.shape[1]} classes, and {most / 1e6:,.0f} MB is available to a worker thread. "
                "Store the scores in chunks of fewer rows (about 10 MB each), or use workers with more memory or fewer "
                "threads."
            )
        limit = merge_limit()
        if not self.fits(limit):
            who = "worker" if limit.is_cluster else "process"
            raise MemoryLimitError(
                f"merging the results of all tasks needs {self.merging(limit) / 1e6:,.0f} MB, and one {who} has "
                f"{limit.n_bytes / 1e6:,.0f} MB. Use workers with more memory or fewer threads, fewer budgets, or "
                "straddle=False."
            )


def project(source: Source, budgets: Sequence[int], n_ranks: int = 0, n_ranked: int = 0) -> Projection:
    """Project a search for thresholds with its caps."""
    return Projection.from_source(source, fitting_shape(source, budgets, n_ranks, n_ranked, refuse=False), budgets)


def fits(source: Source, shape: ScanShape, budgets: Sequence[int]) -> bool:
    """Return whether the merged states of a scan fit."""
    return Projection.from_source(source, shape, budgets).fits(merge_limit())


def fitting_shape(
    source: Source,
    budgets: Sequence[int],
    n_ranks: int = 0,
    n_ranked: int = 0,
    with_distance: bool = False,
    strata: Strata = NO_STRATA,
    *,
    refuse: bool = True,
) -> ScanShape:
    """Return the shape of scans with the highest caps that fit the workers; raise MemoryLimitError if none fit."""
    limit, most = merge_limit(), memory_limit()
    for group in Caps.configured().lowered():
        shapes = [caps.scan_shape(source, n_ranks, n_ranked, with_distance, strata) for caps in group]
        projected = [(shape, Projection.from_source(source, shape, budgets)) for shape in shapes]
        for share in (_EASY / _USABLE, 1.0):
            for shape, needed in projected:
                if needed.task <= most and needed.fits(limit, share):
                    return shape
    if refuse:
        needed.check(source)
    return shape


def _scan_task_bytes(source: Source, shape: ScanShape, budgets: Sequence[int]) -> int:
    """Return the bytes of one task of a scan.

    A slab, its encoded form, and a copy if zarr assembles it; the converted tile, if the dtype has no kernel of its own; buffers
    for a stretch of rows; counts, labels, ranks and ranked scores of each row; held rows or events; histograms.
    """
    rows, n_classes, item = shape.band_rows, shape.n_classes, source.dtype.itemsize
    soft = source.has_soft_labels
    slab = held_bytes(source) + ahead_memory(source)
    tile = min(slab_bytes(source), setting("tile-scores") * item) * 8 // item
    buffers = n_classes * 48 + (LISTED + EVENT_SPACE) * 64
    per_row = rows * (48 + 28 * len(budgets))
    labels = 2 * 8 * rows * n_classes if soft else 0
    listed = 0
    if len(source.classes) > 2 or soft:  # all listed scores of a band are held, and its ranks
        per_sample = 4 * (max(budgets, default=0) // source.shape[0] + 2)
        listed = rows * (min(n_classes, per_sample) * 64 + max(shape.n_ranks, shape.n_ranked) * 16)
    ranked = rows * shape.n_ranked * (64 if shape.ranked_bins else 24)
    ranked += tile if shape.n_ranked > MOST_FUSED else 0
    events = min(max(shape.max_events, RESCAN_EVENTS), rows * n_classes) * 40
    events = max(events, min(shape.max_held, rows * n_classes) * shape.key_bytes)
    return int(slab + tile + buffers + per_row + labels + listed + ranked + events + (8 << 20))


def ahead_memory(source: Source) -> int:
    """Return the bytes that a task may have read ahead, in addition to the stored bytes of its slab.

    A process reads ahead at most a share of its memory, and only whole slabs whose stored bytes are less than this share.
    """
    most = min(source.reader.ahead_bytes(), _thread_memory() // AHEAD_SHARE)
    return max(0, min(most, 2 * most - slab_bytes(source)))


def check_pass_memory(source: Source, pass_: Pass) -> None:
    """Refuse a pass whose tasks, or the states of all of them, cannot fit."""
    task = edges_memory(source, pass_.n_edges) if pass_.holds_rows else 0
    Projection.of_states(task, pass_.sum_bytes * source.shape[0], pass_.state_bytes).check(source)


def edges_memory(source: Source, n_edges: int) -> int:
    """Return an upper estimate of the bytes of a task that holds a band's rows and counts scores at ``n_edges`` keys."""
    n_rows = int(np.diff(source.rows).max())
    soft = source.has_soft_labels
    band = n_rows * source.shape[1]
    rows, held = 3 * max(band_bytes(source), band_bytes(source.unfiltered)), held_bytes(source)
    total = (rows + held if is_computed(source) else max(rows, held)) + 40 * n_rows + 16 * band * soft
    return total + ahead_memory(source) + n_edges * (10 * 32 + 1200 * soft) + (64 << 20)
