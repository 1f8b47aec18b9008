"""Dimension names, class names and coordinates, which are arrays of the names of samples or classes.

As in xarray, a coordinate is a one-dimensional array in the same group, with the name of the dimension.
"""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import zarr
from numcodecs import VLenUTF8

from ...arrays import Array
from ...errors import AvgkError, DtypeError, ReadError
from ..where.addresses import StoredArray, bare_store, get, is_uneven, wait
from ..where.locations import FileStore
from .bands import read_stored
from .checked import CheckedStore
from .direct import DECODABLE, decode_bytes
from .grids import chunks_of, outer_codecs
from .listing import chunk_key
from .nodes import consolidated_metadata, metadata_errors, with_checks


def dimensions_of(array: StoredArray) -> tuple[str | None, ...]:
    """Return the name of each dimension of an array, or None for unnamed dimensions."""
    names = getattr(array.metadata, "dimension_names", None) or array.metadata.attributes.get("_ARRAY_DIMENSIONS")
    if not isinstance(names, list | tuple) or len(names) != array.ndim:
        return (None,) * array.ndim
    return tuple(name if isinstance(name, str) and name else None for name in names)


def coordinate_of(array: StoredArray, axis: int) -> StoredArray | None:
    """Return the coordinate of an axis of an array, or None if there is none. Reads only metadata.

    Stores that this package wrote have no coordinates.
    """
    name = dimensions_of(array)[axis]
    store: CheckedStore = array.store_path.store
    has_none = store.checks.sealed is not None or not array.path or isinstance(bare_store(store), FileStore)
    if name is None or has_none or not _is_array_name(name):
        return None
    folder = array.path.rpartition("/")[0]
    path = f"{folder}/{name}" if folder else name
    zarr_format = array.metadata.zarr_format
    if not _has_array(store, folder, name, zarr_format):
        return None
    # zarr does not write chunks that contain only the fill value.
    filled = store.with_checks(replace(store.checks, missing="fill"))
    with metadata_errors(filled, path):
        coordinate = zarr.open_array(filled, path=path, mode="r", zarr_format=zarr_format)
    return with_checks(coordinate, filled, path) if coordinate.shape == (array.shape[axis],) else None


def _is_array_name(name: str) -> bool:
    """Return whether a dimension's name is valid as the name of an array; foreign metadata may contain anything."""
    return name not in (".", "..") and len(name) <= 200 and name.isprintable() and not set(name) & {"/", "\\"}


def _has_array(store: CheckedStore, folder: str, name: str, zarr_format: int) -> bool:
    """Return whether a group has an array of a name; False if the store does not answer or denies access."""
    prefix = f"{folder}/" if folder else ""
    try:
        if zarr_format == 3 and (copies := consolidated_metadata(store.document(f"{prefix}zarr.json") or {})):
            return (copies.get(name) or {}).get("node_type") == "array"
        document = store.document(f"{prefix}{name}/{'zarr.json' if zarr_format == 3 else '.zarray'}")
    except ReadError:
        return False
    return document is not None and document.get("node_type", "array") == "array"


def class_names_of_group(array: StoredArray) -> list[str] | None:
    """Return the class names in the attributes of the scores' group, or None unless there is one name per class."""
    store: CheckedStore = array.store_path.store
    folder = array.path.rpartition("/")[0]
    key = "zarr.json" if array.metadata.zarr_format == 3 else ".zattrs"
    try:
        document = (store.document(f"{folder}/{key}" if folder else key) if array.path else None) or {}
    except ReadError:
        return None
    attributes = (document.get("attributes") if key == "zarr.json" else document) or {}
    return fitting_names(attributes.get("class_names"), array.shape[-1])


def fitting_names(names: object, n_classes: int) -> list[str] | None:
    """Return ``names`` if it is a list with one text per class, otherwise None."""
    fits = isinstance(names, list) and len(names) == n_classes and all(isinstance(name, str) for name in names)
    return names if fits else None  # type: ignore[return-value]


def is_text(array: StoredArray) -> bool:
    """Return whether an array holds text, such as class names."""
    return getattr(array.dtype, "kind", "O") in "OUST"


def read_values(array: StoredArray) -> Array:
    """Read and decode all values of a coordinate, or of labels stored as text, like xarray.

    Raise ReadError if a chunk is missing or damaged, and DtypeError if the values cannot be decoded.
    """
    try:
        if np.dtype(array.dtype).kind in "OT":
            return _read_texts(array)
        values = read_stored(array, (slice(0, array.shape[0]),))
        if is_text(array):
            return values.astype(str).astype(object)
        import xarray as xr

        variable = xr.Variable(("dim",), values.copy(), dict(array.metadata.attributes))
        return xr.conventions.decode_cf_variable("name", variable).to_numpy()
    except AvgkError:
        raise
    except Exception as error:
        raise DtypeError(
            f"array {array.path!r} of {array.store_path.store} cannot be decoded as names ({error}). "
            "Decode it with xarray, and store the values themselves."
        ) from None


def _read_texts(array: StoredArray) -> Array:
    """Read variable-length text. The sizes in the header of a chunk are checked before memory is allocated."""
    codecs, store = outer_codecs(array), array.store_path.store
    location = store.checks.location
    if codecs[-1:] != ["vlen-utf8"] or not set(codecs[:-1]) <= set(DECODABLE) or is_uneven(array):
        raise DtypeError(
            f"array {array.path!r} of {location} must hold text in chunks of equal size, in an encoding of xarray; got "
            f"the codecs {', '.join(codecs)}. Store class numbers, or fixed-length text."
        )
    n_samples, n_rows = array.shape[0], chunks_of(array)[0]
    texts = np.full(n_samples, "", object)
    for first in range(0, n_samples, n_rows):
        key = chunk_key(array, (first // n_rows,))
        buffer = wait(get(store, key))
        if buffer is None:
            continue
        try:
            data = buffer.to_bytes()
            for codec in codecs[:-1]:
                data = decode_bytes(codec, data, store.checks.most_bytes or 0)
            if int.from_bytes(data[:4], "little") != n_rows:
                raise ValueError("it has a wrong number of texts")
            texts[first : first + n_rows] = VLenUTF8().decode(data)[: n_samples - first]
        except (ValueError, RuntimeError, zlib.error) as error:
            raise ReadError(
                f"chunk {key} of {location} cannot be decoded: {error}. Restore it, or write the store again."
            ) from None
    return texts
