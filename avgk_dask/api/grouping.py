"""Groups of samples as users give them: clusters, or what a breakdown is by."""

from __future__ import annotations

import os

import dask.array as da
import numpy as np
import xarray as xr

from ..arrays import Array, Ints
from ..errors import DtypeError, ScoresError
from ..masks import plain_array
from ..sources.grouped_labels import labels_in_memory
from ..store import is_zarr
from .given import LabelsLike, is_stored
from .inputs import find_labels


def as_groups(values: LabelsLike, lead: tuple[int, ...], what: str) -> tuple[Array, Ints]:
    """Return the distinct groups, ascending, and the number of each sample's among them; both in memory."""
    if isinstance(values, (str, os.PathLike)) or is_zarr(values):
        values = find_labels(values)
    if isinstance(values, xr.DataArray):
        values = values.data
    lazy = isinstance(values, da.Array) or is_stored(values)
    found = plain_array(labels_in_memory(values) if lazy else values, what, ScoresError)
    if found.dtype.kind not in "iu":
        raise DtypeError(
            f"{what} must be integers, one a sample; got dtype {found.dtype}. Number them, for example with "
            f"numpy.unique({what}, return_inverse=True)[1]."
        )
    if tuple(found.shape) != tuple(lead):
        raise ScoresError(
            f"{what} must have the samples' shape {tuple(lead)}; got shape {tuple(found.shape)}. "
            "Give one integer for each sample."
        )
    names, numbers = np.unique(found, return_inverse=True)
    return names, numbers.reshape(-1)
