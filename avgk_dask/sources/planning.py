"""How the bands of a source become tasks: which bands a task reads, which chunks the pilot reads, and their memory."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import Dtype
from ..settings import setting
from ..threads import cluster_client, n_task_threads

if TYPE_CHECKING:
    from .source import Source

#: Above this chunk size, in bytes, the pilot reads at most a fifth of the chunks.
_LARGE_CHUNK = 64 << 20
#: On a cluster and with checkpoints, tasks may be this many times larger, but there are at least this many of them.
_LARGER, _LEAST_TASKS, _STEADY_TASKS = 8, 64, 256
#: Bytes of a task that reads ahead, as a multiple of the bytes that may be read ahead.
_AHEADS = 4


def group_bands(
    source: Source, max_tasks: int | None = None, bands: Sequence[int] | None = None, *, steady: bool = False
) -> list[Sequence[int]]:
    """Return the bands that each task reads: tasks are large enough to be worth their overhead, and not too many.

    Steady groups do not depend on the number of threads or workers.
    """
    numbers = range(source.n_bands) if bands is None else bands
    per_band = max(1, source.shape[0] * source.shape[1] * source.dtype.itemsize // source.n_bands)
    least = math.ceil(len(numbers) / setting("max-tasks"))
    size = max(math.ceil(setting("task-bytes") / per_band), least)
    # A small matrix is still divided among the cores.
    size = max(1, min(size, len(numbers) // 8 if len(numbers) > 8 else 1))
    if steady or cluster_client() is not None:  # each task costs a file or a message
        n_tasks = _STEADY_TASKS if steady else max(_LEAST_TASKS, 4 * n_task_threads())
        size = max(size, min(math.ceil(_LARGER * setting("task-bytes") / per_band), len(numbers) // n_tasks))
    if reads_far(source) and not steady:
        # Reading ahead starts again with each task: the number of tasks is the number of threads or a multiple of it.
        most = max(1, _AHEADS * source.reader.ahead_bytes() // per_band)
        n_threads = n_task_threads()
        size = max(math.ceil(len(numbers) / (n_threads * math.ceil(len(numbers) / (n_threads * most)))), least)
    size = max(size, math.ceil(len(numbers) / max_tasks)) if max_tasks else size
    return [numbers[i : i + size] for i in range(0, len(numbers), size)]


def reads_far(source: Source) -> bool:
    """Return whether tasks read from a store with high latency."""
    return source.reader.ahead_bytes() > 0


# The pilot.


def choose_pilot_chunks(source: Source) -> list[tuple[int, int]]:
    """Choose (band, class chunk) of the chunks the pilot reads, spread over the matrix; skip those without samples."""
    n = count_chunks(source)
    share = max(setting("pilot-least"), min(int(setting("pilot-share") * n), setting("pilot-most")))
    n_columns = len(source.columns) - 1
    n_band_chunks = source.n_bands * n_columns
    chunk_bytes = band_bytes(source) * int(np.diff(source.columns).max()) // source.shape[1]
    # If chunks are few and large, half of them would cost too much of a read.
    n_read = min(n_band_chunks, share, max(1, n // (5 if chunk_bytes > _LARGE_CHUNK else 2)))
    numbers = [(2 * i + 1) * n_band_chunks // (2 * n_read) for i in range(n_read)]
    # Shifted by the band, so that they do not all fall into the same columns.
    chunks = [(number // n_columns, (number + number // n_columns) % n_columns) for number in numbers]
    if source.mask is None:
        return chunks
    usable = [band for band in range(source.n_bands) if pilot_end(source, band) > source.rows[band]]
    if not usable:
        return []
    near = [usable[min(bisect_left(usable, band), len(usable) - 1)] for band, _ in chunks]
    return list(dict.fromkeys((band, column) for band, (_, column) in zip(near, chunks, strict=True)))


def group_chunks(source: Source, n_chunks: int, *, steady: bool = False) -> list[Sequence[int]]:
    """Return which of the pilot's chunks each task reads: one, or several if their requests should overlap."""
    size = math.ceil(n_chunks / n_task_threads()) if reads_far(source) and not steady else 1
    return [range(first, min(first + size, n_chunks)) for first in range(0, n_chunks, size)]


def count_chunks(source: Source) -> int:
    """Return the number of chunks, or of groups of small chunks, that the pilot can choose from."""
    n_pieces = source.reader.n_pieces
    if source.mask is not None:
        n_pieces = max(source.n_bands, n_pieces * source.n_bands // source.reader.n_bands)
    return n_pieces * (len(source.columns) - 1)


def pilot_end(source: Source, band: int) -> int:
    """Return the row up to which the pilot reads a band."""
    if source.mask is None:
        return source.reader.piece_end(band)
    return source.rows[band] + int(source.mask.counts[source.stored_bands[band], 0])


def chunk_shape(source: Source, band: int, column: int) -> tuple[int, int]:
    """Return the shape of one chunk as the pilot reads it."""
    return pilot_end(source, band) - source.rows[band], source.columns[column + 1] - source.columns[column]


# Memory.


def band_bytes(source: Source) -> int:
    """Return the bytes of the largest band."""
    return source.band_rows * source.shape[1] * source.dtype.itemsize


def slab_bytes(source: Source) -> int:
    """Return the bytes of the largest piece of a band that is in memory at once."""
    if source.mask is None and not source.transforms:
        return source.reader.slab_bytes()
    return _slab_bytes(source, source.classes, source.dtype)


def _slab_bytes(source: Source, classes: Sequence[int], dtype: Dtype) -> int:
    return source.band_rows * int(np.diff(classes).max()) * dtype.itemsize


def held_bytes(source: Source) -> int:
    """Return the bytes of scores, encoded and decoded, that a task has in memory at once, without those read ahead."""
    held = source.reader.held_bytes()
    if source.mask is not None:
        reader = source.reader
        held += _slab_bytes(source, reader.classes, reader.dtype) + int(np.diff(reader.rows).max())
    for step in source.preparations:
        joined = source.band_rows * step.n_stored * step.dtype.itemsize if step.transform.needs_rows else 0
        norms = 16 * source.band_rows if len(step.classes) > 2 else 0
        held += joined + norms + 2 * _slab_bytes(source, step.classes, step.transform.dtype)
    return held


def is_computed(source: Source) -> bool:
    """Return whether scores are computed from those that are read, which needs memory of its own."""
    return bool(source.reader.provenance or source.transforms)
