"""Coordinates: arrays that name the samples or classes of another array in their group, as xarray stores them."""

from __future__ import annotations

from dataclasses import replace

import zarr

from ...arrays import Array
from ...errors import DtypeError
from ..where.array_kinds import StoredArray
from ..where.file_stores import FileStore
from .bands import read_stored
from .checked import CheckedStore, bare_store
from .nodes import opening, with_checks


def dimensions_of(array: StoredArray) -> tuple[str | None, ...]:
    """Return the names of an array's dimensions; None for each that has no name."""
    named = getattr(array.metadata, "dimension_names", None) or array.metadata.attributes.get("_ARRAY_DIMENSIONS")
    names = (
        [name if isinstance(name, str) and name else None for name in named] if isinstance(named, list | tuple) else []
    )
    return tuple(names) if len(names) == array.ndim else (None,) * array.ndim


def coordinate_of(array: StoredArray, axis: int) -> StoredArray | None:
    """Return the array that names the rows or columns of another along an axis, or None if there is none.

    It is the array of one dimension in the same group that is called as the dimension is. Reads metadata only.
    """
    name = dimensions_of(array)[axis]
    store: CheckedStore = array.store_path.store
    store = store.with_checks(
        replace(store.checks, missing="fill")
    )  # zarr leaves out chunks of nothing but fill values
    if name is None or not array.path or "/" in name or isinstance(bare_store(store), FileStore):
        return None
    path = array.path.rpartition("/")[0]
    path = f"{path}/{name}" if path else name
    document = store.document(f"{path}/{'zarr.json' if array.metadata.zarr_format == 3 else '.zarray'}")
    if document is None or document.get("node_type", "array") != "array":
        return None
    with opening(store, path):
        found = zarr.open_array(store, path=path, mode="r", zarr_format=array.metadata.zarr_format)
    return with_checks(found, store, path) if found.shape == (array.shape[axis],) else None


def class_names_of_group(array: StoredArray) -> list[str] | None:
    """Return the class names in the attributes of the group that an array of scores is in; None if there are none that fit."""
    store: CheckedStore = array.store_path.store
    folder = array.path.rpartition("/")[0]
    key = "zarr.json" if array.metadata.zarr_format == 3 else ".zattrs"
    document = (store.document(f"{folder}/{key}" if folder else key) if array.path else None) or {}
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
    values = read_stored(array, (slice(0, array.shape[0]),))
    if is_text(array):
        return values.astype(object)
    import xarray as xr

    try:
        variable = xr.Variable(("dim",), values.copy(), dict(array.metadata.attributes))
        return xr.conventions.decode_cf_variable("name", variable).to_numpy()
    except Exception as error:
        raise DtypeError(
            f"array {array.path!r} of {array.store_path.store} cannot be decoded as names ({error}). "
            "Decode it with xarray, and store the values themselves."
        ) from None
