"""What tasks read of stored arrays, on the workers. Apart from what plans it, so that a worker imports no Dask arrays.

Those bring xarray and pandas along, some 100 MB of a worker's memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..arrays import Array, Dtype
from ..store.read.bands import BandReader, read_array
from ..store.where.array_kinds import StoredArray
from .transforms import Transform, join_slabs, transform_slabs


class Key:
    """The key of another task, among the arguments of a task."""

    def __init__(self, key: Any) -> None:
        self.key = key


class StoredLabels:
    """A stretch of stored labels, read inside the task that needs them."""

    # Not a dataclass: Dask would look for tasks inside one, field by field.
    def __init__(self, array: StoredArray, first: int, last: int) -> None:
        self.array, self.first, self.last = array, first, last

    def read(self) -> Array:
        """Return the labels of the stretch."""
        return read_array(self.array, (slice(self.first, self.last),))


class StoredChunk:
    """One chunk of a stored array, or several small ones, read inside the task that needs it."""

    def __init__(self, first_row: int, last_row: int, first_class: int, last_class: int) -> None:
        self.where = slice(first_row, last_row), slice(first_class, last_class)


def slabs_of(bands: Any, numbers: Sequence[int]) -> Iterator[Iterable[Array]]:
    """Return the slabs of each of some bands, one after the other, inside a task."""
    return bands.read_bands(numbers) if isinstance(bands, BandReader) else iter(bands)


def chunk_of(reader: Any, chunk: Any) -> Iterable[Array]:
    """Return the slabs of a chunk: one that is read now, or the blocks that came."""
    return [read_array(reader.array, chunk.where)] if isinstance(chunk, StoredChunk) else chunk


@dataclass(frozen=True)
class Preparation:
    """What tasks need to know to transform the slabs they read: how they are stored, and where bands and chunks begin."""

    transform: Transform
    dtype: Dtype
    n_stored: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    def prepare(self, slabs: Iterable[Array], band: int, column: int = 0) -> Iterable[Array]:
        """Return the slabs of a band from a class chunk on, transformed."""
        if self.transform.needs_rows:
            return [self.transform.apply(join_slabs(slabs, self.dtype, self.n_stored), self.rows[band], 0)]
        return transform_slabs(self.transform, slabs, self.dtype, self.rows[band], self.columns[column])


def labels_now(labels: Any) -> Any:
    """Return labels that may still have to be read."""
    return labels.read() if isinstance(labels, StoredLabels) else labels


#: What a task is given: values, what reads them, or the keys of other tasks, also in lists.
Argument = Key | StoredLabels | StoredChunk | Array | list[Any] | None
