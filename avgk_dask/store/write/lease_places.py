"""Where leases are stored: files, objects, or keys of any other store. Each is ``.avgk-lease/N`` below the store's root.

N counts up: a lease that is taken over stays, and the next number is created next to it. So nothing but "create unless
it is there" is needed to let exactly one of several win, and of all there are, the highest is the one that holds.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import stat
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, ObjectStore

from ...threads import forkable
from ..read.listing import list_keys, objects
from ..where.addresses import bare_store, create, put, read_key, remove_key, wait, write_key

#: At the root of a draft: a name that is no node and no chunk.
FOLDER = ".avgk-lease"
#: Bytes that a lease may have.
_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Found:
    """A stored lease: its number and bytes, and the time of its last change if the store reports it."""

    number: int
    data: bytes
    modified: float | None = None
    #: How the store identifies this version.
    version: dict[str, str] | None = None


class Place:
    """Leases as keys of any store: exact among the threads of one process, among several as far as its client can."""

    #: Whether a look costs next to nothing.
    is_near = False
    _one_at_a_time = forkable(threading.Lock())

    def __init__(self, store: Any, prefix: str) -> None:
        self._store, self._prefix = store, prefix
        #: Files that are renewed with the lease.
        self.more: list[pathlib.Path] = []

    def key(self, number: int) -> str:
        """Return what to remove by hand."""
        return f"{self._prefix}/{number}"

    def newest(self) -> Found | None:
        """Return the lease that holds, or did; None if there is none."""
        number = max(self._numbers(), default=0)
        return self._read(number) if number else None

    def create(self, number: int, data: bytes) -> None:
        """Create a lease, unless one of this number is there; whose it is must be looked up then."""
        with self._one_at_a_time:
            wait(self._create(self.key(number), data))

    async def _create(self, key: str, data: bytes) -> None:
        """Create a key: on condition if a file system of fsspec can (s3fs and gcsfs), else after a look."""
        if await self._store.exists(key):
            return
        if not (isinstance(self._store, FsspecStore) and await create(self._store, key, data)):
            await put(self._store, key, data)

    def renew(self, found: Found, data: bytes) -> None:
        """Store a lease again, or the time of its renewal, unless it has changed meanwhile."""
        write_key(self._store, self.key(found.number), data)

    def remove(self) -> None:
        """Remove all leases."""
        for number in self._numbers():
            self._delete(self.key(number))

    def _numbers(self) -> list[int]:
        if isinstance(self._store, FsspecStore):
            self._store.fs.invalidate_cache()  # what it listed before is not what others have written since
        keys = list_keys(self._store, self._prefix)
        return [1] if keys is None else _numbers(keys)

    def _read(self, number: int) -> Found | None:
        got = read_key(self._store, self.key(number))
        return None if got is None else Found(number, got)

    def _delete(self, key: str) -> None:
        remove_key(self._store, key)


def place_of(store: Store, below: str = "") -> Place:
    """Return the place of a store's leases, or of those of a part below its root."""
    bare = bare_store(store)
    if isinstance(bare, LocalStore):
        return FilePlace(bare.root / below)
    prefix = f"{below}/{FOLDER}" if below else FOLDER
    return _ObjectPlace(bare.store, prefix) if isinstance(bare, ObjectStore) else Place(bare, prefix)


class FilePlace(Place):
    """Files, created exclusively, which also network file systems do at once or not at all."""

    is_near = True

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(None, "")
        self.root, self._folder = root, root / FOLDER
        #: Folders that were not there before, the innermost first.
        self._made: list[pathlib.Path] = []

    def _numbers(self) -> list[int]:
        try:
            return _numbers(os.listdir(self._folder))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _read(self, number: int) -> Found | None:
        try:
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


class _ObjectPlace(Place):
    """Objects through obstore, created and renewed on condition; without, if the server knows no conditions."""

    def _numbers(self) -> list[int]:
        return _numbers(entry.key for entry in objects(self._store, self._prefix))

    def _read(self, number: int) -> Found | None:
        import obstore

        try:
            got = obstore.get(self._store, self.key(number))
        except FileNotFoundError:  # obstore's own is one, too
            return None
        version = {name: str(got.meta[name]) for name in ("e_tag", "version") if got.meta.get(name)}
        return Found(number, bytes(got.bytes()), got.meta["last_modified"].timestamp(), version)

    def create(self, number: int, data: bytes) -> None:
        from obstore.exceptions import AlreadyExistsError

        with contextlib.suppress(AlreadyExistsError):
            self._put(number, data, "create")

    def renew(self, found: Found, data: bytes) -> None:
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

    def _delete(self, key: str) -> None:
        import obstore

        obstore.delete(self._store, key)


def read_small(path: pathlib.Path) -> tuple[bytes, float]:
    """Return the bytes of a small file and the time of its last change; no bytes if it is not a regular file, or large."""
    target = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        found = os.fstat(target)
        is_small = stat.S_ISREG(found.st_mode) and found.st_size <= _MOST_BYTES
        return os.read(target, _MOST_BYTES) if is_small else b"", found.st_mtime
    finally:
        os.close(target)


def _numbers(keys: Iterable[str]) -> list[int]:
    return [int(name) for key in keys if (name := key.rpartition("/")[2]).isdecimal()]
