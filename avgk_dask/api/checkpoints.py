"""The ``checkpoint`` of public functions: where a run keeps what it finds, and what it was asked for."""

from __future__ import annotations

import os

from ..errors import OptionError
from ..passes.checkpoint import Asked
from ..store import is_zarr
from .given import PlaceLike


def asked_checkpoint(place: PlaceLike, function: str, *, folder: str = "", **request: object) -> Asked | None:
    """Return the checkpoint that a call of a function asks for; None where it asks for none.

    ``request`` is all that changes what the function reads or finds, but for budgets. Functions that read several matrices
    keep what they find of each in a ``folder`` of its own.
    """
    if place is None:
        return None
    is_path = isinstance(place, (str, os.PathLike)) and os.fspath(place) != ""
    if not is_path and not is_zarr(place):
        raise OptionError(f"checkpoint must be a path, a URL or a Zarr store; got {place!r}. Name a folder for it.")
    return Asked(place, function, request, folder)
