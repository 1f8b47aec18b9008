"""The graph of a pass: one task for some bands each, and a tree of merges over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from dask.delayed import Delayed

from ..records import State
from ..scans.band_pass import Pass
from ..settings import setting
from ..sources.reading import Key
from ..sources.source import Source
from .band_tasks import Assignment, merge_states, read_bands, read_chunks
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
    by_chunk = what.columns is not None
    groups: list[Sequence[int]]
    groups = source.chunk_groups(len(what.columns or ())) if by_chunk else source.groups(what.max_tasks, what.bands)
    token = token_of(source.token, what, groups, setting("fan-in"))
    shared = f"avgk-plan-{token}"
    graph: Graph = {shared: constant(shared, Assignment(what, source.preparations))}
    make_tasks = _chunk_tasks if by_chunk else _band_tasks
    if kept is not None:
        graph[_keeper(token)] = constant(_keeper(token), kept.keeper)
    keys = make_tasks(source, what, groups, Key(shared), graph, token, kept)
    root = _merge_tree(keys, fan_in_of(what.state_bytes), graph, token)
    (found,) = as_delayed([root], graph, source.collections(), f"avgk-{what.name}-{token}")
    return found


def _keeper(token: str) -> str:
    return f"avgk-keeper-{token}"


def _reading(
    kept: KeptPass | None, numbers: Sequence[int], token: str, read: Callable[..., State], *arguments: Any
) -> tuple[Any, ...]:
    """Return the function of a task and its arguments: as it is, or keeping what it reads."""
    if kept is None:
        return read, *arguments
    return read_kept, Key(_keeper(token)), kept.name(numbers), read, *arguments


def _band_tasks(
    source: Source,
    what: Pass,
    groups: list[Sequence[int]],
    shared: Key,
    graph: Graph,
    token: str,
    kept: KeptPass | None,
) -> list[str]:
    n_held = 2 if what.max_tasks else _HELD_STATES
    keys = []
    for numbers in groups:
        key = f"avgk-{what.name}-{token}-{numbers[0]}"
        arguments = source.bands(numbers), source.labels_of(numbers), numbers
        graph[key] = task(key, *_reading(kept, numbers, token, read_bands, *arguments, shared, n_held))
        keys.append(key)
    return keys


def _chunk_tasks(
    source: Source,
    what: Pass,
    groups: list[Sequence[int]],
    shared: Key,
    graph: Graph,
    token: str,
    kept: KeptPass | None,
) -> list[str]:
    places, keys = list(zip(what.bands or (), what.columns or (), strict=True)), []
    for numbers in groups:
        key = f"avgk-{what.name}-{token}-{numbers[0]}"
        mine = tuple(places[number] for number in numbers)
        chunks = [source.chunk(*where) for where in mine]
        arguments = source.reader_key(), chunks, numbers, mine, shared
        graph[key] = task(key, *_reading(kept, numbers, token, read_chunks, *arguments))
        keys.append(key)
    return keys


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
