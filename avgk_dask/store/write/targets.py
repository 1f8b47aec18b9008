"""Targets: check whether a place may be written to, and write it completely or not at all.

A target is written under a lease. Output that replaces something is prepared in a staging folder ``.NAME-avgk-xxxxxxxx`` next
to NAME. The folder contains:

- ``owner``: the holder of the lease. A folder without this file is not a staging folder, whatever its name.
- ``new``: the output being written.
- ``ready``: complete files, while they are moved into the folder NAME.
- ``old``: the previous store NAME, while the new one replaces it.

If a run was killed, the next run on NAME cleans up: it moves ``ready`` in, moves ``old`` back if NAME is missing, and removes
the rest. The staging folder of a live run stays.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import zarr
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, StorePath

from ...arrays import whole_number
from ...errors import AvgkError, OptionError, StoreError, WriteError
from ..read.listing import list_keys_or_raise
from ..read.manifest import ATTRIBUTE, FORMAT, Document, Seal, parse_document
from ..where.addresses import (
    Options,
    Path,
    Writable,
    address_of,
    bare_store,
    read_key,
    redact,
    refuse_forked,
    wait,
    write_key,
    writing,
)
from ..where.locations import locate, staging_paths
from .lease_storage import FOLDER as LEASES
from .lease_storage import leases_of, read_small
from .leases import Holder, Lease, LeasedStore, held_error, holder_without_lease, refuse_held, warn_leftover

#: Folder of the parts that several processes write.
PARTS = "parts"
#: For removing a folder that a write may create again: number of checks in a row that must find it absent or empty, seconds
#: before each check, and maximum number of attempts.
_CALM, _PAUSE, _MOST_TRIES = 4, 0.05, 200


def part_path(path: Writable, part: int) -> str:
    """Return the path of one part of a store that several processes write."""
    if whole_number(part) < 0:
        raise OptionError(f"part must be the number of this process, from 0; got {part!r}. Give each process its own.")
    if not isinstance(path, (str, os.PathLike)):
        raise OptionError("path must be a path or URL for a store in parts; got an opened store. Pass its path or URL.")
    return f"{os.fspath(path).rstrip('/')}/{PARTS}/{int(part):05}"


def create_parts(store: Store, location: str) -> None:
    """Create the root of a store that is written in parts, unless another process has done so."""
    state = Seal(FORMAT, False, {"parts": True}).to_state()
    for key, attributes in (("zarr.json", {ATTRIBUTE: state}), (f"{PARTS}/zarr.json", Document())):
        if not key_exists(store, key):
            write_document(store, key, {"attributes": attributes, "zarr_format": 3, "node_type": "group"})
        if (read_document(store, "zarr.json", location).get("attributes") or {}).get(ATTRIBUTE) != state:
            raise StoreError(f"{location!r} exists already and is not written in parts. Choose another path.")


def read_document(store: Store, key: str, location: str) -> Document:
    """Read a JSON object of a store that is to be continued."""
    data = read_key(store, key)
    if data is None:
        raise StoreError(f"{location} has no {key}; it cannot be continued. Check the path, or write it again.")
    return parse_document(data, f"{key} of {location}")


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
        return path, redact(path)
    return locate(path, options, write=True), redact(path)


def check_target(store: Store, location: str, overwrite: bool) -> None:
    """Refuse a place that is not empty, unless it is a store that may be overwritten."""
    exists = has_root(store)
    if overwrite and exists:
        refuse_held_parts(store, location)
    elif not overwrite and (exists or holds_anything(store)):
        raise StoreError(
            f"{location!r} exists already. Choose another path, or replace it with overwrite=True (on the command line "
            "--overwrite)."
        )
    elif overwrite and holds_anything(store):
        raise StoreError(f"cannot overwrite {location!r}: it is not a Zarr store. Choose another path.")


def has_root(store: Store) -> bool:
    """Whether a store has the root metadata of a Zarr store."""
    return any(key_exists(store, name) for name in ("zarr.json", ".zgroup", ".zarray"))


def key_exists(store: Store, key: str) -> bool:
    """Whether a store has a key."""
    bare = bare_store(store)
    if isinstance(bare, LocalStore):  # opening it for writing would create the folder
        return (bare.root / key).is_file()
    return read_key(store, key) is not None


def holds_anything(store: Store) -> bool:
    """Whether a store has any key."""
    bare = bare_store(store)
    if isinstance(bare, LocalStore):
        try:  # one call, since another process may create the folder between two calls
            names = os.listdir(bare.root)
        except FileNotFoundError:
            return bare.root.is_symlink()
        except NotADirectoryError:
            return os.path.lexists(bare.root)
        # Ignore the remains of a writer that was killed before it wrote the root.
        return any(name != LEASES and not name.endswith(".partial") for name in names)
    return any(not key.startswith(f"{LEASES}/") for key in list_keys_or_raise(store, ""))


def draft_owner(store: Store) -> str | None:
    """Return the owner of the lease of the run that began an incomplete store, or None if it is unknown."""
    try:
        seal = Seal.read(read_document(store, "zarr.json", "").get("attributes"), "")
    except StoreError:  # absent or damaged
        return None
    owner = None if seal is None or seal.complete else seal.noted.get("owner")
    return owner if isinstance(owner, str) else None


def clear(store: Store, keep: tuple[str, ...] = (LEASES,)) -> None:
    """Remove everything in a store, except some names at its root."""
    bare = bare_store(store)
    if isinstance(bare, LocalStore):
        is_key = {path.name: path.is_file() or path.is_symlink() for path in bare.root.iterdir()}
    else:
        if isinstance(bare, FsspecStore):
            bare.fs.invalidate_cache()
        is_key = {key.split("/")[0]: "/" not in key for key in list_keys_or_raise(store, "")}
    for name in sorted(is_key.keys() - set(keep)):
        wait(store.delete(name) if is_key[name] else store.delete_dir(name))


def part_numbers(store: Store) -> list[str]:
    """Return the names of the existing parts."""
    return sorted({key.split("/")[1] for key in list_keys_or_raise(store, PARTS) if key.count("/") > 1})


def refuse_held_parts(store: Store, location: str) -> None:
    """Refuse a store if another process writes a part of it."""
    for number in part_numbers(store):
        refuse_held(leases_of(store, f"{PARTS}/{number}"), f"part {int(number)} of {location}")


def is_store(path: Path) -> bool:
    """Whether a local path is the root of a Zarr store."""
    return has_root(LocalStore(os.fspath(path)))


class StagingDir:
    """A folder next to a target, in which a run prepares its output."""

    def __init__(self, target: pathlib.Path, holder: Holder) -> None:
        self.target = target
        self.folder = target.with_name(f".{target.name}-avgk-{holder.owner[:8]}")
        self.new, self.ready, self.old = (self.folder / name for name in ("new", "ready", "old"))
        self.folder.mkdir(parents=True)
        self.mark = self.folder / "owner"
        try:
            self.mark.write_bytes(holder.to_bytes())
        except BaseException:
            self.remove()
            raise

    @classmethod
    def under(cls, lease: Lease, target: pathlib.Path) -> StagingDir:
        """Create the folder for a leased target; its owner file is renewed with the lease."""
        staging = cls(target, lease.holder)
        lease.storage.renewed_files.append(staging.mark)
        return staging

    def swap(self) -> None:
        """Replace the target with ``new``, or leave the target unchanged."""
        try:
            os.replace(self.target, self.old)
            os.replace(self.new, self.target)
        except BaseException:
            _restore(self.old, self.target)
            raise

    def move_in(self) -> None:
        """Move all of ``new`` into the target folder. If the run is killed after the first move, the next run finishes it."""
        try:
            os.replace(self.new, self.ready)
            _move_in(self.ready, self.target)
        except BaseException:
            if self.ready.exists():
                _move_in(self.ready, self.target)
            raise

    def remove(self, *, for_good: bool = False) -> None:
        """Remove the folder; pass ``for_good`` if an interrupted write may still create files in it."""
        if for_good:
            remove_for_good(self.new)
        _remove(self.folder)


def _remove(folder: pathlib.Path) -> None:
    """Remove a staging folder, ``owner`` last and ``old`` under another name, so that the next run can clean up after a kill."""
    with contextlib.suppress(OSError):
        os.replace(folder / "old", folder / "gone")
    for name in ("new", "ready", "gone"):
        shutil.rmtree(folder / name, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def atomic_write(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a temporary path that replaces ``path`` in one step at the end; yield ``path`` itself for a pipe or device."""
    if path.exists() and not path.is_file():
        yield path
        return
    target = path.resolve()
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    recover(target, str(path))
    with holder_without_lease() as holder:
        staging = StagingDir(target, holder)
        try:
            yield staging.new
            os.replace(staging.new, target)
        finally:
            staging.remove()


def _restore(old: pathlib.Path, target: pathlib.Path) -> bool:
    """Move an old store back if nothing replaced it; return whether it was moved."""
    if target.exists() or not old.exists():
        return False
    os.replace(old, target)
    return True


def _move_in(ready: pathlib.Path, target: pathlib.Path) -> None:
    """Move the contents of a folder into another, replacing entries of the same name."""
    target.mkdir(exist_ok=True)
    for path in sorted(ready.iterdir()):
        if (target / path.name).is_dir():
            shutil.rmtree(target / path.name)
        path.replace(target / path.name)


def remove_for_good(root: pathlib.Path) -> None:
    """Remove a folder repeatedly, because an interrupted write may still create files in it.

    If it is a link, or cannot be removed itself, only its contents are removed.
    """
    n_calm = 0
    for _ in range(_MOST_TRIES):
        paths = sorted(root.iterdir()) if root.is_symlink() and root.is_dir() else [root]
        for path in paths:
            with contextlib.suppress(IsADirectoryError):  # a write has just created it again
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        time.sleep(_PAUSE)
        n_calm = 0 if root.is_dir() and any(root.iterdir()) else n_calm + 1
        if n_calm == _CALM:
            return


def recover(target: pathlib.Path, location: str) -> None:
    """Finish or undo what killed runs left next to a target, with a warning for each; refuse the target of a live run."""
    for folder in staging_paths(target):
        with contextlib.suppress(OSError):
            folder.rmdir()  # empty: its run was killed before it wrote the owner
        try:
            holder = Holder.from_bytes(read_small(folder / "owner")[0])
            modified = (folder / "owner").stat().st_mtime
        except OSError:
            continue
        if holder is None or not folder.name.endswith(holder.owner[:8]):
            continue
        if holder.is_held(modified):
            raise held_error(location, holder, str(folder))
        done = "removed"
        with contextlib.suppress(FileNotFoundError):  # another run recovers the same folder
            shutil.rmtree(folder / "old" / LEASES, ignore_errors=True)
            if _restore(folder / "old", target):
                done = f"restored {target.name} and removed"
            elif (folder / "ready").is_dir():
                _move_in(folder / "ready", target)
                done = f"installed the finished {target.name} and removed"
        _remove(folder)
        warn_leftover(f"{done} {folder}, left by {holder}, which no longer runs")


def claim(store: Store, location: str, check: Callable[[], None], *, whole: bool = False) -> LeasedStore:
    """Lease a store, so that all other writers are refused until the release; refuse a store that another run is writing.

    ``check`` refuses an invalid write: once before anything is written, and again under the lease. The remains of
    killed runs are recovered or removed first, with a LeftoverWarning.
    """
    if isinstance(store, LeasedStore):
        return store.lent()
    bare, storage = bare_store(store), leases_of(store)
    stale = refuse_held(storage, location)
    if isinstance(bare, LocalStore):
        recover(bare.root.resolve(), location)
    if stale is None:
        try:
            check()
        except AvgkError:
            refuse_held(storage, location)  # the check may have failed because another writer has just begun the store
            raise
    lease = Lease.take(storage, location, whole=whole)
    try:
        predecessor = lease.predecessor
        if whole and predecessor and predecessor.whole and draft_owner(store) == predecessor.owner:
            clear(store)
            warn_leftover(f"removed the unfinished {location} of {predecessor}")
        check()
    except BaseException:
        lease.release()
        raise
    return LeasedStore(store, lease, location)


def open_target(
    path: object, options: Options | None, overwrite: bool, apart_from: Sequence[object]
) -> AbstractContextManager[LeasedStore]:
    """Lend a place for a new store, under a lease. The place must not overlap with a source.

    A store whose writing fails is removed. A local store that is overwritten stays until the new one is finished.
    """
    store, location = writable(path, options)
    address = _address(store, "")
    for source in apart_from:
        other = _source_address(source)
        if other and (address == other or address.startswith(f"{other}/") or other.startswith(f"{address}/")):
            raise OptionError(f"out must not overlap with the scores or labels; got {location!r}. Choose another path.")
    return _lend_target(store, location, (path, options), overwrite)


@contextmanager
def _lend_target(store: Store, location: str, secret: tuple[object, ...], overwrite: bool) -> Generator[LeasedStore]:
    """Lend a target; ``secret`` is the path and options, since errors must not show credentials in them."""
    bare, staging, failed = bare_store(store), None, True
    with writing(location, *secret):
        leased = claim(store, location, lambda: check_target(store, location, overwrite), whole=True)
    try:
        target = leased.lent()
        if overwrite and isinstance(bare, LocalStore) and has_root(store):
            with writing(location, *secret):
                staging = StagingDir.under(leased.lease, bare.root.resolve())
            target = LeasedStore(LocalStore(staging.new), leased.lease, location, is_lent=True)
        yield target
        failed = False
        if staging:
            with writing(location, *secret):
                leased.lease.check(always=True)
                staging.swap()
    finally:
        try:
            if staging:
                staging.remove(for_good=failed)
            elif failed and leased.lease.has_begun:
                _remove_begun(store, location, secret, leased.lease)
        finally:
            leased.release()


def _remove_begun(store: Store, location: str, secret: tuple[object, ...], lease: Lease) -> None:
    """Remove an unfinished store, unless another writer has taken it over."""
    try:
        lease.check(always=True)
    except WriteError:
        return
    bare = bare_store(store)
    if isinstance(bare, LocalStore):
        remove_for_good(bare.root)
        return
    with writing(location, *secret):
        wait(store.delete_dir(""))


def _source_address(source: object) -> str | None:
    """Return the address of a path or of an object of zarr, or None for anything else."""
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


def _address(store: Store, path: str) -> str:
    bare = bare_store(store)
    root = os.path.realpath(bare.root) if isinstance(bare, LocalStore) else address_of(bare).rstrip("/")
    return f"{root}/{path}".rstrip("/")
