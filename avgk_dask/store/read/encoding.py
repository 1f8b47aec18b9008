"""Encodings: how stored values become scores and labels.

Values may be stored scaled or with a value that means "missing" (the CF conventions, as xarray writes them). They
are decoded by xarray itself, block by block, so that a path gives what ``xarray.open_zarr`` gives, to the bit. Arrays that
xarray decodes to times or text are refused. If nothing is encoded, nothing is done, and xarray is not imported.
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

#: Attributes that define how values are encoded.
SCALES = ("scale_factor", "add_offset", "_Unsigned")
_MISSING = ("_FillValue", "missing_value")
ENCODING_ATTRIBUTES = (*SCALES, *_MISSING)
#: Attributes by which xarray may make times, durations or text of numbers, and units that mean so; others are only read.
_OTHER_KINDS = ("units", "calendar", "dtype", "_Encoding")
_TIME_UNITS = ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds")
#: What encodes the values of an array, by the names of its attributes.
Encoding = dict[str, object]
_CURE = "Decode it with xarray, and store the values themselves."


def decoded_dtype(array: StoredArray) -> Dtype:
    """Return the dtype of an array's values once they are decoded, in native byte order."""
    stored: Dtype = np.dtype(array.dtype)
    if stored.kind == "T":  # texts of any length have no byte order
        return stored
    stored = stored.newbyteorder("=")
    found = encoding_of(array)
    if found and array.ndim == 1 and "dtype" not in found:
        return np.dtype(np.int64)
    if found:
        return _decoded(array, np.zeros((0,) * array.ndim, array.dtype), found).dtype
    return BFLOAT16 if _is_bfloat16(array) else stored


def decode(array: StoredArray, block: Array) -> Array:
    """Return a block of an array as read: scores and soft labels as xarray decodes them, hard labels as integers.

    A hard label that is missing is -1: unlabelled.
    """
    found = encoding_of(array)
    if found and array.ndim == 1 and "dtype" not in found:
        return _unlabelled(block, found)
    if found:
        return _decoded(array, block, found)
    if _is_bfloat16(array):
        return block.view(BFLOAT16)
    return block.astype(block.dtype.newbyteorder("="), copy=False)


def encoding_of(array: StoredArray) -> Encoding:
    """Return the attributes by which an array's values are decoded; none if they are stored unchanged.

    Raise DtypeError if they cannot be decoded, or not to numbers.
    """
    attributes = array.metadata.attributes
    _refuse_other_kinds(array)
    found = {name: attributes[name] for name in ENCODING_ATTRIBUTES if name in attributes}
    if array.metadata.zarr_format == 2:
        found = _with_fill_value(array, found)
    elif "_FillValue" in found:
        found["_FillValue"] = _fill_value(array, found["_FillValue"])
    if np.dtype(array.dtype).kind == "f" and all(n in _MISSING and value != value for n, value in found.items()):
        found = {}  # what is missing is NaN already
    if attributes.get("dtype") == "bool" and array.dtype != bool:
        found["dtype"] = "bool"
    if found and _is_bfloat16(array):
        raise DtypeError(f"{_named(array)} must not be encoded by {', '.join(found)}: it holds bfloat16. {_CURE}")
    return found


def _refuse_other_kinds(array: StoredArray) -> None:
    """Refuse an array that xarray decodes to times, durations or text."""
    attributes = array.metadata.attributes
    units = attributes.get("units")
    is_time = isinstance(units, str) and ("since" in units or units in _TIME_UNITS)
    if not is_time and "_Encoding" not in attributes:
        return
    found = {name: attributes[name] for name in _OTHER_KINDS if attributes.get(name, "bool") != "bool"}
    dtype = _decoded(array, np.zeros((0,) * array.ndim, array.dtype), found).dtype
    if dtype.kind not in "biuf":
        shown = " and ".join(f"{name} = {value!r}" for name, value in found.items())
        raise DtypeError(
            f"{_named(array)} must hold numbers; with the attribute {shown} xarray decodes it to {dtype}. "
            "Remove the attribute if the numbers are meant as they are stored."
        )


def _with_fill_value(array: StoredArray, found: Encoding) -> Encoding:
    """Return what encodes an array of Zarr v2, whose fill value means "missing" if xarray wrote it.

    A fill value of 0 and nothing else is zarr's own default: zeros are values then.
    """
    fill = array.metadata.fill_value
    by_xarray = "_ARRAY_DIMENSIONS" in array.metadata.attributes and fill != 0
    return {**found, "_FillValue": fill} if fill is not None and (found or by_xarray) else found


def _fill_value(array: StoredArray, value: object) -> object:
    """Return the missing value of an array of Zarr v3, where xarray stores that of floats as the base64 of a double."""
    kind = np.dtype(array.dtype).kind
    try:
        if kind == "f" and isinstance(value, str):
            return float(struct.unpack("<d", base64.b64decode(value, validate=True))[0])
        if kind in "iu" and not isinstance(value, str):
            return np.dtype(array.dtype).type(value)
    except (TypeError, ValueError, OverflowError, struct.error):
        pass
    raise DtypeError(f"{_named(array)} must have a _FillValue as xarray writes it; got {value!r}. {_CURE}")


def _decoded(array: StoredArray, block: Array, found: Encoding) -> Array:
    """Return a block as xarray decodes it."""
    import xarray as xr

    dims = [f"dim_{i}" for i in range(block.ndim)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of several missing values, which are all taken
            variable = xr.conventions.decode_cf_variable("scores", xr.Variable(dims, block, found))
            values: Array = np.asarray(variable.values)
    except Exception as error:
        shown = ", ".join(f"{name} = {value!r}" for name, value in found.items())
        raise DtypeError(f"{_named(array)} must be encoded as xarray does it; got {shown} ({error}). {_CURE}") from None
    return values


def _unlabelled(block: Array, found: Encoding) -> Ints:
    if block.dtype.kind not in "iu" or any(name in found for name in SCALES):
        raise LabelsError(
            f"labels must be stored as integers, not encoded by {', '.join(found)}; got {block.dtype}. {_CURE}"
        )
    missing = np.isin(block, [value for each in found.values() for value in np.asarray(each).ravel()])
    return with_unlabelled(block[~missing], missing)


def _is_bfloat16(array: StoredArray) -> bool:
    """Return whether uint16 is bfloat16, which Zarr does not know."""
    return bool(array.metadata.attributes.get("dtype") == "bfloat16" and np.dtype(array.dtype) == np.uint16)


def _named(array: StoredArray) -> str:
    return f"array {array.path or '/'!r} of {array.store_path.store}"
