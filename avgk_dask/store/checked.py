"""A store whose reads are checked: no missing chunk is filled in, no damaged one passes, each is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from zarr.abc.store import Store
from zarr.storage import LocalStore, MemoryStore, WrapperStore, ZipStore

from ..errors import AvgkError, ReadError
from .failures import cause
from .manifest import Manifest
from .shards import ShardIndex

#: How often a chunk that is not as written is read.
_ATTEMPTS = 3
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
        """Read a key; raise ReadError where it fails, or where a chunk is missing or damaged.

        A chunk that is not as written is read again: it may have changed on its way only.
        """
        problem = None
        for _ in range(_ATTEMPTS):
            value = await self._get(key, prototype, byte_range)
            if key.rpartition("/")[2] in _METADATA:
                return value
            problem = self.problem(key, value, whole=byte_range is None)
            if problem is None:
                return value
            if value is None:
                break
        raise ReadError(problem)

    async def _get(self, key: str, prototype: Any, byte_range: Any = None, again: bool = True) -> Any:
        try:
            return await super().get(key, prototype, byte_range)
        except AvgkError:
            raise
        except Exception as error:
            if again and "Checksum" in type(error).__name__:  # a client's own check; botocore does not ask again
                return await self._get(key, prototype, byte_range, again=False)
            # The cause is told, not chained: its own text may hold credentials.
            raise ReadError(f"could not read {key} of {self.checks.location}: {self.checks.scrub(error)}.") from None

    def problem(self, key: str, value: Any, *, whole: bool = True) -> str | None:
        """Say what is wrong with a chunk as read (None: it is not there); None where nothing is."""
        where = f"chunk {key} of {self.checks.location}"
        if value is None:
            if self.checks.missing == "fill":
                return None
            return (
                f'{where} is missing, or no plain file. Restore it, or take it as the fill value with missing="fill".'
            )
        if not whole:
            return None
        data = value if isinstance(value, bytes) else value.as_buffer_like()
        if not memoryview(data).nbytes:
            complaint: str | None = "it is empty"
        else:
            complaint = self.checks.manifest.complaint(key, data) or self._absent(key, data)
        return f"{where} is damaged: {complaint}. Write the store again." if complaint else None

    def _absent(self, key: str, data: Any) -> str | None:
        """Say that inner chunks are missing from a shard; None where all are there, or none must be."""
        array, _, place = key.partition("/c/") if "/c/" in key else ("", "", key.removeprefix("c/"))
        index = self.checks.shards.get(array)
        if index is None or self.checks.missing == "fill" or self.checks.manifest.find(key) is not None:
            return None
        n = index.n_absent(tuple(map(int, place.split("/"))), data)
        return f'{n} of its inner chunks are missing (missing="fill" takes them as the fill value)' if n else None


def is_local(store: Any) -> bool:
    """Whether a store answers at once: a folder, a zip file or memory."""
    return isinstance(bare_store(store), (LocalStore, ZipStore, MemoryStore))


def bare_store(store: Any) -> Any:
    """Give the store inside all wrappers."""
    while isinstance(store, WrapperStore):
        store = store._store
    return store
