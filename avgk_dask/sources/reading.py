"""What tasks read, on the workers: bands, chunks, labels and masks, and the mean of several matrices.

Apart from what plans it, so that a worker imports no Dask arrays, which bring some 100 MB of xarray and pandas.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, pairwise
from threading import Lock
from typing import Any

import numpy as np

from ..arrays import Array, Bools, Dtype, Floats, Ints
from ..bands.rows import checked_slabs
from ..errors import ScoresError
from ..masks import plain_block
from ..store.read.bands import BandReader, read_array
from ..store.read.checked import is_local
from ..store.read.grids import outer_sizes
from ..store.read.listing import hash_rows
from ..store.where.addresses import StoredArray
from ..threads import n_threads
from .transforms import Preparation

#: Scores that are added at once: as many as stay in a core's cache.
_STRIP = 1 << 15
#: Class numbers read at once, and how many such blocks are held.
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
    """Return which rows of each of some bands exist: those that meet all conditions, or None if there are none."""
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


@dataclass(frozen=True)
class MixedForm:
    """What one of several matrices is like as it is mixed: its weight, its dtype, and what happens to it before."""

    weight: float
    dtype: Dtype
    preparations: tuple[Preparation, ...]

    def prepared(self, slabs: Iterable[Array], band: int) -> Iterable[Array]:
        """Return the slabs of a band as they are mixed."""
        for preparation in self.preparations:
            slabs = preparation.prepare(slabs, band)
        return slabs


class Mixture:
    """Makes bands of those of several matrices. It comes first in the list of their arguments; for a chunk, its band does.

    Travels to each worker once.
    """

    # Not a dataclass: Dask would look for tasks inside one, field by field.
    def __init__(self, forms: Sequence[MixedForm], classes: Sequence[int], dtype: Dtype) -> None:
        self.forms, self.classes, self.dtype = tuple(forms), tuple(classes), dtype

    def bands(self, arguments: Sequence[Any], numbers: Sequence[int]) -> Generator[Iterable[Array]]:
        """Return the slabs of the mean of each of some bands, given those of each matrix as an argument of a task."""
        with ExitStack() as stack:
            readers = [stack.enter_context(closing(slabs_of(argument, numbers))) for argument in arguments]
            for number in numbers:
                found = zip(self.forms, readers, strict=True)
                yield self._slabs([form.prepared(next(reader), number) for form, reader in found])

    def _slabs(self, members: Sequence[Iterable[Array]]) -> Iterator[Array]:
        """Return the mean between the class bounds that all have, one after the other. The last member is asked last."""
        n_classes = self.classes[-1]
        streams = [checked_slabs(m, f.dtype, n_classes, None) for m, f in zip(members, self.forms, strict=True)]
        for first, last in pairwise(self.classes):
            total: Floats | None = None
            for stream, form in zip(streams, self.forms, strict=True):
                total = _add(total, stream, last - first, form.weight)
            assert total is not None
            yield rounded(total, self.dtype)
        for stream in streams:
            next(stream, None)  # which refuses what is too short


def _add(total: Floats | None, stream: Iterator[Array], n_classes: int, weight: float) -> Floats | None:
    """Add the next slabs of a matrix, of ``n_classes`` classes together, to a sum; begin one if there is none."""
    begun, done = total is not None, 0
    while done < n_classes:
        slab = next(stream, None)
        if slab is None:
            break
        total = np.empty((len(slab), n_classes)) if total is None else total
        add_weighed(total[:, done : done + slab.shape[1]], slab, weight, begun=begun)
        done += slab.shape[1]
    return total


def add_weighed(total: Floats, block: Array, weight: float, *, begun: bool) -> None:
    """Add the weight times a block to a sum, or begin it with that: in float64, score by score."""
    step = max(1, _STRIP // max(1, block.shape[1]))
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, which is refused later
        for first in range(0, len(block), step):
            part = block[first : first + step].astype(np.float64)
            part *= weight
            if begun:
                total[first : first + step] += part
            else:
                total[first : first + step] = part


def rounded(total: Floats, dtype: Dtype) -> Array:
    """Return sums in the dtype of the mean, rounded once."""
    with np.errstate(over="ignore"):
        return total.astype(dtype, copy=False)


def slabs_of(bands: Any, numbers: Sequence[int]) -> Generator[Iterable[Array]]:
    """Return the slabs of each of some bands, one after the other, inside a task."""
    if isinstance(bands, list) and bands and isinstance(bands[0], Mixture):
        yield from bands[0].bands(bands[1:], numbers)
    else:
        yield from bands.read_bands(numbers) if isinstance(bands, BandReader) else bands


def chunks_of(reader: Any, chunks: Sequence[Any]) -> Generator[Iterable[Array]]:
    """Return the slabs of each of some chunks: those that are read now, or the blocks that came."""
    if isinstance(reader, Mixture):
        for band, *arguments in chunks:
            yield from ([np.concatenate(list(slabs), axis=1)] for slabs in reader.bands(arguments, [band]))
    elif not isinstance(reader, BandReader):
        yield from chunks
    else:
        parts = [chunk.parts(reader.classes) for chunk in chunks]
        with closing(reader.read_parts(list(chain.from_iterable(parts)))) as slabs:
            for mine in parts:
                yield islice(slabs, len(mine))


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
