"""Targets: where a store is to be written at once, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType

import zarr
from zarr.abc.store import Store
from zarr.storage import LocalStore, StorePath

from ...errors import AvgkError, OptionError, WriteError
from ..read.checked import bare_store
from ..where.addresses import Options, address_of
from ..where.failures import writing
from ..where.locations import locate
from ..where.zarr_calls import wait
from .appending import check_appendable
from .asides import Aside, recover, remove_for_good
from .lease_places import place_of
from .leased import LeasedStore
from .leases import Lease, refuse_held, tell
from .roots import check_target, clear, draft_owner, is_begun, writable


def claim(store: Store, location: str, check: Callable[[], None], *, whole: bool = False) -> LeasedStore:
    """Return a store under a lease: whoever else would write it is refused until it is released.

    ``check`` refuses what may not be written, before anything is, and again once nobody else can change it. What killed
    runs have left is dealt with first, with a word (LeftoverWarning).

    Raises
    ------
    StoreError
        Where another is at work, or ``check`` refuses.

    """
    if isinstance(store, LeasedStore):
        return store.lent()
    bare, place = bare_store(store), place_of(store)
    stale = refuse_held(place, location)
    if isinstance(bare, LocalStore):
        recover(bare.root.resolve(), location)
    if stale is None:
        try:
            check()
        except AvgkError:
            refuse_held(place, location)  # what it found may be what another has begun this moment
            raise
    lease = Lease.take(place, location, whole=whole)
    try:
        before = lease.predecessor
        if whole and before and before.whole and draft_owner(store) == before.owner:
            clear(store)
            tell(f"removed what {before} had written of {location}")
        check()
    except BaseException:
        lease.release()
        raise
    return LeasedStore(store, lease, location)


@contextmanager
def appendable(path: object, options: Options | None) -> Iterator[LeasedStore]:
    """Lend a finished store to a writer that appends to it: its run ends with the block, and not with the writer."""
    store, location = writable(path, options)
    with writing(location, path, options):
        leased = claim(store, location, lambda: check_appendable(store, location))
    try:
        yield leased.lent()
    finally:
        leased.release()


class Target:
    """A place for a new store, which no other run may write meanwhile. As a context it gives the store to write to.

    What fails is removed. A local store that is overwritten stays until the new one is finished.
    """

    def __init__(self, store: Store, location: str, given: tuple[object, ...], overwrite: bool) -> None:
        #: Path and options as they were given: their secrets are in no error.
        self._given = given
        self._store, self._location, self._overwrite = store, location, overwrite
        self._aside: Aside | None = None

    @classmethod
    def of(cls, path: object, options: Options | None, overwrite: bool, apart_from: Sequence[object]) -> Target:
        """Return the target at a path, which must not be where any of the sources is."""
        store, location = writable(path, options)
        mine = _address(store, "")
        for source in apart_from:
            other = _source_address(source)
            if other and (mine == other or mine.startswith(f"{other}/") or other.startswith(f"{mine}/")):
                raise OptionError(
                    f"out must not be where the scores or labels are; got {location!r}. Choose another path."
                )
        return cls(store, location, (path, options), overwrite)

    def __enter__(self) -> LeasedStore:
        with writing(self._location, *self._given):
            self._leased = claim(self._store, self._location, self._check, whole=True)
            try:
                return self._prepare()
            except BaseException:
                self._leased.release()
                raise

    def _check(self) -> None:
        check_target(self._store, self._location, self._overwrite)

    def _prepare(self) -> LeasedStore:
        bare = bare_store(self._store)
        if not (self._overwrite and isinstance(bare, LocalStore) and is_begun(self._store)):
            return self._leased.lent()
        self._aside = Aside.under(self._leased.lease, bare.root.resolve())
        return LeasedStore(LocalStore(self._aside.new), self._leased.lease, self._location, is_lent=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._aside:
                with writing(self._location, *self._given):
                    self._leased.lease.check(surely=True)
                    self._aside.swap()
            elif kind is not None and not self._aside and self._leased.lease.has_begun:
                self._remove()
        finally:
            if self._aside:
                self._aside.remove(for_good=kind is not None)
            self._leased.release()

    def _remove(self) -> None:
        """Remove what was written, unless another has taken over the place."""
        try:
            self._leased.lease.check(surely=True)
        except WriteError:
            return
        bare = bare_store(self._store)
        if isinstance(bare, LocalStore):
            remove_for_good(bare.root)
        else:
            with writing(self._location, *self._given):
                wait(self._store.delete_dir(""))


def _source_address(source: object) -> str | None:
    """Return the address of a path or of something zarr has opened; None for anything else."""
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
