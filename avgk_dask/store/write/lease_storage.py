"""Where leases are stored: in files, objects, or keys of any other store, each as ``.avgk-lease/N`` below the store's root.

N counts up: a lease that is taken over stays, and its successor gets the next number. So "create unless it exists" is the only
operation needed to let exactly one of several writers win, and the lease with the highest number is the valid one.
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
from ..read.listing import list_keys, list_objects
from ..where.addresses import bare_store, create, put, read_key, remove_key, wait, write_key

#: At the root of a draft: a name of neither a node nor a chunk.
FOLDER = ".avgk-lease"
#: Largest size of a lease in bytes.
_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class StoredLease:
    """A stored lease: its number and bytes, and the time of its last change if the store reports it."""

    number: int
    data: bytes
    modified: float | None = None
    #: How the store identifies this version.
    version: dict[str, str] | None = None


class LeaseKeys:
    """Leases as keys of any store: exact among the threads of one process, among several as far as its client allows."""

    #: Whether reading a lease costs next to nothing.
    is_local = False
    _lock = forkable(threading.Lock())

    def __init__(self, store: Any, prefix: str) -> None:
        self._store, self._prefix = store, prefix
        #: Files that are renewed with the lease.
        self.renewed_files: list[pathlib.Path] = []

    def key(self, number: int) -> str:
        """Return what users remove by hand."""
        return f"{self._prefix}/{number}"

    def newest(self) -> StoredLease | None:
        """Return the lease with the highest number, or None."""
        number = max(self._numbers(), default=0)
        return self._read(number) if number else None

    def create(self, number: int, data: bytes) -> None:
        """Create a lease unless one with this number exists; the caller reads it to see who won."""
        with self._lock:
            wait(self._create(self.key(number), data))

    async def _create(self, key: str, data: bytes) -> None:
        """Create a key: conditionally if a file system of fsspec can (s3fs and gcsfs), else after checking."""
        if await self._store.exists(key):
            return
        if not (isinstance(self._store, FsspecStore) and await create(self._store, key, data)):
            await put(self._store, key, data)

    def renew(self, lease: StoredLease, data: bytes) -> None:
        """Store a lease again, or the time of its renewal, unless another run has changed it."""
        write_key(self._store, self.key(lease.number), data)

    def remove(self) -> None:
        """Remove all leases."""
        for number in self._numbers():
            self._delete(self.key(number))

    def _numbers(self) -> list[int]:
        if isinstance(self._store, FsspecStore):
            self._store.fs.invalidate_cache()  # other writers may have changed the listing since
        keys = list_keys(self._store, self._prefix)
        return [1] if keys is None else _numbers(keys)

    def _read(self, number: int) -> StoredLease | None:
        data = read_key(self._store, self.key(number))
        return None if data is None else StoredLease(number, data)

    def _delete(self, key: str) -> None:
        remove_key(self._store, key)


def leases_of(store: Store, below: str = "") -> LeaseKeys:
    """Return the storage for the leases of a store, or of a part below its root."""
    bare = bare_store(store)
    if isinstance(bare, LocalStore):
        return LeaseFiles(bare.root / below)
    prefix = f"{below}/{FOLDER}" if below else FOLDER
    return _LeaseObjects(bare.store, prefix) if isinstance(bare, ObjectStore) else LeaseKeys(bare, prefix)


class LeaseFiles(LeaseKeys):
    """Files, created exclusively, which is atomic on network file systems as well."""

    is_local = True

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(None, "")
        self.root, self._folder = root, root / FOLDER
        #: Folders that did not exist before, the innermost first.
        self._created: list[pathlib.Path] = []

    def _numbers(self) -> list[int]:
        try:
            return _numbers(os.listdir(self._folder))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _read(self, number: int) -> StoredLease | None:
        try:
            return StoredLease(number, *read_small(self._folder / str(number)))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def create(self, number: int, data: bytes) -> None:
        """Create the file and its folders."""
        if not self._created:
            self._created = [folder for folder in (self.root, *self.root.parents) if not folder.exists()]
        path = self._folder / str(number)
        try:
            os.makedirs(self._folder, exist_ok=True)
            file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileNotFoundError:  # another process has just removed the folder
            return
        except FileExistsError:
            if not path.exists():  # a file instead of a folder
                raise
            return
        try:
            os.write(file, data)
        except BaseException:
            path.unlink(missing_ok=True)
            self._remove_folders(self._folder)
            raise
        finally:
            os.close(file)

    def renew(self, lease: StoredLease, data: bytes) -> None:
        """Set the modification time: nothing is written that could be lost in part or restored later."""
        for path in (self._folder / str(lease.number), *self.renewed_files):
            with contextlib.suppress(FileNotFoundError):
                os.utime(path)

    def remove(self) -> None:
        """Remove the folder, and the folders above it that this writer created and that are empty."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._remove_folders()

    def _remove_folders(self, *first: pathlib.Path) -> None:
        with contextlib.suppress(OSError):
            for folder in (*first, *self._created):
                folder.rmdir()  # only if it is empty

    def key(self, number: int) -> str:
        """Return the path of the folder."""
        return str(self._folder)


class _LeaseObjects(LeaseKeys):
    """Objects through obstore, created and renewed conditionally if the server supports it."""

    def _numbers(self) -> list[int]:
        return _numbers(entry.key for entry in list_objects(self._store, self._prefix))

    def _read(self, number: int) -> StoredLease | None:
        import obstore

        try:
            answer = obstore.get(self._store, self.key(number))
        except FileNotFoundError:  # also the base class of obstore's own
            return None
        version = {name: str(answer.meta[name]) for name in ("e_tag", "version") if answer.meta.get(name)}
        return StoredLease(number, bytes(answer.bytes()), answer.meta["last_modified"].timestamp(), version)

    def create(self, number: int, data: bytes) -> None:
        from obstore.exceptions import AlreadyExistsError

        with contextlib.suppress(AlreadyExistsError):
            self._put(number, data, "create")

    def renew(self, lease: StoredLease, data: bytes) -> None:
        from obstore.exceptions import PreconditionError

        with contextlib.suppress(PreconditionError):
            self._put(lease.number, data, lease.version)

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
    """Return the bytes of a small file and its modification time; no bytes if it is not a regular file, or large."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        status = os.fstat(file)
        is_small = stat.S_ISREG(status.st_mode) and status.st_size <= _MOST_BYTES
        return os.read(file, _MOST_BYTES) if is_small else b"", status.st_mtime
    finally:
        os.close(file)


def _numbers(keys: Iterable[str]) -> list[int]:
    return [int(name) for key in keys if (name := key.rpartition("/")[2]).isdecimal()]
