"""Stored arrays as Dask arrays, and back."""

from __future__ import annotations

import uuid
from itertools import pairwise
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import delayed
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from ..arrays import Array
from ..store.read.bands import read_array
from ..store.read.encoding import decoded_dtype
from ..store.read.grids import grid_of
from ..store.where.array_kinds import StoredArray


class StoreLayer(MaterializedLayer):
    """The tasks that read a stored array as Dask blocks; remembers the array."""

    def __init__(self, tasks: dict[Any, Any], stored: Any) -> None:
        super().__init__(tasks)
        self.stored = stored


def lazy_array(array: StoredArray) -> da.Array:
    """Return a stored array as a Dask array: one task for each stored chunk (or shard)."""
    bounds = [axis.bounds() for axis in grid_of(array)]
    sizes: Any = tuple(tuple(last - first for first, last in pairwise(b)) for b in bounds)
    name = f"avgk-read-{uuid.uuid4().hex[:12]}"
    dtype = decoded_dtype(array)
    shared = delayed(StoredBlocks(array), name=f"{name}-store", traverse=False)
    tasks: dict[Any, Any] = {
        (name, *index): (
            StoredBlocks.read,
            shared.key,
            [(b[i], b[i + 1]) for b, i in zip(bounds, index, strict=True)],
        )
        for index in np.ndindex(*map(len, sizes))
    }
    layers = {name: StoreLayer(tasks, array), **shared.dask.layers}
    graph = HighLevelGraph(layers, {name: set(shared.__dask_layers__()), **shared.dask.dependencies})
    return da.Array(graph, name, sizes, dtype=dtype)


def stored_array(blocks: Any) -> Any | None:
    """Return the stored array that a Dask array is, unchanged; None for any other."""
    layer = blocks.dask.layers.get(blocks.name) if isinstance(blocks, da.Array) else None
    return layer.stored if isinstance(layer, StoreLayer) else None


class StoredBlocks:
    """Reads blocks of a stored array; travels to the workers once."""

    def __init__(self, array: StoredArray) -> None:
        self.array = array

    def read(self, where: list[tuple[int, int]]) -> Array:
        """Return the values between these bounds."""
        return read_array(self.array, tuple(slice(*bounds) for bounds in where))
