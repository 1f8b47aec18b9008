"""A short list of numbers in a file of its own."""

from __future__ import annotations

import os

import numpy as np

from ..arrays import Floats
from ..credentials import shown
from ..errors import StoreError
from .names import check_plain, path_advice
from .npy import NPY_ERRORS, map_header
from .row_blocks import reading


def read_numbers(path: str) -> Floats:
    """Return the numbers in a file: a vector in an npy file, else text with one number a line. Nothing is unpickled.

    Raises
    ------
    StoreError
        Where there is no file, or it holds something else.

    """
    if not os.path.isfile(path):
        raise StoreError(f"a file of numbers must exist; got {shown(path)!r}, and none is there. {path_advice(path)}")
    check_plain(path)
    if path.lower().endswith(".npy"):
        header, offset = map_header(path)
        if len(header.shape) != 1 or header.dtype.kind not in "iuf":
            raise StoreError(
                f"{path} must hold a vector of numbers; it has shape {header.shape} and dtype {header.dtype}. "
                "Save one number for each class."
            )
        with reading(path, *NPY_ERRORS):
            return np.fromfile(path, header.dtype, header.shape[0], offset=offset).astype(np.float64)
    try:
        return np.loadtxt(path, np.float64, ndmin=1)
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{path} must hold one number a line; it could not be read as that ({str(error).partition(chr(10))[0]}). "
            "Save one number for each class, or a vector as .npy."
        ) from None
