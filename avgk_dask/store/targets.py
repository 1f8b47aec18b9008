"""Targets: where a store is to be written at once, or not at all."""

from __future__ import annotations

import os
import pathlib
import shutil
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import zarr
from zarr.abc.store import Store
from zarr.core.sync import sync
from zarr.storage import LocalStore, StorePath

from ..errors import OptionError
from .checked import bare_store
from .drafts import check_target, writable
from .failures import writing
from .locations import locate
from .showing import Options, address_of

#: A folder is gone for good if it has not come back after so many pauses of so many seconds.
_CALM, _PAUSE = 4, 0.05


@dataclass(frozen=True)
class Target:
    """A place for a new store. As a context it gives the path to write to; what fails is removed.

    A local store that is overwritten stays until the new one is finished.
    """

    path: Any = field(repr=False)
    place: Any = field(repr=False)
    options: Options | None = field(repr=False)

    @classmethod
    def of(cls, path: Any, options: Options | None, overwrite: bool, apart_from: Sequence[Any]) -> Target:
        """Give the target at a path, which must not be where any of the sources is."""
        store, location = writable(path, options)
        mine = _address(store, "")
        for source in apart_from:
            other = _source_address(source)
            if other and (mine == other or mine.startswith(f"{other}/") or other.startswith(f"{mine}/")):
                raise OptionError(
                    f"out must not be where the scores or labels are; got {location!r}. Choose another path."
                )
        with writing(location, path, options):
            check_target(store, location, overwrite)
        bare = bare_store(store)
        if overwrite and isinstance(bare, LocalStore) and bare.root.exists():
            aside = bare.root.resolve()
            return cls(aside, aside.with_name(f".{aside.name}-{uuid.uuid4().hex[:8]}"), options)
        return cls(path, path, options)

    def __enter__(self) -> Any:
        return self.place

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._remove()
        elif self.place is not self.path:
            old = self.place.with_name(f"{self.place.name}-old")
            os.replace(self.path, old)
            os.replace(self.place, self.path)
            shutil.rmtree(old)

    def _remove(self) -> None:
        store, location = writable(self.place, self.options)
        bare = bare_store(store)
        if isinstance(bare, LocalStore):
            remove_for_good(bare.root)
        else:
            with writing(location, self.place, self.options):
                sync(store.delete_dir(""))


def remove_for_good(root: pathlib.Path) -> None:
    """Remove a folder, again where a write that was under way when this one was interrupted has put back some of it."""
    n_calm = 0
    while n_calm < _CALM:
        shutil.rmtree(root, ignore_errors=True)
        time.sleep(_PAUSE)
        n_calm = 0 if root.exists() else n_calm + 1


def _source_address(source: Any) -> str | None:
    """Give the address of a path or of something zarr has opened; None for anything else."""
    if isinstance(source, (zarr.Array, zarr.Group)):
        source = source.store_path
    if isinstance(source, StorePath):
        return _address(source.store, source.path)
    if isinstance(source, Store):
        return _address(source, "")
    if not isinstance(source, (str, os.PathLike)) or os.fspath(source) == "-":
        return None
    text = os.fspath(source).removeprefix("file://")
    return _address(locate(text, write=True), "") if "://" in text else os.path.realpath(text)


def _address(store: Any, path: str) -> str:
    bare = bare_store(store)
    root = os.path.realpath(bare.root) if isinstance(bare, LocalStore) else address_of(bare).rstrip("/")
    return f"{root}/{path}".rstrip("/")
