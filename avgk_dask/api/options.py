"""The options of public functions: their types and checks, and the attributes that all results share."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, Protocol, SupportsFloat, SupportsIndex, TypeAlias, TypedDict, TypeGuard, get_args

import dask.array as da
import numpy as np
import xarray as xr

from ..arrays import Array
from ..engine.checkpoint import CheckpointKey
from ..engine.run import Run, open_run
from ..engine.tally import LookedRows
from ..errors import OptionError
from ..results.datasets import ATTRIBUTE, CUT, OUTSIDE, PROBABILITIES, UNNORMALISED, versions
from ..results.registry import Ties
from ..sources.source import Source
from ..sources.transforms import BALANCED
from ..store.read.opening import is_zarr
from ..store.where.addresses import StoredArray

#: Scores, labels, sets: an array of any library (NumPy, Dask, Zarr, xarray, pandas, polars, Arrow, ...), a sequence, or
#: the path of a store or file. No type covers them all; anything else is refused when it is opened.
ScoresLike: TypeAlias = object
LabelsLike: TypeAlias = object
#: The path or URL of a store, or an open Zarr store, group or array.
StoreLike: TypeAlias = object

#: A folder for files: a path or URL, an open Zarr store, or None.
PlaceLike: TypeAlias = "str | os.PathLike[str] | object | None"

#: A budget, and one or several of them: numbers, also of NumPy, or decimal strings.
BudgetLike: TypeAlias = SupportsFloat | str
BudgetsLike: TypeAlias = BudgetLike | Iterable[BudgetLike]


class HasValue(Protocol):
    """A result of ``threshold`` or ``best_threshold``."""

    @property
    def value(self) -> float:
        """The threshold."""


#: One threshold or several, or a result that contains them.
ThresholdsLike: TypeAlias = SupportsFloat | HasValue | xr.DataArray | xr.Dataset | Iterable[SupportsFloat | HasValue]
#: A rank, or several.
RanksLike: TypeAlias = SupportsIndex | Iterable[SupportsIndex]

#: An open matrix or column: in memory, stored, or the blocks of a Dask array.
Matrix: TypeAlias = "Array | StoredArray | da.Array"


def is_stored(array: object) -> TypeGuard[StoredArray]:
    """Return whether an array is one that zarr opened."""
    return is_zarr(array)


def are_several(value: object) -> TypeGuard[Iterable[object]]:
    """Return whether a value is a sequence or array rather than a scalar."""
    n_axes: int = value.ndim if hasattr(value, "ndim") else np.asarray(value).ndim
    return n_axes > 0


NanPolicy: TypeAlias = Literal["raise", "lowest"]
Missing: TypeAlias = Literal["raise", "fill"]


def check_word(name: str, value: object, words: Any, hint: str = "Use one of these.") -> None:
    """Refuse a value that is not one of the words of a Literal type, or of a table."""
    allowed = get_args(words) or tuple(words)
    if not (value is None or isinstance(value, str)) or value not in allowed:
        raise OptionError(f"{name} must be {' or '.join(map(repr, allowed))}; got {_short(value)}. {hint}")


def check_flag(name: str, value: object, *, or_none: bool = False) -> None:
    """Refuse a value that is not True or False (or None if ``or_none``)."""
    if not isinstance(value, (bool, np.bool_)) and not (or_none and value is None):
        allowed = "True, False or None" if or_none else "True or False"
        raise OptionError(f"{name} must be {allowed}; got {_short(value)}. Leave it out for the default.")


def check_count(name: str, value: object, hint: str) -> None:
    """Refuse a value that is not a positive integer."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise OptionError(f"{name} must be a positive integer; got {_short(value)}. {hint}")


def check_nan_policy(nan_policy: object) -> None:
    """Refuse an unknown policy."""
    check_word("nan_policy", nan_policy, NanPolicy, "Leave it out to refuse NaN.")


def check_missing(missing: object) -> None:
    """Refuse an unknown word for missing chunks; None leaves the choice to the store."""
    if missing is not None:
        check_word("missing", missing, Missing, "Leave it out to refuse missing chunks.")


def _short(value: object) -> str:
    """Return the text of a value on one line, cut to 80 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


class Opening(TypedDict, total=False):
    """How scores are opened: which samples count, and how missing chunks are read."""

    missing: str | None
    where: LabelsLike
    ignore_index: int | None


class SourceOptions(Opening, total=False):
    """The same, and whether the labels stored with the scores are the default."""

    own_labels: bool


@dataclass(frozen=True, kw_only=True)
class ScanOptions:
    """The options of a call that reads scores, as documented in ``evaluate``.

    A public function builds it from its parameters, and passes it on whole.
    """

    straddle: bool = True
    ties: Ties = "first"
    where: LabelsLike = None
    ignore_index: int | None = None
    clusters: LabelsLike = None
    nan_policy: NanPolicy = "raise"
    missing: Missing | None = None
    progress: bool | None = None
    checkpoint: PlaceLike = None

    def __post_init__(self) -> None:
        check_flag("straddle", self.straddle)
        check_word("ties", self.ties, Ties, "Leave it out to keep the first ones.")
        check_nan_policy(self.nan_policy)
        check_missing(self.missing)
        check_flag("progress", self.progress, or_none=True)
        _check_checkpoint(self.checkpoint)

    @property
    def opening(self) -> Opening:
        """The options with which scores are opened."""
        return {"missing": self.missing, "where": self.where, "ignore_index": self.ignore_index}

    def run(
        self, source: Source, function: str = "", *, folder: str = "", **request: object
    ) -> AbstractContextManager[Run]:
        """Open the run of a function over a source.

        A checkpoint is reused only for the same ``request`` and ``nan_policy``: all options that change the passes or
        their results, except budgets. Functions that read several matrices use a ``folder`` for each.
        """
        checkpoint = checkpoint_key(self.checkpoint, function, folder=folder, nan_policy=self.nan_policy, **request)
        return open_run(source, self.progress, self.nan_policy, checkpoint)


def _check_checkpoint(place: PlaceLike) -> None:
    is_path = isinstance(place, (str, os.PathLike)) and os.fspath(place) != ""
    if place is not None and not is_path and not is_zarr(place):
        raise OptionError(
            f"checkpoint must be a path, a URL or a Zarr store; got {_short(place)}. Name a folder for it."
        )


def checkpoint_key(place: PlaceLike, function: str, *, folder: str = "", **request: object) -> CheckpointKey | None:
    """Return the key of a call's checkpoint, or None without a place for one."""
    return None if place is None else CheckpointKey(place, function, request, folder)


#: Variables, coordinates or attributes of a result, by name.
Named: TypeAlias = dict[str, object]


def result_attrs(source: Source, reads: int, **more: object) -> Named:
    """Return the attributes that record the inputs of a result, and ``more``."""
    origin: Named = {"made_by": source.provenance} if source.provenance else {}
    if source.mask is not None:
        origin["n_left_out"] = source.unfiltered.shape[0] - source.shape[0]
    return {
        "n_samples": source.shape[0],
        "n_classes": source.n_classes,
        **more,
        "store": source.location,
        **origin,
        "versions": versions(),
        "reads": reads,
    }


def score_kind(source: Source, looked: LookedRows) -> Named:
    """Return the attribute that describes the rows; nothing for truncated rows, or if no row was sampled."""
    if source.truncation is not None or not looked.n_looked or BALANCED in source.provenance:
        return {}
    most = looked.n_looked / 10
    absent = looked.n_zero if "softmax" in source.provenance else looked.n_infinite
    kinds = ((absent, CUT), (looked.n_outside, OUTSIDE), (looked.n_unnormalised, UNNORMALISED))
    return {ATTRIBUTE: next((kind for count, kind in kinds if count > most), PROBABILITIES)}


def rounded(values: Sequence[Fraction | float | None]) -> list[float]:
    """Return exact values as floats, rounded once; NaN for None."""
    return [math.nan if value is None else float(value) for value in values]
