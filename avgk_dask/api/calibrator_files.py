"""Calibrators as files: JSON with a version and a hash; arrays as base64 of little-endian float64."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import os
import tempfile
from typing import Any

import numpy as np

from ..arrays import Array
from ..credentials import shown
from ..errors import OptionError, StoreError, WriteError, refuse

_FORMAT, _VERSION = "avgk_dask calibrator", 2


def write_calibrator(path: object, method: str, told: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Write a fitted calibrator; what was there is replaced at once, or stays."""
    place = _place(path)
    content = {
        "format": _FORMAT, "version": _VERSION, "method": method, "fit": told,
        "arrays": {name: _packed(array) for name, array in arrays.items()},
    }  # fmt: skip
    text = json.dumps({**content, "sha256": _digest(content)}, indent=1)
    folder, draft = os.path.dirname(os.path.abspath(place)), ""
    try:
        with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".avgk-", delete=False, encoding="utf-8") as file:
            draft = file.name
            file.write(text)
        os.chmod(draft, 0o666 & ~_umask())
        os.replace(draft, place)
    except BaseException as error:
        if draft and os.path.exists(draft):
            os.unlink(draft)
        if not isinstance(error, OSError):
            raise
        refuse(
            WriteError(
                f"a calibrator must be written to a file that can be; got {shown(place)} ({error.strerror or error}). Name another."
            )
        )


def read_calibrator(path: object) -> tuple[str, dict[str, Any], dict[str, Array]]:
    """Return method, what is told of the fit, and the arrays of a file that ``write_calibrator`` wrote.

    Raises
    ------
    StoreError
        Where it cannot be read, is damaged, or is of another version.

    """
    place = _place(path)
    try:
        with open(place, encoding="utf-8") as file:
            content = json.load(file)
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise ValueError("it is no calibrator")
        if content["version"] != _VERSION:
            raise ValueError(f"it is of version {content['version']}, not {_VERSION}")
        if content.pop("sha256") != _digest(content):
            raise ValueError("its hash is not that of what it holds")
        arrays = {name: _unpacked(form) for name, form in content["arrays"].items()}
        return content["method"], content["fit"], arrays
    except OSError as error:
        refuse(
            StoreError(
                f"calibrator must be a file that can be read; got {shown(place)} ({error.strerror or error}). "
                "Check the path."
            )
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error) as error:
        raise damaged(place, error) from error


def damaged(path: object, error: Exception) -> StoreError:
    """Return what tells that a file is no calibrator that this version wrote."""
    return StoreError(f"calibrator must be a file that save wrote; got {shown(path)}: {error}. Fit and save it again.")


def _place(path: object) -> str:
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path) or "://" in str(path):
        raise OptionError(
            f"path must be that of a local file; got {shown(path)!r}. Name a file, such as calibrator.json."
        )
    return str(os.fspath(path))


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _packed(array: Array) -> dict[str, Any]:
    data = np.ascontiguousarray(array, "<f8")
    return {"shape": list(data.shape), "float64": base64.b64encode(data.tobytes()).decode()}


def _unpacked(form: dict[str, Any]) -> Array:
    data = base64.b64decode(form["float64"], validate=True)
    shape = tuple(int(n) for n in form["shape"])
    if len(data) != 8 * math.prod(shape):
        raise ValueError("an array is not as long as its shape says")
    array = np.frombuffer(data, "<f8").astype(np.float64).reshape(shape)
    if not np.isfinite(array).all():
        raise ValueError("an array holds numbers that are not finite")
    return array
