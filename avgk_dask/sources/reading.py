"""What may happen to scores between reading and ordering them.

The stored dtype and the one that is ranked are two things: a transform turns the slabs of a band, as they are stored, into
those that scans see. Kept apart from what builds graphs: it runs inside the tasks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, pairwise
from threading import Lock
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ..arrays import Array, Bools, Dtype, Ints
from ..bands.candidates import checked_slabs, promised_block
from ..errors import ScoresError
from ..kernels.keys import encode, spread_keys
from ..masks import plain_block
from ..store.read.bands import BandReader, read_array
from ..store.read.checked import is_local
from ..store.read.grids import outer_sizes
from ..store.read.listing import hash_rows
from ..store.where.addresses import StoredArray
from ..threads import n_threads


@runtime_checkable
class GivesSlabs(Protocol):
    """A transform of whole rows that need not give them whole."""

    @property
    def gives_slabs(self) -> bool:
        """Whether it can give them in slabs."""

    def slabs(self, block: Array, first_row: int, classes: Sequence[int]) -> Iterator[Array]:
        """Return whole rows in slabs between some classes, one after the other."""


class Transform(Protocol):
    """Turns stored scores into those that are ranked, block by block."""

    @property
    def dtype(self) -> Dtype:
        """The dtype of what it gives."""

    @property
    def needs_rows(self) -> bool:
        """Whether it must see whole rows; else any block of the matrix will do."""

    @property
    def told(self) -> str:
        """What it does, in words; nothing where it only arranges the scores."""

    def width(self, n_stored: int) -> int:
        """Return the number of columns that it makes of those stored."""

    def apply(self, block: Array, first_row: int, first_class: int) -> Array:
        """Return a block that starts at this row and class of the matrix, transformed."""


def join_slabs(slabs: Iterable[Any], dtype: Dtype, n_classes: int) -> Array:
    """Return a band in one piece, which is good until the next band is asked for."""
    each = checked_slabs(slabs, dtype, n_classes, None)
    first = next(each)
    if first.shape[1] == n_classes:
        return first
    # A slab is good until the next is asked for.
    band = np.empty((len(first), n_classes), dtype)
    band[:, : first.shape[1]], done = first, first.shape[1]
    for slab in each:
        band[:, done : done + slab.shape[1]] = slab
        done += slab.shape[1]
    return band


def transform_slabs(
    transform: Transform, slabs: Iterable[Any], dtype: Dtype, first_row: int, first_class: int = 0
) -> Iterator[Array]:
    """Return slabs stored as ``dtype``, of which the first starts at this row and class of the matrix, transformed one by one."""
    for block in (promised_block(slab, dtype) for slab in slabs):
        yield transform.apply(block, first_row, first_class)
        first_class += block.shape[1]


@dataclass(frozen=True)
class SpreadTies:
    """Turns scores into keys in which the ties at the chosen keys, which ascend, are in a fixed pseudo-random order."""

    chosen: tuple[int, ...]
    n_classes: int
    stored: Dtype

    @property
    def dtype(self) -> Dtype:
        """The dtype of keys."""
        return np.dtype(np.int64)

    @property
    def needs_rows(self) -> bool:
        """Whether it must see whole rows: any block will do."""
        return False

    @property
    def told(self) -> str:
        """What it does, in words: nothing to the scores themselves."""
        return ""

    def width(self, n_stored: int) -> int:
        """Return the number of columns: the same."""
        return n_stored

    def apply(self, block: Array, first_row: int, first_class: int) -> Array:
        """Return the refined keys of a block."""
        keys = encode(np.ascontiguousarray(block, self.stored))
        return spread_keys(keys, np.array(self.chosen, np.int64), first_row, first_class, self.n_classes)


# What tasks read of stored arrays, on the workers. Apart from what plans it, so that a worker imports no Dask arrays.
#
# Those bring xarray and pandas along, some 100 MB of a worker's memory.


#: Class numbers read at once, and how many times so many are held.
_LABELS_AT_ONCE, _LABEL_BLOCKS = 1 << 17, 4


class Key:
    """The key of another task, among the arguments of a task."""

    def __init__(self, key: Any) -> None:
        self.key = key


class StoredLabels:
    """Stored labels, whatever their chunks: the tasks read those of their bands. Travels to each worker once."""

    # Not a dataclass: Dask would look for tasks inside one, field by field.
    def __init__(self, array: StoredArray, rows: Sequence[int]) -> None:
        self.array, self.rows = array, rows
        #: Class numbers are read in blocks of many bands, of whole chunks. The last blocks are held, for all threads.
        chunk = outer_sizes(array)[0]
        self._block_rows = -(-_LABELS_AT_ONCE // chunk) * chunk
        self._block = lru_cache(max(_LABEL_BLOCKS, 2 * n_threads()))(self._read_block)
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredLabels, (self.array, self.rows)

    @property
    def are_far_rows(self) -> bool:
        """Whether they are soft labels of a store that answers slowly."""
        return self.array.ndim == 2 and not is_local(self.array.store_path.store)

    def rows_of(self, band: int) -> tuple[slice]:
        """Return where a band's labels are."""
        return (slice(self.rows[band], self.rows[band + 1]),)

    def read(self, band: int) -> Array:
        """Return the labels of a band."""
        if self.array.ndim == 2:
            return read_array(self.array, self.rows_of(band))
        first, last, size = self.rows[band], self.rows[band + 1], self._block_rows
        with self._lock:  # what one thread reads, others wait for
            blocks = [self._block(number) for number in range(first // size, -(-last // size))]
        start = first // size * size
        return (blocks[0] if len(blocks) == 1 else np.concatenate(blocks))[first - start : last - start]

    def _read_block(self, number: int) -> Array:
        first = number * self._block_rows
        return read_array(self.array, (slice(first, min(first + self._block_rows, self.array.shape[0])),))


def masks_of(masks: Any, ignored: Sequence[int | None], numbers: Sequence[int]) -> Generator[Bools | None]:
    """Return which rows of each of some bands exist: those that meet all conditions; None where there are none."""
    if masks is None:
        yield from [None] * len(numbers)
        return
    for columns in zip(*(labels_of(None, column, numbers) for column in masks), strict=True):
        kept = [c if value is None else c != value for c, value in zip(columns, ignored, strict=True)]
        yield np.logical_and.reduce(kept)


def count_kept(masks: Any, ignored: Sequence[int | None], numbers: Sequence[int], sizes: Sequence[int]) -> Ints:
    """Return how many samples of each of some bands exist, among the first ones and in all, and a hash of which."""
    found = [
        (int(kept[:size].sum()), int(kept.sum()), np.uint64(hash_rows(np.packbits(kept))).astype(np.int64))
        for kept, size in zip(masks_of(masks, ignored, numbers), sizes, strict=True)
        if kept is not None
    ]
    return np.array(found, np.int64).reshape(-1, 3)


def kept_rows(slabs: Iterable[Any], kept: Bools) -> Iterator[Array]:
    """Return the rows that exist of slabs that begin with the first row of ``kept``."""
    for slab in slabs:
        block = plain_block(slab)
        if len(block) > len(kept):
            raise ScoresError(
                f"scores must be what their metadata promise, {len(kept)} rows; got a block of shape {block.shape}. "
                "Correct the shape and chunks of the array."
            )
        mine = kept[: len(block)]
        yield block if mine.all() else block[mine]


class StoredChunk:
    """One chunk of a stored array, or several small ones, read inside the task that needs it."""

    def __init__(self, first_row: int, last_row: int, first_class: int, last_class: int) -> None:
        self.rows, self.first_class, self.last_class = slice(first_row, last_row), first_class, last_class

    def parts(self, classes: Sequence[int]) -> list[tuple[slice, slice]]:
        """Return it in parts that end where slabs do, whose class bounds are given."""
        inside = [c for c in classes if self.first_class < c < self.last_class]
        return [(self.rows, slice(*ends)) for ends in pairwise([self.first_class, *inside, self.last_class])]


class Combining(ABC):
    """Makes bands of those of several matrices. It stands before their arguments, in a list; of a chunk, its band does."""

    @abstractmethod
    def bands(self, arguments: Sequence[Any], numbers: Sequence[int]) -> Generator[Iterable[Array]]:
        """Return the slabs of each of some bands, given those of each matrix as an argument of a task."""


def slabs_of(bands: Any, numbers: Sequence[int]) -> Generator[Iterable[Array]]:
    """Return the slabs of each of some bands, one after the other, inside a task."""
    if isinstance(bands, list) and bands and isinstance(bands[0], Combining):
        yield from bands[0].bands(bands[1:], numbers)
    else:
        yield from bands.read_bands(numbers) if isinstance(bands, BandReader) else bands


def chunks_of(reader: Any, chunks: Sequence[Any]) -> Generator[Iterable[Array]]:
    """Return the slabs of each of some chunks: those that are read now, or the blocks that came."""
    if isinstance(reader, Combining):
        for band, *arguments in chunks:
            yield from ([np.concatenate(list(slabs), axis=1)] for slabs in reader.bands(arguments, [band]))
    elif not isinstance(reader, BandReader):
        yield from chunks
    else:
        parts = [chunk.parts(reader.classes) for chunk in chunks]
        with closing(reader.read_parts(list(chain.from_iterable(parts)))) as slabs:
            for mine in parts:
                yield islice(slabs, len(mine))


@dataclass(frozen=True)
class Preparation:
    """What tasks need to know to transform the slabs they read: how they are stored, and where bands and chunks begin."""

    transform: Transform
    dtype: Dtype
    n_stored: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    #: Bounds of the slabs that it gives of whole rows.
    classes: tuple[int, ...]

    def prepare(self, slabs: Iterable[Array], band: int, column: int = 0) -> Iterable[Array]:
        """Return the slabs of a band from a class chunk on, transformed."""
        if self.transform.needs_rows:
            block, first_row = join_slabs(slabs, self.dtype, self.n_stored), self.rows[band]
            if len(self.classes) > 2:
                assert isinstance(self.transform, GivesSlabs)
                return self.transform.slabs(block, first_row, self.classes)
            return [self.transform.apply(block, first_row, 0)]
        return transform_slabs(self.transform, slabs, self.dtype, self.rows[band], self.columns[column])


def labels_of(bands: Any, labels: Any, numbers: Sequence[int]) -> Generator[Array | None]:
    """Return the labels of each of some bands, read now where they are stored, and ahead where rows of them are far."""
    if not isinstance(labels, StoredLabels):
        yield from [None] * len(numbers) if labels is None else labels
    elif isinstance(bands, BandReader) and labels.are_far_rows:
        yield from bands.read_ahead(labels.array, [labels.rows_of(band) for band in numbers])
    else:
        yield from map(labels.read, numbers)


#: What a task is given: values, what reads them, or the keys of other tasks, also in lists.
Argument = Key | StoredChunk | Array | list[Any] | None
