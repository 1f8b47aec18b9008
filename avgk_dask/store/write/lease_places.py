"""Where leases are stored: files, objects, or keys of any other store. Each is ``.avgk-lease/N`` below the store's root.

N counts up: a lease that is taken over stays, and the next number is created beside it. So nothing but "create unless
it is there" is needed to let exactly one of several win, and of all there are, the highest is the one that holds.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import stat
import threading
from dataclasses import dataclass
from typing import Any, Protocol

from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, ObjectStore

from ...threads import forkable
from ..read.checked import bare_store
from ..read.listing import list_keys, objects
from ..where import addresses as fsspec_calls
from ..where.addresses import ObjectClient, put, read_key, wait, write_key

#: At the root of a draft: a name that is no node and no chunk.
FOLDER = ".avgk-lease"
#: Bytes that a lease may have.
_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Found:
    """A lease as it is stored: its number and bytes, and the time of its last change where the store tells it."""

    number: int
    data: bytes
    modified: float | None = None
    #: What the store knows this version by.
    version: dict[str, str] | None = None


class Place(Protocol):
    """Where the leases of one store are."""

    #: Whether a look costs next to nothing.
    is_near: bool

    def newest(self) -> Found | None:
        """Return the lease that holds, or did; None where there is none."""

    def create(self, number: int, data: bytes) -> None:
        """Create a lease, unless one of this number is there; whose it is must be looked up then."""

    def renew(self, found: Found, data: bytes) -> None:
        """Store a lease again, or the time of its renewal, unless it has changed meanwhile."""

    def remove(self) -> None:
        """Remove all leases."""

    def key(self, number: int) -> str:
        """Return what to remove by hand."""


def place_of(store: Store, below: str = "") -> Place:
    """Return the place of a store's leases, or of those of a part below its root."""
    bare = bare_store(store)
    if isinstance(bare, LocalStore):
        return FilePlace(bare.root / below)
    prefix = f"{below}/{FOLDER}" if below else FOLDER
    return ObjectPlace(bare.store, prefix) if isinstance(bare, ObjectStore) else KeyPlace(bare, prefix)


class FilePlace:
    """Files, created exclusively, which also network file systems do at once or not at all."""

    is_near = True

    def __init__(self, root: pathlib.Path) -> None:
        self.root, self._folder = root, root / FOLDER
        #: Folders that were not there before, the innermost first.
        self._made: list[pathlib.Path] = []
        #: Files that are renewed with the lease.
        self.more: list[pathlib.Path] = []

    def newest(self) -> Found | None:
        """Return the lease of the highest number."""
        try:
            number = max(_numbers(os.listdir(self._folder)), default=0)
            return Found(number, *read_small(self._folder / str(number)))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def create(self, number: int, data: bytes) -> None:
        """Create the file, and the folders it is in."""
        if not self._made:
            self._made = [folder for folder in (self.root, *self.root.parents) if not folder.exists()]
        path = self._folder / str(number)
        try:
            os.makedirs(self._folder, exist_ok=True)
            target = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileNotFoundError:  # another has just removed the folder
            return
        except FileExistsError:
            if not path.exists():  # a file instead of a folder
                raise
            return
        try:
            os.write(target, data)
        except BaseException:
            path.unlink(missing_ok=True)
            self._remove_folders(self._folder)
            raise
        finally:
            os.close(target)

    def renew(self, found: Found, data: bytes) -> None:
        """Set the time of the file's last change: nothing is written that could be lost in part or put back."""
        for path in (self._folder / str(found.number), *self.more):
            with contextlib.suppress(FileNotFoundError):
                os.utime(path)

    def remove(self) -> None:
        """Remove the folder, and those above it that are empty and were not there before."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._remove_folders()

    def _remove_folders(self, *first: pathlib.Path) -> None:
        with contextlib.suppress(OSError):
            for folder in (*first, *self._made):
                folder.rmdir()  # only if it is empty

    def key(self, number: int) -> str:
        """Return the path of the folder."""
        return str(self._folder)


class ObjectPlace:
    """Objects through obstore, created and renewed on condition; without, where the server knows no conditions."""

    is_near = False

    def __init__(self, store: ObjectClient, prefix: str) -> None:
        self._store, self._prefix = store, prefix

    def newest(self) -> Found | None:
        """Return the lease of the highest number."""
        import obstore

        number = max(self._numbers(), default=0)
        if not number:
            return None
        try:
            got = obstore.get(self._store, self.key(number))
        except FileNotFoundError:  # obstore's own is one, too
            return None
        version = {name: str(got.meta[name]) for name in ("e_tag", "version") if got.meta.get(name)}
        return Found(number, bytes(got.bytes()), got.meta["last_modified"].timestamp(), version)

    def _numbers(self) -> list[int]:
        found = [key for key, _ in objects(self._store, self._prefix)]
        return _numbers([path.rpartition("/")[2] for path in found])

    def create(self, number: int, data: bytes) -> None:
        """Create the object, if there is none."""
        from obstore.exceptions import AlreadyExistsError

        with contextlib.suppress(AlreadyExistsError):
            self._put(number, data, "create")

    def renew(self, found: Found, data: bytes) -> None:
        """Replace the object, if it is the same version."""
        from obstore.exceptions import PreconditionError

        with contextlib.suppress(PreconditionError):
            self._put(found.number, data, found.version)

    def _put(self, number: int, data: bytes, mode: Any) -> None:
        import obstore
        from obstore.exceptions import NotSupportedError

        try:
            obstore.put(self._store, self.key(number), data, mode=mode)
        except (NotSupportedError, NotImplementedError):
            if mode != "create" or number not in self._numbers():
                obstore.put(self._store, self.key(number), data)

    def remove(self) -> None:
        """Remove all leases."""
        import obstore

        for number in self._numbers():
            obstore.delete(self._store, self.key(number))

    def key(self, number: int) -> str:
        """Return the key of a lease."""
        return f"{self._prefix}/{number}"


class KeyPlace:
    """Keys of any other store: exact among the threads of one process, among several as far as its client can."""

    is_near = False
    _one_at_a_time = forkable(threading.Lock())

    def __init__(self, store: Store, prefix: str) -> None:
        self._store, self._prefix = store, prefix

    def newest(self) -> Found | None:
        """Return the lease of the highest number."""
        number = max(self._numbers(), default=0)
        got = read_key(self._store, self.key(number)) if number else None
        return None if got is None else Found(number, got)

    def _numbers(self) -> list[int]:
        if isinstance(self._store, FsspecStore):
            self._store.fs.invalidate_cache()  # what it listed before is not what others have written since
        keys = list_keys(self._store, self._prefix)
        return [1] if keys is None else _numbers([key.rpartition("/")[2] for key in keys])

    def create(self, number: int, data: bytes) -> None:
        """Create the key, if it is not there."""
        with self._one_at_a_time:
            wait(_create(self._store, self.key(number), data))

    def renew(self, found: Found, data: bytes) -> None:
        """Write the key again."""
        write_key(self._store, self.key(found.number), data)

    def remove(self) -> None:
        """Remove all leases."""
        for number in self._numbers():
            wait(self._store.delete(self.key(number)))

    def key(self, number: int) -> str:
        """Return the key of a lease."""
        return f"{self._prefix}/{number}"


def read_small(path: pathlib.Path) -> tuple[bytes, float]:
    """Return the bytes of a small file and the time of its last change; no bytes of what is no plain file, or is large."""
    target = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        found = os.fstat(target)
        is_small = stat.S_ISREG(found.st_mode) and found.st_size <= _MOST_BYTES
        return os.read(target, _MOST_BYTES) if is_small else b"", found.st_mtime
    finally:
        os.close(target)


def _numbers(names: list[str]) -> list[int]:
    return [int(name) for name in names if name.isdecimal()]


async def _create(store: Store, key: str, data: bytes) -> None:
    """Create a key: on condition where a file system of fsspec can (s3fs and gcsfs), else after a look."""
    if await store.exists(key):
        return
    if not (isinstance(store, FsspecStore) and await fsspec_calls.create(store, key, data)):
        await put(store, key, data)
