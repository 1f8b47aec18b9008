"""Scores that are made of others while these are read: nothing is stored, and every function takes them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypedDict, Unpack

import dask.array as da
import numpy as np
import xarray as xr

from ..arrays import Array, Dtype
from ..errors import AvgkError
from ..sources.lazy_arrays import stored_array
from ..sources.source import Source
from ..store import StoredArrays, shown
from .dimensions import with_lead
from .given import LabelsLike


class SourceOptions(TypedDict, total=False):
    """What a source is made with, besides scores and labels."""

    own_labels: bool
    missing: str | None
    where: LabelsLike
    ignore_index: int | None


class LazyScores(ABC):
    """Scores that are made of others while these are read.

    Every function takes them where it takes scores. The bits are the same for any chunking, scheduler and machine.
    ``to_dask`` returns them as a Dask array, and ``numpy.asarray`` computes them. Made by ``softmax`` and its like.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> lazy = avgk.softmax(np.zeros((1_000, 4), np.float32))
    >>> lazy
    softmax of scores, temperature 1: 1,000 x 4, float32, not computed yet
    >>> lazy.to_dask().sum().compute().item()
    1000.0

    """

    @abstractmethod
    def as_source(self, labels: LabelsLike, **options: Unpack[SourceOptions]) -> Source:
        """Return the source of these scores with labels.

        Parameters
        ----------
        labels
            As in ``evaluate``.
        options
            ``missing``, ``where`` and ``ignore_index`` as in ``evaluate``; and ``own_labels``: whether those stored beside
            the scores are taken where none are given.

        """

    @property
    @abstractmethod
    def parts(self) -> Sequence[object]:
        """The scores that they are made of."""

    @property
    @abstractmethod
    def frame(self) -> xr.DataArray | None:
        """The DataArray they are made of, in (sample, class) order; None otherwise."""

    def _told(self, what: str) -> str:
        """Return what is shown of them: what they are, of which shape and dtype."""
        try:
            shape, dtype = " x ".join(f"{n:,}" for n in self.shape), self.dtype
        except AvgkError as error:
            return f"{what}, which cannot be made: {error}"
        return f"{what}: {shape}, {dtype}, not computed yet"

    def _source(self) -> Source:
        return self.as_source(None, own_labels=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of samples, along each of their dimensions, and of classes."""
        source = self._source()
        return (*source.lead, source.shape[1])

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def dtype(self) -> Dtype:
        """The dtype of the scores."""
        return self._source().dtype

    def to_dask(self) -> da.Array:
        """Return the scores as a Dask array, chunked as they are stored."""
        source = self._source()
        array: da.Array = with_lead(source.dask_array(), source.lead)
        return array

    def __array__(self, dtype: Dtype | None = None, copy: bool | None = None) -> Array:
        """Compute the scores."""
        return np.asarray(self.to_dask().compute(), dtype)


def place_of(scores: object) -> str:
    """Return how scores are named where something is made of them: where they are stored, or what they are made of."""
    if isinstance(scores, LazyScores):
        return f"({repr(scores).partition(':')[0]})"
    return shown(scores) if isinstance(scores, (str, os.PathLike)) else "scores"


def places_of(given: object) -> Iterator[object]:
    """Return all that scores, labels or masks are read from, as far as it is stored."""
    if isinstance(given, LazyScores):
        for part in given.parts:
            yield from places_of(part)
    elif isinstance(given, StoredArrays):
        yield from (array for array in (given.scores, given.labels, given.class_index) if array is not None)
    elif isinstance(given, (xr.Dataset, xr.DataArray)):
        frames = given.variables.values() if isinstance(given, xr.Dataset) else [given]
        yield from (stored for frame in frames if (stored := stored_array(frame.data)) is not None)
        yield given.encoding.get("source")
    else:
        yield given
