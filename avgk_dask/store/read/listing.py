"""Listing: which chunks of an array are there, and how long; missing ones are refused before reading."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
from collections.abc import Iterator

from zarr.abc.store import Store
from zarr.codecs import BytesCodec
from zarr.storage import FsspecStore, LocalStore, ObjectStore, ZipStore

from ...errors import ReadError, refuse
from ..where import fsspec_calls
from ..where.addresses import shown
from ..where.array_kinds import ObjectClient, StoredArray
from ..where.zarr_calls import uneven_sizes, wait, zip_entries
from .checked import FILL, CheckedStore, bare_store
from .documents import is_metadata
from .grids import outer_sizes
from .manifest import chunk_grid

#: Chunks named in an error.
_NAMED = 3
#: A store that does not answer a listing for this long is read without one.
_LIST_SECONDS = 600


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
    below = f"{prefix}/" if prefix else ""
    if isinstance(store, LocalStore):
        return dict(_local_keys(str(store.root), prefix))
    if isinstance(store, ZipStore):
        return {i.filename: i.file_size for i in zip_entries(store) if i.filename.startswith(below)}
    if isinstance(store, ObjectStore):
        return _object_keys(store.store, prefix)
    if not store.supports_listing:
        return None
    return wait(_other_keys(store, prefix), timeout=_LIST_SECONDS)


def _local_keys(root: str, prefix: str) -> Iterator[tuple[str, int | None]]:
    """Return plain files only: a folder or a dangling link is no chunk. Metadata are given whatever they are: they are read, and refused."""
    try:
        entries = list(os.scandir(os.path.join(root, prefix)))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        key = f"{prefix}/{entry.name}" if prefix else entry.name
        if entry.is_dir() and not is_metadata(key):
            yield from _local_keys(root, key)
        elif entry.is_file():
            yield key, entry.stat().st_size
        elif is_metadata(key):
            yield key, None


def _object_keys(store: ObjectClient, prefix: str) -> dict[str, int | None] | None:
    if type(store).__name__ == "HTTPStore":
        return None
    return dict(objects(store, prefix))


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


def chunk_keys(array: StoredArray) -> Iterator[str]:
    """Return the keys of all stored chunks (or shards) of an array, in row-major order."""
    for index in itertools.product(*map(range, chunk_grid(array))):
        yield chunk_key(array, index)


def chunk_key(array: StoredArray, index: tuple[int, ...]) -> str:
    """Return the key of the stored chunk at an index of the chunk grid."""
    key = array.metadata.encode_chunk_key(index)
    return f"{array.path}/{key}" if array.path else str(key)


def missing_chunks(array: StoredArray) -> tuple[list[str], list[tuple[str, str]]] | None:
    """Return the keys of missing chunks, and damaged ones with what is wrong; None where the store cannot list."""
    found = list_keys(array.store_path.store, array.path)
    if found is None:
        return None
    missing, damaged = [], []
    expected = _plain_length(array)
    checks = array.store_path.store.checks
    for key in chunk_keys(array):
        if key not in found:
            if checks.missing == "raise" or checks.digest(key) is not None:
                missing.append(key)
            continue
        length = found[key]
        written = checks.digest(key)
        if length is None:
            continue
        if length == 0:
            damaged.append((key, "it is empty"))
        elif written and length != written[0]:
            damaged.append((key, f"it has {length:,} bytes, and was written with {written[0]:,}"))
        elif expected and length != expected:
            damaged.append((key, f"it has {length:,} bytes instead of {expected:,}"))
        elif not written and checks.most_bytes is not None and length > checks.most_bytes:
            damaged.append((key, f"it has {length:,} bytes, and can need {checks.most_bytes:,} at most"))
    return missing, damaged


def _plain_length(array: StoredArray) -> int | None:
    """Return the length of every chunk of an array whose codecs leave no choice; None otherwise."""
    metadata = array.metadata
    if metadata.zarr_format != 3 or len(metadata.codecs) != 1 or not isinstance(metadata.codecs[0], BytesCodec):
        return None
    return None if uneven_sizes(array) else int(array.dtype.itemsize * math.prod(array.chunks))


def check_chunks(array: StoredArray) -> None:
    """Refuse an array with missing or damaged chunks, by listing them; reads no chunk.

    Raises
    ------
    ReadError
        With the number of such chunks and the keys of the first.

    """
    store = array.store_path.store
    if not isinstance(store, CheckedStore):
        return
    found = missing_chunks(array)
    if found is None:
        return
    missing, damaged = found
    if missing:
        sizes = outer_sizes(array)
        them, each = ("it", "") if len(missing) == 1 else ("them", " each")
        cure = f"Restore {them}, or write the store again."
        if store.checks.manifest is None:
            cure = (
                f"Restore {them}, or take {them} as the fill value with {FILL}: "
                "a writer may leave out chunks that hold nothing else."
            )
        rows, size = sizes[0], array.dtype.itemsize * math.prod(sizes)
        raise ReadError(
            f"{_how_many(array, len(missing))} missing: {_first(missing)} "
            f"({rows:,} samples and {size:,} bytes{each} when decoded). {cure}"
        )
    if damaged:
        named = "; ".join(f"{key}: {what}" for key, what in damaged[:_NAMED])
        raise ReadError(f"{_how_many(array, len(damaged))} damaged: {named}. Write the store again.")


def _how_many(array: StoredArray, n: int) -> str:
    """Return how many chunks of an array, up to the verb."""
    total = math.prod(chunk_grid(array))
    where = f"array {array.path or '/'!r} in {array.store_path.store.checks.location}"
    if total == 1:
        return f"the one chunk of {where} is"
    return f"{n:,} of the {total:,} chunks of {where} {'is' if n == 1 else 'are'}"


def _first(keys: list[str]) -> str:
    more = f" and {len(keys) - _NAMED:,} more" if len(keys) > _NAMED else ""
    return ", ".join(keys[:_NAMED]) + more
