"""Listing: the keys of a store, the length of each object, and a mark that changes when it is written again.

Stamps are derived from a listing: one hash per band that identifies the content of its chunks without reading them. Sealed
stores use the digests of the chunks, others the lengths and modification times (or the tags of an object store).
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise, product
from typing import Any, NamedTuple, TypeVar

import numpy as np
import xxhash
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ObjectStore, ZipStore

from ...errors import OptionError, ReadError, refuse
from ..where.addresses import (
    ObjectClient,
    StoredArray,
    bare_store,
    explain,
    find_files,
    read_key,
    redact,
    wait,
    zip_entries,
)
from ..where.locations import FileStore
from .grids import grid_of
from .manifest import Table, digest_of, is_metadata

#: After this time, a store is read without a listing.
_LIST_SECONDS = 600
#: Files or folders per batch, and number of threads.
_BATCH, _THREADS = 256, 8
#: Names in fsspec of the marks that change with a file, the best first.
_MARKS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "updated", "modified", "created")

Item = TypeVar("Item")
Result = TypeVar("Result")


class Entry(NamedTuple):
    """A key, the length of its object (None if unknown), and a mark that changes when it is written again."""

    key: str
    length: int | None
    mark: Any = None


def list_keys(store: Store, prefix: str) -> dict[str, int | None] | None:
    """Return the keys below a prefix with their lengths (None if unknown), or None if the store cannot be listed."""
    try:
        entries = list_entries(bare_store(store), prefix)
        return None if entries is None else {entry.key: entry.length for entry in entries}
    except Exception:  # any client's: reading may be allowed although listing is not
        return None


def list_keys_or_raise(store: Store, prefix: str) -> dict[str, int | None]:
    """Return the keys below a prefix with their lengths, as ``list_keys``; raise ReadError if the store cannot be listed."""
    keys = list_keys(store, prefix)
    if keys is None:
        raise ReadError(
            f"could not list {redact(bare_store(store))}, which writing needs. Check its address and permissions, and try again."
        )
    return keys


def list_entries(store: Store, prefix: str) -> Iterable[Entry] | None:
    """Return the entries below a prefix, or None if the store cannot be listed."""
    below = f"{prefix}/" if prefix else ""
    if isinstance(store, LocalStore):
        return _files(str(store.root), prefix)
    if isinstance(store, ZipStore):
        return (Entry(i.filename, i.file_size, i.CRC) for i in zip_entries(store) if i.filename.startswith(below))
    if isinstance(store, ObjectStore):
        return None if type(store.store).__name__ == "HTTPStore" else list_objects(store.store, prefix)
    if isinstance(store, FsspecStore):
        return None if "http" in str(store.fs.protocol) else _fsspec_files(store, prefix)
    return wait(_other_keys(store, below), timeout=_LIST_SECONDS) if store.supports_listing else None


def _files(root: str, prefix: str) -> Iterator[Entry]:
    """Yield the files below a folder, level by level."""
    folders = [prefix]
    while folders:
        inner: list[str] = []
        for entries, more in map_batches(partial(_scan_folders, root), folders):
            yield from entries
            inner += more
        folders = inner


def _scan_folders(root: str, prefixes: Sequence[str]) -> tuple[list[Entry], list[str]]:
    """Return the regular files and the folders; metadata of any kind are returned as files, so that reading them fails."""
    entries, folders = [], []
    for prefix in prefixes:
        try:
            with os.scandir(os.path.join(root, prefix)) as folder:
                files = list(folder)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for file in files:
            key = f"{prefix}/{file.name}" if prefix else file.name
            if file.is_dir() and not is_metadata(key):
                folders.append(key)
            elif file.is_file():
                status = file.stat()
                entries.append(Entry(key, status.st_size, status.st_mtime_ns))
            elif is_metadata(key):
                entries.append(Entry(key, None))
    return entries, folders


def map_batches(work: Callable[[Sequence[Item]], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Yield the result of ``work`` for each batch of items, in order, computed on several threads."""
    batches = (items[i : i + _BATCH] for i in range(0, len(items), _BATCH))
    if len(items) <= _BATCH:
        yield from map(work, batches)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        yield from pool.map(work, batches)


def list_objects(store: ObjectClient, prefix: str) -> Iterator[Entry]:
    """Yield the objects of an object store below a prefix."""
    import obstore

    try:
        for batch in obstore.list(store, prefix):
            for meta in batch:
                yield Entry(meta["path"], meta["size"], meta.get("e_tag") or meta["last_modified"])
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        refuse(ReadError(f"could not list {redact(store)}: its client failed. Check the endpoint."))


def _fsspec_files(store: FsspecStore, prefix: str) -> list[Entry]:
    start = len(store.path.strip("/")) + bool(store.path.strip("/"))
    try:
        files = wait(find_files(store, prefix), timeout=_LIST_SECONDS)
    except FileNotFoundError:
        return []
    return [
        Entry(
            name.lstrip("/")[start:],
            facts.get("size"),
            next((facts[mark] for mark in _MARKS if facts.get(mark) is not None), None),
        )
        for name, facts in files.items()
        if facts["type"] == "file"
    ]


async def _other_keys(store: Store, prefix: str) -> list[Entry]:
    keys = [key async for key in store.list_prefix(prefix)]
    try:
        sizes: list[int | None] = list(await asyncio.gather(*(store.getsize(key) for key in keys)))
    except (NotImplementedError, FileNotFoundError):
        sizes = [None] * len(keys)
    return [Entry(key, size) for key, size in zip(keys, sizes, strict=True)]


def chunk_key(array: StoredArray, index: tuple[int, ...]) -> str:
    """Return the key of the stored chunk at an index of the chunk grid."""
    key = array.metadata.encode_chunk_key(index)
    return f"{array.path}/{key}" if array.path else str(key)


def band_stamps(array: StoredArray, bounds: Sequence[int]) -> Table:
    """Return the stamp of each band of an array, given the row bounds of the bands.

    Raise OptionError if the store reports nothing that changes when a chunk is written again.
    """
    checks = array.store_path.store.checks
    table = _listed_table(array) if checks.manifest is None else checks.manifest.table
    document = array.metadata.to_dict()  # everything that determines values, without the number of rows
    document.pop("consolidated_metadata", None)
    shape = document.pop("shape")
    meaning = json.dumps([document, list(shape)[1:]], sort_keys=True, default=str)
    rows = grid_of(array)[0]
    inner = math.prod(array.shape[1:-1])  # rows of one index of the first axis
    stamps = []
    for first, last in pairwise(bounds):
        chunks = rows.indices(first // inner, -(-last // inner))
        hashed = xxhash.xxh3_64(np.ascontiguousarray(table[chunks.start : chunks.stop], "<u8").tobytes())
        hashed.update(f"{last - first} {meaning}".encode())
        stamps.append(hashed.intdigest())
    return np.array(stamps, np.uint64)


def hash_rows(values: object) -> int:
    """Return a hash of an array's values that does not depend on their integer type."""
    array = np.asarray(values)
    array = array.astype("<i8" if np.can_cast(array.dtype, "i8") else array.dtype.newbyteorder("<"))
    return xxhash.xxh3_64(array.dtype.kind.encode() + np.ascontiguousarray(array).tobytes()).intdigest()


def _listed_table(array: StoredArray) -> Table:
    """Return the length and mark of each chunk that the store reports, or zeros for a missing chunk."""
    checks = array.store_path.store.checks
    try:
        marks = _marks(bare_store(array.store_path.store), array.path)
    except Exception as error:
        why = explain(error, checks.secrets, "Check the store, and try again.")
        refuse(ReadError(f"could not list {checks.location}, which a checkpoint needs: {why}"))
    if marks is None:
        raise OptionError(
            f"checkpoint needs a store that reports when its chunks were written; {array.store_path.store} does not. "
            "Copy the store to a folder or an object store, or write it with ScoreWriter."
        )
    shape = tuple(axis.count for axis in grid_of(array))
    if isinstance(marks, tuple):
        return np.broadcast_to(np.array(marks, np.uint64), (*shape, 2))
    table = np.zeros((*shape, 2), np.uint64)
    for index in product(*map(range, shape)):
        key = chunk_key(array, index)
        if key not in marks and checks.missing != "fill":
            raise ReadError(f"chunk {key} of {checks.location} is missing, but a checkpoint needs it. Check the store.")
        table[index] = marks.get(key, (0, 0))
    return table


def _marks(store: Store, prefix: str) -> Mapping[str, tuple[int, int]] | tuple[int, int] | None:
    """Return the length and mark of every key below a prefix, or one pair for all; None if the store reports no marks."""
    if isinstance(store, FileStore):
        return sum(stamp.n_bytes for stamp in store.file.marks), _number(store.file.marks)
    if isinstance(store, MemoryStore):
        return {key: digest_of(read_key(store, key) or b"") for key in list_keys(store, prefix) or ()}
    if not isinstance(store, (LocalStore, ZipStore, ObjectStore, FsspecStore)):
        return None
    entries, is_number = list_entries(store, prefix), isinstance(store, (LocalStore, ZipStore))
    if entries is None:
        return None
    marks = {}
    for entry in entries:
        if entry.mark is None and not is_number:
            return None
        marks[entry.key] = entry.length or 0, entry.mark if is_number else _number(entry.mark)
    return marks


def _number(mark: object) -> int:
    return xxhash.xxh3_64(str(mark).encode()).intdigest()


def join_stamps(stamps: Iterable[object]) -> str:
    """Return a hash of several stamps in their order."""
    return xxhash.xxh3_128(" ".join(map(str, stamps)).encode()).hexdigest()
