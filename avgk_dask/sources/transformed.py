"""Scores that are transformed after they are read: nothing of it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import dask.array as da
import numpy as np
from dask.tokenize import tokenize

from ..arrays import Array
from ..settings import setting
from .reading import Argument, Preparation
from .row_values import Labels
from .source import Source
from .transforms import GivesSlabs, SpreadTies, Transform
from .wrapped import WrappedSource

#: Bytes of a band that is given whole, where it could be given in slabs; and classes of a row that is long. Slabs take more
#: time, and less memory only where rows are long: scans hold more of each row then.
_WHOLE_BYTES, _LONG_ROW = 64 << 20, 1 << 12


class TransformedSource(WrappedSource):
    """The scores of another source, transformed inside the tasks that read them.

    Where the transform needs whole rows, a band is joined before it, and the pilot reads whole rows.
    """

    def __init__(self, inner: Source, transform: Transform) -> None:
        self.inner, self.transform = inner, transform
        self.shape = inner.shape[0], transform.width(inner.shape[1])
        self.rows, self.labels, self.location = inner.rows, inner.labels, inner.location
        self.dtype, self.stored_dtype = transform.dtype, inner.stored_dtype
        self.mask, self.lead = inner.mask, inner.lead
        self.classes, self.columns = inner.classes, inner.columns
        if transform.needs_rows:
            self.columns = [0, self.shape[1]]
            self.classes = self._slab_bounds()

    def _slab_bounds(self) -> Sequence[int]:
        """Return the bounds of the slabs in which whole rows are given: many of them in several, where that can be."""
        gives_slabs = isinstance(self.transform, GivesSlabs) and self.transform.gives_slabs
        if not gives_slabs or self.band_bytes() <= _WHOLE_BYTES or self.shape[1] < _LONG_ROW:
            return self.columns
        n_slabs = -(-self.band_bytes() // setting("slab-bytes"))
        return [*range(0, self.shape[1], -(-self.shape[1] // n_slabs)), self.shape[1]]

    @property
    def preparations(self) -> tuple[Preparation, ...]:  # noqa: D102
        stored = self.inner.dtype, self.inner.shape[1]
        own = Preparation(self.transform, *stored, tuple(self.rows), tuple(self.columns), tuple(self.classes))
        return (*self.inner.preparations, own)

    @property
    def whole(self) -> Source:  # noqa: D102
        return self.inner.whole

    @property
    def places(self) -> Sequence[int]:  # noqa: D102
        return self.inner.places

    def sample(self, band: int, row: int) -> int:  # noqa: D102
        return self.inner.sample(band, row)

    def masks_of(self, bands: Sequence[int]) -> Argument:  # noqa: D102
        return self.inner.masks_of(bands)

    def held_bytes(self) -> int:  # noqa: D102
        joined = self.inner.band_bytes() if self.transform.needs_rows else 0
        norms = 16 * int(np.diff(self.rows).max()) if len(self.classes) > 2 else 0
        return self.inner.held_bytes() + joined + norms + 2 * self.slab_bytes()

    @property
    def token(self) -> str:  # noqa: D102
        return str(tokenize(self.inner.token, self.transform))

    @property
    def made_by(self) -> str:  # noqa: D102
        return "; ".join(part for part in (self.inner.made_by, self.transform.told) if part)

    def over(self, inner: Source) -> TransformedSource:
        """Return the same transform of another source."""
        return TransformedSource(inner, self.transform)

    def with_labels(self, labels: Labels) -> TransformedSource:  # noqa: D102
        return TransformedSource(self.inner.with_labels(labels), self.transform)

    def row_stamps(self) -> Array:  # noqa: D102
        return self.inner.row_stamps()

    def with_rows(self, rows: Sequence[int]) -> TransformedSource:  # noqa: D102
        return TransformedSource(self.inner.with_rows(rows), self.transform)

    @property
    def row_bounds(self) -> Sequence[int] | None:  # noqa: D102
        return self.inner.row_bounds

    @property
    def n_pieces(self) -> int:  # noqa: D102
        return self.inner.n_pieces

    def piece_end(self, band: int) -> int:  # noqa: D102
        return self.inner.piece_end(band)

    def chunk_names(self, rows: tuple[int, int], classes: tuple[int, int]) -> str:  # noqa: D102
        return self.inner.chunk_names(rows, (0, self.inner.shape[1]) if self.transform.needs_rows else classes)

    def chunk(self, band: int, column: int | None) -> Argument:  # noqa: D102
        return self.inner.chunk(band, None if self.transform.needs_rows else column)

    def bands(self, numbers: Sequence[int]) -> Argument:  # noqa: D102
        return self.inner.bands(numbers)

    def labels_of(self, bands: Sequence[int]) -> Argument:  # noqa: D102
        return self.inner.labels_of(bands)

    def collections(self) -> list[Any]:  # noqa: D102
        return self.inner.collections()

    def dask_array(self) -> da.Array:  # noqa: D102
        array = self.inner.dask_array()
        blocks = array.rechunk({1: -1}) if self.transform.needs_rows else array
        meta = np.empty((0, 0), self.dtype)
        chunks = (blocks.chunks[0], (self.shape[1],)) if self.transform.needs_rows else blocks.chunks
        return blocks.map_blocks(_apply, self.transform, dtype=self.dtype, chunks=chunks, meta=meta)


def _apply(block: Any, transform: Transform, block_info: Any = None) -> Any:
    first_row, first_class = (int(first) for first, _ in block_info[0]["array-location"])
    return transform.apply(block, first_row, first_class)


def spread_source(source: Source, chosen: Iterable[int]) -> Source:
    """Return the matrix of keys in which the ties at the chosen keys are in a fixed pseudo-random order."""
    return TransformedSource(source, SpreadTies(tuple(sorted(set(chosen))), source.shape[1], source.dtype))
