"""The memory bound: what a task may take at its peak, as a function, checked before running."""

from __future__ import annotations

import os

from ..errors import MemoryLimitError
from .settings import setting
from .source import Source, StoredSource


def task_memory(source: Source, n_ranks: int = 0) -> int:
    """Give an upper estimate, in bytes, of what one scan task takes beyond the process itself.

    A slab as decoded, and the codec's own buffer beside it; the tile's carrier and lists; per row
    the counts, labels and ranks; the events and histograms.
    """
    rows = max(last - first for first, last in zip(source.rows[:-1], source.rows[1:], strict=True))
    n_slabs = len(source.classes) - 1
    labels = 0 if source.labels is None else rows * (8 if source.labels.ndim == 1 else 16 * source.shape[1])
    streamed = n_slabs > 1 or (source.labels is not None and source.labels.ndim == 2)
    listed = rows * min(source.shape[1], 4 * (n_ranks + 2)) * 48 if streamed else 0
    ranks = rows * n_ranks * 16 if streamed else 0
    tile = max(setting("tile-scores"), source.shape[1]) * 64
    held = source.slab_bytes() * (2 if isinstance(source, StoredSource) else 1 + (n_slabs > 1))
    per_row = rows * 8 * (n_ranks + 4)
    events = max_band_events(source) * 64 * 2
    return int(held + labels + listed + ranks + tile + per_row + events + (4 << 20))


def max_band_events(source: Source) -> int:
    """Give how many events a band may keep: its share of all, but never too few to be of use."""
    return int(max(setting("least-events"), setting("max-events") // source.n_bands))


def memory_limit() -> int:
    """Give the bytes a task may take: the setting, or a worker thread's share of the memory."""
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


def check_memory(source: Source, n_ranks: int = 0) -> None:
    """Refuse a plan whose tasks cannot fit, and say what to do."""
    needed, limit = task_memory(source, n_ranks), memory_limit()
    if needed > limit:
        raise MemoryLimitError(
            f"a task must fit the memory of a worker thread; got {needed / 1e6:,.0f} MB needed for a band of "
            f"{source.rows[1] - source.rows[0]} rows x {source.shape[1]} classes, and {limit / 1e6:,.0f} MB allowed. "
            "Store the scores in chunks of fewer rows (about 10 MB each), or use workers with more memory or fewer threads."
        )
