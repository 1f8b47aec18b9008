"""What we need of Dask's own tasks, in their current form: the one place that knows the classes for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dask._task_spec import DataNode, GraphNode, List, Task, TaskRef
from dask.base import clone_key
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.tokenize import tokenize

from ..sources.reading import Key

__all__ = ["Graph", "GraphNode", "as_delayed", "clone_key", "constant", "task", "token_of"]

Graph = dict[str, Any]


def task(key: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return a task; each ``Key`` among its arguments, or in lists of them, becomes the value of that task."""
    return Task(key, function, *(_argument(argument) for argument in arguments))


def _argument(value: Any) -> Any:
    if isinstance(value, Key):
        return TaskRef(value.key)
    if isinstance(value, list):
        return List(*(_argument(part) for part in value))
    return value


def constant(key: str, value: Any) -> Any:
    """Return the task that is a value: it travels to each worker once."""
    return DataNode(key, value)


def token_of(*values: Any) -> str:
    """Return a name of values, the same only where they are the same."""
    return str(tokenize(*values))[:24]


def as_delayed(keys: Iterable[str], graph: Graph, collections: list[Any], name: str) -> list[Delayed]:
    """Return tasks of a graph, over the tasks of other collections, as something Dask computes."""
    layers = HighLevelGraph.from_collections(name, graph, dependencies=collections)
    return [Delayed(key, layers, layer=name) for key in keys]
