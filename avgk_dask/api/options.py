"""What users hand in, by name: the types of public arguments, and how to tell a stored array."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Protocol, SupportsFloat, SupportsIndex, TypeAlias, TypeGuard

import dask.array as da
import numpy as np
import xarray as xr

from ..arrays import Array
from ..engine.checkpoint import CheckpointKey
from ..engine.tally import LookedRows
from ..errors import OptionError
from ..results.datasets import ATTRIBUTE, CUT, OUTSIDE, PROBABILITIES, UNNORMALISED, versions
from ..sources.source import Source
from ..sources.transforms import BALANCED
from ..store import is_zarr
from ..store.where.addresses import StoredArray

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


# Checks of the options that several functions share.


def check_nan_policy(nan_policy: str) -> None:
    """Refuse an unknown policy."""
    if nan_policy not in ("raise", "lowest"):
        raise OptionError(f"nan_policy must be 'raise' or 'lowest'; got {nan_policy!r}. Leave it out to refuse NaN.")


def check_ties(ties: str) -> None:
    """Refuse an unknown order of ties."""
    if ties not in ("first", "spread"):
        raise OptionError(f"ties must be 'first' or 'spread'; got {ties!r}. Leave it out to keep the first ones.")


def check_guarantee(guarantee: str | None) -> None:
    """Refuse an unknown guarantee."""
    if guarantee not in (None, "expected"):
        raise OptionError(f"guarantee must be 'expected' or None; got {guarantee!r}. Leave it out for none.")


# The ``checkpoint`` of public functions: where a run keeps what it finds, and what it was asked for.


def asked_checkpoint(place: PlaceLike, function: str, *, folder: str = "", **request: object) -> CheckpointKey | None:
    """Return the checkpoint that a call of a function asks for; None where it asks for none.

    ``request`` is all that changes what the function reads or finds, but for budgets. Functions that read several matrices
    keep what they find of each in a ``folder`` of its own.
    """
    if place is None:
        return None
    is_path = isinstance(place, (str, os.PathLike)) and os.fspath(place) != ""
    if not is_path and not is_zarr(place):
        raise OptionError(f"checkpoint must be a path, a URL or a Zarr store; got {place!r}. Name a folder for it.")
    return CheckpointKey(place, function, request, folder)


# What all results share: attributes that tell what they were computed from, and how values are rounded.


#: Variables, coordinates or attributes of a result, by name.
Named: TypeAlias = dict[str, object]


def result_attrs(source: Source, reads: int, **more: object) -> Named:
    """Return the attributes that every result has, and some more."""
    made: Named = {"made_by": source.made_by} if source.made_by else {}
    if source.mask is not None:
        made["n_left_out"] = source.whole.shape[0] - source.shape[0]
    return {
        "n_samples": source.shape[0],
        "n_classes": source.n_classes,
        **more,
        "store": source.location,
        **made,
        "versions": versions(),
        "reads": reads,
    }


def score_kind(source: Source, looked: LookedRows) -> Named:
    """Return the attribute that says what rows look like; none of truncated ones, and where none could be seen."""
    if source.truncation is not None or not looked.n_looked or BALANCED in source.made_by:
        return {}
    few = looked.n_looked / 10
    absent = looked.n_zero if "softmax" in source.made_by else looked.n_infinite
    kinds = ((absent, CUT), (looked.n_outside, OUTSIDE), (looked.n_unnormalised, UNNORMALISED))
    return {ATTRIBUTE: next((kind for count, kind in kinds if count > few), PROBABILITIES)}


def rounded(values: Sequence[Fraction | float | None]) -> list[float]:
    """Return exact values as floats, rounded once; NaN for None."""
    return [math.nan if value is None else float(value) for value in values]
