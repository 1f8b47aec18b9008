"""Conformal predictors as files: JSON with a version and a hash, all of it exact."""

from __future__ import annotations

from typing import Any

from ..errors import StoreError
from .sealed_files import DAMAGE, FileKind, packed, unpacked

_KIND = FileKind("conformal predictor", "avgk_dask conformal predictor", 1, "Calibrate and save it again.")
_ARRAYS = ("levels", "n_calibration", "groups")

__all__ = ["DAMAGE", "damaged", "read_predictor", "write_predictor"]


def write_predictor(path: object, content: dict[str, Any]) -> None:
    """Write a predictor; what was there is replaced at once, or stays."""
    forms = {name: packed(content[name], "int64") for name in _ARRAYS}
    _KIND.write(path, {**content, **forms})


def read_predictor(path: object) -> dict[str, Any]:
    """Return what ``write_predictor`` was given.

    Raises
    ------
    StoreError
        Where it cannot be read, is damaged, or is of another version.

    """
    content = _KIND.read(path)
    try:
        return {**content, **{name: unpacked(content[name], "int64") for name in _ARRAYS}}
    except DAMAGE as error:
        raise damaged(path, error) from error


def damaged(path: object, error: Exception) -> StoreError:
    """Return what tells that a file is no predictor that this version wrote."""
    return _KIND.damaged(path, error)
