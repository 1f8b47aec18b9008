"""Scores of which some samples do not exist: padding. Everything above sees the others alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask.array as da
import numpy as np
from dask.tokenize import tokenize

from ..arrays import Array, Ints
from ..errors import ScoresError
from ..store.read.stamps import hash_rows
from .blocks import BlockSource
from .reading import Argument
from .row_values import Labels
from .sample_masks import Condition, SampleMask, blank
from .source import Source
from .wrapped import WrappedSource


class FilteredSource(WrappedSource):
    """The samples of another source that exist. Bands that have none are left out.

    When it is made, one pass over the mask, and over nothing else, counts the samples of each band.
    """

    mask: SampleMask

    def __init__(self, inner: Source, mask: SampleMask, counts: Ints | None = None) -> None:
        assert not inner.preparations  # samples are left out before anything else happens to them
        self.inner, self.mask = inner, mask
        ends = [inner.piece_end(band) for band in range(inner.n_bands)]
        self._counts = mask.count(ends) if counts is None else counts
        n_kept = self._counts[:, 1]
        if not n_kept.any():
            raise ScoresError(
                f"where must be True for at least one sample; got {inner.shape[0]:,} of them that do not exist. "
                "Check the mask, or the label to be ignored."
            )
        self._places = np.flatnonzero(n_kept).tolist()
        self.rows = [0, *np.cumsum(n_kept[self._places]).tolist()]
        self.shape = self.rows[-1], inner.shape[1]
        self.lead, self.labels, self.location = inner.lead, inner.labels, inner.location
        self.dtype, self.stored_dtype = inner.dtype, inner.stored_dtype
        self.classes, self.columns = inner.classes, inner.columns

    @property
    def whole(self) -> Source:  # noqa: D102
        return self.inner

    @property
    def places(self) -> Sequence[int]:  # noqa: D102
        return self._places

    def sample(self, band: int, row: int) -> int:  # noqa: D102
        place = self._places[band]
        return self.inner.sample(place, int(np.flatnonzero(self.mask.band(place))[row]))

    def masks_of(self, bands: Sequence[int]) -> Argument:  # noqa: D102
        return self.mask.of(self.places_of(bands))

    def held_bytes(self) -> int:  # noqa: D102
        return self.inner.held_bytes() + self.slab_bytes() + int(np.diff(self.inner.rows).max())

    @property
    def is_made(self) -> bool:  # noqa: D102
        return self.inner.is_made

    @property
    def token(self) -> str:  # noqa: D102
        return str(tokenize(self.inner.token, self.mask.token))

    def with_labels(self, labels: Labels) -> FilteredSource:  # noqa: D102
        return FilteredSource(self.inner.with_labels(labels), self.mask, self._counts)

    def row_stamps(self) -> Array:  # noqa: D102
        pairs = np.stack([self.inner.row_stamps(), self._counts[:, 2].view(np.uint64)], axis=1)
        return np.array([hash_rows(pair) for pair in pairs[self._places]], np.uint64)

    def with_rows(self, rows: Sequence[int]) -> FilteredSource:  # noqa: D102
        return FilteredSource(self.inner.with_rows(rows), self.mask.with_rows(rows))

    @property
    def n_pieces(self) -> int:  # noqa: D102
        return max(self.n_bands, self.inner.n_pieces * self.n_bands // self.inner.n_bands)

    def piece_end(self, band: int) -> int:  # noqa: D102
        return self.rows[band] + int(self._counts[self._places[band], 0])

    def chunk_names(self, rows: tuple[int, int], classes: tuple[int, int]) -> str:  # noqa: D102
        return self.inner.chunk_names(rows, classes)

    def chunk(self, band: int, column: int | None) -> Argument:  # noqa: D102
        return self.inner.chunk(self._places[band], column)

    def bands(self, numbers: Sequence[int]) -> Argument:  # noqa: D102
        return self.inner.bands(self.places_of(numbers))

    def labels_of(self, bands: Sequence[int]) -> Argument:  # noqa: D102
        return self.inner.labels_of(self.places_of(bands))

    def collections(self) -> list[Any]:  # noqa: D102
        return [*self.inner.collections(), *self.mask.collections()]

    def dask_array(self) -> da.Array:
        """Return all rows, with zeros in those that do not exist."""
        return blank(self.inner.dask_array(), self.mask)


def filtered_source(source: Source, conditions: Sequence[Condition]) -> Source:
    """Return the samples of a source that meet all conditions; the source where there are none."""
    return FilteredSource(source, SampleMask(conditions, source.rows)) if conditions else source


def labelled_by_itself(source: Source) -> Source:
    """Return probabilities with themselves as soft labels."""
    blocks = source.dask_array()
    whole = BlockSource(blocks, blocks, source.location)
    return whole if source.mask is None else filtered_source(whole, source.mask.conditions)
