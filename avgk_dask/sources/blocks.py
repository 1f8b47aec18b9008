"""Scores in a Dask array: its blocks come to the tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np

from ..kernels.keys import check_dtype
from .checked_blocks import checked_matrix
from .reading import Argument, Key
from .row_values import Labels, fit_rows
from .source import Source


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
