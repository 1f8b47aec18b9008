"""Readers: a score matrix as bands of whole rows, and the arguments of tasks that read them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import delayed
from dask.tokenize import tokenize
from dask.utils import parse_bytes

from ..arrays import Array, Dtype
from ..errors import OptionError
from ..kernels.keys import check_dtype
from ..settings import setting
from ..store.read.ahead import AHEAD_SHARE
from ..store.read.bands import BandReader, plan_bands, row_axis, row_boxes
from ..store.read.checked import rows_of
from ..store.read.direct import slab_copies
from ..store.read.encoding import decoded_dtype
from ..store.read.grids import grid_of
from ..store.read.listing import band_stamps, chunk_key
from ..store.read.manifest import indices_within
from ..store.read.opening import array_token
from ..store.where.addresses import StoredArray
from .reading import Argument, Key, StoredChunk
from .row_values import checked_matrix, lazy_array


class Reader:
    """A score matrix as bands of whole rows. The base class only knows shapes; subclasses read."""

    shape: tuple[int, int]
    #: The shape of the sample axes.
    sample_shape: tuple[int, ...]
    dtype: Dtype
    #: Bounds of the bands, of the slabs of a band, and of the class chunks.
    rows: Sequence[int]
    classes: Sequence[int]
    columns: Sequence[int]
    location: str = ""
    #: A name that distinguishes these scores from any others.
    token: str
    #: The Dask collections whose tasks the keys of bands and chunks name.
    collections: Sequence[Any] = ()
    #: The key of the object that reads chunks inside tasks, or None if tasks receive blocks.
    key: Key | None = None
    #: The stored scores, or None if they are not stored.
    stored_array: StoredArray | None = None
    #: How the scores are computed from those that are read, in words; empty if they are read unchanged.
    provenance: str = ""
    #: Bytes read per score.
    score_bytes: int

    @property
    def n_bands(self) -> int:
        """Number of bands."""
        return len(self.rows) - 1

    @property
    def n_pieces(self) -> int:
        """Number of pieces along the samples; the pilot reads at most one piece of a band."""
        return self.n_bands

    @property
    def row_bounds(self) -> Sequence[int] | None:
        """Rows at which bands may begin without a chunk being read for two of them, or None if any row will do."""
        return None

    def slab_bytes(self) -> int:
        """Return the bytes of the largest piece of a band that is in memory at once."""
        return int(np.diff(self.rows).max() * np.diff(self.classes).max()) * self.dtype.itemsize

    def held_bytes(self) -> int:
        """Return the bytes of scores, encoded and decoded, that a task has in memory at once, without those read ahead."""
        return 0

    def ahead_bytes(self) -> int:
        """Return the bytes that a process may read ahead of its tasks; 0 unless the store has a high latency."""
        return 0

    def reading(self) -> AbstractContextManager[None]:
        """Return the context in which tasks read: an error or an interrupt inside ends all reads of this process."""
        return nullcontext()

    def sample_number(self, band: int, row: int) -> int:
        """Return the number, among all samples, of a row of a band."""
        return self.rows[band] + row

    def piece_end(self, band: int) -> int:
        """Return the row up to which the pilot reads a band."""
        return self.rows[band + 1]

    def chunk_names(self, rows: tuple[int, int]) -> str:
        """Return the names of the first and the last stored chunk of some rows, or "" if the scores are not in chunks."""
        return ""

    def row_stamps(self) -> Array:
        """Return a hash of each band that distinguishes its scores from any others, without reading them.

        Raises OptionError if the scores are not stored.
        """
        raise OptionError(
            "checkpoint needs scores in a store or file; got an array in memory or a Dask array. Pass the path of the "
            "scores."
        )

    def with_rows(self, rows: Sequence[int]) -> Reader:
        """Return the same scores in other bands."""
        raise NotImplementedError

    def chunk(self, band: int, column: int | None) -> Argument:
        """Return one chunk (of all classes if ``column`` is None), as an argument of a task."""
        raise NotImplementedError

    def bands(self, numbers: Sequence[int]) -> Argument:
        """Return some bands, as an argument of a task."""
        raise NotImplementedError

    def dask_array(self) -> da.Array:
        """Return the scores as a Dask array. Its blocks are new at each call."""
        raise NotImplementedError


class ShapeOnlyReader(Reader):
    """Scores that came in batches and are not kept. ``numbers`` are the numbers of the samples, for messages."""

    def __init__(self, shape: tuple[int, int], dtype: Dtype, numbers: Array | None = None) -> None:
        self.shape, self.sample_shape, self.dtype = shape, shape[:1], dtype
        self.rows, self.classes, self.columns = [0, shape[0]], [0, shape[1]], [0, shape[1]]
        self.score_bytes = dtype.itemsize
        self._numbers = np.arange(0) if numbers is None else numbers

    def sample_number(self, band: int, row: int) -> int:  # noqa: D102
        return int(self._numbers[row])


class StoredReader(Reader):
    """Scores in a Zarr array: tasks read their bands themselves."""

    def __init__(self, array: StoredArray, location: str, bands: Sequence[int] | None = None) -> None:
        self.array = self.stored_array = array
        self.location, self.sample_shape = location, array.shape[:-1]
        self.shape = math.prod(self.sample_shape), array.shape[-1]
        self.dtype = check_dtype(decoded_dtype(array))
        self.score_bytes = self.dtype.itemsize
        self._row_chunks, classes = row_axis(array, setting("band-bytes")), grid_of(array)[-1]
        sizes = setting("slab-bytes"), setting("band-bytes")
        planned, self.classes = plan_bands(self._row_chunks, classes, self.score_bytes, *sizes)
        self.rows = planned if bands is None else list(bands)
        self.columns = classes.bounds()
        self.band_reader = BandReader(array, tuple(self.rows), tuple(self.classes), self.dtype, _ahead_bytes())
        self.token = f"avgk-store-{tokenize(array_token(array), self.rows, self.classes)}"
        self.key = Key(self.token)
        self.collections = [delayed(self.band_reader, name=self.token, traverse=False)]

    @property
    def n_pieces(self) -> int:  # noqa: D102
        return max(self.n_bands, -(-self._row_chunks.count // self._chunks_per_piece))

    @property
    def _chunks_per_piece(self) -> int:
        """Number of row chunks of a piece, so that all pieces together are the pilot's share of the store."""
        return max(1, int(setting("pilot-share") * self._row_chunks.count / setting("pilot-most")))

    @property
    def row_bounds(self) -> Sequence[int]:  # noqa: D102
        return self._row_chunks.bounds()

    def held_bytes(self) -> int:  # noqa: D102
        return self.slab_bytes() * slab_copies(self.array)

    def ahead_bytes(self) -> int:  # noqa: D102
        return 0 if self.band_reader.is_near else self.band_reader.ahead_bytes

    def reading(self) -> AbstractContextManager[None]:  # noqa: D102
        return self.band_reader.ahead.tasks()

    def piece_end(self, band: int) -> int:  # noqa: D102
        first, last = self.rows[band], self.rows[band + 1]
        chunks = self._row_chunks.indices(first, last)[: self._chunks_per_piece]
        return min(last, self._row_chunks.span(chunks[-1])[1])

    def chunk_names(self, rows: tuple[int, int]) -> str:  # noqa: D102
        if rows_of(self.array) is not None:
            return ""
        boxes = row_boxes(self.sample_shape, *rows)
        corners = [(*boxes[i], slice(0, self.shape[1])) for i in (0, -1)]
        axes = [indices_within(grid_of(self.array), corner) for corner in corners]
        first, last = (chunk_key(self.array, axes[i][i]) for i in (0, -1))
        return f"chunk {first}" if first == last else f"chunks {first} to {last}"

    def row_stamps(self) -> Array:  # noqa: D102
        return band_stamps(self.array, self.rows)

    def with_rows(self, rows: Sequence[int]) -> StoredReader:  # noqa: D102
        return StoredReader(self.array, self.location, rows)

    def chunk(self, band: int, column: int | None) -> Argument:  # noqa: D102
        first, last = (0, self.shape[1]) if column is None else self.columns[column : column + 2]
        return StoredChunk(self.rows[band], self.piece_end(band), first, last)

    def bands(self, numbers: Sequence[int]) -> Argument:  # noqa: D102
        return self.key

    def dask_array(self) -> da.Array:  # noqa: D102
        array = lazy_array(self.array)
        return array if array.ndim == 2 else array.reshape(self.shape)


def _ahead_bytes() -> int:
    """Return the bytes that a process may read ahead: less if the memory limit is small."""
    limit = setting("memory-limit")
    return int(min(setting("ahead-bytes"), math.inf if limit is None else parse_bytes(limit) // AHEAD_SHARE))


class BlockReader(Reader):
    """Scores in a Dask array: tasks receive its blocks."""

    def __init__(self, array: da.Array, location: str, sample_shape: tuple[int, ...] | None = None) -> None:
        self.array, self.location, self.shape = array, location, array.shape
        self.sample_shape = array.shape[:1] if sample_shape is None else sample_shape
        self.dtype = check_dtype(array.dtype)
        self.score_bytes = self.dtype.itemsize
        chunks: Any = tuple(tuple(size for size in sizes if size) for sizes in array.chunks)  # without empty ones
        blocks = array if chunks == array.chunks else checked_matrix(array, self.dtype).rechunk(chunks)
        self.rows, self.classes = (np.concatenate([[0], np.cumsum(c)]).tolist() for c in blocks.chunks)
        self.columns = self.classes
        self.collections = dask.optimize(blocks)
        self.token = str(self.collections[0].name)

    def slab_bytes(self) -> int:
        """Return the bytes of the largest band: all its blocks are in memory together."""
        return int(np.diff(self.rows).max()) * self.shape[1] * self.dtype.itemsize

    def held_bytes(self) -> int:  # noqa: D102
        return self.slab_bytes() * (1 if self.array.dtype.isnative else 2)  # converted blocks are copies

    def with_rows(self, rows: Sequence[int]) -> BlockReader:  # noqa: D102
        chunks: Any = tuple(np.diff(rows).tolist()), self.array.chunks[1]
        return BlockReader(self.dask_array().rechunk(chunks), self.location, self.sample_shape)

    def chunk(self, band: int, column: int | None) -> Argument:  # noqa: D102
        columns = range(len(self.columns) - 1) if column is None else [column]
        return [Key((self.token, band, j)) for j in columns]

    def bands(self, numbers: Sequence[int]) -> Argument:  # noqa: D102
        return [self.chunk(band, None) for band in numbers]

    def dask_array(self) -> da.Array:  # noqa: D102
        return checked_matrix(self.array, self.dtype)
