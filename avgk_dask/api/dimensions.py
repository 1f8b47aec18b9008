"""Scores of more than two dimensions: all but the last are samples, in row-major order."""

from __future__ import annotations

from typing import Any

import dask.array as da

from ..errors import LabelsError
from ..masks import plain_array
from ..sources.lazy_arrays import lazy_array
from .given import Matrix, is_stored


def flat_column(values: Matrix, n_samples: int) -> Matrix:
    """Return a value for each sample as a column."""
    if values.ndim == 1:
        return values
    return _in_blocks(values).reshape((n_samples,))


def _in_blocks(values: Matrix) -> Any:
    """Return a stored array as the blocks of a Dask array; others as they are."""
    return lazy_array(values) if is_stored(values) else values


def flat_rows(values: Matrix) -> Matrix:
    """Return an array in memory or in blocks as a matrix of its last dimension."""
    return values if values.ndim == 2 else _in_blocks(values).reshape((-1, values.shape[-1]))


def flat_labels(labels: object, shape: tuple[int, ...]) -> Matrix:
    """Return the labels of scores of more than two dimensions as a column, or as a matrix where they are soft.

    Raises
    ------
    LabelsError
        Where they fit neither the samples nor the scores.

    """
    known = isinstance(labels, da.Array) or is_stored(labels) or hasattr(labels, "shape")
    found: Any = labels if known else plain_array(labels, "labels", LabelsError)
    if tuple(found.shape) not in (shape[:-1], shape):
        raise LabelsError(
            f"labels must have the samples' shape {shape[:-1]}, or the scores' shape {shape} where they are "
            f"probabilities; got shape {tuple(found.shape)}. Reshape them."
        )
    return _in_blocks(found).reshape((-1,) if found.ndim < len(shape) else (-1, shape[-1]))


def with_lead(values: Any, lead: tuple[int, ...]) -> Any:
    """Return a column or matrix with a row for each sample, with the samples in their own shape."""
    return values if len(lead) < 2 else values.reshape((*lead, *values.shape[1:]))
