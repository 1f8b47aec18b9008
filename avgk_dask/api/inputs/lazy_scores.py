"""``LazyScores``, which are computed from other scores while these are read; sample axes; and sample conditions.

Scores may have more than two axes: all but the last are sample axes, in row-major order. ``sample_conditions`` turns
``where`` and ``ignore_index`` into conditions that tasks can read.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Unpack

import dask.array as da
import numpy as np
import xarray as xr

from ...arrays import Array, Dtype
from ...errors import AvgkError, DtypeError, LabelsError, OptionError, ScoresError
from ...masks import to_ndarray
from ...sources.row_values import Condition, Labels, checked_where, lazy_array, stored_array
from ...sources.source import Source
from ...store.read.encoding import decoded_dtype
from ...store.read.opening import StoredArrays
from ...store.read.verification import check_chunks
from ...store.where.addresses import redact
from ..options import LabelsLike, Matrix, ScoresLike, SourceOptions, is_stored


def flat_column(values: Matrix, n_samples: int) -> Matrix:
    """Return one value per sample as a column."""
    if values.ndim == 1:
        return values
    return _in_blocks(values).reshape((n_samples,))


def _in_blocks(values: Matrix) -> Any:
    """Return a stored array as the blocks of a Dask array; others unchanged."""
    return lazy_array(values) if is_stored(values) else values


def flat_rows(values: Matrix) -> Matrix:
    """Return an array in memory or in blocks as a matrix of its last dimension."""
    return values if values.ndim == 2 else _in_blocks(values).reshape((-1, values.shape[-1]))


def flat_labels(labels: object, shape: tuple[int, ...]) -> Matrix:
    """Return the labels of scores with more than two dimensions as a column, or as a matrix if they are soft."""
    array: Any = labels if hasattr(labels, "shape") else to_ndarray(labels, "labels", LabelsError)
    if tuple(array.shape) not in (shape[:-1], shape):
        raise LabelsError(
            f"labels must have the samples' shape {shape[:-1]}, or the scores' shape {shape} if they are "
            f"probabilities; got shape {tuple(array.shape)}. Reshape them."
        )
    return _in_blocks(array).reshape((-1,) if array.ndim < len(shape) else (-1, shape[-1]))


def restore_sample_axes(values: Any, lead: tuple[int, ...]) -> Any:
    """Return a column or matrix with the sample axis reshaped to the samples' own shape."""
    return values if len(lead) < 2 else values.reshape((*lead, *values.shape[1:]))


class LazyScores(ABC):
    """Scores that are computed from other scores while these are read, for example by ``softmax``.

    Every function accepts them as scores. The bits are the same for any chunking, scheduler and machine. ``to_dask``
    returns them as a Dask array, and ``numpy.asarray`` computes them.

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
            ``missing``, ``where`` and ``ignore_index`` as in ``evaluate``; and ``own_labels``: whether to use the labels
            stored with the scores if no others are given.
        """

    @property
    @abstractmethod
    def parts(self) -> Sequence[object]:
        """The scores from which they are computed."""

    @property
    def frame(self) -> xr.DataArray | None:
        """The DataArray of the first part that has one, in (sample, class) order, or None."""
        return next((frame for part in self.parts if (frame := frame_of(part)) is not None), None)

    def _describe(self, kind: str) -> str:
        try:
            shape, dtype = " x ".join(f"{n:,}" for n in self.shape), self.dtype
        except AvgkError as error:
            return f"{kind}, which cannot be computed: {error}"
        return f"{kind}: {shape}, {dtype}, not computed yet"

    def _source(self) -> Source:
        return self.as_source(None, own_labels=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of samples along each sample axis, and number of classes."""
        source = self._source()
        return (*source.sample_shape, source.shape[1])

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
        array: da.Array = restore_sample_axes(source.dask_array(), source.sample_shape)
        return array

    def __array__(self, dtype: Dtype | None = None, copy: bool | None = None) -> Array:
        """Compute the scores."""
        return np.asarray(self.to_dask().compute(), dtype)


@dataclass(frozen=True, repr=False, eq=False)
class LazyTransform(LazyScores):
    """Scores that are computed from one matrix."""

    scores: ScoresLike

    @property
    def parts(self) -> Sequence[object]:  # noqa: D102
        return (self.scores,)


def scores_variable(values: ScoresLike) -> ScoresLike:
    """Return the variable ``scores`` of a Dataset; anything else unchanged."""
    return values["scores"] if isinstance(values, xr.Dataset) and "scores" in values else values


def frame_of(values: ScoresLike) -> xr.DataArray | None:
    """Return the DataArray of scores, or of the scores from which they are computed, classes last; or None."""
    if isinstance(values, LazyScores):
        return values.frame
    frame = scores_variable(values)
    if not isinstance(frame, xr.DataArray):
        return None
    return frame.transpose(..., "class") if "class" in frame.dims else frame


def place_of(scores: object) -> str:
    """Return a short name for scores in the description of lazy scores: their location, or their own description."""
    if isinstance(scores, LazyScores):
        return f"({repr(scores).partition(':')[0]})"
    return redact(scores) if isinstance(scores, (str, os.PathLike)) else "scores"


def places_of(values: object) -> Iterator[object]:
    """Return the stores and files from which scores, labels or masks are read."""
    if isinstance(values, LazyScores):
        for part in values.parts:
            yield from places_of(part)
    elif isinstance(values, StoredArrays):
        yield from (array for array in (values.scores, values.labels, values.class_index) if array is not None)
    elif isinstance(values, (xr.Dataset, xr.DataArray)):
        frames = values.variables.values() if isinstance(values, xr.Dataset) else [values]
        yield from (stored for frame in frames if (stored := stored_array(frame.data)) is not None)
        yield values.encoding.get("source")
    else:
        yield values


def sample_conditions(
    where: LabelsLike, ignore_index: int | None, labels: Labels, lead: tuple[int, ...]
) -> list[Condition]:
    """Return the conditions of both arguments. Samples that do not meet all of them do not count.

    ``lead`` is the shape of the samples. ``ignore_index`` is a value of ``labels``.
    """
    conditions = [] if where is None else [Condition(_as_mask(where, lead))]
    if ignore_index is None:
        return conditions
    if isinstance(ignore_index, (bool, np.bool_)) or not isinstance(ignore_index, Integral):
        raise OptionError(f"ignore_index must be an integer; got {ignore_index!r}. Pass the label of padding.")
    if labels is None or labels.ndim != 1:
        got = "none" if labels is None else "probabilities"
        raise LabelsError(f"labels must be class numbers for ignore_index; got {got}. Use where to select samples.")
    return [*conditions, Condition(labels, int(ignore_index))]


def _as_mask(where: LabelsLike, lead: tuple[int, ...]) -> Labels:
    """Return ``where`` as a boolean column, in memory, stored or in blocks."""
    values = where.data if isinstance(where, xr.DataArray) else where
    stored = values if is_stored(values) else stored_array(values)
    mask: Matrix
    if stored is not None:
        mask, dtype = stored, decoded_dtype(stored)
    else:
        mask = values if isinstance(values, da.Array) else to_ndarray(values, "where", ScoresError)
        dtype = mask.dtype
    if dtype.kind != "b":
        raise DtypeError(
            f"where must be boolean; got dtype {dtype}. Compare it first, for example where=mask != 0, "
            "or name a label with ignore_index."
        )
    if tuple(mask.shape) != tuple(lead):
        hint = "Give True or False for each sample."
        if any(n != n for n in mask.shape):
            hint = "Call where.compute_chunk_sizes() first."
        raise ScoresError(f"where must have the samples' shape {tuple(lead)}; got shape {tuple(mask.shape)}. {hint}")
    if stored is not None:
        check_chunks(stored)
    column = flat_column(mask, math.prod(lead))
    return checked_where(column) if isinstance(column, da.Array) else column
