"""What users hand in, by name: the types of public arguments, and how to tell a stored array."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Protocol, SupportsFloat, SupportsIndex, TypeAlias, TypeGuard

import dask.array as da
import numpy as np
import xarray as xr

from ..arrays import Array
from ..store import is_zarr
from ..store.where.array_kinds import StoredArray

#: Scores, labels, sets: an array of any library (NumPy, Dask, Zarr, xarray, pandas, polars, Arrow, ...), a sequence, or
#: the path of a store or file. No type names them all; what is none of them is refused when it is looked at.
ScoresLike: TypeAlias = object
LabelsLike: TypeAlias = object
#: The path or URL of a store, or a Zarr store, group or array already opened.
StoreLike: TypeAlias = object

#: Where files are kept: a path or URL, a Zarr store already opened, or nowhere.
PlaceLike: TypeAlias = "str | os.PathLike[str] | object | None"

#: A budget, and one or several of them: numbers, of NumPy, too, or decimal strings.
BudgetLike: TypeAlias = SupportsFloat | str
BudgetsLike: TypeAlias = BudgetLike | Iterable[BudgetLike]


class HasValue(Protocol):
    """What ``threshold`` and ``best_threshold`` give."""

    @property
    def value(self) -> float:
        """The threshold."""


#: One threshold or several; those of a result, too.
ThresholdsLike: TypeAlias = SupportsFloat | HasValue | xr.DataArray | xr.Dataset | Iterable[SupportsFloat | HasValue]
#: A rank, or several.
RanksLike: TypeAlias = SupportsIndex | Iterable[SupportsIndex]

#: A matrix or column that has been looked at: in memory, stored, or the blocks of a Dask array.
Matrix: TypeAlias = "Array | StoredArray | da.Array"


def is_stored(array: object) -> TypeGuard[StoredArray]:
    """Return whether an array is one of a store, as zarr opened it."""
    return is_zarr(array)


def are_several(given: object) -> TypeGuard[Iterable[object]]:
    """Return whether something stands for several values rather than for one."""
    n_axes: int = given.ndim if hasattr(given, "ndim") else np.asarray(given).ndim
    return n_axes > 0
