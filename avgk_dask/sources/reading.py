"""The reads of tasks: bands, chunks, labels and masks, and the mean of several matrices.

Workers import this module. It does not import Dask arrays, which would load about 100 MB of xarray and pandas.
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
from ..masks import block_to_ndarray
from ..store.read.bands import BandReader, read_array
from ..store.read.checked import is_local
from ..store.read.grids import outer_sizes
from ..store.read.listing import hash_rows
from ..store.where.addresses import StoredArray
from ..threads import n_threads
from .transforms import Preparation

#: Scores added at once: they stay in a core's cache.
_STRIP = 1 << 15
#: Class numbers read at once, and the number of such blocks in the cache.
_LABELS_AT_ONCE, _LABEL_BLOCKS = 1 << 17, 4


class Key:
    """The key of another task, among the arguments of a task."""

    def __init__(self, key: Any) -> None:
        self.key = key


class StoredLabels:
    """Stored labels, in any chunks: each task reads the labels of its bands. Sent to each worker once."""

    # Not a dataclass: Dask would look for tasks in its fields.
    def __init__(self, array: StoredArray, rows: Sequence[int]) -> None:
        self.array, self.rows = array, rows
        # Class numbers are read in blocks of whole chunks that cover many bands. All threads share the last blocks.
        chunk = outer_sizes(array)[0]
        self._block_rows = -(-_LABELS_AT_ONCE // chunk) * chunk
        self._block = lru_cache(max(_LABEL_BLOCKS, 2 * n_threads()))(self._read_block)
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredLabels, (self.array, self.rows)

    @property
    def are_far_rows(self) -> bool:
        """Whether these are soft labels in a store with high latency."""
        return self.array.ndim == 2 and not is_local(self.array.store_path.store)

    def rows_of(self, band: int) -> tuple[slice]:
        """Return the rows of a band."""
        return (slice(self.rows[band], self.rows[band + 1]),)

    def read(self, band: int) -> Array:
        """Return the labels of a band."""
        if self.array.ndim == 2:
            return read_array(self.array, self.rows_of(band))
        first, last, size = self.rows[band], self.rows[band + 1], self._block_rows
        with self._lock:  # so that two threads do not read the same block
            blocks = [self._block(number) for number in range(first // size, -(-last // size))]
        start = first // size * size
        return (blocks[0] if len(blocks) == 1 else np.concatenate(blocks))[first - start : last - start]

    def _read_block(self, number: int) -> Array:
        first = number * self._block_rows
        return read_array(self.array, (slice(first, min(first + self._block_rows, self.array.shape[0])),))


def iterate_masks(masks: Any, ignored: Sequence[int | None], numbers: Sequence[int]) -> Generator[Bools | None]:
    """Yield which rows of each band exist: those that meet all conditions, or None if there are no conditions."""
    if masks is None:
        yield from [None] * len(numbers)
        return
    for columns in zip(*(iterate_labels(None, column, numbers) for column in masks), strict=True):
        kept = [c if value is None else c != value for c, value in zip(columns, ignored, strict=True)]
        yield np.logical_and.reduce(kept)


def count_kept(masks: Any, ignored: Sequence[int | None], numbers: Sequence[int], sizes: Sequence[int]) -> Ints:
    """Return, for each band, how many of its first ``sizes`` samples exist, how many of all, and a hash of the mask."""
    counts = [
        (int(kept[:size].sum()), int(kept.sum()), np.uint64(hash_rows(np.packbits(kept))).astype(np.int64))
        for kept, size in zip(iterate_masks(masks, ignored, numbers), sizes, strict=True)
        if kept is not None
    ]
    return np.array(counts, np.int64).reshape(-1, 3)


def select_rows(slabs: Iterable[Any], kept: Bools) -> Iterator[Array]:
    """Yield the rows of slabs for which ``kept`` is True."""
    for slab in slabs:
        block = block_to_ndarray(slab)
        if len(block) > len(kept):
            raise ScoresError(
                f"a block of the scores has shape {block.shape}, but the array's metadata declare {len(kept)} rows. "
                "Correct the shape and chunks of the array."
            )
        selection = kept[: len(block)]
        yield block if selection.all() else block[selection]


class StoredChunk:
    """One chunk of a stored array, or several small ones, which a task reads."""

    def __init__(self, first_row: int, last_row: int, first_class: int, last_class: int) -> None:
        self.rows, self.first_class, self.last_class = slice(first_row, last_row), first_class, last_class

    def parts(self, classes: Sequence[int]) -> list[tuple[slice, slice]]:
        """Return the chunk in parts that end at the class bounds of slabs."""
        inside = [c for c in classes if self.first_class < c < self.last_class]
        return [(self.rows, slice(*ends)) for ends in pairwise([self.first_class, *inside, self.last_class])]


@dataclass(frozen=True)
class MixedForm:
    """One of several matrices in a mean: its weight, its dtype, and its transforms."""

    weight: float
    dtype: Dtype
    preparations: tuple[Preparation, ...]

    def prepare(self, slabs: Iterable[Array], band: int) -> Iterable[Array]:
        """Return the slabs of a band, transformed."""
        for preparation in self.preparations:
            slabs = preparation.prepare(slabs, band)
        return slabs


class Mixture:
    """Computes the weighted mean of several matrices, band by band. Sent to each worker once.

    As an argument of a task, it comes first in a list, before the arguments of the matrices.
    """

    # Not a dataclass: Dask would look for tasks in its fields.
    def __init__(self, forms: Sequence[MixedForm], classes: Sequence[int], dtype: Dtype) -> None:
        self.forms, self.classes, self.dtype = tuple(forms), tuple(classes), dtype

    def bands(self, arguments: Sequence[Any], numbers: Sequence[int]) -> Generator[Iterable[Array]]:
        """Yield the slabs of the mean of each band, given the arguments of each matrix."""
        with ExitStack() as stack:
            readers = [stack.enter_context(closing(iterate_slabs(argument, numbers))) for argument in arguments]
            for number in numbers:
                members = zip(self.forms, readers, strict=True)
                yield self._slabs([form.prepare(next(reader), number) for form, reader in members])

    def _slabs(self, members: Sequence[Iterable[Array]]) -> Iterator[Array]:
        """Yield the mean between each two of the class bounds that all members share."""
        n_classes = self.classes[-1]
        streams = [checked_slabs(m, f.dtype, n_classes, None) for m, f in zip(members, self.forms, strict=True)]
        for first, last in pairwise(self.classes):
            total: Floats | None = None
            for stream, form in zip(streams, self.forms, strict=True):
                total = _add(total, stream, last - first, form.weight)
            assert total is not None
            yield round_sums(total, self.dtype)
        for stream in streams:
            next(stream, None)  # raises if the matrix has too few columns


def _add(total: Floats | None, stream: Iterator[Array], n_classes: int, weight: float) -> Floats | None:
    """Add the next slabs of a matrix, of ``n_classes`` classes together, to a sum, or start one if ``total`` is None."""
    is_first, done = total is None, 0
    while done < n_classes:
        slab = next(stream, None)
        if slab is None:
            break
        total = np.empty((len(slab), n_classes)) if total is None else total
        add_weighted(total[:, done : done + slab.shape[1]], slab, weight, is_first=is_first)
        done += slab.shape[1]
    return total


def add_weighted(total: Floats, block: Array, weight: float, *, is_first: bool) -> None:
    """Add the weight times a block to a float64 sum, or assign it if this is the first summand."""
    step = max(1, _STRIP // max(1, block.shape[1]))
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, which raises an error later
        for first in range(0, len(block), step):
            part = block[first : first + step].astype(np.float64)
            part *= weight
            if is_first:
                total[first : first + step] = part
            else:
                total[first : first + step] += part


def round_sums(total: Floats, dtype: Dtype) -> Array:
    """Return sums in the dtype of the mean, rounded once."""
    with np.errstate(over="ignore"):
        return total.astype(dtype, copy=False)


def iterate_slabs(bands: Any, numbers: Sequence[int]) -> Generator[Iterable[Array]]:
    """Yield the slabs of each band, inside a task."""
    if isinstance(bands, list) and bands and isinstance(bands[0], Mixture):
        yield from bands[0].bands(bands[1:], numbers)
    else:
        yield from bands.read_bands(numbers) if isinstance(bands, BandReader) else bands


def iterate_chunks(reader: Any, chunks: Sequence[Any]) -> Generator[Iterable[Array]]:
    """Yield the slabs of each chunk, inside a task: read now, or the blocks that the task received."""
    if isinstance(reader, Mixture):
        for band, *arguments in chunks:
            yield from ([np.concatenate(list(slabs), axis=1)] for slabs in reader.bands(arguments, [band]))
    elif not isinstance(reader, BandReader):
        yield from chunks
    else:
        parts = [chunk.parts(reader.classes) for chunk in chunks]
        with closing(reader.read_parts(list(chain.from_iterable(parts)))) as slabs:
            for chunk_parts in parts:
                yield islice(slabs, len(chunk_parts))


def iterate_labels(bands: Any, labels: Any, numbers: Sequence[int]) -> Generator[Array | None]:
    """Yield the labels of each band, inside a task: read now if they are stored, and ahead if the store is slow."""
    if not isinstance(labels, StoredLabels):
        yield from [None] * len(numbers) if labels is None else labels
    elif isinstance(bands, BandReader) and labels.are_far_rows:
        yield from bands.read_ahead(labels.array, [labels.rows_of(band) for band in numbers])
    else:
        yield from map(labels.read, numbers)


#: An argument of a task: values, an object that reads them, or keys of other tasks, also in lists.
Argument = Key | StoredChunk | Array | list[Any] | None
