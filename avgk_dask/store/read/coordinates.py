"""Coordinates: arrays that name the samples or classes of another array in their group, as xarray stores them."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import google_crc32c
import numpy as np
import zarr
from numcodecs import Blosc, VLenUTF8, Zstd

from ...arrays import Array
from ...errors import AvgkError, DtypeError, ReadError
from ..where.array_kinds import StoredArray
from ..where.file_stores import FileStore
from ..where.zarr_calls import get, is_uneven, wait
from .bands import read_stored
from .checked import CheckedStore, bare_store
from .grids import chunks_of
from .listing import chunk_key
from .nodes import consolidated, opening, with_checks
from .sizes import decoded_size, outer_codecs


def dimensions_of(array: StoredArray) -> tuple[str | None, ...]:
    """Return the names of an array's dimensions; None for each that has no name."""
    named = getattr(array.metadata, "dimension_names", None) or array.metadata.attributes.get("_ARRAY_DIMENSIONS")
    names = (
        [name if isinstance(name, str) and name else None for name in named] if isinstance(named, list | tuple) else []
    )
    return tuple(names) if len(names) == array.ndim else (None,) * array.ndim


def coordinate_of(array: StoredArray, axis: int) -> StoredArray | None:
    """Return the array that names the rows or columns of another along an axis, or None if there is none.

    It is the array of one dimension in the same group that is called as the dimension is. Reads metadata only. Stores that
    this package wrote have none.
    """
    name = dimensions_of(array)[axis]
    store: CheckedStore = array.store_path.store
    unlikely = store.checks.sealed is not None or not array.path or isinstance(bare_store(store), FileStore)
    if name is None or unlikely or not _is_plain(name):
        return None
    folder = array.path.rpartition("/")[0]
    path = f"{folder}/{name}" if folder else name
    if not _is_there(store, folder, name, array.metadata.zarr_format):
        return None
    filled = store.with_checks(
        replace(store.checks, missing="fill")
    )  # zarr leaves out chunks of nothing but fill values
    with opening(filled, path):
        found = zarr.open_array(filled, path=path, mode="r", zarr_format=array.metadata.zarr_format)
    return with_checks(found, filled, path) if found.shape == (array.shape[axis],) else None


def _is_plain(name: str) -> bool:
    """Return whether a dimension's name can be that of an array: foreign metadata may hold anything."""
    return name not in (".", "..") and len(name) <= 200 and name.isprintable() and not set(name) & {"/", "\\"}


def _is_there(store: CheckedStore, folder: str, name: str, zarr_format: int) -> bool:
    """Return whether a group has an array of a name; a place that does not answer, or refuses to, has none."""
    prefix = f"{folder}/" if folder else ""
    try:
        if zarr_format == 3 and (known := consolidated(store.document(f"{prefix}zarr.json") or {})):
            return (known.get(name) or {}).get("node_type") == "array"
        document = store.document(f"{prefix}{name}/{'zarr.json' if zarr_format == 3 else '.zarray'}")
    except ReadError:
        return False
    return document is not None and document.get("node_type", "array") == "array"


def class_names_of_group(array: StoredArray) -> list[str] | None:
    """Return the class names in the attributes of the group that an array of scores is in; None if there are none that fit."""
    store: CheckedStore = array.store_path.store
    folder = array.path.rpartition("/")[0]
    key = "zarr.json" if array.metadata.zarr_format == 3 else ".zattrs"
    try:
        document = (store.document(f"{folder}/{key}" if folder else key) if array.path else None) or {}
    except ReadError:
        return None
    names = (document.get("attributes") if key == "zarr.json" else document) or {}
    return fitting_names(names.get("class_names"), array.shape[-1])


def fitting_names(names: object, n_classes: int) -> list[str] | None:
    """Return an attribute that may name the classes; None if it does not."""
    fits = isinstance(names, list) and len(names) == n_classes and all(isinstance(name, str) for name in names)
    return names if fits else None  # type: ignore[return-value]


def is_text(array: StoredArray) -> bool:
    """Return whether an array holds texts, such as class names."""
    return getattr(array.dtype, "kind", "O") in "OUST"


def read_values(array: StoredArray) -> Array:
    """Read all values of a coordinate, or of labels that are texts, as xarray decodes them.

    Raises
    ------
    ReadError
        If a chunk is missing or damaged.
    DtypeError
        If they cannot be decoded.

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
    """Read texts of any length. A chunk claims how many it holds, which is checked before anything is allocated for it."""
    codecs, store, location = outer_codecs(array), array.store_path.store, array.store_path.store.checks.location
    unknown = [name for name in codecs[:-1] if name not in _UNPACKED]
    if codecs[-1:] != ["vlen-utf8"] or unknown or is_uneven(array):
        raise DtypeError(
            f"array {array.path!r} of {location} must hold texts as xarray writes them, in chunks of one size; "
            f"got the codecs {', '.join(codecs)}. Store class numbers, or fixed-length texts."
        )
    n_samples, n_rows = array.shape[0], chunks_of(array)[0]
    texts = np.full(n_samples, "", object)
    for chunk in range(-(-n_samples // n_rows)):
        key = chunk_key(array, (chunk,))
        buffer = wait(get(store, key))
        if buffer is None:
            continue
        try:
            data = buffer.to_bytes()
            for name in codecs[:-1]:
                data = _UNPACKED[name](data, store.checks.most_bytes or 0)
            if int.from_bytes(data[:4], "little") != n_rows:
                raise ValueError("it claims another number of texts than it has rows")
            found = VLenUTF8().decode(data)
        except (ValueError, RuntimeError, zlib.error) as error:
            raise ReadError(
                f"chunk {key} of {location} cannot be decoded: {error}. Restore it, or write the store again."
            ) from None
        first = chunk * n_rows
        texts[first : first + n_rows] = found[: n_samples - first]
    return texts


def _unpack(codec: str, data: bytes, most: int) -> bytes:
    """Decode Blosc or Zstandard, if the header says that it is no more than it may be; tiny frames of the latter say nothing."""
    size = decoded_size(codec, memoryview(data))
    if (size is None and len(data) >= _TINY) or (size is not None and size > most):
        raise ValueError(f"it decodes to {size or 'any number of'} bytes, and can need {most:,} at most")
    return bytes((Blosc() if codec == "blosc" else Zstd()).decode(data))


def _inflate(bits: int, data: bytes, most: int) -> bytes:
    found = zlib.decompressobj(bits).decompress(data, most + 1)
    if len(found) > most:
        raise ValueError(f"it decodes to more than the {most:,} bytes that it can need")
    return found


def _without_checksum(data: bytes, most: int) -> bytes:
    if google_crc32c.value(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise ValueError("its checksum is wrong")
    return data[:-4]


#: Bytes of a Zstandard frame below which its header is not read: it decodes to little.
_TINY = 18
#: Codecs of texts, and how they are undone: (bytes, most bytes they may become) -> bytes.
_UNPACKED: dict[str, Callable[[bytes, int], bytes]] = {
    "blosc": partial(_unpack, "blosc"),
    "zstd": partial(_unpack, "zstd"),
    "gzip": partial(_inflate, 31),
    "zlib": partial(_inflate, 15),
    "crc32c": _without_checksum,
}
