"""Several matrices that must be of the same samples and classes: what names they have must be the same, in the same order."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

import xarray as xr

from ..errors import ScoresError
from .class_names import class_names_of
from .given import ScoresLike
from .inputs import as_lazy
from .lazy_scores import LazyScores


def frames_of(scores: Mapping[str, ScoresLike]) -> dict[str, xr.DataArray]:
    """Return those that came as xarray objects, or are made of some."""
    kinds = (xr.Dataset, xr.DataArray, LazyScores)
    found = {name: as_lazy(given)[1] for name, given in scores.items() if isinstance(given, kinds)}
    return {name: frame for name, frame in found.items() if frame is not None}


def check_same_names(scores: Mapping[str, ScoresLike], what: str) -> None:
    """Refuse scores whose samples or classes are named otherwise than those of the first, or come in another order.

    Those without names are taken as they are. Reads metadata only.
    """
    frames = list(frames_of(scores).items())
    for other in frames[1:]:
        _check_coordinates(frames[0], other, what)
    known = [(name, names) for name, given in scores.items() if (names := class_names_of(given)) is not None]
    for name, names in known[1:]:
        first, classes = known[0]
        if names != classes:
            pairs = enumerate(zip_longest(classes, names))
            at, (ours, theirs) = next((i, pair) for i, pair in pairs if pair[0] != pair[1])
            raise ScoresError(
                f"{what} must have the same classes, in the same order; class {at} is {ours!r} of {first} and "
                f"{theirs!r} of {name}. Put their columns in one order, or give the scores without names."
            )


def _check_coordinates(first: tuple[str, xr.DataArray], other: tuple[str, xr.DataArray], what: str) -> None:
    """Refuse an xarray object with other dimensions than the first, or other coordinates along them."""
    (_, ours), (name, theirs) = first, other
    if theirs.dims != ours.dims:
        raise ScoresError(
            f"{what} must have the same dimensions, in the same order; got {theirs.dims} of {name} and {ours.dims} of {first[0]}. "
            "Transpose one of them."
        )
    for dimension in ours.dims:
        indexes = ours.indexes.get(dimension), theirs.indexes.get(dimension)
        if indexes[0] is not None and indexes[1] is not None and not indexes[0].equals(indexes[1]):
            raise ScoresError(
                f"{what} must have the same {dimension!r} coordinate, in the same order; got another of {name}. "
                "Align them with xarray.align."
            )
