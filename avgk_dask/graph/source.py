"""Sources: a score matrix as bands that tasks read, whether stored or a Dask array."""

from __future__ import annotations

import math
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import delayed
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from numpy.typing import NDArray

from ..kernels.keys import check_dtype
from ..settings import setting
from ..store.bands import BandReader, plan_bands, read_array
from ..store.encoding import decoded_dtype
from .blocks import checked_matrix
from .tasks import StoredChunk, StoredLabels

Array = NDArray[Any]


class Source(ABC):
    """A score matrix with its labels, as bands of rows."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    #: Bounds of the bands, of the slabs each is read in, and of the class chunks.
    rows: Sequence[int]
    classes: Sequence[int]
    columns: Sequence[int]
    location: str
    labels: Any

    @property
    def n_bands(self) -> int:
        """Number of bands."""
        return len(self.rows) - 1

    @property
    def n_chunks(self) -> int:
        """Number of chunks a pilot can choose from."""
        return self.n_bands * (len(self.columns) - 1)

    def band_bytes(self) -> int:
        """Bytes of the largest band."""
        return int(np.diff(self.rows).max()) * self.shape[1] * self.dtype.itemsize

    @abstractmethod
    def slab_bytes(self) -> int:
        """Bytes of the largest piece of a band that is in memory at once."""

    def groups(self, max_tasks: int | None = None) -> list[tuple[int, int]]:
        """Give the runs of bands that each task reads: enough to be worth a task, and not too many tasks."""
        per_band = max(1, self.shape[0] * self.shape[1] * self.dtype.itemsize // self.n_bands)
        size = max(math.ceil(setting("task-bytes") / per_band), math.ceil(self.n_bands / setting("max-tasks")))
        # A small matrix still gives every core something to do.
        size = max(1, min(size, self.n_bands // 8 if self.n_bands > 8 else 1))
        size = max(size, math.ceil(self.n_bands / max_tasks)) if max_tasks else size
        return [(i, min(i + size, self.n_bands)) for i in range(0, self.n_bands, size)]

    def pilot_chunks(self) -> list[tuple[int, int]]:
        """Choose (band, class chunk) of the chunks the pilot reads, spread over the matrix."""
        n = self.n_chunks
        share = max(setting("pilot-least"), min(int(setting("pilot-share") * n), setting("pilot-most")))
        n_read = min(n, share, max(1, n // 2))
        n_columns = len(self.columns) - 1
        places = [(2 * i + 1) * n // (2 * n_read) for i in range(n_read)]
        # Shifted by the band, so that they do not all fall into the same columns.
        return [(place // n_columns, (place + place // n_columns) % n_columns) for place in places]

    def chunk_shape(self, band: int, column: int) -> tuple[int, int]:
        """Return the shape of one chunk."""
        return self.rows[band + 1] - self.rows[band], self.columns[column + 1] - self.columns[column]

    def labels_of(self, band: int) -> Any:
        """Give a band's labels: the array, the key of the task that gives it, or what reads it inside a task."""
        first, last = self.rows[band], self.rows[band + 1]
        if self.labels is None:
            return None
        if isinstance(self.labels, da.Array):
            return (self.labels.name, band, *(0,) * (self.labels.ndim - 1))
        if isinstance(self.labels, np.ndarray):
            return self.labels[first:last]
        return StoredLabels(self.labels, first, last)

    def collections(self) -> list[Any]:
        """Give the Dask collections whose tasks the keys of bands, chunks and labels name."""
        return [self.labels] if isinstance(self.labels, da.Array) else []

    def _fit_labels(self, labels: Any) -> Any:
        """Give the labels, if they are a Dask array with one block for each band."""
        if not isinstance(labels, da.Array):
            return labels
        rows: Any = tuple(np.diff(self.rows).tolist())
        (fitted,) = dask.optimize(labels.rechunk((rows, *(-1,) * (labels.ndim - 1))))
        return fitted

    @abstractmethod
    def chunk(self, band: int, column: int) -> Any:
        """Give one chunk, as an argument of a task."""

    @abstractmethod
    def bands(self, first: int, last: int) -> Any:
        """Give a run of bands, as an argument of a task."""

    @abstractmethod
    def dask_array(self) -> da.Array:
        """Give the scores as a Dask array whose blocks no other task shares."""


class StoreLayer(MaterializedLayer):
    """The tasks that read a stored array as Dask blocks; remembers the array."""

    def __init__(self, tasks: dict[Any, Any], stored: Any) -> None:
        super().__init__(tasks)
        self.stored = stored


def lazy_array(array: Any) -> da.Array:
    """Give a stored array as a Dask array: one task for each stored chunk (or shard)."""
    sizes: Any = da.core.normalize_chunks(array.shards or array.chunks, array.shape)
    name = f"avgk-read-{uuid.uuid4().hex[:12]}"
    dtype = decoded_dtype(array)
    shared = delayed(StoredBlocks(array), name=f"{name}-store", traverse=False)
    bounds = [np.concatenate([[0], np.cumsum(size)]).tolist() for size in sizes]
    tasks: dict[Any, Any] = {
        (name, *place): (
            StoredBlocks.read,
            shared.key,
            [(b[i], b[i + 1]) for b, i in zip(bounds, place, strict=True)],
        )
        for place in np.ndindex(*map(len, sizes))
    }
    layers = {name: StoreLayer(tasks, array), **shared.dask.layers}
    graph = HighLevelGraph(layers, {name: set(shared.__dask_layers__()), **shared.dask.dependencies})
    return da.Array(graph, name, sizes, dtype=dtype)


def stored_array(blocks: Any) -> Any | None:
    """Give the stored array that a Dask array is, unchanged; None for any other."""
    layer = blocks.dask.layers.get(blocks.name) if isinstance(blocks, da.Array) else None
    return layer.stored if isinstance(layer, StoreLayer) else None


class StoredBlocks:
    """Reads blocks of a stored array; travels to the workers once."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def read(self, where: list[tuple[int, int]]) -> Array:
        """Give the values between these bounds."""
        return read_array(self.array, tuple(slice(*bounds) for bounds in where))


class StoredSource(Source):
    """Scores in a Zarr array: tasks read their bands themselves."""

    def __init__(self, array: Any, labels: Any, location: str) -> None:
        self.shape = array.shape
        self.dtype = check_dtype(decoded_dtype(array))
        chunks = array.shards or array.chunks
        self.rows, self.classes = plan_bands(array.shape, chunks, self.dtype.itemsize, setting("slab-bytes"))
        self.columns = [*range(0, array.shape[1], chunks[1]), array.shape[1]]
        self.array, self.location, self.labels = array, location, self._fit_labels(labels)
        self.chunks = chunks
        self.reader = BandReader(array, tuple(self.rows), tuple(self.classes), self.dtype)
        self._shared = delayed(self.reader, name=f"avgk-store-{uuid.uuid4().hex[:12]}", traverse=False)

    def slab_bytes(self) -> int:  # noqa: D102
        return int(np.diff(self.rows).max() * np.diff(self.classes).max()) * self.dtype.itemsize

    def chunk(self, band: int, column: int) -> Any:  # noqa: D102
        return (StoredChunk, self._shared.key, band, self.columns[column], self.columns[column + 1])

    def bands(self, first: int, last: int) -> Any:  # noqa: D102
        return self._shared.key

    def collections(self) -> list[Any]:  # noqa: D102
        return [self._shared, *super().collections()]

    def dask_array(self) -> da.Array:  # noqa: D102
        return lazy_array(self.array)


class BlockSource(Source):
    """Scores in a Dask array: its blocks come to the tasks."""

    def __init__(self, array: da.Array, labels: Any, location: str) -> None:
        self.shape = array.shape
        self.dtype = check_dtype(array.dtype)
        whole: Any = tuple(tuple(size for size in sizes if size) for sizes in array.chunks)
        # Empty blocks hold nothing to read.
        blocks = array if whole == array.chunks else checked_matrix(array, self.dtype).rechunk(whole)
        rows, classes = (np.concatenate([[0], np.cumsum(c)]).tolist() for c in blocks.chunks)
        self.rows, self.classes, self.columns = rows, classes, classes
        self.array, self.location, self.labels = array, location, self._fit_labels(labels)
        (self._blocks,) = dask.optimize(blocks)

    def slab_bytes(self) -> int:  # noqa: D102
        return self.band_bytes()

    def chunk(self, band: int, column: int) -> Any:  # noqa: D102
        return (self._blocks.name, band, column)

    def bands(self, first: int, last: int) -> Any:  # noqa: D102
        return [[self.chunk(band, j) for j in range(len(self.columns) - 1)] for band in range(first, last)]

    def collections(self) -> list[Any]:  # noqa: D102
        return [self._blocks, *super().collections()]

    def dask_array(self) -> da.Array:  # noqa: D102
        return checked_matrix(self.array, self.dtype)
