"""Shelves: small files at a path or URL, by name, each of which is there whole or not at all."""

from __future__ import annotations

import pathlib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from zarr.abc.store import Store
from zarr.storage import LocalStore

from ...credentials import shown
from ...errors import ReadError, refuse
from ..where.addresses import Options, secrets_of
from ..where.failures import advice, cause, writing
from ..where.locations import locate
from ..where.zarr_calls import read_key, remove_key, write_key


@dataclass(frozen=True)
class Shelf:
    """Files of bytes in a folder, or below a URL; it travels to workers."""

    store: Store
    location: str
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def at(cls, place: object, options: Options | None = None) -> Shelf:
        """Return the shelf at a path, a URL or a Zarr store; nothing is read or written yet."""
        if isinstance(place, Store):
            return cls(place, str(place), secrets_of(place))
        return cls(locate(place, options, write=True), shown(place), secrets_of(place, options))

    @property
    def _folder(self) -> pathlib.Path | None:
        """The folder, where it is a local one: files are read and written there without zarr's event loop."""
        return pathlib.Path(self.store.root) if type(self.store) is LocalStore else None

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file; None where there is none."""
        try:
            return read_key(self.store, name) if self._folder is None else _read_file(self._folder / name)
        except Exception as error:
            why = cause(error, self.secrets)
            todo = advice(why, "Check the place and its permissions.")
            refuse(ReadError(f"could not read {name} of {self.location}: {why}. {todo}"))

    def write(self, name: str, data: bytes) -> None:
        """Write a file, over one of that name."""
        with writing(f"{name} of {self.location}", *self.secrets):
            if self._folder is None:
                write_key(self.store, name, data)
            else:
                _write_file(self._folder / name, data)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, where they are there."""
        for name in names:
            with writing(f"{name} of {self.location}", *self.secrets):
                remove_key(self.store, name)


def _read_file(path: pathlib.Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _write_file(path: pathlib.Path, data: bytes) -> None:
    """Write a file aside, and put it in its place at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}-{uuid.uuid4().hex[:8]}")
    try:
        aside.write_bytes(data)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
