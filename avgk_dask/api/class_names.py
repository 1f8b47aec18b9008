"""Names of classes: from a store's attributes, from the columns of a frame, from a coordinate of xarray, or as given."""

from __future__ import annotations

import os
from collections.abc import Iterable

import xarray as xr

from ..errors import OptionError
from ..store import StoredArrays, is_zarr, open_arrays
from .frames import frame_arrays, is_frame
from .given import ScoresLike
from .lazy_scores import LazyScores


def class_names_of(scores: ScoresLike) -> list[str] | None:
    """Return the names of the classes that come with scores; None where there are none. Reads metadata only."""
    if isinstance(scores, LazyScores):
        return class_names_of(scores.parts[0])
    if isinstance(scores, (xr.Dataset, xr.DataArray)):
        frame = scores["scores"] if isinstance(scores, xr.Dataset) else scores
        names = frame.coords.get("class")
        if names is not None and names.dtype.kind in "OUT":
            return [str(name) for name in names.values]
        return None
    if isinstance(scores, StoredArrays):
        return scores.class_names
    if isinstance(scores, (str, os.PathLike)) or is_zarr(scores):
        return open_arrays(scores).class_names
    return frame_arrays(scores).class_names if is_frame(scores) else None


def checked_names(names: Iterable[object], n: int, what: str) -> list[str]:
    """Return names as texts; refuse another number of them than there are classes or groups."""
    found = [str(name) for name in names]
    if len(found) != n:
        raise OptionError(f"{what} must be {n}, one for each; got {len(found)}. Pass them in order.")
    return found
