"""Arrays and groups of a store, opened with checked reads. Arrays that this package wrote must match their seal."""

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
from zarr.storage import StorePath

from ...credentials import redact
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

#: Metadata are considered damaged if a decoded chunk exceeds both this number of bytes and twice the size of its array.
_CHUNK_BYTES = 1 << 31
_HINT = "Its metadata are damaged: restore them, or write the store again."


def seal_of(store: CheckedStore, path: str) -> Seal | None:
    """Return the seal of the group at a path, or None if the group was not written by this package.

    Raise StoreError if the seal is damaged or the writer did not finish.
    """
    document, location = _group_document(store, path), store.checks.location
    seal = Seal.read(document.get("attributes"), location)
    if seal is None:
        if any(name.startswith(f"{GROUP}/") for name in consolidated_metadata(document)):
            raise StoreError(f"{location} has a manifest but no seal. Restore its zarr.json, or write the store again.")
        return None
    if not seal.complete:
        how = "continue it with ScoreWriter(..., resume=True), or write it again"
        if seal.noted.get("parts"):
            how = "join its parts with avgk join once all are written"
        elif STAGED in seal.noted:
            how = "finish it with ScoreWriter(..., append=True): its rows are all written"
        raise StoreError(f"{location} is incomplete: its writer did not finish. Wait for the writer, or {how}.")
    if not seal.covers("", document):
        raise StoreError(
            f"the metadata of {location} are damaged: its number of classes or its kind was changed. {_HINT}"
        )
    return seal


@dataclass(frozen=True)
class CheckedGroup:
    """A group in a checked store. Names of arrays are paths inside the group."""

    group: zarr.Group
    store: CheckedStore

    def fetch(self, names: Iterable[str]) -> None:
        """Read the metadata and the first digests of some arrays, if they exist, with concurrent requests."""
        keys = []
        for folder, base in map(self._split, names):
            if self.group.metadata.consolidated_metadata is None:
                keys += [_join(folder, f"{base}/{key}") for key in METADATA_OF[self.group.metadata.zarr_format]]
            table = consolidated_document(self.store, folder, f"{GROUP}/{base}")
            if table is not None and isinstance(table.get("shape"), list):
                keys.append(_join(folder, "/".join((GROUP, base, "c", *("0" for _ in table["shape"])))))
        self.store.fetch(keys)

    def open(self, name: str) -> ZarrArray:
        """Return an array with checked reads; raise StoreError if it does not exist, or its metadata or manifest are damaged."""
        folder, base = self._split(name)
        seal = seal_of(self.store, folder)
        if seal is not None and base in seal.manifest:
            return open_sealed(self.store, folder, base, seal)
        with metadata_errors(self.store, name):
            node = self.group.get(name)
        if isinstance(node, zarr.Array):
            return with_checks(node, self.store, node.path)
        names, location = self.names(), self.store.checks.location
        near = difflib.get_close_matches(name, names, 1)
        hint = f"Did you mean {near[0]!r}?" if near else "Name the array to use."
        raise StoreError(f"{location} has no array {redact(name)!r}; it has {', '.join(names) or 'no arrays'}. {hint}")

    def has(self, name: str) -> bool:
        """Whether a node of this name exists, or the seal lists it."""
        folder, base = self._split(name)
        seal = seal_of(self.store, folder)
        if seal is not None and base in seal.manifest:
            return True
        with metadata_errors(self.store, name):
            return name in self.group

    def attributes(self, folder: str) -> Document:
        """Return the attributes of the group, or of a group inside it."""
        document = _group_document(self.store, self._split(folder)[0])
        if document:
            return dict(document.get("attributes") or {})
        with metadata_errors(self.store, folder):
            return dict((self.group[folder.rstrip("/")] if folder else self.group).attrs)

    def names(self) -> list[str]:
        """Return the paths of all arrays below the group, without manifests."""
        consolidated = self.group.metadata.consolidated_metadata
        if consolidated is None:
            arrays = self._list_arrays()
        else:
            arrays = [name for name, node in consolidated.flattened_metadata.items() if hasattr(node, "shape")]
        return sorted(name for name in arrays if GROUP not in name.split("/")[:-1])

    def _list_arrays(self) -> list[str]:
        path = self.group.path
        keys, prefix = list_keys(self.store, path), f"{path}/" if path else ""
        if keys is None:  # the store cannot be listed
            return [name for name in ("scores", "class_index", "labels") if self.has(name)]
        arrays = []
        for key in keys:
            name, _, kind = key.removeprefix(prefix).rpartition("/")
            if not name or kind not in (".zarray", "zarr.json"):
                continue
            document = self.store.document(key) if kind == "zarr.json" else {"node_type": "array"}
            if document is None:  # listed, but not readable
                raise StoreError(
                    f"{key} of {self.store.checks.location} is not a regular file. Restore it, or write the store again."
                )
            if document.get("node_type") == "array":
                arrays.append(name)
        return arrays

    def _split(self, name: str) -> tuple[str, str]:
        """Return the path of the folder that contains a node, from the root of the store, and the node's name in it."""
        folder, _, base = name.rpartition("/")
        return "/".join(part for part in (self.group.path, folder) if part), base


def open_sealed(store: CheckedStore, folder: str, name: str, seal: Seal) -> ZarrArray:
    """Open an array that a seal covers; its reads are checked against the digests in the manifest."""
    location, path = store.checks.location, _join(folder, name)
    # The consolidated copy of the metadata may be formatted differently if a finished store was consolidated again. Then
    # the original is used.
    copies = _metadata_copies(store, folder, name)
    document = next((copy for copy in copies if seal.covers(name, copy)), None)
    if document is None:
        raise StoreError(
            f"the metadata of array {name!r} of {location} are damaged: they changed after they were written. Restore "
            "them, or write the store again."
        )
    array = _from_document(store, path, name, document)
    grid = chunk_grid(array)
    if seal.n_chunks and seal.n_chunks.get(name) != math.prod(grid):
        raise StoreError(f"the manifest of {location} is damaged: it lists a wrong number of chunks of {name}. {_HINT}")
    table = _load_table(store, folder, name, (*grid, 2))
    if table_digest(table) != seal.manifest[name]:
        raise StoreError(
            f"the manifest of {location} is damaged: its table for {name} was changed. Write the store again."
        )
    return with_checks(array, store, path, table, seal.metadata.get(name))


def _load_table(store: CheckedStore, folder: str, name: str, shape: tuple[int, ...]) -> Table:
    """Read the digests of the chunks of an array."""
    location, inner = store.checks.location, f"{GROUP}/{name}"
    stored = _from_document(store, _join(folder, inner), inner, next(_metadata_copies(store, folder, inner)))
    chunks = tuple(max(1, n) for n in shape)
    if stored.shape != shape or chunks_of(stored) != chunks or stored.dtype != "uint64":
        raise StoreError(
            f"the manifest of {location} is damaged: its table for {name} has a wrong shape or dtype. {_HINT}"
        )
    try:
        table: Table = np.asarray(stored[...])
    except Exception as error:
        why = str(error).partition(". ")[0] if isinstance(error, AvgkError) else store.checks.scrub(error)
        refuse(StoreError(f"the manifest of {location} cannot be read: {why}. Restore it, or write the store again."))
    return table


@contextmanager
def metadata_errors(store: CheckedStore, name: str) -> Iterator[None]:
    """Turn errors of zarr about the metadata of an array into StoreError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zarr's warnings about metadata
            yield
    except AvgkError:
        raise
    except Exception as error:
        array = f"array {redact(name or '/')!r} of {store.checks.location}"
        refuse(StoreError(f"could not open {array}: {store.checks.scrub(error)}. {_HINT}"))


def with_checks(
    array: StoredArray, store: CheckedStore, path: str, table: Table | None = None, sealed: str | None = None
) -> ZarrArray:
    """Return an array with reads that are checked against digests and shard indices."""
    with metadata_errors(store, path):
        check_form(array, f"array {path or '/'!r} of {store.checks.location}")
        index = ShardIndex.from_array(array)
        codecs = outer_codecs(array)
        checks = replace(
            store.checks,
            manifest=None if table is None else Manifest(path, table),
            sealed=sealed,
            index=None if index is None else replace(index, array=path),
            is_blosc=codecs[:1] == ["blosc"],
            codec=next((name for name in codecs if name != "crc32c"), ""),
            most_bytes=most_bytes(array),
        )
        return with_store(array, store.with_checks(checks), path)


def check_form(array: StoredArray, name: str) -> None:
    """Raise StoreError if the shape, chunks or dtype of an array are impossible in a store of scores."""
    grid = array.metadata.to_dict().get("chunk_grid", {"name": "regular"})
    is_sharded = grid["name"] != "regular" and "sharding_indexed" in outer_codecs(array)
    if grid["name"] != "regular" and (not is_uneven(array) or is_sharded):
        raise StoreError(f"{name} has an unsupported chunk grid: {grid['name']}. Write it with equal chunks.")
    inner, outer = chunks_of(array), outer_sizes(array)
    if not isinstance(array.metadata.attributes, Mapping):
        raise StoreError(f"{name} has attributes that are not a mapping: {array.metadata.attributes!r}. {_HINT}")
    are_integers = all(type(n) is int for n in (*array.shape, *inner, *outer))
    if not are_integers or not array.shape or min(*inner, *outer) < 1 or min(array.shape) < 0:
        raise StoreError(f"{name} has an impossible shape: {array.shape} in chunks of {outer}. {_HINT}")
    n_chunks, most = math.prod(axis.count for axis in grid_of(array)), setting("max-chunks")
    if n_chunks > most:
        raise StoreError(
            f"{name} of shape {array.shape} has {n_chunks:,} chunks, and the setting avgk.max-chunks allows {most:,}. {_HINT}"
        )
    item = array.dtype.itemsize
    chunk, all_bytes = math.prod(outer) * item, math.prod(array.shape) * item
    if chunk > max(_CHUNK_BYTES, 2 * all_bytes):
        raise StoreError(f"{name} has {all_bytes:,} bytes in all, but chunks of {chunk:,} bytes. {_HINT}")


def with_store(array: StoredArray, store: Store, path: str | None = None) -> ZarrArray:
    """Return an array that is read through another store."""
    place = StorePath(store, array.path if path is None else path)
    return zarr.Array(zarr.AsyncArray(metadata=array.metadata, store_path=place, config={"order": array.order}))


def _from_document(store: CheckedStore, path: str, name: str, document: Document) -> ZarrArray:
    with metadata_errors(store, name):
        array = zarr.Array.from_dict(StorePath(store, path), document)
        check_form(array, f"array {name!r} of {store.checks.location}")
        return array


def _metadata_copies(store: CheckedStore, folder: str, name: str) -> Iterator[Document]:
    """Return the metadata of an array: first the consolidated copy, then the original."""
    copy = consolidated_document(store, folder, name)
    if copy is not None:
        yield copy
    own = store.document(f"{_join(folder, name)}/zarr.json")
    if own is not None:
        yield own
    elif copy is None:
        raise StoreError(
            f"array {name!r} of {store.checks.location} is missing: it has no metadata. Write the store again."
        )


def consolidated_document(store: CheckedStore, folder: str, name: str) -> Document | None:
    """Return the consolidated copy of an array's metadata, or None."""
    copy = consolidated_metadata(_group_document(store, folder)).get(name)
    return copy if isinstance(copy, dict) else None


def same_array(store: CheckedStore, path: str, *documents: Document) -> bool:
    """Return whether two metadata documents describe the same array, apart from attributes that do not affect values."""
    try:
        one, other = (_from_document(store, path, path, without_notes(document)) for document in documents)
    except StoreError:
        return False
    return bool(one.metadata == other.metadata)


def consolidated_metadata(document: Document) -> Document:
    """Return the consolidated metadata in a group's document, by name of the node."""
    consolidated = document.get("consolidated_metadata")
    copies = consolidated.get("metadata") if isinstance(consolidated, dict) else None
    return copies if isinstance(copies, dict) else {}


def _group_document(store: CheckedStore, path: str) -> Document:
    return store.document(_join(path, "zarr.json")) or {}


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
