"""The roots of stores to be written: what is there already, whether it may be written, and the roots of parts."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
import zarr
from numpy.typing import DTypeLike
from zarr.abc.buffer import Buffer
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore

from ...arrays import Array, whole_number
from ...errors import OptionError, StoreError, refuse
from ...kernels.keys import BFLOAT16
from ..read.checked import Wrapping, bare_store
from ..read.grids import LABEL_ROWS, Layout, codecs, grid_of
from ..read.listing import chunk_key, listed_keys
from ..read.manifest import (
    ATTRIBUTE,
    FORMAT,
    GROUP,
    Digest,
    Document,
    Seal,
    Table,
    chunk_grid,
    digest_of,
    empty_table,
    form_digest,
    indices_within,
    metadata_digest,
    parse_document,
    table_digest,
)
from ..where.addresses import (
    Options,
    Path,
    StoredArray,
    Writable,
    WritableArray,
    ZarrArray,
    cause,
    read_key,
    refuse_forked,
    remove_key,
    secrets_of,
    shown,
    wait,
    write_key,
)
from ..where.locations import locate
from .lease_places import FOLDER as LEASES
from .leases import lease_of, refuse_held_parts

if TYPE_CHECKING:
    import xarray as xr


#: Folder of the parts that several processes write.
PARTS = "parts"


def part_path(path: Writable, part: int) -> str:
    """Return the place of one part of a store that several processes write."""
    if whole_number(part) < 0:
        raise OptionError(f"part must be the number of this process, from 0; got {part!r}. Give each process its own.")
    if not isinstance(path, (str, os.PathLike)):
        raise OptionError("path must be a path or URL for a store in parts; got an opened store. Pass where it is.")
    return f"{os.fspath(path).rstrip('/')}/{PARTS}/{int(part):05}"


def create_parts(store: Store, location: str) -> None:
    """Create the root of a store that is written in parts, unless another process has."""
    state = Seal(FORMAT, False, {"parts": True}).to_state()
    for key, attributes in (("zarr.json", {ATTRIBUTE: state}), (f"{PARTS}/zarr.json", {})):
        if not key_exists(store, key):
            write_document(store, key, {"attributes": attributes, "zarr_format": 3, "node_type": "group"})
        if (read_document(store, "zarr.json", location).get("attributes") or {}).get(ATTRIBUTE) != state:
            raise StoreError(
                f"store must be new, or one that is written in parts; got another, {location!r}. Choose another path."
            )


def read_document(store: Store, key: str, location: str) -> Document:
    """Read a JSON object of a store that is to be continued."""
    found = read_key(store, key)
    if found is None:
        raise StoreError(f"{location} has no {key}; it cannot be continued. Check the path, or write it again.")
    return parse_document(found, f"{key} of {location}")


def document_bytes(value: Document) -> bytes:
    """Return a JSON object as zarr writes it."""
    return json.dumps(value, indent=2).encode()


def write_document(store: Store, key: str, value: Document) -> None:
    """Write a JSON object."""
    write_key(store, key, document_bytes(value))


def writable(path: object, options: Options | None = None) -> tuple[Store, str]:
    """Return the store to write to and its name."""
    if isinstance(path, Store):
        refuse_forked(path)
        return path, shown(path)
    return locate(path, options, write=True), shown(path)


def check_target(store: Store, location: str, overwrite: bool) -> None:
    """Refuse a place that holds anything, unless it is a store that may be overwritten."""
    metadata = is_begun(store)
    if overwrite and metadata:
        refuse_held_parts(store, location, part_numbers(store))
    if not overwrite and (metadata or holds_anything(store)):
        raise StoreError(
            f"store must be new; got {location!r}, which exists. "
            "Choose another path, or replace it with overwrite=True (on the command line --overwrite)."
        )
    if overwrite and not metadata and holds_anything(store):
        raise StoreError(
            f"store must be a Zarr store to be overwritten; got {location!r}, something else. Choose another path."
        )


def is_begun(store: Store) -> bool:
    """Whether there is the root of a Zarr store."""
    return any(key_exists(store, name) for name in ("zarr.json", ".zgroup", ".zarray"))


def key_exists(store: Store, key: str) -> bool:
    """Return whether there is a key."""
    bare = bare_store(store)
    if isinstance(bare, LocalStore):  # opening it for writing would make the folder
        return (bare.root / key).is_file()
    return read_key(store, key) is not None


def holds_anything(store: Store) -> bool:
    """Whether there is any key in a store."""
    bare = bare_store(store)
    if isinstance(bare, LocalStore):
        try:  # one look: another may make the folder between two
            names = os.listdir(bare.root)
        except FileNotFoundError:
            return bare.root.is_symlink()
        except NotADirectoryError:
            return os.path.lexists(bare.root)
        # What a writer that was killed may leave before its draft is one.
        return any(name != LEASES and not name.endswith(".partial") for name in names)
    return any(not key.startswith(f"{LEASES}/") for key in listed_keys(store, ""))


def draft_owner(store: Store) -> str | None:
    """Return the owner of the lease under which an incomplete store was begun; None where there is none."""
    if not key_exists(store, "zarr.json"):
        return None
    try:
        seal = Seal.read(read_document(store, "zarr.json", "").get("attributes"), "")
    except StoreError:  # of damaged metadata, which are nobody's
        return None
    owner = None if seal is None or seal.complete else seal.noted.get("owner")
    return owner if isinstance(owner, str) else None


def clear(store: Store, keep: tuple[str, ...] = (LEASES,)) -> None:
    """Remove all that a store holds, but for what is named of its root."""
    bare = bare_store(store)
    if isinstance(bare, LocalStore):
        keys: dict[str, int | None] = {
            path.name: None for path in bare.root.iterdir() if path.is_file() or path.is_symlink()
        }
        names = {path.name for path in bare.root.iterdir()}
    else:
        if isinstance(bare, FsspecStore):
            bare.fs.invalidate_cache()
        keys = listed_keys(store, "")
        names = {key.split("/")[0] for key in keys}
    for name in sorted(names - set(keep)):
        wait(store.delete(name) if name in keys else store.delete_dir(name))


def part_numbers(store: Store) -> list[str]:
    """Return the names of the parts that are there."""
    return sorted({key.split("/")[1] for key in listed_keys(store, PARTS) if key.count("/") > 1})


def is_store(path: Path) -> bool:
    """Whether a local path is the root of a Zarr store."""
    return any(os.path.isfile(os.path.join(path, name)) for name in ("zarr.json", ".zgroup", ".zarray"))


# Results: written as Zarr stores of their own.


def write_result(dataset: xr.Dataset, path: Path) -> None:
    """Write a result Dataset to a new Zarr store: every chunk, zeros too, and one look at the metadata opens it.

    Names are stored as texts of any length, which Zarr v3 specifies.
    """
    names = [name for name, variable in dataset.variables.items() if variable.dtype.kind == "U"]
    dataset = dataset.assign({name: dataset[name].astype(object) for name in names})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Consolidated metadata.*")
        dataset.to_zarr(path, mode="w", consolidated=True, write_empty_chunks=True)


# Which rows the last append added, recorded until its run ends: run again after a kill, it must not add them twice.
#
# The record is written just before the root that says the store is complete with them, and names that root. So it is
# believed only of an append that was finished, and of the last one.


#: Inside an array, where zarr does not look for further nodes.
RECORD = "scores/appended.json"


class RowsHash:
    """A hash of rows of several arrays, the same in whichever batches they come."""

    def __init__(self) -> None:
        self._hashes: list[xxhash.xxh3_128] = []

    def add(self, arrays: Sequence[Array]) -> None:
        """Add the same rows of some arrays, in the form in which they are stored."""
        self._hashes = self._hashes or [xxhash.xxh3_128() for _ in arrays]
        for hashed, array in zip(self._hashes, arrays, strict=True):
            hashed.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def hexdigest(self) -> str:
        """Return the hash."""
        return "-".join(hashed.hexdigest() for hashed in self._hashes)


def write_append_record(store: Store, root: bytes, rows: str) -> None:
    """Record the hash of the rows that a store has with this root, which is not written yet."""
    write_key(store, RECORD, json.dumps({"root": digest_of(root), "rows": rows}).encode())


def read_append_record(store: Store) -> str | None:
    """Return the hash of the rows of the last append if it was finished and its run did not end, else None."""
    data, root = read_key(store, RECORD), read_key(store, "zarr.json")
    if data is None or root is None:
        return None
    try:
        record = json.loads(data)
        return str(record["rows"]) if tuple(record["root"]) == digest_of(root) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def remove_append_record(store: Store) -> None:
    """Remove the record: the run that appended has ended."""
    remove_key(store, RECORD)


# Drafts: stores being written. Every chunk's digest is recorded; only a finished store says it is complete.


#: The arrays a store of ours may hold: scores and labels, or sets.
_ARRAYS = ("scores", "class_index", "labels", "sets", "offsets", "classes")

#: What the seal of a part notes: its number.
PART = "part"

Digests = dict[str, Digest]


class RecordingStore(Wrapping):
    """Wraps a store and remembers the digest of everything written through it."""

    def __init__(self, store: Store, digests: Digests | None = None) -> None:
        super().__init__(store)
        self.digests: Digests = {} if digests is None else digests

    def __repr__(self) -> str:
        return f"RecordingStore({shown(self._store)!r})"

    def __str__(self) -> str:
        return shown(self._store)

    def _with_store(self, store: Store) -> RecordingStore:
        return type(self)(store, self.digests)

    async def set(self, key: str, value: Buffer) -> None:
        """Write a key, and record its digest."""
        self.digests[key] = digest_of(value.as_buffer_like())
        await super().set(key, value)


class Draft:
    """A store under way: a group that says it is incomplete, and the digests of its chunks."""

    def __init__(self, group: Any, location: str, seal: Seal) -> None:
        self.group, self.location = group, location
        #: Whether the store is complete, and what its writer noted.
        self.seal = seal
        self.digests: Digests = {}
        #: What the finished store notes for a writer that appends to it.
        self.kept_notes: dict[str, object] = {}
        #: A hash of the rows that are appended, to be recorded; empty if there are none.
        self.appended = ""

    @classmethod
    def create(
        cls,
        store: Store,
        location: str,
        *,
        overwrite: bool = False,
        attributes: Mapping[str, object] | None = None,
        noted: Mapping[str, object] | None = None,
    ) -> Draft:
        """Create the group, marked as incomplete, where nothing is yet, or in place of another store.

        ``noted`` is for a writer that goes on with the draft.
        """
        lease = lease_of(store)
        if lease:
            lease.has_begun = True
        else:
            check_target(store, location, overwrite)
        state = Seal(FORMAT, False, {"owner": lease.holder.owner if lease else None}).to_state()
        root: Document = {"attributes": {ATTRIBUTE: state}, "zarr_format": 3, "node_type": "group"}
        if overwrite and is_begun(store):
            write_document(store, "zarr.json", root)  # whatever is left while the rest goes says that it is incomplete
            clear(store, keep=("zarr.json", LEASES))
        root["attributes"] = {**(attributes or {}), ATTRIBUTE: {**state, **(noted or {})}}
        write_document(store, "zarr.json", root)  # in one write: whatever is there says that it is incomplete
        draft = cls.reopen(store, location)
        draft.clean()
        return draft

    @classmethod
    def reopen(cls, store: Store, location: str) -> Draft:
        """Open a draft that was left, or a store that was finished."""
        document = read_document(store, "zarr.json", location)
        try:
            group = zarr.open_group(RecordingStore(store), mode="r+", use_consolidated=False)
        except Exception as error:  # of any metadata that zarr cannot read
            why = f"is no Zarr group ({cause(error, secrets_of(store))}); it cannot be continued"
            refuse(StoreError(f"{location} {why}. Choose another path."))
        seal = Seal.read(document.get("attributes"), location)
        if seal is None:
            raise StoreError(
                f"{location} was not written by this package; it cannot be continued. Choose another path."
            )
        if not seal.complete and seal.format != FORMAT:
            raise StoreError(
                f"{location} was begun in format {seal.format}, which cannot be continued in format {FORMAT}. Write it again."
            )
        return cls(group, location, seal)

    @property
    def owner(self) -> str:
        """What tells an incomplete draft from all others: the owner of the lease under which it was begun; empty without one."""
        return str(self.seal.noted.get("owner") or "")

    def check_part(self, number: int) -> None:
        """Refuse a part of a store that is in the place of another one."""
        noted = self.seal.noted.get(PART, number)  # not in parts that were written by earlier versions
        if noted != number:
            raise StoreError(
                f"{self.location} must be part {number} of its store; it is part {noted}. Restore it, or write part {number} again."
            )

    def check(self, *, surely: bool = False) -> None:
        """Stop where another writer has taken over."""
        lease = lease_of(self.group.store)
        if lease:
            lease.check(surely=surely)

    def clean(self) -> None:
        """Remove the temporary files of a writer that was killed."""
        bare = bare_store(self.group.store)
        if isinstance(bare, LocalStore):
            for path in bare.root.rglob("*.partial"):
                path.unlink(missing_ok=True)

    @property
    def names(self) -> list[str]:
        """The names of the arrays created so far."""
        return [name for name in _ARRAYS if name in self.group]

    def forms(self) -> dict[str, str]:
        """Return the digest of each array's metadata, but for its number of rows."""
        return {name: form_digest(self._document(f"{name}/zarr.json")) for name in self.names}

    def clear(self) -> None:
        """Remove all arrays."""
        for name in self.names:
            del self.group[name]

    def resize(self, n_samples: int) -> None:
        """Set the number of samples of every array."""
        for name in self.names:
            array = self.group[name]
            array.resize((n_samples, *array.shape[1:]))

    def add_matrix(
        self, name: str, shape: tuple[int, int], dtype: DTypeLike, layout: Layout, second: str = "class"
    ) -> ZarrArray:
        """Create an N x C array; bfloat16, which Zarr does not know, as uint16 with the attribute ``dtype``."""
        dtype = np.dtype(dtype)
        stored = np.dtype("uint16") if dtype == BFLOAT16 else dtype
        array: ZarrArray = self.group.create_array(
            name, shape=shape, dtype=stored, dimension_names=("sample", second),
            **layout.keywords(dtype.itemsize),
        )  # fmt: skip
        if dtype == BFLOAT16:
            array.attrs["dtype"] = "bfloat16"
        return array

    def add_column(
        self,
        name: str,
        n_samples: int,
        dtype: DTypeLike = "int64",
        chunk_rows: int | None = None,
        dimension: str = "sample",
    ) -> ZarrArray:
        """Create an array with one value for each sample, or along another dimension."""
        array: ZarrArray = self.group.create_array(
            name, shape=(n_samples,), dtype=dtype, chunks=(chunk_rows or max(1, min(n_samples, LABEL_ROWS)),),
            compressors=codecs("zstd", 8), dimension_names=(dimension,),
        )  # fmt: skip
        return array

    def finish(self, **attributes: object) -> None:
        """Write the manifest and say that the store is complete, in one last write of the root's metadata."""
        self.check(surely=True)
        tables = {name: self._table(self.group[name]) for name in self.names}
        if GROUP in self.group:
            del self.group[GROUP]
        folder = self.group.create_group(GROUP)
        for name, table in tables.items():
            chunks = tuple(max(1, n) for n in table.shape)  # of an empty array, too
            folder.create_array(name, data=table, chunks=chunks, compressors=codecs("zstd", 8))
        nodes = [*tables, GROUP, *(f"{GROUP}/{name}" for name in tables)]
        # With the metadata of all nodes in the root's, opening needs one request, and xarray does not warn.
        root = self._document("zarr.json")
        root["attributes"] = {**self.group.attrs, **attributes}
        found = {name: self._document(f"{name}/zarr.json") for name in nodes}
        root["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": found}
        self.seal = Seal(
            FORMAT,
            True,
            self.kept_notes,
            manifest={name: table_digest(table) for name, table in tables.items()},
            metadata={"": metadata_digest(root)} | {name: metadata_digest(found[name]) for name in tables},
            n_chunks={name: math.prod(table.shape[:-1]) for name, table in tables.items()},
        )
        root["attributes"][ATTRIBUTE] = self.seal.to_state()
        if self.appended:
            write_append_record(self.group.store, document_bytes(root), self.appended)
        write_document(self.group.store, "zarr.json", root)

    def _document(self, key: str) -> Document:
        return read_document(self.group.store, key, self.location)

    def _table(self, array: StoredArray) -> Table:
        table = empty_table(chunk_grid(array))
        for index in np.ndindex(*table.shape[:-1]):
            key = chunk_key(array, index)
            if key not in self.digests:
                raise StoreError(
                    f"chunk {key} of {self.location} was not written; the store stays incomplete. Write it again."
                )
            table[index] = self.digests[key]
        return table


def write_rows(array: WritableArray, first: int, block: Array) -> Digests:
    """Write whole stored chunks of rows, the last of which may lie behind the array's end; return the digest of each by its key."""
    lease, last = lease_of(array.store_path.store), first + block.shape[0]
    if lease:
        lease.check()
    target = grown(array, last)
    target[first:last] = block.view(array.dtype) if block.dtype == BFLOAT16 else block
    where = (slice(first, last), *(slice(0, n) for n in array.shape[1:]))
    recorded = array.store_path.store.digests
    return {key: recorded[key] for key in (chunk_key(array, index) for index in indices_within(grid_of(target), where))}


def grown(array: StoredArray, n_rows: int) -> ZarrArray:
    """Return an array as if it had ``n_rows`` rows, to write to; its stored metadata stay unchanged.

    Every chunk is written, also one that holds nothing but the fill value, which zarr would leave out: a manifest has a
    digest of each, and a chunk that is not there was lost.
    """
    metadata = replace(array.metadata, shape=(n_rows, *array.shape[1:]))
    return zarr.Array(
        zarr.AsyncArray(
            metadata=metadata, store_path=array.store_path, config={"order": "C", "write_empty_chunks": True}
        )
    )
