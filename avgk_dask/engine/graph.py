"""What the tasks of a pass read, by their keys: for progress, and to say which rows a task had that failed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from dask.delayed import Delayed

from ..bands.passes import Pass
from ..settings import setting
from ..sources.planning import group_bands, group_chunks
from ..sources.reading import Key
from ..sources.source import Source
from .checkpoint import KeptPass
from .tasks import (
    Assignment,
    BandNumbers,
    ChunkNumbers,
    Graph,
    as_delayed,
    constant,
    merge_states,
    read_bands,
    read_chunks,
    read_kept,
    task,
    token_of,
)


@dataclass(frozen=True)
class Reads:
    """What the tasks of a pass over a source read. A key ends with the first number of what its task reads."""

    source: Source
    what: Pass
    #: The keys of our own tasks in the graph.
    keys: frozenset[str]

    @classmethod
    def of(cls, source: Source, what: Pass, keys: Iterable[object]) -> Reads:
        """Return what the tasks of a graph read, given its keys."""
        return cls(source, what, frozenset(k for k in keys if isinstance(k, str) and k.startswith("avgk-")))

    @property
    def numbers(self) -> Sequence[int]:
        """The bands that the pass reads, in their order; in a pass over single chunks, their numbers."""
        what = self.what
        if what.columns is not None:
            return range(len(what.columns))
        return range(self.source.n_bands) if what.bands is None else what.bands

    @cached_property
    def groups(self) -> dict[str, Sequence[int]]:
        """The bands of each task that reads some; in a pass over single chunks, their numbers."""
        numbers = self.numbers
        places = {number: place for place, number in enumerate(numbers)}
        firsts = {}
        for key in self.keys:
            name, _, first = key.rpartition("-")
            if name.rpartition("-")[0] == f"avgk-{self.what.name}" and first.isdecimal() and int(first) in places:
                firsts[places[int(first)]] = key
        ends = [*sorted(firsts), len(numbers)]
        return {firsts[first]: numbers[first:last] for first, last in pairwise(ends)}

    @property
    def steps(self) -> set[str]:
        """The keys of all tasks that read or merge."""
        return {key for key in self.keys if key in self.groups or key.startswith("avgk-merge-")}

    @property
    def total(self) -> int:
        """Bytes of the scores that the pass reads, together with the other waves of a scan."""
        if self.what.is_wave:
            return self.source.shape[0] * self._row_bytes
        return self.n_bytes

    @property
    def n_bytes(self) -> int:
        """Bytes of the scores that the pass reads."""
        return sum(map(self._bytes_of, self.numbers))

    @cached_property
    def shares(self) -> dict[str, int]:
        """The bytes of the scores that each task reads."""
        return {key: sum(map(self._bytes_of, numbers)) for key, numbers in self.groups.items()}

    @property
    def _row_bytes(self) -> int:
        return self.source.shape[1] * self.source.reader.score_bytes

    def _bytes_of(self, number: int) -> int:
        source, what = self.source, self.what
        if what.columns is None:
            return (source.rows[number + 1] - source.rows[number]) * self._row_bytes
        n_rows, n_classes = source.chunk_shape((what.bands or ())[number], what.columns[number])
        return n_rows * n_classes * source.reader.score_bytes

    def place_of(self, key: str) -> str:
        """Return which rows and chunks a task reads, in words."""
        if key not in self.groups:
            return "merges what others found" if key.startswith("avgk-merge-") else f"is called {key}"
        source, bands = self.source, self._bands(self.groups[key])
        whole, places = source.whole, source.places
        rows = whole.rows[places[bands[0]]], whole.rows[places[bands[-1]] + 1]
        chunks = source.chunk_names(rows, (0, source.shape[1]))
        which = f"band {bands[0]}" if len(bands) == 1 else f"bands {bands[0]} to {bands[-1]}"
        if len(bands) <= bands[-1] - bands[0]:
            which = f"{len(bands)} of the {which}"
        place = ", ".join(part for part in (which, f"{chunks} of {source.location}" if chunks else "") if part)
        return f"reads rows {rows[0]} to {rows[1] - 1} ({place})"

    def _bands(self, numbers: Sequence[int]) -> list[int]:
        if self.what.columns is None:
            return sorted(numbers)
        return sorted((self.what.bands or ())[number] for number in numbers)


# The graph of a pass: one task for some bands each, and a tree of merges over them.


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
        groups = group_chunks(source, len(what.columns or ()), steady=steady)
    else:
        groups = group_bands(source, what.max_tasks, what.bands, steady=steady)
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
    return read_chunks, source.reader.key, [source.chunk(*at) for at in chunks], source.masks_of(bands), which, shared


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
