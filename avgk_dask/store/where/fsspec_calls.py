"""What we need of fsspec's asynchronous file systems, whose methods begin with an underscore: the one module that knows them."""

from __future__ import annotations

import contextlib
from typing import Any

from zarr.storage import FsspecStore


def _path(store: FsspecStore, key: str) -> str:
    return f"{store.path.rstrip('/')}/{key}"


async def find(store: FsspecStore, prefix: str) -> dict[str, Any]:
    """Return the files below a prefix of a store, by their path in the file system, with what it knows of each."""
    found: dict[str, Any] = await store.fs._find(_path(store, prefix), detail=True)
    return found


async def list_bucket(store: FsspecStore) -> None:
    """List the bucket of a store, to learn whether it is there."""
    await store.fs._ls(store.path.split("/")[0])


async def copy(store: FsspecStore, old: str, new: str) -> None:
    """Copy a key inside a store."""
    await store.fs._cp_file(_path(store, old), _path(store, new))


async def create(store: FsspecStore, key: str, data: bytes) -> bool:
    """Create a key on condition that it is not there; return False where the file system knows no conditions."""
    try:
        with contextlib.suppress(FileExistsError):
            await store.fs._pipe_file(_path(store, key), data, mode="create")
    except (TypeError, NotImplementedError):
        return False
    return True
