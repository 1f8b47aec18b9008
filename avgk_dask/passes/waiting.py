"""Arrays that wait: none of their blocks is computed before a task is done."""

from __future__ import annotations

from typing import Any

import dask.array as da
from dask.delayed import Delayed
from dask.graph_manipulation import bind
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from .dask_tasks import GraphNode, clone_key

#: Names the copies of an array's tasks; the same array may be used beside its copy.
_SEED = "avgk-waiting"


def wait_for(array: da.Array, task: Delayed) -> da.Array:
    """Return the same array, computed only after a task.

    Dask's ``bind`` does this, but leaves the old names inside tasks that its newer classes describe, such as
    those of ``from_delayed`` (dask/dask#12127): they are renamed here.
    """
    bound = bind(array, task, seed=_SEED)
    names = {key: clone_key(key, _SEED) for key in array.__dask_graph__()}
    graph = bound.__dask_graph__()
    layers = {
        name: MaterializedLayer({key: _renamed(part, names) for key, part in layer.items()})
        if isinstance(layer, MaterializedLayer)
        else layer
        for name, layer in graph.layers.items()
    }
    return da.Array(HighLevelGraph(layers, graph.dependencies), bound.name, bound.chunks, meta=bound)


def _renamed(part: Any, names: dict[Any, Any]) -> Any:
    """Return a part of a task with the new names of what it depends on."""
    if isinstance(part, GraphNode):
        return part.substitute({key: names[key] for key in part.dependencies if key in names})
    if type(part) in (tuple, list):
        return type(part)(_renamed(inner, names) for inner in part)
    return part
