"""Nodes: the arrays of a store's groups, opened through its checks; those of a store of ours as they were sealed."""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.codecs import BloscCodec
from zarr.storage import StorePath

from ...credentials import shown
from ...errors import AvgkError, StoreError, refuse
from ...settings import setting
from ..where.addresses import StoredArray, ZarrArray, is_uneven
from .checked import CheckedStore
from .grids import chunks_of, grid_of, most_bytes, outer_codecs, outer_sizes
from .listing import list_keys
from .manifest import (
    GROUP,
    METADATA_OF,
    STAGED,
    Document,
    Manifest,
    Seal,
    ShardIndex,
    Table,
    chunk_grid,
    table_digest,
    without_notes,
)

#: A chunk may have this many bytes when decoded, or be twice its array; more is taken for damaged metadata.
_CHUNK_BYTES = 1 << 31
_CURE = "Its metadata are damaged: restore them, or write the store again."


def seal_of(store: CheckedStore, path: str) -> Seal | None:
    """Return the seal of the group at a path, or None if it is not one of ours.

    Refuse a damaged seal, and a store whose writer did not finish.
    """
    document, location = _group_document(store, path), store.checks.location
    seal = Seal.read(document.get("attributes"), location)
    if seal is None and any(name.startswith(f"{GROUP}/") for name in consolidated(document)):
        raise StoreError(
            f"{location} holds a manifest, and no longer says what it is of. Restore its zarr.json, or write the store again."
        )
    if seal is not None and not seal.complete:
        how = "continue it with ScoreWriter(..., resume=True), or write it again"
        if seal.noted.get("parts"):
            how = "join its parts with avgk join once all are written"
        elif STAGED in seal.noted:
            how = "let ScoreWriter(..., append=True) finish it: all its rows are there"
        raise StoreError(f"{location} is incomplete: its writer did not finish. Wait for it, or {how}.")
    if seal is not None and not seal.covers("", document):
        raise StoreError(
            f"the metadata of {location} are damaged: its number of classes, or what it is, is not as it was written. {_CURE}"
        )
    return seal


@dataclass(frozen=True)
class CheckedGroup:
    """A group of a store and the checks its arrays are read with; arrays are named by their path inside it."""

    group: zarr.Group
    store: CheckedStore

    def fetch(self, names: Iterable[str]) -> None:
        """Read what some arrays, and the digests of their chunks, will need: all at once, if they are there."""
        keys = []
        for place, base in map(self._place_of, names):
            if self.group.metadata.consolidated_metadata is None:
                keys += [_join(place, f"{base}/{key}") for key in METADATA_OF[self.group.metadata.zarr_format]]
            table = copied_document(self.store, place, f"{GROUP}/{base}")
            if table is not None and isinstance(table.get("shape"), list):
                keys.append(_join(place, "/".join((GROUP, base, "c", *("0" for _ in table["shape"])))))
        self.store.fetch(keys)

    def open(self, name: str) -> ZarrArray:
        """Return an array, its reads checked; one of ours only as it was sealed.

        Raise StoreError if there is no such array, or if its metadata or its manifest are damaged.
        """
        place, base = self._place_of(name)
        seal = seal_of(self.store, place)
        if seal is not None and base in seal.manifest:
            return sealed_array(self.store, place, base, seal)
        with opening(self.store, name):
            node = self.group.get(name)
        if isinstance(node, zarr.Array):
            return with_checks(node, self.store, node.path)
        names, location = self.names(), self.store.checks.location
        near = difflib.get_close_matches(name, names, 1)
        hint = f"Did you mean {near[0]!r}?" if near else "Name the array to use."
        raise StoreError(f"{location} has no array {shown(name)!r}; it has {', '.join(names) or 'no arrays'}. {hint}")

    def has(self, name: str) -> bool:
        """Whether there is a node of a name, or the seal says that there is."""
        place, base = self._place_of(name)
        seal = seal_of(self.store, place)
        if seal is not None and base in seal.manifest:
            return True
        with opening(self.store, name):
            return name in self.group

    def attributes(self, folder: str) -> Document:
        """Return the attributes of the group, or of one inside it, as in its own metadata."""
        document = _group_document(self.store, self._place_of(folder)[0])
        if document:
            return dict(document.get("attributes") or {})
        with opening(self.store, folder):
            return dict((self.group[folder.rstrip("/")] if folder else self.group).attrs)

    def names(self) -> list[str]:
        """Return the paths of all arrays below the group, but for those of manifests."""
        known = self.group.metadata.consolidated_metadata
        if known is not None:
            nodes = [name for name, node in known.flattened_metadata.items() if hasattr(node, "shape")]
        else:
            nodes = self._listed_names()
        return sorted(name for name in nodes if GROUP not in name.split("/")[:-1])

    def _listed_names(self) -> list[str]:
        path = self.group.path
        keys, prefix = list_keys(self.store, path), f"{path}/" if path else ""
        if keys is None:  # a store that cannot list
            return [name for name in ("scores", "class_index", "labels") if self.has(name)]
        found = []
        for key in keys:
            name, _, kind = key.removeprefix(prefix).rpartition("/")
            if not name or kind not in (".zarray", "zarr.json"):
                continue
            document = self.store.document(key) if kind == "zarr.json" else {"node_type": "array"}
            if document is None:  # it was listed
                raise StoreError(
                    f"{key} of {self.store.checks.location} is no plain file. Restore it, or write the store again."
                )
            if document.get("node_type") == "array":
                found.append(name)
        return found

    def _place_of(self, name: str) -> tuple[str, str]:
        """Return the path of the folder that a node lies in, and its name there."""
        folder, _, base = name.rpartition("/")
        return "/".join(part for part in (self.group.path, folder) if part), base


def sealed_array(store: CheckedStore, place: str, name: str, seal: Seal) -> ZarrArray:
    """Return an array that a seal covers, read as its digests say."""
    location, path = store.checks.location, _join(place, name)
    # The copy of its metadata next to the group's own, or its own: consolidating those of a finished store again may spell
    # them in other words, and such a copy is passed over.
    document = next((found for found in _documents(store, place, name) if seal.covers(name, found)), None)
    if document is None:
        raise StoreError(
            f"the metadata of array {name!r} of {location} are damaged: they are not those that were written. "
            "Restore them, or write the store again."
        )
    array = _from_document(store, path, name, document)
    grid = chunk_grid(array)
    if seal.n_chunks and seal.n_chunks.get(name) != math.prod(grid):
        raise StoreError(f"the manifest of {location} is damaged: it is not of all chunks of {name}. {_CURE}")
    table = _load_table(store, place, name, (*grid, 2))
    if table_digest(table) != seal.manifest[name]:
        raise StoreError(f"the manifest of {location} is damaged: {name}. Write the store again.")
    return with_checks(array, store, path, table, seal.metadata.get(name))


def _load_table(store: CheckedStore, place: str, name: str, shape: tuple[int, ...]) -> Table:
    """Read the digests of the chunks of an array."""
    location, inner = store.checks.location, f"{GROUP}/{name}"
    table = _from_document(store, _join(place, inner), inner, next(_documents(store, place, inner)))
    chunks = tuple(max(1, n) for n in shape)
    if table.shape != shape or chunks_of(table) != chunks or table.dtype != "uint64":
        raise StoreError(f"the manifest of {location} is damaged: its table for {name} has another form. {_CURE}")
    try:
        found: Table = np.asarray(table[...])
    except Exception as error:
        why = str(error).partition(". ")[0] if isinstance(error, AvgkError) else store.checks.scrub(error)
        refuse(StoreError(f"the manifest of {location} cannot be read: {why}. Restore it, or write the store again."))
    return found


@contextmanager
def opening(store: CheckedStore, name: str) -> Iterator[None]:
    """Turn what zarr raises on the metadata of an array into one StoreError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of zarr's, about what it finds in metadata
            yield
    except AvgkError:
        raise
    except Exception as error:
        what = f"array {shown(name or '/')!r} of {store.checks.location}"
        refuse(StoreError(f"could not open {what}: {store.checks.scrub(error)}. {_CURE}"))


def with_checks(
    array: StoredArray, store: CheckedStore, path: str, table: Table | None = None, sealed: str | None = None
) -> ZarrArray:
    """Return the array at a path of a store, its reads checked against the digests of its chunks and its shards' indices."""
    with opening(store, path):
        check_form(array, f"array {path or '/'!r} of {store.checks.location}")
        index = ShardIndex.of(array)
        is_blosc = getattr(getattr(array.metadata, "compressor", None), "codec_id", None) == "blosc"
        if array.metadata.zarr_format == 3:
            is_blosc = isinstance(array.metadata.codecs[-1], BloscCodec)
        checks = replace(
            store.checks,
            manifest=None if table is None else Manifest(path, table),
            sealed=sealed,
            index=None if index is None else replace(index, array=path),
            is_blosc=is_blosc,
            codec=next(iter(name for name in outer_codecs(array) if name != "crc32c"), ""),
            most_bytes=most_bytes(array),
        )
        return through(array, store.with_checks(checks), path)


def check_form(array: StoredArray, what: str) -> None:
    """Raise StoreError for an array whose shape, chunks or dtype no store of scores can have."""
    grid = array.metadata.to_dict().get("chunk_grid", {"name": "regular"})
    is_sharded = grid["name"] != "regular" and "sharding_indexed" in outer_codecs(array)
    if grid["name"] != "regular" and (not is_uneven(array) or is_sharded):
        raise StoreError(
            f"{what} must have a regular or rectilinear chunk grid, of shards a regular one; got {grid['name']}. "
            "Write it with equal chunks."
        )
    inner, outer = chunks_of(array), outer_sizes(array)
    if not isinstance(array.metadata.attributes, Mapping):
        raise StoreError(f"{what} must have attributes by name; got {array.metadata.attributes!r}. {_CURE}")
    whole = all(type(n) is int for n in (*array.shape, *inner, *outer))
    if not whole or not array.shape or min(*inner, *outer) < 1 or min(array.shape) < 0:
        raise StoreError(
            f"{what} must have dimensions in whole numbers, and chunks of at least one value; got shape {array.shape} in chunks of {outer}. {_CURE}"
        )
    n_chunks, most = math.prod(axis.count for axis in grid_of(array)), setting("max-chunks")
    if n_chunks > most:
        raise StoreError(
            f"{what} must have at most {most:,} chunks (the setting avgk.max-chunks); got {n_chunks:,} for shape {array.shape}. {_CURE}"
        )
    item = array.dtype.itemsize
    chunk, all_bytes = math.prod(outer) * item, math.prod(array.shape) * item
    if chunk > max(_CHUNK_BYTES, 2 * all_bytes):
        raise StoreError(
            f"{what} must not have chunks larger than itself; got chunks of {chunk:,} bytes for {all_bytes:,}. {_CURE}"
        )


def through(array: StoredArray, store: Store, path: str | None = None) -> ZarrArray:
    """Return an array that is read through a store."""
    place = StorePath(store, array.path if path is None else path)
    return zarr.Array(zarr.AsyncArray(metadata=array.metadata, store_path=place, config={"order": array.order}))


def _from_document(store: CheckedStore, path: str, name: str, document: Document) -> ZarrArray:
    with opening(store, name):
        array = zarr.Array.from_dict(StorePath(store, path), document)
        check_form(array, f"array {name!r} of {store.checks.location}")
        return array


def _documents(store: CheckedStore, place: str, name: str) -> Iterator[Document]:
    """Return the copies of an array's metadata that there are."""
    copy = copied_document(store, place, name)
    if copy is not None:
        yield copy
    own = store.document(f"{_join(place, name)}/zarr.json")
    if own is not None:
        yield own
    elif copy is None:
        raise StoreError(
            f"array {name!r} of {store.checks.location} is missing: it has no metadata. Write the store again."
        )


def copied_document(store: CheckedStore, place: str, name: str) -> Document | None:
    """Return the copy of an array's metadata next to those of its group, or None if there is none."""
    copy = consolidated(_group_document(store, place)).get(name)
    return copy if isinstance(copy, dict) else None


def same_array(store: CheckedStore, path: str, one: Document, other: Document) -> bool:
    """Return whether two spellings of metadata describe the same array, but for a user's own attributes."""
    try:
        first, second = (
            _from_document(store, path, path, without_notes(document)).metadata for document in (one, other)
        )
    except StoreError:
        return False
    return bool(first == second)


def consolidated(document: Document) -> Document:
    """Return the metadata of arrays that those of their group hold copies of, by name."""
    found = document.get("consolidated_metadata")
    found = found.get("metadata") if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _group_document(store: CheckedStore, path: str) -> Document:
    return store.document(_join(path, "zarr.json")) or {}


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
