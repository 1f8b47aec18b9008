"""Roots of stores to be written: what is there already, whether it may be written, and the roots of parts."""

from __future__ import annotations

import json
import os

from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore

from ...arrays import whole_number
from ...errors import OptionError, StoreError
from ..read.listing import listed_keys
from ..read.manifest import ATTRIBUTE, FORMAT, Document, Seal, parse_document
from ..where.addresses import (
    Options,
    Path,
    Writable,
    bare_store,
    read_key,
    refuse_forked,
    shown,
    wait,
    write_key,
)
from ..where.locations import locate
from .lease_places import FOLDER as LEASES
from .lease_places import place_of
from .leases import refuse_held

#: Folder of the parts that several processes write.
PARTS = "parts"


def part_path(path: Writable, part: int) -> str:
    """Return the path of one part of a store that several processes write."""
    if whole_number(part) < 0:
        raise OptionError(f"part must be the number of this process, from 0; got {part!r}. Give each process its own.")
    if not isinstance(path, (str, os.PathLike)):
        raise OptionError("path must be a path or URL for a store in parts; got an opened store. Pass where it is.")
    return f"{os.fspath(path).rstrip('/')}/{PARTS}/{int(part):05}"


def create_parts(store: Store, location: str) -> None:
    """Create the root of a store that is written in parts, unless another process has."""
    state = Seal(FORMAT, False, {"parts": True}).to_state()
    for key, attributes in (("zarr.json", {ATTRIBUTE: state}), (f"{PARTS}/zarr.json", Document())):
        if not key_exists(store, key):
            write_document(store, key, {"attributes": attributes, "zarr_format": 3, "node_type": "group"})
        if (read_document(store, "zarr.json", location).get("attributes") or {}).get(ATTRIBUTE) != state:
            raise StoreError(
                f"store must be new, or one that is written in parts; got another, {location!r}. Choose another path."
            )


def read_document(store: Store, key: str, location: str) -> Document:
    """Read a JSON object of a store that is to be continued."""
    found = read_key(store, key)
    if found is None:
        raise StoreError(f"{location} has no {key}; it cannot be continued. Check the path, or write it again.")
    return parse_document(found, f"{key} of {location}")


def document_bytes(value: Document) -> bytes:
    """Return a JSON object as zarr writes it."""
    return json.dumps(value, indent=2).encode()


def write_document(store: Store, key: str, value: Document) -> None:
    """Write a JSON object."""
    write_key(store, key, document_bytes(value))


def writable(path: object, options: Options | None = None) -> tuple[Store, str]:
    """Return the store to write to and its name."""
    if isinstance(path, Store):
        refuse_forked(path)
        return path, shown(path)
    return locate(path, options, write=True), shown(path)


def check_target(store: Store, location: str, overwrite: bool) -> None:
    """Refuse a place that holds anything, unless it is a store that may be overwritten."""
    metadata = is_begun(store)
    if overwrite and metadata:
        refuse_held_parts(store, location)
    elif not overwrite and (metadata or holds_anything(store)):
        raise StoreError(
            f"store must be new; got {location!r}, which exists. "
            "Choose another path, or replace it with overwrite=True (on the command line --overwrite)."
        )
    elif overwrite and holds_anything(store):
        raise StoreError(
            f"store must be a Zarr store to be overwritten; got {location!r}, something else. Choose another path."
        )


def is_begun(store: Store) -> bool:
    """Whether there is the root of a Zarr store."""
    return any(key_exists(store, name) for name in ("zarr.json", ".zgroup", ".zarray"))


def key_exists(store: Store, key: str) -> bool:
    """Whether there is a key."""
    bare = bare_store(store)
    if isinstance(bare, LocalStore):  # opening it for writing would make the folder
        return (bare.root / key).is_file()
    return read_key(store, key) is not None


def holds_anything(store: Store) -> bool:
    """Whether there is any key in a store."""
    bare = bare_store(store)
    if isinstance(bare, LocalStore):
        try:  # one look: another may make the folder between two
            names = os.listdir(bare.root)
        except FileNotFoundError:
            return bare.root.is_symlink()
        except NotADirectoryError:
            return os.path.lexists(bare.root)
        # What a writer that was killed may leave before its draft is one.
        return any(name != LEASES and not name.endswith(".partial") for name in names)
    return any(not key.startswith(f"{LEASES}/") for key in listed_keys(store, ""))


def draft_owner(store: Store) -> str | None:
    """Return the owner of the lease under which an incomplete store was begun, or None if there is none."""
    if not key_exists(store, "zarr.json"):
        return None
    try:
        seal = Seal.read(read_document(store, "zarr.json", "").get("attributes"), "")
    except StoreError:  # of damaged metadata, which are nobody's
        return None
    owner = None if seal is None or seal.complete else seal.noted.get("owner")
    return owner if isinstance(owner, str) else None


def clear(store: Store, keep: tuple[str, ...] = (LEASES,)) -> None:
    """Remove all that a store holds, but for what is named of its root."""
    bare = bare_store(store)
    if isinstance(bare, LocalStore):
        is_key = {path.name: path.is_file() or path.is_symlink() for path in bare.root.iterdir()}
    else:
        if isinstance(bare, FsspecStore):
            bare.fs.invalidate_cache()
        is_key = {key.split("/")[0]: "/" not in key for key in listed_keys(store, "")}
    for name in sorted(is_key.keys() - set(keep)):
        wait(store.delete(name) if is_key[name] else store.delete_dir(name))


def part_numbers(store: Store) -> list[str]:
    """Return the names of the parts that are there."""
    return sorted({key.split("/")[1] for key in listed_keys(store, PARTS) if key.count("/") > 1})


def refuse_held_parts(store: Store, location: str) -> None:
    """Refuse a store of which another writes a part."""
    for number in part_numbers(store):
        refuse_held(place_of(store, f"{PARTS}/{number}"), f"part {int(number)} of {location}")


def is_store(path: Path) -> bool:
    """Whether a local path is the root of a Zarr store."""
    return is_begun(LocalStore(os.fspath(path)))
