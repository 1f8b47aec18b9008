"""Which bands of a source each task reads, and which chunks a pilot."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from ..settings import setting
from ..threads import cluster_client, n_task_threads
from .source import Source

#: Bytes of a chunk of which the pilot takes no more than a fifth.
_LARGE_PIECE = 64 << 20
#: How many times larger tasks are of which each costs more than a call; and how many of those there should be, at least.
_LARGER, _LEAST_TASKS, _STEADY_TASKS = 8, 64, 256
#: Bytes of a task that reads ahead, in those that may be ahead.
_AHEADS = 4


def group_bands(
    source: Source, max_tasks: int | None = None, bands: Sequence[int] | None = None, *, steady: bool = False
) -> list[Sequence[int]]:
    """Return the bands that each task reads: enough to be worth a task, and not too many tasks.

    Steady ones are the same for any number of threads or workers.
    """
    mine = range(source.n_bands) if bands is None else bands
    per_band = max(1, source.shape[0] * source.shape[1] * source.dtype.itemsize // source.n_bands)
    least = math.ceil(len(mine) / setting("max-tasks"))
    size = max(math.ceil(setting("task-bytes") / per_band), least)
    # A small matrix still gives every core something to do.
    size = max(1, min(size, len(mine) // 8 if len(mine) > 8 else 1))
    if steady or cluster_client() is not None:  # a file, or a message, for each
        n_tasks = _STEADY_TASKS if steady else max(_LEAST_TASKS, 4 * n_task_threads())
        size = max(size, min(math.ceil(_LARGER * setting("task-bytes") / per_band), len(mine) // n_tasks))
    if source.is_far and not steady:
        # Reading ahead begins anew with each task: as few as there are threads, or a multiple of those.
        most = max(1, _AHEADS * source.reader.ahead_bytes() // per_band)
        n_threads = n_task_threads()
        size = max(math.ceil(len(mine) / (n_threads * math.ceil(len(mine) / (n_threads * most)))), least)
    size = max(size, math.ceil(len(mine) / max_tasks)) if max_tasks else size
    return [mine[i : i + size] for i in range(0, len(mine), size)]


def choose_pilot_chunks(source: Source) -> list[tuple[int, int]]:
    """Choose (band, class chunk) of the chunks the pilot reads, spread over the matrix; none that has no samples."""
    n = source.n_chunks
    share = max(setting("pilot-least"), min(int(setting("pilot-share") * n), setting("pilot-most")))
    n_columns = len(source.columns) - 1
    n_places = source.n_bands * n_columns
    # Of few large ones, fewer: they would be a good part of a read.
    n_read = min(n_places, share, max(1, n // (5 if _piece_bytes(source) > _LARGE_PIECE else 2)))
    numbers = [(2 * i + 1) * n_places // (2 * n_read) for i in range(n_read)]
    # Shifted by the band, so that they do not all fall into the same columns.
    chosen = [(number // n_columns, (number + number // n_columns) % n_columns) for number in numbers]
    return chosen if source.mask is None else _with_samples(source, chosen)


def _piece_bytes(source: Source) -> int:
    """Return the bytes of the largest chunk that a pilot might read."""
    return source.band_bytes() * int(np.diff(source.columns).max()) // source.shape[1]


def _with_samples(source: Source, chunks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return chunks, the next ones instead of those that have no samples; none where no piece of a band has any."""
    usable = [band for band in range(source.n_bands) if source.piece_end(band) > source.rows[band]]
    if not usable:
        return []
    near = [usable[min(bisect_left(usable, band), len(usable) - 1)] for band, _ in chunks]
    return list(dict.fromkeys((band, column) for band, (_, column) in zip(near, chunks, strict=True)))


def group_chunks(source: Source, n_chunks: int, *, steady: bool = False) -> list[Sequence[int]]:
    """Return which of the pilot's chunks each task reads: one, or several whose requests wait together."""
    size = math.ceil(n_chunks / n_task_threads()) if source.is_far and not steady else 1
    return [range(first, min(first + size, n_chunks)) for first in range(0, n_chunks, size)]
