"""Folders of files with hashes, at a path or URL. Each file begins with a hash of the rest; a damaged one counts as absent.

The hash may also cover the file's name and the owner of the folder: a file in the place of another is then damaged.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import xxhash
from zarr.abc.store import Store
from zarr.storage import LocalStore

from ...errors import ReadError, refuse
from ...files.sealed import read_file, replace_file
from ..where.addresses import Options, explain, read_key, redact, remove_key, secrets_of, write_key, writing
from ..where.locations import locate

#: Bytes of a hash.
_DIGEST = 16


@dataclass(frozen=True)
class HashedFolder:
    """Files in a folder or below a URL; it is sent to workers."""

    store: Store
    location: str
    secrets: tuple[str, ...] = field(default=(), repr=False)
    #: Prefix of all names.
    prefix: str = ""
    #: The owner of all files, which their hashes cover together with their names; empty if files may be renamed.
    owner: str = ""

    @classmethod
    def at(cls, place: object, options: Options | None = None) -> HashedFolder:
        """Return the folder at a path, a URL or a Zarr store; nothing is read or written yet."""
        if type(place) is LocalStore:
            place = str(place.root)  # which ``locate`` makes absolute: workers may have another working folder
        if isinstance(place, Store):
            return cls(place, redact(place), secrets_of(place))
        return cls(locate(place, options, write=True), redact(place), secrets_of(place, options))

    def within(self, folder: str) -> HashedFolder:
        """Return a subfolder, or this folder if the name is empty."""
        return replace(self, location=f"{self.location}/{folder}", prefix=f"{folder}/") if folder else self

    def _file(self, name: str) -> pathlib.Path | None:
        """Return the path of a file in a local folder, which needs no event loop of zarr, or None elsewhere."""
        return self.store.root / f"{self.prefix}{name}" if type(self.store) is LocalStore else None

    def read(self, name: str) -> memoryview | None:
        """Return the bytes of a file, or None if it is absent or damaged."""
        data = memoryview(self.read_plain(name) or b"")
        is_intact = len(data) >= _DIGEST and self._hash(name, [data[_DIGEST:]]) == data[:_DIGEST]
        return data[_DIGEST:] if is_intact else None

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        """Write the concatenation of some parts to a file, replacing it if it exists."""
        self.write_plain(name, [self._hash(name, parts), *parts])

    def _hash(self, name: str, parts: Sequence[bytes | memoryview]) -> bytes:
        hashed = xxhash.xxh3_128(f"{self.owner} {self.prefix}{name}\n".encode() if self.owner else b"")
        for part in parts:
            hashed.update(part)
        return hashed.digest()

    def read_plain(self, name: str) -> bytes | None:
        """Return the bytes of a file without a hash, or None if it does not exist."""
        try:
            file = self._file(name)
            if file is None:
                return read_key(self.store, self.prefix + name)
            with suppress(FileNotFoundError):
                return read_file(file)
            return None
        except Exception as error:
            why = explain(error, self.secrets, "Check the place and its permissions.")
            refuse(ReadError(f"could not read {name} of {self.location}: {why}"))

    def write_plain(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        """Write a file without a hash, which people can read."""
        with writing(f"{name} of {self.location}", *self.secrets):
            file = self._file(name)
            if file is None:
                write_key(self.store, self.prefix + name, b"".join(parts))
            else:
                file.parent.mkdir(parents=True, exist_ok=True)
                replace_file(file, parts)

    def remove(self, names: Iterable[str]) -> None:
        """Remove the files that exist."""
        for name in names:
            with writing(f"{name} of {self.location}", *self.secrets):
                remove_key(self.store, self.prefix + name)
