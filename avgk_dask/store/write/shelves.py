"""Shelves: files at a path or URL, by name. Each begins with a hash of the rest: what is damaged is as good as not there.

The hash may also cover the name, and what all files of a shelf belong to: then one file in the place of another is damaged.
"""

from __future__ import annotations

import pathlib
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import xxhash
from zarr.abc.store import Store
from zarr.storage import LocalStore

from ...errors import ReadError, refuse
from ..where.addresses import Options, explain, read_key, remove_key, secrets_of, shown, write_key, writing
from ..where.locations import locate

#: Bytes of a hash.
_DIGEST = 16


@dataclass(frozen=True)
class Shelf:
    """Files of bytes in a folder, or below a URL; it travels to workers."""

    store: Store
    location: str
    secrets: tuple[str, ...] = field(default=(), repr=False)
    #: What all names begin with.
    prefix: str = ""
    #: What all files belong to, which their hashes cover together with their names; empty for files that may be renamed.
    owner: str = ""

    @classmethod
    def at(cls, place: object, options: Options | None = None) -> Shelf:
        """Return the shelf at a path, a URL or a Zarr store; nothing is read or written yet."""
        if type(place) is LocalStore:
            place = str(place.root)  # made absolute: workers may have another working folder
        if isinstance(place, Store):
            return cls(place, shown(place), secrets_of(place))
        return cls(locate(place, options, write=True), shown(place), secrets_of(place, options))

    def within(self, folder: str) -> Shelf:
        """Return the shelf of a folder of this one; this one for no name."""
        return replace(self, location=f"{self.location}/{folder}", prefix=f"{folder}/") if folder else self

    def _file(self, name: str) -> pathlib.Path | None:
        """Return the path of a file in a local folder, where files are read and written without zarr's event loop."""
        return self.store.root / f"{self.prefix}{name}" if type(self.store) is LocalStore else None

    def read(self, name: str) -> memoryview | None:
        """Return the bytes of a file, or None if there is none, or it is damaged."""
        data = memoryview(self.read_plain(name) or b"")
        whole = len(data) >= _DIGEST and self._hash(name, [data[_DIGEST:]]) == data[:_DIGEST]
        return data[_DIGEST:] if whole else None

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        """Write a file of some parts, over one of that name."""
        self.write_plain(name, [self._hash(name, parts), *parts])

    def _hash(self, name: str, parts: Sequence[bytes | memoryview]) -> bytes:
        hashed = xxhash.xxh3_128(f"{self.owner} {self.prefix}{name}\n".encode() if self.owner else b"")
        for part in parts:
            hashed.update(part)
        return hashed.digest()

    def read_plain(self, name: str) -> bytes | None:
        """Return the bytes of a file that has no hash, or None if there is none."""
        try:
            file = self._file(name)
            return read_key(self.store, self.prefix + name) if file is None else _read_file(file)
        except Exception as error:
            why = explain(error, self.secrets, "Check the place and its permissions.")
            refuse(ReadError(f"could not read {name} of {self.location}: {why}"))

    def write_plain(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        """Write a file without a hash, for people to read."""
        with writing(f"{name} of {self.location}", *self.secrets):
            file = self._file(name)
            if file is None:
                write_key(self.store, self.prefix + name, b"".join(parts))
            else:
                _write_file(file, parts)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, where they are there."""
        for name in names:
            with writing(f"{name} of {self.location}", *self.secrets):
                remove_key(self.store, self.prefix + name)


def _read_file(path: pathlib.Path) -> bytes | None:
    try:
        if path.exists() and not path.is_file():  # a pipe or device, whose reading may never end
            raise OSError("it is not a regular file")
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _write_file(path: pathlib.Path, parts: Sequence[bytes | memoryview]) -> None:
    """Write a file aside, and put it in its place at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}-{uuid.uuid4().hex[:8]}")
    try:
        with open(aside, "xb") as file:
            file.writelines(parts)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
