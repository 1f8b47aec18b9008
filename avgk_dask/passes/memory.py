"""The memory bound: what a task may take at its peak, as a function, checked before running."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from ..errors import MemoryLimitError
from ..scans.band_pass import Pass
from ..scans.band_scan import EVENT_SPACE
from ..scans.entries import LISTED
from ..searches.threshold_search import RESCAN_EVENTS
from ..settings import setting
from ..sources.source import Source
from ..states.key_histogram import LEAST_BINS
from ..states.ranked_scores import MOST_FUSED, narrow_dtype
from ..store.read.ahead import AHEAD_SHARE

#: Events that no band may exceed.
_MOST_BAND_EVENTS = 1 << 20


def task_memory(source: Source, budgets: Sequence[int], n_ranks: int = 0, n_ranked: int = 0) -> int:
    """Return an upper estimate, in bytes, of what one scan task takes beyond the process itself.

    ``budgets`` are numbers of labels in all. A slab, its encoded form, and a copy of it where zarr
    assembles it; the converted tile, where the dtype has no kernel of its own; the buffers of a
    stretch of rows; per row counts, labels, ranks and ranked scores; the rows or events held; the histograms.
    """
    rows = int(np.diff(source.rows).max())
    n_classes, item = source.shape[1], source.dtype.itemsize
    soft = source.has_soft_labels
    slab = source.held_bytes() + ahead_memory(source)
    tile = min(source.slab_bytes(), setting("tile-scores") * item) * 8 // item
    buffers = n_classes * 48 + (LISTED + EVENT_SPACE) * 64
    per_row = rows * (32 + 20 * len(budgets))
    labels = 2 * 8 * rows * n_classes if soft else 0
    listed = 0
    if len(source.classes) > 2 or soft:  # a band's listed scores are held together, and its ranks
        per_sample = 4 * (max(budgets, default=0) // source.shape[0] + 2)
        listed = rows * (min(n_classes, per_sample) * 64 + max(n_ranks, n_ranked) * 16)
    ranked = rows * n_ranked * (64 if ranked_bins(source, n_ranked) else 24)
    ranked += tile if n_ranked > MOST_FUSED else 0
    events = min(max(max_band_events(), RESCAN_EVENTS), rows * n_classes) * 40
    events = max(events, min(held_limit(source), rows * n_classes) * narrow_dtype(source.dtype).itemsize)
    return int(slab + tile + buffers + per_row + labels + listed + ranked + events + (8 << 20))


def ahead_memory(source: Source) -> int:
    """Return a task's share of what its process may read ahead, which is at most a share of the worker's memory."""
    return min(source.ahead_bytes(), memory_limit() // AHEAD_SHARE)


def merge_memory(source: Source | None = None, n_ranked: int = 0) -> int:
    """Return an upper estimate of what the process takes in which a scan's rows or events and ranked scores come together."""
    ranked = 0
    if source is not None and n_ranked:
        space = ranked_bins(source, n_ranked)
        item = narrow_dtype(source.dtype).itemsize
        ranked = space * n_ranked * 32 * (setting("fan-in") + 2) if space else 3 * source.shape[0] * n_ranked * item
    return max(int(setting("max-events")) * 24, 4 * int(setting("kept-bytes"))) + (32 << 20) + ranked


def ranked_bins(source: Source, n_ranked: int) -> int:
    """Return the space of each rank's histogram; 0 where all ranked scores fit the budget and are held."""
    if source.shape[0] * n_ranked * narrow_dtype(source.dtype).itemsize <= setting("ranked-bytes"):
        return 0
    return int(max(LEAST_BINS, setting("ranked-bins") // n_ranked))


def held_limit(source: Source) -> int:
    """Return how many keys of listed scores may be held in all."""
    return 0 if source.has_soft_labels else int(setting("kept-bytes")) // narrow_dtype(source.dtype).itemsize


def max_band_events() -> int:
    """Return how many events a band may hold: a share of all, never too few to be of use, nor too many to hold."""
    return int(max(setting("least-events"), min(setting("max-events") // 8, _MOST_BAND_EVENTS)))


def memory_limit() -> int:
    """Return the bytes a task may take: the setting, or a worker thread's share of the memory."""
    configured = setting("memory-limit")
    if configured is not None:
        from dask.utils import parse_bytes

        return int(parse_bytes(configured))
    try:
        from distributed import get_client

        workers = get_client().scheduler_info(n_workers=-1)["workers"].values()
        shares = [w["memory_limit"] // max(w["nthreads"], 1) for w in workers if w["memory_limit"]]
        if shares:
            return int(min(shares))
    except (ImportError, ValueError):
        pass
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(total) // (os.cpu_count() or 1)


def check_memory(source: Source, budgets: Sequence[int], n_ranks: int = 0, n_ranked: int = 0) -> None:
    """Refuse a plan whose tasks cannot fit, and say what to do."""
    _refuse_beyond_limit(task_memory(source, budgets, n_ranks, n_ranked), source)


def check_pass_memory(source: Source, what: Pass) -> None:
    """Refuse a pass that holds whole rows of a band where a task cannot fit."""
    if what.holds_rows:
        _refuse_beyond_limit(edges_memory(source, what.n_edges), source)


def edges_memory(source: Source, n_edges: int) -> int:
    """Return an upper estimate of what a task takes that counts scores at so many keys: it holds a band's whole rows."""
    n_rows = int(np.diff(source.rows).max())
    soft = source.has_soft_labels
    band = n_rows * source.shape[1]
    needed = 3 * source.band_bytes() + 40 * n_rows + 16 * band * soft
    needed += source.held_bytes() if source.preparations else 0
    return needed + ahead_memory(source) + n_edges * (10 * 32 + 1200 * soft) + (64 << 20)


def _refuse_beyond_limit(needed: int, source: Source) -> None:
    limit = memory_limit()
    if needed > limit:
        raise MemoryLimitError(
            f"a task must fit the memory of a worker thread; got {needed / 1e6:,.0f} MB needed for a band of "
            f"{source.rows[1] - source.rows[0]} rows x {source.shape[1]} classes, and {limit / 1e6:,.0f} MB allowed. "
            "Store the scores in chunks of fewer rows (about 10 MB each), or use workers with more memory or fewer threads."
        )
