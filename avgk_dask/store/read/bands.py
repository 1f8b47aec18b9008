"""Bands: stretches of whole rows of a stored array, along its own chunks; planned as integers, then read.

Arrays of more than two axes are read as matrices: all axes but the last are rows, in row-major order.
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
from .ahead import Ahead
from .checked import is_local, rows_of
from .direct import ChunkFiles, Scratch
from .encoding import decode
from .grids import Axis, grid_of, shards_of
from .listing import chunk_key
from .manifest import chunk_slices, indices_within, whole_shards

Box = tuple[slice, ...]


def row_boxes(lead: tuple[int, ...], first: int, last: int) -> list[Box]:
    """Return the boxes, in order, that the rows from ``first`` to before ``last`` are of axes of these lengths.

    Examples
    --------
    >>> row_boxes((10,), 2, 5)
    [(slice(2, 5, None),)]
    >>> [[(axis.start, axis.stop) for axis in box] for box in row_boxes((4, 3), 2, 11)]
    [[(0, 1), (2, 3)], [(1, 3), (0, 3)], [(3, 4), (0, 2)]]

    """
    if len(lead) == 1:
        return [(slice(first, last),)]
    inner = math.prod(lead[1:])
    here = first // inner
    if here == (last - 1) // inner and last - first < inner:  # inside of one index of the first axis
        return _within(lead, here, first - here * inner, last - here * inner)
    begin, end = -(-first // inner), last // inner
    head = _within(lead, here, first - here * inner, inner) if here < begin else []
    tail = _within(lead, end, 0, last - end * inner) if last > end * inner else []
    whole = [(slice(begin, end), *(slice(0, n) for n in lead[1:]))] if begin < end else []
    return head + whole + tail


def _within(lead: tuple[int, ...], index: int, first: int, last: int) -> list[Box]:
    return [(slice(index, index + 1), *box) for box in row_boxes(lead[1:], first, last)]


def matrix_boxes(array: StoredArray, part: Box) -> list[Box]:
    """Return the boxes of an array that a part of it as a matrix has: rows, and classes where they are named."""
    if array.ndim <= 2:
        return [(*part, *(slice(0, n) for n in array.shape[len(part) :]))]
    classes = part[1] if len(part) > 1 else slice(0, array.shape[-1])
    return [(*box, classes) for box in row_boxes(array.shape[:-1], part[0].start, part[0].stop)]


def row_axis(array: StoredArray, most_bytes: int) -> Axis:
    """Return how the rows of an array as a matrix are split, so that no chunk has to be read for two parts.

    A part is a chunk of the first axis and all of the others that are rows. Where it would have more than ``most_bytes``
    though it is a single index, the next axis is split instead.
    """
    *lead, classes = grid_of(array)
    row_bytes = classes.n * array.dtype.itemsize
    axis = 0
    while axis < len(lead) - 1 and lead[axis].size == 1 and _n_inner(lead, axis) * row_bytes > most_bytes:
        axis += 1
    inner, chunks = _n_inner(lead, axis), lead[axis]
    n_outer = math.prod(outer.n for outer in lead[:axis])
    n_rows = n_outer * chunks.n * inner
    if chunks.ends is None and (n_outer == 1 or chunks.n % chunks.size == 0):
        return Axis(n_rows, chunks.size * inner)
    ends = ((i * chunks.n + end) * inner for i in range(n_outer) for end in chunks.bounds()[1:])
    return Axis(n_rows, chunks.size * inner, tuple(ends))


def _n_inner(lead: list[Axis], axis: int) -> int:
    """Return the number of rows of one index of an axis."""
    return math.prod(inner.n for inner in lead[axis + 1 :])


#: Bands that joined chunks leave at least, so that there is something to do for many cores.
_LEAST_BANDS = 32
#: Bytes that a row counts for at least: its counts and ranks are held as well as its scores.
_ROW_BYTES = 64
#: How often a part that cannot be read is tried again, unless it fails in the same way twice, and the seconds between.
_ATTEMPTS, _PAUSE = 2, 0.05


def plan_bands(
    rows: Axis, classes: Axis, itemsize: int, slab_bytes: int, band_bytes: int = 0
) -> tuple[list[int], list[int]]:
    """Return the row bounds of the bands and the class bounds of the slabs each is read in.

    Both follow the chunks (or shards), so that no chunk is read twice. Bands join chunks of few rows up to ``band_bytes``,
    as long as many bands are left; slabs join class chunks up to ``slab_bytes``.

    Examples
    --------
    >>> plan_bands(Axis(10, 4), Axis(8, 2), 4, slab_bytes=64)
    ([0, 4, 8, 10], [0, 4, 8])
    >>> plan_bands(Axis(1000, 1), Axis(8, 8), 4, slab_bytes=1 << 20, band_bytes=1 << 20)[0][:4]
    [0, 31, 62, 93]

    """
    most = min(band_bytes // max(classes.n * itemsize, _ROW_BYTES), rows.n // _LEAST_BANDS)
    bands = rows.joined(most)
    n_rows = max(rows.size, *(last - first for first, last in pairwise(bands)), 1)
    return bands, classes.joined(slab_bytes // (n_rows * itemsize))


@dataclass(frozen=True)
class BandReader:
    """Reads bands of a stored array; travels to the workers instead of the scores."""

    array: StoredArray
    rows: tuple[int, ...]
    classes: tuple[int, ...]
    dtype: Dtype
    #: Bytes that a process may read ahead of its scans.
    ahead_bytes: int = field(default_factory=partial(setting, "ahead-bytes"), compare=False)
    #: What the threads of a process read into, and what they have under way.
    pool: Pool = field(default_factory=Pool, compare=False, repr=False)
    ahead: Ahead = field(default_factory=Ahead, compare=False, repr=False)

    @property
    def is_near(self) -> bool:
        """Whether reads are answered at once, so that there is nothing to gain from reading ahead."""
        return is_local(self.array.store_path.store)

    def read_bands(self, bands: Sequence[int]) -> Iterator[Iterator[Array]]:
        """Return the slabs of each of some bands, read ahead of their use where that saves waiting.

        A slab is good until the next one is asked for: its memory is used again.
        """
        if self.is_near:
            with self.pool.lend(Scratch) as scratch:
                yield from (self.slabs(band, scratch) for band in bands)
            return
        parts = [self._where(band, *part) for band in bands for part in pairwise(self.classes)]
        with closing(self.read_parts(parts)) as slabs:
            for _ in bands:
                yield islice(slabs, len(self.classes) - 1)

    def read_parts(self, parts: Sequence[tuple[slice, ...]]) -> Generator[Array]:
        """Return some parts of the scores, read ahead of their use where that saves waiting."""
        if self.is_near:
            yield from (read_matrix(self.array, part) for part in parts)
            return
        yield from self.read_ahead(self.array, parts)

    def read_ahead(self, array: StoredArray, parts: Sequence[tuple[slice, ...]]) -> Generator[Array]:
        """Return some parts of an array of a far store, the scores or one next to them, read ahead of their use."""
        boxes = [matrix_boxes(array, part) for part in parts]
        with self.ahead.queue(array, list(chain.from_iterable(boxes)), self.ahead_bytes) as queue:
            for some in boxes:
                yield _joined([read_array(*queue.take()) for _ in some])

    def slabs(self, band: int, scratch: Scratch | None = None) -> Iterator[Array]:
        """Return the band's slabs, one after the other along the classes."""
        return (self.read(band, *part, scratch) for part in pairwise(self.classes))

    def read(self, band: int, first_class: int, last_class: int, scratch: Scratch | None = None) -> Array:
        """Return the scores of one band and a stretch of classes; with a scratch, good until that is used again."""
        return read_matrix(self.array, self._where(band, first_class, last_class), scratch)

    def _where(self, band: int, first_class: int, last_class: int) -> tuple[slice, ...]:
        return slice(self.rows[band], self.rows[band + 1]), slice(first_class, last_class)


def read_matrix(array: StoredArray, part: tuple[slice, ...], scratch: Scratch | None = None) -> Array:
    """Read some rows and classes of an array as a matrix, decoded; all axes but its last are rows."""
    boxes = matrix_boxes(array, part)
    return _joined([read_array(array, box, scratch if len(boxes) == 1 else None) for box in boxes])


def _joined(boxes: list[Array]) -> Array:
    """Return the rows of boxes, one after the other, as a matrix."""
    rows = [box if box.ndim <= 2 else box.reshape(-1, box.shape[-1]) for box in boxes]
    return rows[0] if len(rows) == 1 else np.concatenate(rows)


def read_array(array: StoredArray, where: tuple[slice, ...], scratch: Scratch | None = None) -> Array:
    """Read a part of a stored array (whole along axes not named), decoded; a failure names the store and the chunk."""
    return decode(array, read_stored(array, where, scratch))


def read_stored(array: StoredArray, where: tuple[slice, ...], scratch: Scratch | None = None) -> Array:
    """Read a part of a stored array as ``read_array`` does, but return the stored values."""
    where = (*where, *(slice(0, n) for n in array.shape[len(where) :]))
    failures: list[str] = []
    while True:
        try:
            return _read(array, where, scratch or Scratch())
        except AvgkError as error:
            if ChunkFiles.of(array) is None:  # the store itself has tried again
                raise
            failure = ReadError(str(error))
        except Exception as error:
            failure = _first_failure(array, where, error)
        if str(failure) in failures or len(failures) == _ATTEMPTS:
            refuse(failure)
        failures.append(str(failure))
        time.sleep(_PAUSE)


def _read(array: StoredArray, where: tuple[slice, ...], scratch: Scratch) -> Array:
    rows = rows_of(array)
    if rows is not None:  # any rows of a file, whatever its chunks are said to be
        shape = (where[0].stop - where[0].start, *rows.shape[1:])
        whole: Array = scratch.space("part", math.prod(shape) * rows.dtype.itemsize).view(rows.dtype).reshape(shape)
        rows.fill(where[0].start, where[0].stop, whole)
        return whole[(slice(None), *where[1:])]
    files = ChunkFiles.of(array)
    block = files.read(where, scratch) if files else None
    if block is None and (shards := shards_of(array)):
        # Up to the end of the last shard, so that zarr reads it whole.
        ends = zip(where, array.shape, shards, strict=True)
        rounded = tuple(slice(p.start, -(-size // n) * n if p.stop == size else p.stop) for p, size, n in ends)
        block = np.asarray(whole_shards(array)[rounded])
        block = block[tuple(slice(0, part.stop - part.start) for part in where)]
    return np.asarray(array[where]) if block is None else block


def _first_failure(array: StoredArray, where: tuple[slice, ...], error: Exception) -> ReadError:
    """Return the error that names the first chunk of a part that cannot be read."""
    grid = grid_of(array)
    indices = indices_within(grid, where)
    for index in indices if len(indices) > 1 else []:
        try:
            _read(array, chunk_slices(grid, index), Scratch())
        except AvgkError as found:
            return ReadError(str(found))
        except Exception as found:
            indices, error = [index], found
            break
    checks = array.store_path.store.checks
    why, chunk = checks.scrub(error), f"chunk {chunk_key(array, indices[0])} of {checks.location}"
    if isinstance(error, PermissionError):
        return ReadError(f"{chunk} may not be read: {why}. Check its permissions.")
    if isinstance(error, OSError) and not isinstance(error, BadGzipFile):
        return ReadError(f"could not read {chunk}: {why}. Check the disk.")
    return ReadError(
        f"{chunk} cannot be decoded: {why}. "
        "It is damaged (restore it, or write the store again), or its codec is not installed."
    )
