"""``where`` and ``ignore_index``: which samples exist, as users say it, becomes conditions that tasks can read."""

from __future__ import annotations

import math
from numbers import Integral

import dask.array as da
import numpy as np
import xarray as xr

from ..errors import DtypeError, LabelsError, OptionError, ScoresError
from ..masks import plain_array
from ..sources.checked_blocks import checked_where
from ..sources.lazy_arrays import stored_array
from ..sources.row_values import Labels
from ..sources.sample_masks import Condition
from ..store import check_chunks
from ..store.read.encoding import decoded_dtype
from .dimensions import flat_column
from .given import LabelsLike, Matrix, is_stored


def sample_conditions(
    where: LabelsLike, ignore_index: int | None, labels: Labels, lead: tuple[int, ...]
) -> list[Condition]:
    """Return the conditions that samples must meet to exist; those of both arguments, where both are given.

    ``lead`` is the shape of the samples, ``labels`` are those that ``ignore_index`` speaks of.

    Raises
    ------
    DtypeError, ScoresError
        Where ``where`` is not boolean, or not one value a sample.
    OptionError, LabelsError
        Where ``ignore_index`` is no integer, or there are no class numbers.

    """
    found = [] if where is None else [Condition(_as_where(where, lead))]
    if ignore_index is None:
        return found
    if isinstance(ignore_index, (bool, np.bool_)) or not isinstance(ignore_index, Integral):
        raise OptionError(f"ignore_index must be an integer; got {ignore_index!r}. Pass the label of padding.")
    if labels is None or labels.ndim != 1:
        got = "none" if labels is None else "probabilities"
        raise LabelsError(
            f"labels must be class numbers for ignore_index; got {got}. Say which samples exist with where."
        )
    return [*found, Condition(labels, int(ignore_index))]


def _as_where(where: LabelsLike, lead: tuple[int, ...]) -> Labels:
    """Return ``where`` as a boolean column, in memory, stored or in blocks."""
    found = _found(where)
    dtype = decoded_dtype(found) if is_stored(found) else found.dtype
    if dtype.kind != "b":
        raise DtypeError(
            f"where must be boolean; got dtype {dtype}. Compare it first, for example where=mask != 0, "
            "or name a label with ignore_index."
        )
    if tuple(found.shape) != tuple(lead):
        hint = "Give True or False for each sample."
        if any(n != n for n in found.shape):
            hint = "Call where.compute_chunk_sizes() first."
        raise ScoresError(f"where must have the samples' shape {tuple(lead)}; got shape {tuple(found.shape)}. {hint}")
    if is_stored(found):
        check_chunks(found)
    column = flat_column(found, math.prod(lead))
    return checked_where(column) if isinstance(column, da.Array) else column


def _found(where: LabelsLike) -> Matrix:
    if is_stored(where):
        return where
    if isinstance(where, xr.DataArray):
        where = where.data
    stored = stored_array(where)
    if stored is not None:
        return stored
    return where if isinstance(where, da.Array) else plain_array(where, "where", ScoresError)
