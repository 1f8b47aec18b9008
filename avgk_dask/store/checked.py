"""A store whose reads are checked: no missing chunk is filled in, no damaged one passes, each is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from zarr.abc.store import Store
from zarr.storage import WrapperStore

from ..errors import AvgkError, ReadError
from .failures import cause
from .manifest import Manifest
from .shards import ShardIndex

_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


@dataclass(frozen=True)
class Checks:
    """How reads of a store are checked, and how it is named in errors."""

    location: str
    manifest: Manifest = field(default_factory=Manifest)
    #: "raise" refuses a missing chunk, "fill" takes the array's fill value, as zarr does.
    missing: str = "raise"
    #: Index of the shards, by the array's path.
    shards: Mapping[str, ShardIndex] = field(default_factory=dict)
    #: Values that must not appear in an error.
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def scrub(self, error: BaseException) -> str:
        """Give an error's class and text without credentials."""
        return cause(error, {f"secret{i}": secret for i, secret in enumerate(self.secrets)})


class CheckedStore(WrapperStore[Store]):
    """Wraps a store; every whole chunk read through it is checked."""

    def __init__(self, store: Store, checks: Checks) -> None:
        super().__init__(store)
        self.checks = checks

    def __repr__(self) -> str:
        return f"CheckedStore({self.checks.location!r})"

    def __str__(self) -> str:
        return self.checks.location

    def _with_store(self, store: Store) -> CheckedStore:
        return type(self)(store, self.checks)

    def with_read_only(self, read_only: bool = False) -> CheckedStore:
        """Give the store in its read-only (or writable) form, with the same checks."""
        return type(self)(self._store.with_read_only(read_only), self.checks)

    def with_checks(self, **changes: Any) -> CheckedStore:
        """Give the store with other checks."""
        return type(self)(self._store, replace(self.checks, **changes))

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Read a key; raise ReadError where it fails, or where a chunk is missing or damaged."""
        try:
            value = await super().get(key, prototype, byte_range)
        except AvgkError:
            raise
        except Exception as error:
            # The cause is told, not chained: its own text may hold credentials.
            raise ReadError(f"could not read {key} of {self.checks.location}: {self.checks.scrub(error)}.") from None
        if key.rpartition("/")[2] not in _METADATA:
            self.check_chunk(key, None if value is None else value.as_buffer_like(), whole=byte_range is None)
        return value

    def check_chunk(self, key: str, data: Any, *, whole: bool = True) -> None:
        """Raise ReadError where a chunk is missing, empty, or not as it was written."""
        if data is None:
            if self.checks.missing == "raise":
                raise ReadError(
                    f"chunk {key} of {self.checks.location} is missing, or no plain file. "
                    'Restore it, or take it as the fill value with missing="fill".'
                )
            return
        complaint = "it is empty" if whole and not memoryview(data).nbytes else None
        if complaint is None and whole:
            complaint = self.checks.manifest.complaint(key, data) or self._absent(key, data)
        if complaint is not None:
            raise ReadError(f"chunk {key} of {self.checks.location} is damaged: {complaint}. Write the store again.")

    def _absent(self, key: str, data: Any) -> str | None:
        """Say that inner chunks are missing from a shard; None where all are there, or none must be."""
        array, _, place = key.partition("/c/") if "/c/" in key else ("", "", key.removeprefix("c/"))
        index = self.checks.shards.get(array)
        if index is None or self.checks.missing == "fill" or self.checks.manifest.find(key) is not None:
            return None
        n = index.n_absent(tuple(map(int, place.split("/"))), data)
        return f'{n} of its inner chunks are missing (missing="fill" takes them as the fill value)' if n else None


def bare_store(store: Any) -> Any:
    """Give the store inside all wrappers."""
    while isinstance(store, WrapperStore):
        store = store._store
    return store
