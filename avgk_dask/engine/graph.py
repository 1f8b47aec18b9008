"""The graph of a pass: tasks of a few bands each, and a tree of merges. Keys are hashes of the tasks' content.

``Reads`` records the bands of each task, for progress in bytes and to name the rows and chunks of a task that failed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from dask.delayed import Delayed

from ..bands.passes import Pass
from ..settings import setting
from ..sources.planning import chunk_shape, group_bands, group_chunks
from ..sources.reading import Key
from ..sources.source import Source
from . import tasks
from .checkpoint import KeptPass

#: States that a task holds before it merges them.
_HELD_STATES = 8
#: Bytes of states that are merged at once.
_MERGED_BYTES = 64 << 20


@dataclass(frozen=True)
class Reads:
    """The bands or chunks that each task of a pass reads."""

    source: Source
    pass_: Pass
    #: By key, the bands of each task; in a pass over single chunks, the numbers of the chunks.
    groups: dict[str, Sequence[int]] = field(default_factory=dict)
    #: The keys of the merges.
    merges: tuple[str, ...] = ()

    @property
    def steps(self) -> set[str]:
        """The keys of all tasks that read or merge."""
        return {*self.groups, *self.merges}

    @property
    def total(self) -> int:
        """Bytes of the scores that the pass reads, with the other waves of a scan."""
        return self.source.shape[0] * self._row_bytes if self.pass_.is_wave else self.n_bytes

    @property
    def n_bytes(self) -> int:
        """Bytes of the scores that the pass reads."""
        pass_ = self.pass_
        if pass_.columns is not None:
            return sum(map(self._bytes_of, range(len(pass_.columns))))
        return sum(map(self._bytes_of, range(self.source.n_bands) if pass_.bands is None else pass_.bands))

    @cached_property
    def shares(self) -> dict[str, int]:
        """The bytes of the scores that each task reads."""
        return {key: sum(map(self._bytes_of, numbers)) for key, numbers in self.groups.items()}

    @property
    def _row_bytes(self) -> int:
        return self.source.shape[1] * self.source.reader.score_bytes

    def _bytes_of(self, number: int) -> int:
        source, pass_ = self.source, self.pass_
        if pass_.columns is None:
            return (source.rows[number + 1] - source.rows[number]) * self._row_bytes
        n_rows, n_classes = chunk_shape(source, (pass_.bands or ())[number], pass_.columns[number])
        return n_rows * n_classes * source.reader.score_bytes

    def place_of(self, key: str) -> str:
        """Return a description of the rows and chunks that a task reads."""
        if key not in self.groups:
            return "merges the results of other tasks" if key.startswith("avgk-merge-") else f"is called {key}"
        source, bands = self.source, self.pass_.bands
        numbers = self.groups[key]
        if self.pass_.columns is not None and bands is not None:
            numbers = [bands[number] for number in numbers]
        first, last = min(numbers), max(numbers)
        rows = source.unfiltered.rows[source.stored_bands[first]], source.unfiltered.rows[source.stored_bands[last] + 1]
        chunks = source.reader.chunk_names(rows)
        place = f"band {first}" if len(numbers) == 1 else f"bands {first} to {last}"
        if len(numbers) <= last - first:
            place = f"{len(numbers)} of the {place}"
        if chunks:
            place += f", {chunks} of {source.location}"
        return f"reads rows {rows[0]} to {rows[1] - 1} ({place})"


def pass_task(source: Source, pass_: Pass, kept: KeptPass | None = None) -> tuple[Delayed, Reads]:
    """Return the task that merges the states of all bands of a pass, and the reads of its tasks.

    With a checkpoint, tasks load the states that it has, and save the others.
    """
    steady = kept is not None
    groups: list[Sequence[int]]
    if pass_.columns is None:
        groups = group_bands(source, pass_.max_tasks, pass_.bands, steady=steady)
    else:
        groups = group_chunks(source, len(pass_.columns), steady=steady)
    token = tasks.token_of(source.token, pass_, groups, setting("fan-in"), steady)
    plan_key, keeper_key = f"avgk-plan-{token}", f"avgk-keeper-{token}"
    ignored = () if source.mask is None else source.mask.ignored
    assignment = tasks.Assignment(pass_, source.preparations, ignored, math.prod(source.shape))
    graph: tasks.Graph = {plan_key: tasks.constant(plan_key, assignment)}
    if kept is not None:
        graph[keeper_key] = tasks.constant(keeper_key, kept.keeper)
    by_key = {f"avgk-{pass_.name}-{token}-{numbers[0]}": numbers for numbers in groups}
    for key, numbers in by_key.items():
        keeping = () if kept is None else (tasks.read_kept, Key(keeper_key), kept.name(numbers))
        if pass_.columns is None:
            n_held = 2 if pass_.max_tasks else _HELD_STATES
            bands = source.bands(numbers), source.labels_of(numbers), source.masks_of(numbers)
            task_numbers = tasks.TaskNumbers(numbers, source.stored_bands_of(numbers))
            graph[key] = tasks.task(key, *keeping, tasks.read_bands, *bands, task_numbers, Key(plan_key), n_held)
        else:
            assert pass_.bands is not None
            chunks = tuple((pass_.bands[number], pass_.columns[number]) for number in numbers)
            of_bands = [band for band, _ in chunks]
            task_numbers = tasks.TaskNumbers(numbers, source.stored_bands_of(of_bands), chunks)
            scores = source.reader.key, [source.chunk(*at) for at in chunks], source.masks_of(of_bands)
            graph[key] = tasks.task(key, *keeping, tasks.read_chunks, *scores, task_numbers, Key(plan_key))
    merges = _merge_tree(list(by_key), fan_in_of(pass_.state_bytes), token)
    root = [*by_key, *merges][-1]
    (merged,) = tasks.as_delayed([root], graph | merges, source.collections(), f"avgk-{pass_.name}-{token}")
    return merged, Reads(source, pass_, by_key, tuple(merges))


def fan_in_of(state_bytes: int) -> int:
    """Return the number of states to merge at once, given the bytes of one."""
    fitting = _MERGED_BYTES // state_bytes if state_bytes else math.inf
    return int(max(2, min(setting("fan-in"), fitting)))


def _merge_tree(keys: list[str], fan_in: int, token: str) -> tasks.Graph:
    """Return a tree of merges over some tasks; its root is the last one."""
    merges: tasks.Graph = {}
    level = 0
    while len(keys) > 1:
        parts = [keys[i : i + fan_in] for i in range(0, len(keys), fan_in)]
        keys = [f"avgk-merge-{token}-{level}-{i}" for i in range(len(parts))]
        for key, part in zip(keys, parts, strict=True):
            merges[key] = tasks.task(key, tasks.merge_states, [Key(name) for name in part])
        level += 1
    return merges
