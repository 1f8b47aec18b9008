"""Stores that are written under a lease."""

from __future__ import annotations

from collections.abc import Callable

from zarr.abc.store import Store
from zarr.storage import WrapperStore

from ..where.zarr_calls import inside
from .lease_places import place_of
from .leases import Lease, refuse_held


class LeasedStore(WrapperStore[Store]):
    """Wraps a store with the lease under which it is written. In other processes, as of a cluster, it is a plain store."""

    def __init__(self, store: Store, lease: Lease, location: str, *, is_lent: bool = False) -> None:
        super().__init__(store)
        #: Whether the lease, and so the run, outlasts the writer.
        self.is_lent = is_lent
        self.lease, self.location = lease, location

    def _with_store(self, store: Store) -> LeasedStore:
        return type(self)(store, self.lease, self.location, is_lent=self.is_lent)

    def with_read_only(self, read_only: bool = False) -> LeasedStore:
        """Return the store in its read-only (or writable) form, under the same lease."""
        return self._with_store(self._store.with_read_only(read_only))

    def __reduce__(self) -> tuple[Callable[[Store], Store], tuple[Store]]:
        return _itself, (self._store,)

    def __str__(self) -> str:
        return self.location

    def lent(self) -> LeasedStore:
        """Return the store for a writer that does not let go of the lease."""
        return type(self)(self._store, self.lease, self.location, is_lent=True)

    def release(self) -> None:
        """Let go of the lease, unless it is lent."""
        if not self.is_lent:
            self.lease.release()


def _itself(store: Store) -> Store:
    return store


def lease_of(store: Store) -> Lease | None:
    """Return the lease under which a store is written; None for one without."""
    inner: Store | None = store
    while inner is not None:
        if isinstance(inner, LeasedStore):
            return inner.lease
        inner = inside(inner)
    return None


def refuse_held_parts(store: Store, location: str, numbers: list[str]) -> None:
    """Refuse a store of which another writes a part."""
    for number in numbers:
        refuse_held(place_of(store, f"parts/{number}"), f"part {int(number)} of {location}")
