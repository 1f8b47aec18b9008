"""Opening: a path, a URL, a Zarr group or array becomes score and label arrays whose reads are checked, with their names.

Names are those of the dimensions, the class names in the attributes of a group, and coordinates, the arrays that name the
samples or classes of another. As in xarray, a coordinate is a one-dimensional array in the same group with the name of the
dimension.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import uuid
import zlib
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import zarr
from numcodecs import VLenUTF8
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, ObjectStore, StorePath

from ...arrays import Array
from ...errors import AvgkError, DtypeError, OptionError, ReadError, ScoresError, StoreError, refuse
from ..where.addresses import (
    Options,
    StoredArray,
    ZarrArray,
    advice,
    bare_store,
    get,
    is_uneven,
    list_bucket,
    redact,
    secrets_of,
    wait,
)
from ..where.locations import FileStore, inner_root, locate
from .bands import read_stored
from .checked import CheckedStore, Checks
from .direct import DECODABLE, decode_bytes
from .grids import chunks_of, outer_codecs
from .listing import chunk_key
from .manifest import ATTRIBUTE, is_count, table_digest
from .nodes import CheckedGroup, consolidated_metadata, metadata_errors, open_sealed, seal_of, with_checks, with_store

#: Seconds in which a store must answer the first requests.
_OPEN_SECONDS = 20
_WRITE_FIRST = "Check the path, or write a store first (avgk simulate, avgk ingest or ScoreWriter)."


@dataclass(frozen=True)
class StoredArrays:
    """The arrays of a score store, not read yet, or arrays in memory or in blocks that replace them."""

    scores: Any
    labels: Any
    location: str
    #: For a truncated store, the class of each stored score and the number of classes.
    class_index: Any = None
    n_classes: int | None = None
    class_names: list[str] | None = None

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the manifest of the scores, or an empty text if they have none."""
        manifest = getattr(_checks_of(self.scores), "manifest", None)
        return "" if manifest is None else table_digest(manifest.table)


def _checks_of(array: object) -> Checks | None:
    return getattr(getattr(array, "store", None), "checks", None)


def is_sealed(array: object) -> bool:
    """Return whether an array's metadata and chunks are checked against a seal."""
    return getattr(_checks_of(array), "sealed", None) is not None


def array_token(array: StoredArray) -> str:
    """Return a name that two arrays share only if their values are equal.

    It is a hash of everything that the seal covers. An array without a seal may change, so each time it is opened it gets a
    new name.
    """
    checks = _checks_of(array)
    if checks is None or checks.sealed is None or checks.manifest is None:
        return uuid.uuid4().hex[:24]
    content = "\n".join(
        (checks.location, checks.missing, array.path, checks.sealed, table_digest(checks.manifest.table))
    )
    return hashlib.sha256(content.encode()).hexdigest()[:24]


def is_zarr(value: object) -> bool:
    """Whether the value is something zarr has opened, or a store it can open."""
    return isinstance(value, (zarr.Array, zarr.Group, Store, StorePath))


def open_arrays(
    store: object,
    *,
    scores: str | None = None,
    labels: str | None = None,
    storage_options: Options | None = None,
    missing: str | None = None,
    own_labels: bool = True,
) -> StoredArrays:
    """Open the scores and labels of a store, or of a file such as .npy; reads metadata only.

    ``scores`` and ``labels`` name the arrays inside a group (by default ``scores``, and ``labels`` next to them if they
    exist). ``missing`` says how a missing chunk is treated: ``"raise"`` an error (the default), or ``"fill"`` it with the
    array's fill value. Without ``own_labels``, only named labels are opened.

    Raise StoreError if there is no store, no array of that name in it, or its writer did not finish.
    """
    file = FileStore.from_path(store, scores, labels, own_labels)
    if file is not None:
        store, scores, labels = file, None, None
    node, root = open_node(store, storage_options, missing)
    location = root.checks.location
    if isinstance(node, zarr.Array):
        if scores is not None or labels is not None:
            raise StoreError(f"{location} is a single array, not a group with named arrays. Drop the names.")
        return StoredArrays(_check_axes(node, location), None, location, class_names=_class_names_of_group(node))
    folder = f"{(scores or '').rpartition('/')[0]}/".removeprefix("/")
    group = CheckedGroup(node, root)
    group.fetch((scores or "scores", labels or f"{folder}labels", f"{folder}class_index"))
    score_array = group.open(scores or "scores")
    has_labels = labels is not None or (own_labels and group.has(f"{folder}labels"))
    label_array = group.open(labels or f"{folder}labels") if has_labels else None
    attributes = group.attributes(folder)
    if not group.has(f"{folder}class_index"):
        names = _fitting_names(attributes.get("class_names"), score_array.shape[-1])
        return StoredArrays(_check_axes(score_array, location), label_array, location, class_names=names)
    index = group.open(f"{folder}class_index")
    n_classes: Any = attributes.get("n_classes")
    fits = index.shape == score_array.shape and score_array.ndim == 2
    if not fits or not is_count(n_classes) or n_classes < score_array.shape[1]:
        raise ScoresError(
            "a truncated store must have an array class_index of the scores' shape, and an attribute n_classes not "
            f"below the number of slots; {location} does not. Write it with ScoreWriter(..., top_m=...)."
        )
    names = _fitting_names(attributes.get("class_names"), n_classes)
    return StoredArrays(score_array, label_array, location, index, n_classes, names)


def open_all(store: object, *, storage_options: Options | None = None, missing: str | None = None) -> list[ZarrArray]:
    """Open every array of a store, including arrays in inner groups. If the store is a single array, open it."""
    node, root = open_node(store, storage_options, missing)
    if isinstance(node, zarr.Array):
        return [node]
    group = CheckedGroup(node, root)
    names = group.names()
    if not names:
        raise StoreError(f"{root.checks.location} has no arrays. Check the path.")
    return [group.open(name) for name in names]


def open_labels(store: object, storage_options: Options | None = None, missing: str | None = None) -> ZarrArray:
    """Open labels stored alone: an array, or the array ``labels`` of a group; reads metadata only."""
    node, root = open_node(store, storage_options, missing)
    return node if isinstance(node, zarr.Array) else CheckedGroup(node, root).open("labels")


def open_node(
    store: object, storage_options: Options | None = None, missing: str | None = None
) -> tuple[ZarrArray | zarr.Group, CheckedStore]:
    """Open a Zarr group or array; return it with the checked store that reads its arrays."""
    if missing not in (None, "raise", "fill"):
        raise OptionError(f"missing must be 'raise' or 'fill'; got {missing!r}. Leave it out to refuse missing chunks.")
    if isinstance(store, zarr.Array) and isinstance(store.store_path.store, CheckedStore):
        checks = store.store_path.store.checks
        checked = store.store_path.store.with_checks(replace(checks, missing=missing or checks.missing))
        return with_store(store, checked), checked
    place = store.store_path if isinstance(store, (zarr.Array, zarr.Group)) else store
    if isinstance(place, StorePath):
        source, path = place.store, place.path
    elif isinstance(place, Store):
        source, path = place, ""
    else:
        source = locate(place, storage_options)
        path = inner_root(source)
    secrets = secrets_of(source, store, storage_options)
    checked = CheckedStore(source, Checks(redact(place), missing or "raise", secrets=secrets))
    # A group that was opened without its consolidated metadata is opened without them again.
    ignores_copies = isinstance(store, zarr.Group) and store.metadata.consolidated_metadata is None
    node = _open(checked, path, use_consolidated=False if ignores_copies else None)
    if isinstance(node, zarr.Group):
        seal_of(checked, path)
        return node, checked
    inner = bare_store(source)
    address = str(inner.root) if isinstance(inner, LocalStore) else store
    if not path and isinstance(address, (str, os.PathLike)):
        checked, path = _outer_store(os.fspath(address), storage_options, checked)
    folder, _, name = path.rpartition("/")
    seal = seal_of(checked, folder) if path else None
    if seal is not None and name in seal.manifest:
        return open_sealed(checked, folder, name, seal), checked
    return with_checks(node, checked, path), checked


def _outer_store(path: str, options: Options | None, checked: CheckedStore) -> tuple[CheckedStore, str]:
    """Return the sealed store that holds the array at a path, and the array's path in it; else the checked store of the array."""
    outer, _, name = (path.rstrip("/") if "://" in path else os.path.abspath(path)).rpartition("/")
    try:
        outside = CheckedStore(locate(outer, options), checked.checks)
    except StoreError:  # there is no such store
        return checked, ""
    try:
        document = outside.document("zarr.json") or {}
    except ReadError:
        if isinstance(bare_store(outside), LocalStore):
            raise
        return checked, ""  # access to the folder above may be denied
    return (outside, name) if ATTRIBUTE in (document.get("attributes") or {}) else (checked, "")


def _open(store: CheckedStore, path: str, use_consolidated: bool | None = None) -> ZarrArray | zarr.Group:
    location = store.checks.location
    try:
        version = wait(_probe(store, path))
        if use_consolidated is False:
            return zarr.open_group(store, path=path, mode="r", zarr_format=version, use_consolidated=False)
        return zarr.open(store, path=path, mode="r", zarr_format=version)
    except TimeoutError:
        why = f"no answer within {_OPEN_SECONDS} s"
        refuse(StoreError(f"could not open {location}: {why}. Check the endpoint and the network."))
    except AvgkError as error:
        why = str(error).partition(": ")[2].rstrip(".") or str(error)
        todo = advice(why, _WRITE_FIRST)
        refuse(StoreError(f"could not open {location}: {why.removesuffix(todo.rstrip('.')).rstrip('. ')}. {todo}"))
    except Exception as error:
        why = store.checks.scrub(error)
        todo = advice(why, _WRITE_FIRST)
        refuse(StoreError(f"store must be a Zarr array or group; could not open {location} ({why}). {todo}"))


async def _probe(store: CheckedStore, path: str) -> Literal[2, 3]:
    """Return the Zarr version of the root, by sequential requests: a store out of reach fails with one error."""
    prefix = f"{path}/" if path else ""
    async with asyncio.timeout(_OPEN_SECONDS):
        for name in ("zarr.json", ".zgroup", ".zarray"):
            if await get(store, prefix + name) is not None:
                return 3 if name == "zarr.json" else 2
        # Clients may report an absent bucket as an absent key. Listing it fails if it is absent.
        inner = bare_store(store)
        if isinstance(inner, ObjectStore) and type(inner.store).__name__ != "HTTPStore":
            await anext(inner.list_dir(""), None)
        elif isinstance(inner, FsspecStore) and "s3" in str(inner.fs.protocol):
            await list_bucket(inner)
    raise StoreError("it has no zarr.json, .zgroup or .zarray")


def _check_axes(array: StoredArray, location: str) -> StoredArray:
    """Return scores; raise ScoresError if classes are not their last dimension, or they are the slots of a truncated store."""
    names = dimensions_of(array)
    if "class" in names[:-1]:
        dimensions = ", ".join(map(str, names))
        raise ScoresError(
            f"scores must have the dimensions (sample, class); {location} has ({dimensions}). Transpose it first."
        )
    if names == ("sample", "slot"):
        raise ScoresError(
            f"scores must have the dimensions (sample, class); {location} holds the slots of a truncated store. Open "
            "the whole store, with its class_index."
        )
    return array


def _class_names_of_group(array: StoredArray) -> list[str] | None:
    """Return the class names in the attributes of the scores' group, or None unless there is one name per class."""
    store: CheckedStore = array.store_path.store
    folder = array.path.rpartition("/")[0]
    key = "zarr.json" if array.metadata.zarr_format == 3 else ".zattrs"
    try:
        document = (store.document(f"{folder}/{key}" if folder else key) if array.path else None) or {}
    except ReadError:
        return None
    attributes = (document.get("attributes") if key == "zarr.json" else document) or {}
    return _fitting_names(attributes.get("class_names"), array.shape[-1])


def _fitting_names(names: object, n_classes: int) -> list[str] | None:
    """Return ``names`` if it is a list with one text per class, otherwise None."""
    fits = isinstance(names, list) and len(names) == n_classes and all(isinstance(name, str) for name in names)
    return names if fits else None  # type: ignore[return-value]


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
            f"array {array.path!r} of {location} must hold text in chunks of equal size, in an encoding of xarray; "
            f"got the codecs {', '.join(codecs)}. Store class numbers, or fixed-length text."
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
