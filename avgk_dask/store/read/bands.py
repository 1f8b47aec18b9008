"""Bands: stretches of whole rows of a stored array, aligned to its chunks.

Arrays with more than two axes are read as matrices: all axes except the last are rows, in row-major order.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from gzip import BadGzipFile
from itertools import chain, islice, pairwise

import numpy as np

from ...arrays import Array, Dtype, Pool
from ...errors import AvgkError, ReadError, refuse
from ...settings import setting
from ..where.addresses import StoredArray
from .ahead import Prefetcher
from .checked import is_local, rows_of
from .direct import ChunkFiles, Scratch
from .encoding import decode
from .grids import Axis, grid_of, shards_of
from .listing import chunk_key
from .manifest import chunk_slices, indices_within, whole_shards

Box = tuple[slice, ...]


def row_boxes(sample_shape: tuple[int, ...], first: int, last: int) -> list[Box]:
    """Return boxes that cover the rows from ``first`` to before ``last`` in order; samples have shape ``sample_shape``.

    Examples
    --------
    >>> row_boxes((10,), 2, 5)
    [(slice(2, 5, None),)]
    >>> [[(axis.start, axis.stop) for axis in box] for box in row_boxes((4, 3), 2, 11)]
    [[(0, 1), (2, 3)], [(1, 3), (0, 3)], [(3, 4), (0, 2)]]
    """
    if len(sample_shape) == 1:
        return [(slice(first, last),)]
    inner = math.prod(sample_shape[1:])

    def within(index: int, start: int, stop: int) -> list[Box]:
        """Return the boxes of some rows of one index of the first axis."""
        return [(slice(index, index + 1), *box) for box in row_boxes(sample_shape[1:], start, stop)]

    index = first // inner
    if index == (last - 1) // inner and last - first < inner:
        return within(index, first - index * inner, last - index * inner)
    begin, end = -(-first // inner), last // inner
    head = within(index, first - index * inner, inner) if index < begin else []
    tail = within(end, 0, last - end * inner) if last > end * inner else []
    middle = [(slice(begin, end), *(slice(0, n) for n in sample_shape[1:]))] if begin < end else []
    return head + middle + tail


def matrix_boxes(array: StoredArray, part: Box) -> list[Box]:
    """Return the boxes of an array that cover a part of it as a matrix: rows, and classes if given."""
    if array.ndim <= 2:
        return [(*part, *(slice(0, n) for n in array.shape[len(part) :]))]
    classes = part[1] if len(part) > 1 else slice(0, array.shape[-1])
    return [(*box, classes) for box in row_boxes(array.shape[:-1], part[0].start, part[0].stop)]


def row_axis(array: StoredArray, most_bytes: int) -> Axis:
    """Return the split of an array's rows such that no chunk overlaps two parts.

    A part is one chunk along the first axis. If that is a single index of more than ``most_bytes``, the next axis is split
    instead.
    """
    *outer, classes = grid_of(array)
    n_inner = [math.prod(inner.n for inner in outer[axis + 1 :]) for axis in range(len(outer))]
    row_bytes = classes.n * array.dtype.itemsize
    axis = 0
    while axis < len(outer) - 1 and outer[axis].size == 1 and n_inner[axis] * row_bytes > most_bytes:
        axis += 1
    inner, chunks = n_inner[axis], outer[axis]
    n_outer = math.prod(before.n for before in outer[:axis])
    n_rows = n_outer * chunks.n * inner
    if chunks.ends is None and (n_outer == 1 or chunks.n % chunks.size == 0):
        return Axis(n_rows, chunks.size * inner)
    ends = tuple((i * chunks.n + end) * inner for i in range(n_outer) for end in chunks.bounds()[1:])
    return Axis(n_rows, chunks.size * inner, ends)


#: Joining chunks leaves at least this many bands, to keep many cores busy.
_LEAST_BANDS = 32
#: Minimum bytes counted per row: besides its scores, it has counts and ranks.
_ROW_BYTES = 64
#: How often a failed read is repeated, unless it fails in the same way twice, and the seconds between.
_ATTEMPTS, _PAUSE = 2, 0.05


def plan_bands(
    rows: Axis, classes: Axis, itemsize: int, slab_bytes: int, band_bytes: int = 0
) -> tuple[list[int], list[int]]:
    """Return the row bounds of the bands and the class bounds of their slabs.

    Both are aligned to the chunks (or shards), so that no chunk is read twice. Bands join chunks of few rows up to
    ``band_bytes``, if many bands remain. Slabs join chunks of classes up to ``slab_bytes``.

    Examples
    --------
    >>> plan_bands(Axis(10, 4), Axis(8, 2), 4, slab_bytes=64)
    ([0, 4, 8, 10], [0, 4, 8])
    >>> plan_bands(Axis(1000, 1), Axis(8, 8), 4, slab_bytes=1 << 20, band_bytes=1 << 20)[0][:4]
    [0, 31, 62, 93]
    """
    most = min(band_bytes // max(classes.n * itemsize, _ROW_BYTES), rows.n // _LEAST_BANDS)
    bands = rows.join_chunks(most)
    n_rows = max(rows.size, *(last - first for first, last in pairwise(bands)), 1)
    return bands, classes.join_chunks(slab_bytes // (n_rows * itemsize))


@dataclass(frozen=True)
class BandReader:
    """Reads bands of a stored array; workers receive it instead of the scores."""

    array: StoredArray
    rows: tuple[int, ...]
    classes: tuple[int, ...]
    dtype: Dtype
    #: Bytes that a process may read ahead.
    ahead_bytes: int = field(default_factory=partial(setting, "ahead-bytes"), compare=False)
    #: The buffers and the pending requests of the threads of a process.
    pool: Pool = field(default_factory=Pool, compare=False, repr=False)
    ahead: Prefetcher = field(default_factory=Prefetcher, compare=False, repr=False)

    @property
    def is_near(self) -> bool:
        """Whether the store answers at once, so that reading ahead saves nothing."""
        return is_local(self.array.store_path.store)

    def read_bands(self, bands: Sequence[int]) -> Iterator[Iterator[Array]]:
        """Yield the slabs of each band, read ahead if the store is remote; a slab is valid until the next one is requested."""
        if self.is_near:
            with self.pool.lend(Scratch) as scratch:
                for band in bands:
                    yield (read_matrix(self.array, part, scratch) for part in self._parts(band))
            return
        parts = [part for band in bands for part in self._parts(band)]
        with closing(self.read_parts(parts)) as slabs:
            for _ in bands:
                yield islice(slabs, len(self.classes) - 1)

    def read_parts(self, parts: Sequence[Box]) -> Generator[Array]:
        """Yield parts of the scores, read ahead if the store is remote."""
        if self.is_near:
            yield from (read_matrix(self.array, part) for part in parts)
            return
        yield from self.read_ahead(self.array, parts)

    def read_ahead(self, array: StoredArray, parts: Sequence[Box]) -> Generator[Array]:
        """Yield parts of an array of a remote store, the scores or one next to them, read ahead."""
        boxes = [matrix_boxes(array, part) for part in parts]
        with self.ahead.queue(array, list(chain.from_iterable(boxes)), self.ahead_bytes) as queue:
            for part_boxes in boxes:
                yield _join([read_array(*queue.take()) for _ in part_boxes])

    def _parts(self, band: int) -> list[Box]:
        rows = slice(self.rows[band], self.rows[band + 1])
        return [(rows, slice(*classes)) for classes in pairwise(self.classes)]


def read_matrix(array: StoredArray, part: Box, scratch: Scratch | None = None) -> Array:
    """Read and decode some rows and classes of an array as a matrix."""
    boxes = matrix_boxes(array, part)
    return _join([read_array(array, box, scratch if len(boxes) == 1 else None) for box in boxes])


def _join(boxes: list[Array]) -> Array:
    """Return the rows of several boxes as one matrix."""
    rows = [box if box.ndim <= 2 else box.reshape(-1, box.shape[-1]) for box in boxes]
    return rows[0] if len(rows) == 1 else np.concatenate(rows)


def read_array(array: StoredArray, part: Box, scratch: Scratch | None = None) -> Array:
    """Read and decode a part of a stored array, whole along axes not given; errors name the store and the chunk."""
    return decode(array, read_stored(array, part, scratch))


def read_stored(array: StoredArray, part: Box, scratch: Scratch | None = None) -> Array:
    """Read a part of a stored array as ``read_array`` does, but return the stored values."""
    part = (*part, *(slice(0, n) for n in array.shape[len(part) :]))
    failures: list[str] = []
    while True:
        try:
            return _read(array, part, scratch or Scratch())
        except AvgkError as error:
            if ChunkFiles.from_array(array) is None:  # the store has tried again itself
                raise
            failure = ReadError(str(error))
        except Exception as error:
            failure = _first_failure(array, part, error)
        if str(failure) in failures or len(failures) == _ATTEMPTS:
            refuse(failure)
        failures.append(str(failure))
        time.sleep(_PAUSE)


def _read(array: StoredArray, part: Box, scratch: Scratch) -> Array:
    rows = rows_of(array)
    if rows is not None:  # a file, of which any rows can be read
        first, last = part[0].start, part[0].stop
        shape = (last - first, *rows.shape[1:])
        block: Array = scratch.space("part", math.prod(shape) * rows.dtype.itemsize).view(rows.dtype).reshape(shape)
        rows.fill(first, last, block)
        return block[(slice(None), *part[1:])]
    files = ChunkFiles.from_array(array)
    if files is not None and (chunks := files.read(part, scratch)) is not None:
        return chunks
    if shards := shards_of(array):
        # Up to the end of the last shard, so that zarr reads it with one request.
        axes = zip(part, array.shape, shards, strict=True)
        rounded = tuple(slice(p.start, -(-size // n) * n if p.stop == size else p.stop) for p, size, n in axes)
        block = np.asarray(whole_shards(array)[rounded])
        return block[tuple(slice(0, axis.stop - axis.start) for axis in part)]
    return np.asarray(array[part])


def _first_failure(array: StoredArray, part: Box, error: Exception) -> ReadError:
    """Return the error that names the first unreadable chunk of a part."""
    grid = grid_of(array)
    indices = indices_within(grid, part)
    for index in indices if len(indices) > 1 else []:
        try:
            _read(array, chunk_slices(grid, index), Scratch())
        except AvgkError as failure:
            return ReadError(str(failure))
        except Exception as failure:
            indices, error = [index], failure
            break
    checks = array.store_path.store.checks
    why, chunk = checks.scrub(error), f"chunk {chunk_key(array, indices[0])} of {checks.location}"
    if isinstance(error, PermissionError):
        return ReadError(f"no permission to read {chunk}: {why}. Check its permissions.")
    if isinstance(error, OSError) and not isinstance(error, BadGzipFile):
        return ReadError(f"could not read {chunk}: {why}. Check the disk.")
    return ReadError(
        f"{chunk} cannot be decoded: {why}. "
        "It is damaged (restore it, or write the store again), or its codec is not installed."
    )
