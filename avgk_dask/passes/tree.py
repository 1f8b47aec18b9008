"""The graph of a pass: one task for some bands each, and a tree of merges over them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dask.delayed import Delayed

from ..scans.band_pass import Pass
from ..settings import setting
from ..sources.reading import Key
from ..sources.source import Source
from .band_tasks import Assignment, BandNumbers, ChunkNumbers, merge_states, read_bands, read_chunks
from .checkpoint import KeptPass
from .dask_tasks import Graph, as_delayed, constant, task, token_of
from .kept_states import read_kept

#: States a task holds before it merges them.
_HELD_STATES = 8
#: Bytes of states that are merged at once.
_MERGED_BYTES = 64 << 20


def pass_task(source: Source, what: Pass, kept: KeptPass | None = None) -> Delayed:
    """Return the one task that the states of all bands of a pass merge into. Its name is a hash of what it computes.

    What is kept of it is not read again, and what is read is kept.
    """
    by_chunk, steady = what.columns is not None, kept is not None
    groups: list[Sequence[int]]
    if by_chunk:
        groups = source.chunk_groups(len(what.columns or ()), steady=steady)
    else:
        groups = source.groups(what.max_tasks, what.bands, steady=steady)
    token = token_of(source.token, what, groups, setting("fan-in"), steady)
    shared = f"avgk-plan-{token}"
    ignored = () if source.mask is None else source.mask.ignored
    assignment = Assignment(what, source.preparations, ignored, math.prod(source.shape))
    graph: Graph = {shared: constant(shared, assignment)}
    if kept is not None:
        graph[_keeper(token)] = constant(_keeper(token), kept.keeper)
    reading = _chunk_reading if by_chunk else _band_reading
    keys = []
    for numbers in groups:
        key = f"avgk-{what.name}-{token}-{numbers[0]}"
        graph[key] = task(key, *_keeping(kept, numbers, token), *reading(source, what, numbers, Key(shared)))
        keys.append(key)
    root = _merge_tree(keys, fan_in_of(what.state_bytes), graph, token)
    (found,) = as_delayed([root], graph, source.collections(), f"avgk-{what.name}-{token}")
    return found


def _keeper(token: str) -> str:
    return f"avgk-keeper-{token}"


def _keeping(kept: KeptPass | None, numbers: Sequence[int], token: str) -> tuple[Any, ...]:
    """Return what stands before a function and its arguments in a task that keeps what the function reads."""
    return () if kept is None else (read_kept, Key(_keeper(token)), kept.name(numbers))


def _band_reading(source: Source, what: Pass, numbers: Sequence[int], shared: Key) -> tuple[Any, ...]:
    """Return the function that reads some bands, and its arguments."""
    n_held = 2 if what.max_tasks else _HELD_STATES
    given = source.bands(numbers), source.labels_of(numbers), source.masks_of(numbers)
    return read_bands, *given, BandNumbers(numbers, source.places_of(numbers)), shared, n_held


def _chunk_reading(source: Source, what: Pass, numbers: Sequence[int], shared: Key) -> tuple[Any, ...]:
    """Return the function that reads some of the chunks of a pass, and its arguments."""
    all_places = list(zip(what.bands or (), what.columns or (), strict=True))
    chunks = tuple(all_places[number] for number in numbers)
    bands = [band for band, _ in chunks]
    which = ChunkNumbers(numbers, chunks, source.places_of(bands))
    return read_chunks, source.reader_key(), [source.chunk(*at) for at in chunks], source.masks_of(bands), which, shared


def fan_in_of(state_bytes: int) -> int:
    """Return how many states are merged at once, given the bytes of one."""
    fitting = _MERGED_BYTES // state_bytes if state_bytes else math.inf
    return int(max(2, min(setting("fan-in"), fitting)))


def _merge_tree(keys: list[str], fan_in: int, graph: Graph, token: str) -> str:
    """Add a tree of merges to a graph; return the key of its root."""
    level = 0
    while len(keys) > 1:
        parts = [keys[i : i + fan_in] for i in range(0, len(keys), fan_in)]
        keys = [f"avgk-merge-{token}-{level}-{i}" for i in range(len(parts))]
        for key, part in zip(keys, parts, strict=True):
            graph[key] = task(key, merge_states, [Key(name) for name in part])
        level += 1
    return keys[0]
