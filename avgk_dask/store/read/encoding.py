"""Encodings: how stored values become scores and labels.

Stored values may be scaled, or one value may mean "missing": these are the CF conventions, which xarray follows. Such
values are decoded by xarray itself, block by block, so the result equals ``xarray.open_zarr`` bit for bit. Arrays that
xarray decodes to times or text raise an error. xarray is imported only if values are encoded.
"""

from __future__ import annotations

import base64
import struct
import warnings

import numpy as np

from ...arrays import Array, Dtype, Ints
from ...errors import DtypeError, LabelsError
from ...kernels.keys import BFLOAT16
from ...masks import with_unlabelled
from ..where.addresses import StoredArray

SCALES = ("scale_factor", "add_offset", "_Unsigned")
_MISSING = ("_FillValue", "missing_value")
ENCODING_ATTRIBUTES = (*SCALES, *_MISSING)
#: Attributes that may make xarray decode numbers to times, durations or text, and the units of durations.
_OTHER_KINDS = ("units", "calendar", "dtype", "_Encoding")
_TIME_UNITS = ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds")
#: The attributes that encode an array's values, by name.
Encoding = dict[str, object]
_HINT = "Decode it with xarray, and store the values themselves."


def decoded_dtype(array: StoredArray) -> Dtype:
    """Return the dtype of an array's decoded values, in native byte order."""
    stored: Dtype = np.dtype(array.dtype)
    if stored.kind == "T":  # variable-length text has no byte order
        return stored
    stored = stored.newbyteorder("=")
    encoding = encoding_of(array)
    if encoding and array.ndim == 1 and "dtype" not in encoding:
        return np.dtype(np.int64)
    if encoding:
        return _decode_with_xarray(array, np.zeros((0,) * array.ndim, array.dtype), encoding).dtype
    return BFLOAT16 if _is_bfloat16(array) else stored


def decode(array: StoredArray, block: Array) -> Array:
    """Decode a stored block: scores and soft labels as xarray does, hard labels to integers.

    A missing hard label is -1: unlabelled.
    """
    encoding = encoding_of(array)
    if encoding and array.ndim == 1 and "dtype" not in encoding:
        return _decode_hard_labels(block, encoding)
    if encoding:
        return _decode_with_xarray(array, block, encoding)
    if _is_bfloat16(array):
        return block.view(BFLOAT16)
    return block.astype(block.dtype.newbyteorder("="), copy=False)


def encoding_of(array: StoredArray) -> Encoding:
    """Return the attributes that encode an array's values; empty if the stored values are the values.

    Raise DtypeError if the values cannot be decoded, or are not numbers.
    """
    attributes = array.metadata.attributes
    _refuse_other_kinds(array)
    encoding = {name: attributes[name] for name in ENCODING_ATTRIBUTES if name in attributes}
    if array.metadata.zarr_format == 2:
        # The fill value means "missing" if xarray wrote the array. A fill value of 0 is zarr's default and does not.
        fill = array.metadata.fill_value
        by_xarray = "_ARRAY_DIMENSIONS" in attributes and fill != 0
        if fill is not None and (encoding or by_xarray):
            encoding["_FillValue"] = fill
    elif "_FillValue" in encoding:
        encoding["_FillValue"] = _fill_value(array, encoding["_FillValue"])
    if np.dtype(array.dtype).kind == "f" and all(n in _MISSING and value != value for n, value in encoding.items()):
        encoding = {}  # missing values are NaN already
    if attributes.get("dtype") == "bool" and array.dtype != bool:
        encoding["dtype"] = "bool"
    if encoding and _is_bfloat16(array):
        raise DtypeError(
            f"{_describe(array)} holds bfloat16, which cannot have the attributes {', '.join(encoding)}. {_HINT}"
        )
    return encoding


def _refuse_other_kinds(array: StoredArray) -> None:
    """Refuse an array that xarray decodes to times, durations or text."""
    attributes = array.metadata.attributes
    units = attributes.get("units")
    is_time = isinstance(units, str) and ("since" in units or units in _TIME_UNITS)
    if not is_time and "_Encoding" not in attributes:
        return
    encoding = {name: attributes[name] for name in _OTHER_KINDS if attributes.get(name, "bool") != "bool"}
    dtype = _decode_with_xarray(array, np.zeros((0,) * array.ndim, array.dtype), encoding).dtype
    if dtype.kind not in "biuf":
        shown = " and ".join(f"{name} = {value!r}" for name, value in encoding.items())
        raise DtypeError(
            f"{_describe(array)} must hold numbers, but xarray decodes it to {dtype} because of {shown}. Remove the "
            "attribute to use the stored numbers."
        )


def _fill_value(array: StoredArray, value: object) -> object:
    """Return the missing value of a Zarr v3 array. For floats, xarray stores it as a double in base64."""
    kind = np.dtype(array.dtype).kind
    try:
        if kind == "f" and isinstance(value, str):
            return float(struct.unpack("<d", base64.b64decode(value, validate=True))[0])
        if kind in "iu" and not isinstance(value, str):
            return np.dtype(array.dtype).type(value)
    except (TypeError, ValueError, OverflowError, struct.error):
        pass
    raise DtypeError(f"{_describe(array)} has an invalid _FillValue: {value!r}. {_HINT}")


def _decode_with_xarray(array: StoredArray, block: Array, encoding: Encoding) -> Array:
    import xarray as xr

    dims = [f"dim_{i}" for i in range(block.ndim)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # xarray warns about several missing values, and applies all
            variable = xr.conventions.decode_cf_variable("scores", xr.Variable(dims, block, encoding))
            values: Array = np.asarray(variable.values)
    except Exception as error:
        shown = ", ".join(f"{name} = {value!r}" for name, value in encoding.items())
        raise DtypeError(f"{_describe(array)} cannot be decoded by xarray: {shown} ({error}). {_HINT}") from None
    return values


def _decode_hard_labels(block: Array, encoding: Encoding) -> Ints:
    if block.dtype.kind not in "iu" or any(name in encoding for name in SCALES):
        raise LabelsError(
            f"labels must be stored as integers, not encoded by {', '.join(encoding)}; got {block.dtype}. {_HINT}"
        )
    missing = np.isin(block, [value for each in encoding.values() for value in np.asarray(each).ravel()])
    return with_unlabelled(block[~missing], missing)


def _is_bfloat16(array: StoredArray) -> bool:
    """Return whether an array is bfloat16, which is stored as uint16 because Zarr has no such dtype."""
    return bool(array.metadata.attributes.get("dtype") == "bfloat16" and np.dtype(array.dtype) == np.uint16)


def _describe(array: StoredArray) -> str:
    return f"array {array.path or '/'!r} of {array.store_path.store}"
