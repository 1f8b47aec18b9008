"""What we need of zarr beyond its documented interface: the one module that knows it."""

from __future__ import annotations

import asyncio
import zipfile
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.core.sync import _get_loop, sync
from zarr.storage import WrapperStore, ZipStore

from .array_kinds import StoredArray

Value = TypeVar("Value")


def wait(coroutine: Coroutine[Any, Any, Value], timeout: float | None = None) -> Value:
    """Return what a coroutine gives, run on zarr's own event loop."""
    return sync(coroutine, timeout=timeout)


def begin(coroutine: Coroutine[Any, Any, Value]) -> Future[Value]:
    """Run a coroutine on zarr's own event loop, and return what it will give; to cancel that ends it."""
    return asyncio.run_coroutine_threadsafe(coroutine, _get_loop())


async def get(store: Store, key: str) -> Buffer | None:
    """Return the buffer of a key, of a store that may not be open yet; None where there is none."""
    await store._ensure_open()
    return await store.get(key, default_buffer_prototype())


async def put(store: Store, key: str, data: bytes) -> None:
    """Write a key."""
    await store.set(key, default_buffer_prototype().buffer.from_bytes(data))


def read_key(store: Store, key: str) -> bytes | None:
    """Return the bytes of a key; None where there is none."""
    found = wait(get(store, key))
    return None if found is None else bytes(found.to_bytes())


def write_key(store: Store, key: str, data: bytes) -> None:
    """Write a key, and wait for it."""
    wait(put(store, key, data))


def remove_key(store: Store, key: str) -> None:
    """Remove a key, where it is there."""
    wait(store.delete(key))


def metadata_bytes(array: StoredArray) -> bytes:
    """Return the ``zarr.json`` of an array."""
    return bytes(array.metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes())


def is_uneven(array: Any) -> bool:
    """Return whether an array's chunks are of several sizes; takes no time, however many there are."""
    return hasattr(getattr(array.metadata, "chunk_grid", None), "chunk_shapes")


def uneven_sizes(array: Any) -> tuple[tuple[int, ...], ...] | None:
    """Return the sizes of the chunks along each axis, clipped at the array's edge, where they are not alike; else None.

    Only newer versions of zarr have such arrays.
    """
    if not is_uneven(array):
        return None
    return tuple(tuple(map(int, sizes)) for sizes in array.write_chunk_sizes)


def zip_entries(store: ZipStore) -> list[zipfile.ZipInfo]:
    """Return what a zip store holds, also one of an open file, which newer versions of zarr take and which has no path."""
    if store.path is None:
        wait(store._ensure_open())
        return store._zf.infolist()
    with zipfile.ZipFile(store.path) as archive:
        return archive.infolist()


def inside(store: object) -> Store | None:
    """Return the store inside a wrapper; None for one that is none."""
    return store._store if isinstance(store, WrapperStore) else None


def byte_bounds(byte_range: ByteRequest, length: int) -> slice:
    """Return the part of a value that a request for bytes means."""
    if isinstance(byte_range, RangeByteRequest):
        return slice(byte_range.start, byte_range.end)
    if isinstance(byte_range, OffsetByteRequest):
        return slice(byte_range.offset, length)
    return slice(max(0, length - byte_range.suffix), length)
