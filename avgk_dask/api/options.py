"""What users hand in, by name: the types of public arguments, and how to tell a stored array."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Protocol, SupportsFloat, SupportsIndex, TypeAlias, TypeGuard, TypeVar

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


# What docstrings of several public functions have in common: said once, and inserted.


Function = TypeVar("Function", bound=Callable[..., object])

#: The parameters, by the name under which a docstring asks for them: ``{scores}`` on a line of its own.
PARAMETERS = {
    "scores": """scores
    N x C matrix: NumPy, Dask or Zarr array, xarray object, frame (a column a class), tensor on the CPU, or the path of a store or
    of a file (.npy, .npz, .parquet, .csv, .arrow, .feather). Of more dimensions, the last one is the classes and all others are
    samples, in row-major order.""",
    "labels": """labels
    N integers (negative, masked or null: unlabelled), N class names of the scores, or an N x C matrix of true probabilities;
    of more dimensions, the samples' shape or the scores'. Also the path of a file or store with any of these. Names of samples
    must be those of the scores, in the same order. By default the labels stored beside the scores.""",
    "where": """where
    Boolean, one value a sample, as labels are given: samples where it is False do not exist (padding). They are not in N, in
    thresholds, sizes or errors, and what they hold is not looked at. By default all exist.""",
    "ignore_index": """ignore_index
    The label of samples that do not exist: short for ``where = labels != ignore_index``. With ``where``, samples exist that
    meet both. A negative label alone is something else: that sample counts for thresholds and sizes, not for errors.""",
    "clusters": """clusters
    An integer a sample, such as the document of a token or the patient of a picture: samples of the same one may be alike,
    and standard errors are those of independent clusters. They change nothing else. By default each sample is independent.""",
    "budgets": """k
    Budget or sequence of budgets in (0, C]; one given twice counts once.""",
    "nan_policy": """nan_policy
    ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.""",
    "nan_policy_of_ranks": """nan_policy
    ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers.""",
    "nan_policy_of_counts": """nan_policy
    ``"raise"`` refuses NaN; ``"lowest"`` never counts NaN.""",
    "nan_policy_of_losses": """nan_policy
    ``"raise"``: there is no other way with NaN here.""",
    "progress": """progress
    Whether to show a progress bar on stderr. With None, the log ``avgk_dask`` has a line each minute instead.""",
    "checkpoint": """checkpoint
    Path or URL of a folder that keeps what is found, as it is found. A run that was interrupted and is started again reads
    only what is missing; so does one over a store that has grown. A finished one is answered at once, with 0 reads. What is
    kept of another request, store or version is refused.""",
    "refused_scores": """ScoresError, DtypeError
    Where the scores are no matrix of real numbers, or hold NaN.""",
    "refused_probabilities": """ScoresError, DtypeError
    Where the scores are no probabilities in [0, 1], or hold NaN; where a row of logits has an infinite largest one.""",
    "refused_without_labels": """LabelsError
    Where the labels do not fit the scores, or there are none.""",
    "refused_budgets": """BudgetError
    Where a budget is no number in (0, C].""",
    "refused_memory": """MemoryLimitError
    Where a task cannot fit its share of memory; before anything is read.""",
    "refused_store": """StoreError
    Where the store cannot be opened or read.""",
}


def documented(function: Function) -> Function:
    """Put the shared descriptions into a function's docstring."""

    def insert(found: re.Match[str]) -> str:
        return PARAMETERS[found[2]].replace("\n", f"\n{found[1]}").join((found[1], ""))

    if function.__doc__:
        function.__doc__ = re.sub(r"^( *)\{(\w+)\}$", insert, function.__doc__, flags=re.M)
    return function


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
