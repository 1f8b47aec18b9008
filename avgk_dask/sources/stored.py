"""Scores in a Zarr array: tasks read their bands themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import dask
import dask.array as da
import numpy as np
from dask.delayed import delayed
from dask.tokenize import tokenize
from dask.utils import parse_bytes

from ..arrays import Array, Dtype
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
from .row_values import Labels, checked_matrix, fit_rows, lazy_array
from .source import Source


def _ahead_bytes() -> int:
    """Return what a process may read ahead: less where the setting allows tasks little memory."""
    limit = setting("memory-limit")
    return int(min(setting("ahead-bytes"), math.inf if limit is None else parse_bytes(limit) // AHEAD_SHARE))


class StoredSource(Source):
    """Scores in a Zarr array: tasks read their bands themselves."""

    def __init__(self, array: StoredArray, labels: Labels, location: str, bands: Sequence[int] | None = None) -> None:
        self.lead = array.shape[:-1]
        self.shape = math.prod(self.lead), array.shape[-1]
        self.dtype = self.stored_dtype = check_dtype(decoded_dtype(array))
        rows, classes = row_axis(array, setting("band-bytes")), grid_of(array)[-1]
        sizes = setting("slab-bytes"), setting("band-bytes")
        planned, self.classes = plan_bands(rows, classes, self.dtype.itemsize, *sizes)
        self.rows = planned if bands is None else list(bands)
        self._row_chunks = rows
        self.columns = classes.bounds()
        self.array, self.location, self.labels = array, location, fit_rows(labels, self.rows)
        self.reader = BandReader(array, tuple(self.rows), tuple(self.classes), self.dtype, _ahead_bytes())
        name = tokenize(array_token(array), self.rows, self.classes)
        self._shared = delayed(self.reader, name=f"avgk-store-{name}", traverse=False)

    def held_bytes(self) -> int:  # noqa: D102
        return self.slab_bytes() * slab_copies(self.array)

    def ahead_bytes(self) -> int:  # noqa: D102
        return 0 if self.reader.is_near else self.reader.ahead_bytes

    def reading(self) -> AbstractContextManager[None]:  # noqa: D102
        return self.reader.ahead.tasks()

    @property
    def token(self) -> str:  # noqa: D102
        return f"{self._shared.key} {self.labels_token}"

    @property
    def stored_array(self) -> StoredArray:  # noqa: D102
        return self.array

    def with_labels(self, labels: Labels) -> StoredSource:  # noqa: D102
        return StoredSource(self.array, labels, self.location, self.rows)

    def row_stamps(self) -> Array:  # noqa: D102
        return band_stamps(self.array, self.rows)

    def with_rows(self, rows: Sequence[int]) -> StoredSource:  # noqa: D102
        return StoredSource(self.array, self.labels, self.location, rows)

    @property
    def row_bounds(self) -> Sequence[int]:  # noqa: D102
        return self._row_chunks.bounds()

    @property
    def n_pieces(self) -> int:  # noqa: D102
        return max(self.n_bands, -(-self._row_chunks.count // self._together))

    @property
    def _together(self) -> int:
        """Number of row chunks that a pilot reads of a band: so many that all of its pieces together are its share."""
        return max(1, int(setting("pilot-share") * self._row_chunks.count / setting("pilot-most")))

    def piece_end(self, band: int) -> int:  # noqa: D102
        first, last = self.rows[band], self.rows[band + 1]
        chunks = self._row_chunks.indices(first, last)[: self._together]
        return min(last, self._row_chunks.span(chunks[-1])[1])

    def chunk(self, band: int, column: int | None) -> Argument:  # noqa: D102
        first, last = (0, self.shape[1]) if column is None else self.columns[column : column + 2]
        return StoredChunk(self.rows[band], self.piece_end(band), first, last)

    def chunk_names(self, rows: tuple[int, int], classes: tuple[int, int]) -> str:  # noqa: D102
        if rows_of(self.array) is not None:
            return ""
        boxes = row_boxes(self.lead, *rows)
        corners = [(*boxes[i], slice(*classes)) for i in (0, -1)]
        axes = [indices_within(grid_of(self.array), corner) for corner in corners]
        first, last = (chunk_key(self.array, axes[i][i]) for i in (0, -1))
        return f"chunk {first}" if first == last else f"chunks {first} to {last}"

    def reader_key(self) -> Key | None:  # noqa: D102
        return Key(self._shared.key)

    def bands(self, numbers: Sequence[int]) -> Argument:  # noqa: D102
        return self.reader_key()

    def collections(self) -> list[Any]:  # noqa: D102
        return [self._shared, *super().collections()]

    def dask_array(self) -> da.Array:  # noqa: D102
        array = lazy_array(self.array)
        return array if array.ndim == 2 else array.reshape(self.shape)


# Scores in a Dask array: its blocks come to the tasks.


class BlockSource(Source):
    """Scores in a Dask array: its blocks come to the tasks."""

    def __init__(self, array: da.Array, labels: Labels, location: str, lead: tuple[int, ...] | None = None) -> None:
        self.shape = array.shape
        self.lead = array.shape[:1] if lead is None else lead
        self.dtype = self.stored_dtype = check_dtype(array.dtype)
        whole: Any = tuple(tuple(size for size in sizes if size) for sizes in array.chunks)
        # Empty blocks hold nothing to read.
        blocks = array if whole == array.chunks else checked_matrix(array, self.dtype).rechunk(whole)
        rows, classes = (np.concatenate([[0], np.cumsum(c)]).tolist() for c in blocks.chunks)
        self.rows, self.classes, self.columns = rows, classes, classes
        self.array, self.location, self.labels = array, location, fit_rows(labels, self.rows)
        (self._blocks,) = dask.optimize(blocks)

    def slab_bytes(self) -> int:  # noqa: D102
        return self.band_bytes()

    def held_bytes(self) -> int:  # noqa: D102
        return self.slab_bytes() * (1 if self.array.dtype.isnative else 2)  # converted blocks are copies

    @property
    def token(self) -> str:  # noqa: D102
        return f"{self._blocks.name} {self.labels_token}"

    def with_labels(self, labels: Labels) -> BlockSource:  # noqa: D102
        return BlockSource(self.array, labels, self.location, self.lead)

    def with_rows(self, rows: Sequence[int]) -> BlockSource:  # noqa: D102
        chunks: Any = tuple(np.diff(rows).tolist()), self.array.chunks[1]
        return BlockSource(self.dask_array().rechunk(chunks), self.labels, self.location, self.lead)

    def chunk(self, band: int, column: int | None) -> Argument:  # noqa: D102
        columns = range(len(self.columns) - 1) if column is None else [column]
        return [Key((self._blocks.name, band, j)) for j in columns]

    def bands(self, numbers: Sequence[int]) -> Argument:  # noqa: D102
        return [self.chunk(band, None) for band in numbers]

    def collections(self) -> list[Any]:  # noqa: D102
        return [self._blocks, *super().collections()]

    def dask_array(self) -> da.Array:  # noqa: D102
        return checked_matrix(self.array, self.dtype)


# Scores that came in batches, and are gone: their shape and labels' kind are known, and nothing can be read.


class PastSource(Source):
    """Scores that are gone; ``labels`` is an empty array of their kind, and ``numbers`` those of samples that can be named."""

    def __init__(
        self, shape: tuple[int, int], dtype: Dtype, labels: Array | None, numbers: Array | None = None
    ) -> None:
        self.shape, self.lead = shape, shape[:1]
        self.dtype = self.stored_dtype = dtype
        self.rows, self.classes, self.columns = [0, shape[0]], [0, shape[1]], [0, shape[1]]
        self.location, self.labels = "", labels
        self._numbers = np.arange(0) if numbers is None else numbers

    def sample(self, band: int, row: int) -> int:  # noqa: D102
        return int(self._numbers[row])

    def held_bytes(self) -> int:  # noqa: D102
        return 0

    @property
    def token(self) -> str:  # noqa: D102
        _refuse()

    def with_labels(self, labels: Labels) -> Source:  # noqa: D102
        _refuse()

    def with_rows(self, rows: Sequence[int]) -> Source:  # noqa: D102
        _refuse()

    def chunk(self, band: int, column: int | None) -> Argument:  # noqa: D102
        _refuse()

    def bands(self, numbers: Sequence[int]) -> Argument:  # noqa: D102
        _refuse()

    def dask_array(self) -> da.Array:  # noqa: D102
        _refuse()


def _refuse() -> NoReturn:
    raise AssertionError("scores that are gone cannot be read")
