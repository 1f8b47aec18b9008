"""Scores in a Zarr array: tasks read their bands themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import dask.array as da
from dask.delayed import delayed
from dask.tokenize import tokenize
from dask.utils import parse_bytes

from ..arrays import Array
from ..kernels.keys import check_dtype
from ..settings import setting
from ..store.read.ahead import AHEAD_SHARE
from ..store.read.bands import BandReader, plan_bands
from ..store.read.checked import rows_of
from ..store.read.direct import slab_copies
from ..store.read.encoding import decoded_dtype
from ..store.read.grids import grid_of
from ..store.read.listing import chunk_key
from ..store.read.opening import array_token
from ..store.read.row_boxes import row_axis, row_boxes
from ..store.read.shards import indices_within
from ..store.read.stamps import band_stamps
from ..store.where.array_kinds import StoredArray
from .lazy_arrays import lazy_array
from .reading import Argument, Key, StoredChunk
from .row_values import Labels, fit_rows
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
