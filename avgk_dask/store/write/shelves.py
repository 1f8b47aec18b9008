"""Shelves: small files at a path or URL, by name, each of which is there whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from zarr.abc.store import Store

from ...credentials import shown
from ...errors import ReadError, refuse
from ..read.listing import list_keys
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

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file; None where there is none."""
        try:
            return read_key(self.store, name)
        except Exception as error:
            why = cause(error, self.secrets)
            todo = advice(why, "Check the place and its permissions.")
            refuse(ReadError(f"could not read {name} of {self.location}: {why}. {todo}"))

    def write(self, name: str, data: bytes) -> None:
        """Write a file, over one of that name."""
        with writing(f"{name} of {self.location}", *self.secrets):
            write_key(self.store, name, data)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, where they are there."""
        for name in names:
            with writing(f"{name} of {self.location}", *self.secrets):
                remove_key(self.store, name)

    def names(self, prefix: str) -> list[str]:
        """Return the names below a prefix; none where they cannot be listed."""
        return sorted(list_keys(self.store, prefix) or ())
