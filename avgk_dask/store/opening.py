"""Opening stores: a path, a URL, a Zarr group or array becomes score and label arrays."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import zarr
from zarr.abc.store import Store
from zarr.storage import StorePath, ZipStore

from ..errors import ScoresError, StoreError


@dataclass(frozen=True)
class StoredArrays:
    """The arrays of a score store, not read yet."""

    scores: Any
    labels: Any | None
    location: str


def is_zarr(value: Any) -> bool:
    """Whether the value is something zarr has opened, or a store it can open."""
    return isinstance(value, (zarr.Array, zarr.Group, Store, StorePath))


def open_arrays(
    store: Any, *, scores: str | None = None, labels: str | None = None, storage_options: dict[str, Any] | None = None
) -> StoredArrays:
    """Open the scores, and the labels where present, of a store; reads metadata only.

    ``scores`` and ``labels`` name the arrays inside a group (by default ``scores`` and ``labels``).

    Raises
    ------
    StoreError
        Where there is no store, or no array of that name in it.

    """
    node = store if isinstance(store, (zarr.Array, zarr.Group)) else _open_node(store, storage_options)
    location = str(store) if isinstance(store, (str, os.PathLike)) else str(node.store_path)
    if isinstance(node, zarr.Array):
        if scores is not None or labels is not None:
            raise StoreError(f"{location} is a single array, not a group; drop the array names.")
        return StoredArrays(_checked(node, location), None, location)
    if "class_index" in node:
        raise ScoresError(f"{location} is a truncated store (it has class_index); those cannot be evaluated yet.")
    found = _array(node, scores or "scores", location)
    has_labels = labels is not None or "labels" in node
    return StoredArrays(
        _checked(found, location), _array(node, labels or "labels", location) if has_labels else None, location
    )


def open_labels(store: Any) -> Any:
    """Open labels kept on their own: an array, or the array ``labels`` of a group; reads metadata only."""
    node = store if isinstance(store, (zarr.Array, zarr.Group)) else _open_node(store, None)
    return node if isinstance(node, zarr.Array) else _array(node, "labels", str(node.store_path))


def _open_node(store: Any, storage_options: dict[str, Any] | None) -> Any:
    if isinstance(store, os.PathLike):
        store = os.fspath(store)
    if isinstance(store, str) and "://" not in store and not os.path.exists(store):
        raise StoreError(f"store must exist; got {store!r}, and nothing is there. Check the path.")
    if isinstance(store, str) and store.endswith((".npy", ".npz")):
        raise StoreError(
            f"store must be a Zarr store; got {store!r}. Load it with numpy.load, and pass or store the array."
        )
    try:
        if isinstance(store, str) and store.endswith(".zip") and "://" not in store:
            store = ZipStore(store, mode="r")
        return zarr.open(store, mode="r", storage_options=storage_options)
    except (FileNotFoundError, KeyError, ValueError, TypeError, OSError, ImportError) as error:
        raise StoreError(
            f"store must be a Zarr array or group; could not open {store!s} ({_first_line(error)}). "
            "Check the path, or write a store first (avgk simulate, or zarr.save)."
        ) from error


def _array(group: Any, name: str, location: str) -> Any:
    try:
        node = group.get(name)
    except ValueError as error:
        raise StoreError(
            f"could not open array {name!r} of {location}: {_first_line(error)}. Its metadata are damaged."
        ) from error
    if isinstance(node, zarr.Array):
        return node
    names = sorted(key for key, _ in group.arrays())
    raise StoreError(
        f"{location} has no array {name!r}; it has {', '.join(names) or 'no arrays'}. Name the array to use."
    )


def _checked(array: Any, location: str) -> Any:
    names = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS")
    if names and tuple(names) == ("class", "sample"):
        raise ScoresError(f"scores must be (sample, class); {location} holds (class, sample). Transpose it first.")
    return array


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
