"""Calibrators as files: JSON with a version and a hash; arrays as base64 of little-endian float64."""

from __future__ import annotations

from typing import Any

from ..arrays import Array
from ..errors import StoreError
from .sealed_files import DAMAGE, FileKind, packed, unpacked

_KIND = FileKind("calibrator", "avgk_dask calibrator", 2, "Fit and save it again.")


def write_calibrator(path: object, method: str, told: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Write a fitted calibrator; what was there is replaced at once, or stays."""
    forms = {name: packed(array) for name, array in arrays.items()}
    _KIND.write(path, {"method": method, "fit": told, "arrays": forms})


def read_calibrator(path: object) -> tuple[str, dict[str, Any], dict[str, Array]]:
    """Return method, what is told of the fit, and the arrays of a file that ``write_calibrator`` wrote.

    Raises
    ------
    StoreError
        Where it cannot be read, is damaged, or is of another version.

    """
    content = _KIND.read(path)
    try:
        arrays = {name: unpacked(form) for name, form in content["arrays"].items()}
        return content["method"], content["fit"], arrays
    except DAMAGE as error:
        raise damaged(path, error) from error


def damaged(path: object, error: Exception) -> StoreError:
    """Return what tells that a file is no calibrator that this version wrote."""
    return _KIND.damaged(path, error)
