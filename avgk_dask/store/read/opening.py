"""Opening: a path, a URL, a Zarr group or array becomes score and label arrays, whose reads are checked.

Coordinates are the arrays that name the samples or classes of another array in their group, as xarray stores them.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import uuid
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import google_crc32c
import numpy as np
import zarr
from numcodecs import Blosc, VLenUTF8, Zstd
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
    secrets_of,
    shown,
    wait,
)
from ..where.locations import FileStore, inner_root, locate
from .bands import read_stored
from .checked import CheckedStore, Checks
from .grids import chunks_of, decoded_size, outer_codecs
from .listing import chunk_key
from .manifest import ATTRIBUTE, table_digest
from .nodes import CheckedGroup, consolidated, opening, seal_of, sealed_array, through, with_checks

#: A store that has not answered its first request by then is given up.
_OPEN_SECONDS = 20
_WRITE_FIRST = "Check the path, or write a store first (avgk simulate, avgk ingest or ScoreWriter)."


@dataclass(frozen=True)
class StoredArrays:
    """The arrays of a score store, not read yet; or others in their stead, in memory or in blocks."""

    scores: Any
    labels: Any
    location: str
    #: Of a truncated store: the class of each score kept, and the number of classes there were.
    class_index: Any = None
    n_classes: int | None = None
    #: The names of the classes, where they are stored.
    class_names: list[str] | None = None

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the manifest of the scores: of what is stored; empty if there is none."""
        checks = getattr(self.scores.store, "checks", None)
        return "" if checks is None or checks.manifest is None else table_digest(checks.manifest.table)


def is_sealed(array: object) -> bool:
    """Return whether an array is one of a store of ours, whose metadata and chunks are checked against its seal."""
    checks = getattr(getattr(array, "store", None), "checks", None)
    return checks is not None and checks.sealed is not None


def array_token(array: StoredArray) -> str:
    """Return a name of an array that is the same only where its values are the same.

    Of a sealed one it is a hash of all that its seal covers; what is not sealed may change at any moment, so that each
    opened array has a name of its own.
    """
    checks = getattr(getattr(array, "store", None), "checks", None)
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
    """Open the scores, and the labels where present, of a store; reads metadata only.

    ``scores`` and ``labels`` name the arrays inside a group (by default ``scores`` and ``labels``;
    labels are looked for next to the scores). ``missing`` is what a chunk that is not there means:
    ``"raise"`` an error (the default), ``"fill"`` the array's fill value. Without ``own_labels``
    labels that are not named are not looked for. A file of scores, such as .npy, is opened as a store of its rows.

    Raise StoreError if there is no store, no array of that name in it, or its writer did not finish.
    """
    file = FileStore.at(store, scores, labels, own_labels)
    if file is not None:
        store, scores, labels = file, None, None
    node, root = open_node(store, storage_options, missing)
    location = root.checks.location
    if isinstance(node, zarr.Array):
        if scores is not None or labels is not None:
            raise StoreError(f"store must be a group to hold named arrays; got the array {location}. Drop the names.")
        return StoredArrays(_by_sample(node, location), None, location, class_names=class_names_of_group(node))
    folder = f"{(scores or '').rpartition('/')[0]}/".removeprefix("/")
    group = CheckedGroup(node, root)
    group.fetch((scores or "scores", labels or f"{folder}labels", f"{folder}class_index"))
    found = group.open(scores or "scores")
    has_labels = labels is not None or (own_labels and group.has(f"{folder}labels"))
    mine = group.open(labels or f"{folder}labels") if has_labels else None
    if not group.has(f"{folder}class_index"):
        names = fitting_names(group.attributes(folder).get("class_names"), found.shape[-1])
        return StoredArrays(_by_sample(found, location), mine, location, class_names=names)
    index = group.open(f"{folder}class_index")
    attributes = group.attributes(folder)
    n_classes = attributes.get("n_classes")
    is_slots = index.shape == found.shape and found.ndim == 2
    if not is_slots or not isinstance(n_classes, int) or isinstance(n_classes, bool) or n_classes < found.shape[1]:
        raise ScoresError(
            "a truncated store must have class_index of the scores' shape and an attribute n_classes of at least its "
            f"slots; got {location}, where this is not so. Write it with ScoreWriter(..., top_m=...)."
        )
    names = fitting_names(attributes.get("class_names"), n_classes)
    return StoredArrays(found, mine, location, index, n_classes, names)


def open_all(store: object, *, storage_options: Options | None = None, missing: str | None = None) -> list[ZarrArray]:
    """Open every array of a store, those of its inner groups included, or the array it is."""
    node, root = open_node(store, storage_options, missing)
    if isinstance(node, zarr.Array):
        return [node]
    group = CheckedGroup(node, root)
    names = group.names()
    if not names:
        raise StoreError(f"{root.checks.location} holds no arrays. Check the path.")
    return [group.open(name) for name in names]


def open_labels(store: object, storage_options: Options | None = None, missing: str | None = None) -> ZarrArray:
    """Open labels stored on their own: an array, or the array ``labels`` of a group; reads metadata only."""
    node, root = open_node(store, storage_options, missing)
    return node if isinstance(node, zarr.Array) else CheckedGroup(node, root).open("labels")


def open_node(
    store: object, storage_options: Options | None = None, missing: str | None = None
) -> tuple[ZarrArray | zarr.Group, CheckedStore]:
    """Open a Zarr group or array; return it with the checked store its arrays are read through."""
    if missing not in (None, "raise", "fill"):
        raise OptionError(f"missing must be 'raise' or 'fill'; got {missing!r}. Leave it out to refuse missing chunks.")
    if isinstance(store, zarr.Array) and isinstance(store.store_path.store, CheckedStore):
        before = store.store_path.store.checks
        checked = store.store_path.store.with_checks(replace(before, missing=missing or before.missing))
        return through(store, checked), checked
    bare, path, location = _find(store, storage_options)
    checked = CheckedStore(bare, Checks(location, missing or "raise", secrets=secrets_of(bare, store, storage_options)))
    # A group opened without consolidated metadata stays so.
    given = isinstance(store, zarr.Group) and store.metadata.consolidated_metadata is None
    node = _open(checked, path, use_consolidated=False if given else None)
    if isinstance(node, zarr.Group):
        seal_of(checked, path)
        return node, checked
    here = bare_store(bare)
    address = str(here.root) if isinstance(here, LocalStore) else store
    if not path and isinstance(address, (str, os.PathLike)):
        checked, path = _outer_store(os.fspath(address), storage_options, checked)
    place, _, name = path.rpartition("/")
    seal = seal_of(checked, place) if path else None
    if seal is not None and name in seal.manifest:
        return sealed_array(checked, place, name, seal), checked
    return with_checks(node, checked, path), checked


def _outer_store(path: str, options: Options | None, checked: CheckedStore) -> tuple[CheckedStore, str]:
    """Return the store of ours that the array at a path lies in, and its path there; the given store, if it lies in none."""
    outer, _, name = (path.rstrip("/") if "://" in path else os.path.abspath(path)).rpartition("/")
    try:
        outside = CheckedStore(locate(outer, options), checked.checks)
    except StoreError:  # nothing is there
        return checked, ""
    try:
        document = outside.document("zarr.json") or {}
    except ReadError:
        if isinstance(bare_store(outside), LocalStore):
            raise
        return checked, ""  # that much of an object store may not be for us to read
    return (outside, name) if ATTRIBUTE in (document.get("attributes") or {}) else (checked, "")


def _find(store: object, storage_options: Options | None) -> tuple[Store, str, str]:
    """Return the store, the path in it and its name of whatever a user may pass."""
    if isinstance(store, (zarr.Array, zarr.Group)):
        store = store.store_path
    if isinstance(store, StorePath):
        return store.store, store.path, shown(store)
    if isinstance(store, Store):
        return store, "", shown(store)
    found = locate(store, storage_options)
    return found, inner_root(found), shown(store)


def _open(store: CheckedStore, path: str, use_consolidated: bool | None = None) -> ZarrArray | zarr.Group:
    location = store.checks.location
    try:
        version = wait(_probe(store, path))
        if use_consolidated is False:
            return zarr.open_group(store, path=path, mode="r", zarr_format=version, use_consolidated=False)
        return zarr.open(store, path=path, mode="r", zarr_format=version)
    except TimeoutError:
        why = f"no answer within {_OPEN_SECONDS} s. Check the endpoint and the network."
        refuse(StoreError(f"could not open {location}: {why}"))
    except AvgkError as error:
        why = str(error).partition(": ")[2].rstrip(".") or str(error)
        todo = advice(why, _WRITE_FIRST)
        refuse(StoreError(f"could not open {location}: {why.removesuffix(todo.rstrip('.')).rstrip('. ')}. {todo}"))
    except Exception as error:
        why = store.checks.scrub(error)
        todo = advice(why, _WRITE_FIRST)
        refuse(StoreError(f"store must be a Zarr array or group; could not open {location} ({why}). {todo}"))


async def _probe(store: CheckedStore, path: str) -> Literal[2, 3]:
    """Return the version of the root's metadata, asked for one after the other: a store out of reach fails with one error."""
    prefix = f"{path}/" if path else ""
    async with asyncio.timeout(_OPEN_SECONDS):
        for name in ("zarr.json", ".zgroup", ".zarray"):
            if await get(store, prefix + name) is not None:
                return 3 if name == "zarr.json" else 2
        await _ask_for_bucket(bare_store(store))
    raise StoreError("no zarr.json, .zgroup or .zarray is there")


async def _ask_for_bucket(store: Store) -> None:
    """Let a client that takes an absent bucket for an absent key say that there is no bucket."""
    if isinstance(store, ObjectStore) and type(store.store).__name__ != "HTTPStore":
        async for _ in store.list_dir(""):
            return
    if isinstance(store, FsspecStore) and "s3" in str(store.fs.protocol):
        await list_bucket(store)


def _by_sample(array: StoredArray, location: str) -> StoredArray:
    """Refuse scores whose classes are not their last dimension, or whose dimensions are those of a truncated store."""
    names = tuple(getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS") or ())
    if "class" in names[:-1]:
        dimensions = ", ".join(map(str, names))
        raise ScoresError(f"scores must be (sample, class); {location} holds ({dimensions}). Transpose it first.")
    if names == ("sample", "slot"):
        raise ScoresError(
            f"scores must be (sample, class); {location} holds the slots of a truncated store. Open the whole store, "
            "with its class_index."
        )
    return array


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

    Raise ReadError if a chunk is missing or damaged, DtypeError if they cannot be decoded.
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
