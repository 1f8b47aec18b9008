"""Tasks: made of Dask's own classes, which only this module knows, and their work on the workers.

A worker imports this module and nothing above it, and so neither Dask's arrays nor pandas. ``read_bands`` and ``read_chunks`` do
the work of a pass; with a checkpoint, ``read_kept`` calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from dask._task_spec import DataNode, GraphNode, List, Task, TaskRef
from dask.base import clone_key
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.tokenize import tokenize

from ..bands.passes import Pass
from ..errors import ReadError
from ..kernels.dispatch import set_problem_size
from ..records import EACH, Count, Record, State
from ..sources.reading import Key, iterate_chunks, iterate_labels, iterate_masks, iterate_slabs, select_rows
from ..sources.transforms import Preparation
from ..store.read.listing import hash_rows
from ..store.write.hashed_folder import HashedFolder

__all__ = ["Graph", "GraphNode", "as_delayed", "clone_key", "constant", "task", "token_of"]

Graph = dict[str, Any]
AnyRecord = TypeVar("AnyRecord", bound=Record)


def task(key: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return a task; each ``Key`` among its arguments, or in lists of them, is replaced by the value of its task."""
    return Task(key, function, *(_argument(argument) for argument in arguments))


def _argument(value: Any) -> Any:
    if isinstance(value, Key):
        return TaskRef(value.key)
    if isinstance(value, list):
        return List(*(_argument(part) for part in value))
    return value


def constant(key: str, value: Any) -> Any:
    """Return a task with a constant value, which is sent to each worker once."""
    return DataNode(key, value)


def token_of(*values: Any) -> str:
    """Return a hash of values."""
    return str(tokenize(*values))[:24]


def as_delayed(keys: Iterable[str], graph: Graph, collections: list[Any], name: str) -> list[Delayed]:
    """Return tasks of a graph, over the tasks of other collections, as ``Delayed``."""
    layers = HighLevelGraph.from_collections(name, graph, dependencies=collections)
    return [Delayed(key, layers, layer=name) for key in keys]


@dataclass(frozen=True)
class KeptState(State):
    """The state of some bands, and the number of their tasks that read scores, and not a state of the checkpoint."""

    state: Annotated[tuple[State, ...], EACH]
    n_readers: Count


def load_record(kind: type[AnyRecord], hashed_folder: HashedFolder, name: str) -> AnyRecord | None:
    """Return the record in a file, or None if it is absent, damaged, or of another kind or version."""
    data = hashed_folder.read(name)
    try:
        return None if data is None else kind.from_bytes(data)
    except ReadError:
        return None


@dataclass(frozen=True)
class Keeper:
    """Saves and loads the states of one pass."""

    hashed_folder: HashedFolder
    kind: type[State]

    def load(self, name: str) -> State | None:
        """Return a state, or None if it is absent, damaged or of another kind."""
        return load_record(self.kind, self.hashed_folder, name)

    def save(self, name: str, state: State) -> None:
        """Save a state."""
        self.hashed_folder.write(name, state.to_parts())


def read_kept(keeper: Keeper, name: str, read: Callable[..., State], *arguments: Any) -> KeptState:
    """Load a state, or read and save it."""
    state = keeper.load(name)
    if state is not None:
        return KeptState((state,), 0)
    state = read(*arguments)
    keeper.save(name, state)
    return KeptState((state,), 1)


def hash_labels(labels: Any, numbers: Sequence[int]) -> list[int]:
    """Return a hash of the labels of each of some bands."""
    with closing(iterate_labels(None, labels, numbers)) as each:
        return [hash_rows(mine) for mine in each]


@dataclass(frozen=True)
class Assignment:
    """The pass, and the preparation of its scores, which all tasks share."""

    pass_: Pass
    preparations: tuple[Preparation, ...] = ()
    #: The label that each condition on the samples ignores.
    ignored: tuple[int | None, ...] = ()
    #: Scores of the whole matrix.
    n_scores: int = 0

    def work(self, slabs: Any, labels: Any, kept: Any, number: int, band: int, column: int = 0) -> State:
        """Do the work of the pass on the existing rows of a band, or of a chunk."""
        set_problem_size(self.n_scores)
        if kept is not None:
            slabs, labels = select_rows(slabs, kept), None if labels is None else labels[kept]
        for preparation in self.preparations:
            slabs = preparation.prepare(slabs, band, column)
        return self.pass_.work(slabs, labels, number, self.pass_.plan)


@dataclass(frozen=True)
class TaskNumbers:
    """The bands or chunks of one task."""

    #: The numbers of the bands, or of the chunks in a pass over single chunks.
    numbers: Sequence[int]
    #: The numbers of these bands in the store: the same if all samples exist.
    places: Sequence[int]
    #: The band and the class chunk of each chunk.
    chunks: Sequence[tuple[int, int]] = ()


def read_bands(
    bands: Any, labels: Any, masks: Any, task_numbers: TaskNumbers, assignment: Assignment, n_held: int
) -> State:
    """Do the work of a pass on some bands, and merge their states, up to ``n_held`` at a time."""
    places = task_numbers.places
    states: list[State] = []
    # Closed at once on an error: its traceback would keep them open.
    with (
        closing(iterate_slabs(bands, places)) as each,
        closing(iterate_labels(bands, labels, places)) as all_labels,
        closing(iterate_masks(masks, assignment.ignored, places)) as all_masks,
    ):
        for slabs, mine, kept, number in zip(each, all_labels, all_masks, task_numbers.numbers, strict=True):
            states.append(assignment.work(slabs, mine, kept, number, number))
            if len(states) == n_held:
                states = [merge_states(states)]
    return merge_states(states)


def read_chunks(reader: Any, chunks: list[Any], masks: Any, task_numbers: TaskNumbers, assignment: Assignment) -> State:
    """Do the work of a pass on single chunks, and merge their states."""
    with (
        closing(iterate_chunks(reader, chunks)) as each,
        closing(iterate_masks(masks, assignment.ignored, task_numbers.places)) as kept,
    ):
        parts = zip(each, kept, task_numbers.numbers, task_numbers.chunks, strict=True)
        return merge_states([assignment.work(slabs, None, mine, number, *at) for slabs, mine, number, at in parts])


def merge_states(states: list[State]) -> State:
    """Merge states."""
    return type(states[0]).merge(states)
