"""What tasks read of stored arrays, on the workers. Apart from what plans it, so that a worker imports no Dask arrays.

Those bring xarray and pandas along, some 100 MB of a worker's memory.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..arrays import Array, Dtype
from ..store.read.bands import BandReader, read_array
from ..store.read.checked import is_local
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

    @property
    def is_near(self) -> bool:
        """Whether reads are answered at once."""
        return is_local(self.array.store_path.store)

    def read(self) -> Array:
        """Return the labels of the stretch."""
        return read_array(self.array, (slice(self.first, self.last),))


class StoredChunk:
    """One chunk of a stored array, read inside the task that needs it."""

    def __init__(self, band: int, first: int, last: int) -> None:
        self.band, self.first, self.last = band, first, last


def slabs_of(bands: Any, numbers: Sequence[int]) -> Generator[Iterable[Array]]:
    """Return the slabs of each of some bands, one after the other, inside a task."""
    yield from bands.read_bands(numbers) if isinstance(bands, BandReader) else bands


def chunks_of(reader: Any, chunks: Sequence[Any]) -> Generator[Iterable[Array]]:
    """Return the slabs of each of some chunks: one that is read now, or the blocks that came."""
    if not isinstance(reader, BandReader):
        yield from chunks
    else:
        yield from ([slab] for slab in reader.read_parts([(chunk.band, chunk.first, chunk.last) for chunk in chunks]))


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


def labels_of(bands: Any, labels: Sequence[Any]) -> Generator[Any]:
    """Return the labels of each of some bands, read now where they are stored, and ahead where their store is far."""
    stored = [mine for mine in labels if isinstance(mine, StoredLabels)]
    if not stored:
        yield from labels
    elif isinstance(bands, BandReader) and not stored[0].is_near:
        yield from bands.read_ahead(stored[0].array, [(slice(mine.first, mine.last),) for mine in stored])
    else:
        yield from (mine.read() for mine in stored)


#: What a task is given: values, what reads them, or the keys of other tasks, also in lists.
Argument = Key | StoredLabels | StoredChunk | Array | list[Any] | None
