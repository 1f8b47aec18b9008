"""Listing: the keys of a store, and how long what is stored at each is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, ObjectStore, ZipStore

from ...errors import ReadError, refuse
from ..where import fsspec_calls
from ..where.addresses import shown
from ..where.array_kinds import ObjectClient, StoredArray
from ..where.zarr_calls import wait, zip_entries
from .checked import bare_store
from .documents import is_metadata

#: A store that does not answer a listing for this long is read without one.
_LIST_SECONDS = 600
#: Files or folders that one thread asks for in a go, and threads that do.
_BATCH, _THREADS = 256, 8

Item = TypeVar("Item")
Result = TypeVar("Result")


def list_keys(store: Store, prefix: str) -> dict[str, int | None] | None:
    """Return the keys below a prefix with their lengths (None where unknown); None where that cannot be had."""
    try:
        return _list_keys(bare_store(store), prefix)
    except Exception:  # of any client: reading may be allowed where listing is not
        return None


def listed_keys(store: Store, prefix: str) -> dict[str, int | None]:
    """Return the keys below a prefix with their lengths, for whoever writes: what cannot be listed is not taken for empty.

    Raises
    ------
    ReadError
        Where the store cannot be listed.

    """
    found = list_keys(store, prefix)
    if found is None:
        raise ReadError(
            f"{shown(bare_store(store))} could not be listed, which writing needs. Check the place and its permissions, and try again."
        )
    return found


def _list_keys(store: Store, prefix: str) -> dict[str, int | None] | None:
    found = listed(store, prefix)
    return None if found is None else dict(found)


def listed(store: Store, prefix: str) -> Iterable[tuple[str, int | None]] | None:
    """Return the keys below a prefix with their lengths, as they come; None where the store cannot list."""
    below = f"{prefix}/" if prefix else ""
    if isinstance(store, LocalStore):
        return _local_keys(str(store.root), prefix)
    if isinstance(store, ZipStore):
        return ((i.filename, i.file_size) for i in zip_entries(store) if i.filename.startswith(below))
    if isinstance(store, ObjectStore):
        return None if type(store.store).__name__ == "HTTPStore" else objects(store.store, prefix)
    if not store.supports_listing:
        return None
    found = wait(_other_keys(store, prefix), timeout=_LIST_SECONDS)
    return None if found is None else found.items()


def _local_keys(root: str, prefix: str) -> Iterator[tuple[str, int | None]]:
    """Return the files below a folder, level by level."""
    folders = [prefix]
    while folders:
        inner: list[str] = []
        for keys, more in in_threads(partial(_scan_folders, root), folders):
            yield from keys
            inner += more
        folders = inner


def _scan_folders(root: str, prefixes: Sequence[str]) -> tuple[list[tuple[str, int | None]], list[str]]:
    """Return plain files only: a folder or a dangling link is no chunk. Metadata are given whatever they are: they are read, and refused."""
    keys: list[tuple[str, int | None]] = []
    folders = []
    for prefix in prefixes:
        for entry in _entries(os.path.join(root, prefix)):
            key = f"{prefix}/{entry.name}" if prefix else entry.name
            if entry.is_dir() and not is_metadata(key):
                folders.append(key)
            elif entry.is_file():
                keys.append((key, entry.stat().st_size))
            elif is_metadata(key):
                keys.append((key, None))
    return keys, folders


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []


def in_threads(work: Callable[[Sequence[Item]], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Return what some work makes of items, batch by batch and in order: where each answer takes its time, several at once."""
    batches = (items[i : i + _BATCH] for i in range(0, len(items), _BATCH))
    if len(items) <= _BATCH:
        yield from map(work, batches)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        yield from pool.map(work, batches)


def timed_files(root: str, prefix: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Return the plain files below a folder, with their length and the time of their last change in nanoseconds."""
    folders = [prefix]
    while folders:
        folder = folders.pop()
        for entry in _entries(os.path.join(root, folder)):
            key = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir():
                folders.append(key)
            elif entry.is_file():
                facts = entry.stat()
                yield key, (facts.st_size, facts.st_mtime_ns)


def object_facts(store: ObjectClient, prefix: str) -> Iterator[tuple[str, int, object]]:
    """Return the objects of an object store below a prefix, their sizes, and what changes when they are written again."""
    import obstore

    for batch in obstore.list(store, prefix):
        yield from ((meta["path"], meta["size"], meta.get("e_tag") or meta["last_modified"]) for meta in batch)


def objects(store: ObjectClient, prefix: str) -> Iterator[tuple[str, int]]:
    """Return the objects of an object store below a prefix, and their sizes."""
    import obstore

    try:
        for batch in obstore.list(store, prefix):
            yield from ((meta["path"], meta["size"]) for meta in batch)
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        refuse(ReadError(f"{shown(store)} could not be listed: its client failed. Check the endpoint."))


async def _other_keys(store: Store, prefix: str) -> dict[str, int | None] | None:
    if isinstance(store, FsspecStore):
        root = store.path.rstrip("/")
        if "http" in str(store.fs.protocol):
            return None
        try:
            found = await fsspec_calls.find(store, prefix)
        except FileNotFoundError:
            return {}
        start = len(root.strip("/")) + bool(root.strip("/"))
        return {name.lstrip("/")[start:]: info.get("size") for name, info in found.items() if info["type"] == "file"}
    keys = [key async for key in store.list_prefix(f"{prefix}/" if prefix else "")]
    try:
        sizes: list[int | None] = list(await asyncio.gather(*(store.getsize(key) for key in keys)))
    except (NotImplementedError, FileNotFoundError):
        sizes = [None] * len(keys)
    return dict(zip(keys, sizes, strict=True))


def chunk_key(array: StoredArray, index: tuple[int, ...]) -> str:
    """Return the key of the stored chunk at an index of the chunk grid."""
    key = array.metadata.encode_chunk_key(index)
    return f"{array.path}/{key}" if array.path else str(key)
