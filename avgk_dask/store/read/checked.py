"""Checked stores: reads raise errors that name missing and damaged chunks; large objects are fetched in several ranges."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest, Store
from zarr.storage import LocalStore, MemoryStore, ObjectStore, WrapperStore, ZipStore

from ...arrays import Array
from ...errors import AvgkError, ReadError, refuse
from ...files.rows import RandomAccessRows
from ...settings import setting
from ..where.addresses import (
    ObjectClient,
    StoredArray,
    bare_store,
    byte_bounds,
    cause,
    explain,
    get,
    may_pass,
    refuse_forked,
    wait,
)
from ..where.locations import FileStore
from .grids import NotAFileError, decoded_size, local_size
from .manifest import Digest, Document, Manifest, ShardIndex, digest_of, is_metadata, parse_document

if TYPE_CHECKING:
    from obstore import GetOptions


#: Untyped, as newer versions of zarr contradict the type in their own wrapper.
_STORE: Any = Store


class StoreWrapper(WrapperStore[Store]):
    """Wraps a store; subclasses see every read in ``get`` and every write in ``set``.

    zarr's own wrapper forwards all other methods (for several parts, many keys, or without its event loop) to the inner store,
    so that they bypass a subclass.
    """

    #: zarr 3.4 and later read and write without their event loop if a store supports it.
    _supports_sync_io = False

    _get_many = Store._get_many
    _set_many = Store._set_many
    if hasattr(Store, "get_ranges"):  # from zarr 3.4 on
        get_ranges = _STORE.get_ranges

    def with_read_only(self, read_only: bool = False) -> Self:
        """Return the store in its read-only (or writable) form, with the same additions."""
        return self._with_store(self._store.with_read_only(read_only))

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Read parts of keys, each through ``get``."""
        return [await self.get(key, prototype, part) for key, part in key_ranges]


#: The maximum size of an object that is fetched whole; larger objects are fetched in ranges of this size. At 60 MB/s, a
#: range takes twice as long as the latency.
_WHOLE, _RANGE = 16 << 20, 8 << 20


def n_ranges(n_bytes: int) -> int:
    """Return the number of ranges in which an object of ``n_bytes`` is fetched."""
    return 1 if n_bytes <= _WHOLE else math.ceil(n_bytes / _RANGE)


async def get_in_ranges(store: ObjectClient, key: str, check_size: Callable[[int], None]) -> Array:
    """Check an object's size, then return its bytes; all ranges are of the same version of the object."""
    import obstore

    first = await obstore.get_async(store, key, options={"range": (0, _RANGE)})
    size = first.meta["size"]
    check_size(size)
    same: GetOptions = {"if_match": tag} if (tag := first.meta["e_tag"]) else {}
    data: Array = np.empty(size, np.uint8)

    async def fill(start: int, end: int, answer: Any = None) -> None:
        answer = answer or await obstore.get_async(store, key, options={"range": (start, end), **same})
        data[start:end] = np.frombuffer(await answer.bytes_async(), np.uint8)

    async with asyncio.TaskGroup() as group:
        for start in range(0, size, _RANGE):
            group.create_task(fill(start, min(start + _RANGE, size), None if start else first))
    return data


#: The option that replaces missing chunks by the fill value, in Python and on the command line.
FILL = 'missing="fill" (on the command line --missing fill)'
#: How often a damaged chunk is read, unless the damage is the same twice.
_ATTEMPTS = 4
#: Seconds until a failed read is tried again at first, and until reads of metadata are given up: opening should not hang.
_FIRST_PAUSE, _METADATA_SECONDS = 0.1, 1


@dataclass(frozen=True)
class Checks:
    """The rules by which reads of a store are checked, and its name in errors."""

    location: str
    #: "raise" an error for a missing chunk, or "fill" it with the array's fill value, as zarr does.
    missing: str = "raise"
    #: The digests of the array's chunks and the index of its shards, if known.
    manifest: Manifest | None = None
    index: ShardIndex | None = None
    #: The digest of the array's metadata in the seal, if there is one.
    sealed: str | None = None
    #: Whether a chunk ends with Blosc, whose header states the chunk's length.
    is_blosc: bool = False
    #: The name of the codec that wrote a chunk's header.
    codec: str = ""
    #: The largest possible size of a chunk of the array, if known.
    most_bytes: int | None = None
    #: Values that must not appear in an error.
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def digest(self, key: str) -> Digest | None:
        """Return the digest with which a chunk was written, or None if unknown."""
        return None if self.manifest is None else self.manifest.find(key)

    def refuse_size(self, key: str, size: int) -> None:
        """Raise ReadError if an object's size is impossible for its key, before reading it."""
        if not is_metadata(key):
            if reason := self.size_damage(key, size):
                raise ReadError(self.damage(key, reason))
        elif size > (most := setting("metadata-bytes")):
            raise ReadError(
                f"{key} of {self.location} is damaged: it has {size:,} bytes, and the limit for metadata is {most:,}. "
                "Restore it, or raise the setting avgk.metadata-bytes."
            )

    def size_damage(self, key: str, size: int) -> str | None:
        """Return the reason why a chunk's size is wrong, or None."""
        written = self.digest(key)
        if written is not None and size != written[0]:
            return f"it has {size:,} bytes instead of {written[0]:,}"
        too_large = self.most_bytes is not None and size > self.most_bytes
        return f"it has {size:,} bytes, but at most {self.most_bytes:,} are possible" if too_large else None

    def damage(self, key: str, reason: str) -> str:
        """Return the error text for a damaged chunk."""
        return f"chunk {key} of {self.location} is damaged: {reason}. Write the store again."

    def scrub(self, error: BaseException) -> str:
        """Return an error's class and text without credentials."""
        return cause(error, self.secrets)


class CheckedStore(StoreWrapper):
    """Wraps a store and checks every whole chunk that is read."""

    def __init__(self, store: Store, checks: Checks) -> None:
        super().__init__(store)
        self.checks = checks
        self._last: tuple[str | None, Buffer | None] = (None, None)
        #: The values of metadata, and of other keys that were fetched before their only use.
        self._fetched: dict[str, Buffer | None] = {}
        self._documents: dict[str, Document | None] = {}
        self._has_ranges = True

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_last": (None, None), "_fetched": {}, "_documents": {}}

    def __repr__(self) -> str:
        return f"CheckedStore({self.checks.location!r})"

    def __str__(self) -> str:
        return self.checks.location

    def _with_store(self, store: Store) -> CheckedStore:
        return type(self)(store, self.checks)

    def with_checks(self, checks: Checks) -> CheckedStore:
        """Return the store with other checks, and the metadata read so far."""
        store = type(self)(self._store, checks)
        store._documents = self._documents
        return store

    def document(self, key: str) -> Document | None:
        """Return the JSON object at a key, or None if it does not exist; each key is read once."""
        if key not in self._documents:
            wait(get(self, key))
        return self._documents.get(key)

    def fetch(self, keys: Iterable[str]) -> None:
        """Read keys concurrently for later use; a key that fails is read again when it is used."""
        wait(self._fetch([key for key in keys if key not in self._fetched]))

    async def _fetch(self, keys: list[str]) -> None:
        values = await asyncio.gather(*(get(self, key) for key in keys), return_exceptions=True)
        self._fetched.update(
            {key: value for key, value in zip(keys, values, strict=True) if not isinstance(value, BaseException)}
        )

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Read a key; raise ReadError if it cannot be read, or if a chunk is missing or damaged.

        A damaged chunk is read again, as the damage may lie in the transfer. If the bytes of a chunk can be checked, a part of
        it is taken from the whole, which is kept for further parts. Metadata are read once, so that those in use are those checked.
        """
        if is_metadata(key):
            return await self._get_metadata(key, prototype)
        if byte_range is None:
            return self._fetched.pop(key) if key in self._fetched else await self._get_whole(key, prototype)
        if self.checks.manifest is None and self.checks.index is None:
            value = await self._get(key, prototype, byte_range)
            problem = self.problem(key, value, whole=False)
            if problem:
                raise ReadError(problem)
            return value
        whole = self._last[1] if self._last[0] == key else await self._get_whole(key, prototype)
        self._last = key, whole
        return None if whole is None else whole[byte_bounds(byte_range, len(whole))]

    async def _get_metadata(self, key: str, prototype: BufferPrototype) -> Buffer | None:
        if key not in self._fetched:
            value = await self._get(key, prototype)
            name = f"{key} of {self.checks.location}"
            self._documents[key] = None if value is None else parse_document(value.to_bytes(), name)
            self._fetched[key] = value
        return self._fetched[key]

    async def _get_whole(self, key: str, prototype: BufferPrototype) -> Buffer | None:
        problems: list[str] = []
        for _ in range(_ATTEMPTS):
            value = await self._get(key, prototype)
            problem = self.problem(key, value)
            if problem is None:
                return value
            if value is None or problem in problems:
                raise ReadError(problem)
            problems.append(problem)
        # The damage differs each time, so the stored chunk may be sound.
        why = problems[-1].partition("damaged: ")[2].removesuffix(". Write the store again.")
        raise ReadError(
            f"chunk {key} of {self.checks.location} returns different bytes on each read (last: {why}). Check the "
            "network and the disk."
        )

    async def _get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Read a key or a part of it; retry for a while after errors that may be temporary."""
        start, pause = time.monotonic(), _FIRST_PAUSE
        limit = min(setting("retry-seconds"), _METADATA_SECONDS if is_metadata(key) else math.inf)
        while True:
            try:
                return await self._get_once(key, prototype, byte_range)
            except AvgkError:
                raise
            except Exception as error:
                if not may_pass(error) or time.monotonic() + pause - start > limit:
                    why = explain(error, self.checks.secrets, "Check the store, and try again.")
                    refuse(ReadError(f"could not read {key} of {self.checks.location}: {why}"))
            await asyncio.sleep(pause)
            pause *= 2

    async def _get_once(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None) -> Buffer | None:
        """Read a key or a part of it; a whole object only after checking its size."""
        refuse_forked(self)
        try:
            size = local_size(bare_store(self), key)
        except NotAFileError as error:
            if not is_metadata(key):
                return None  # as for a folder: the chunk is missing
            raise ReadError(
                f"could not read {key} of {self.checks.location}: {error}. Restore it, or write the store again."
            ) from None
        if byte_range is not None:
            return await super().get(key, prototype, byte_range)
        if size is not None:
            self.checks.refuse_size(key, size)
        elif isinstance(self._store, ObjectStore):
            return await self._get_object(self._store.store, key, prototype)
        value = await super().get(key, prototype)
        if size is None and value is not None:
            self.checks.refuse_size(key, len(value))
        return value

    async def _get_object(self, store: ObjectClient, key: str, prototype: BufferPrototype) -> Buffer | None:
        """Read an object after checking its size; a large one in several concurrent ranges."""
        import obstore

        try:
            if self._has_ranges and n_ranges(self.checks.most_bytes or 0) > 1:
                try:
                    data = await get_in_ranges(store, key, partial(self.checks.refuse_size, key))
                    return prototype.buffer.from_array_like(data)
                except (AvgkError, FileNotFoundError, NotADirectoryError, IsADirectoryError):
                    raise
                except Exception:  # a server without ranges, or an object that changed meanwhile
                    self._has_ranges = False  # from now on, read objects whole
            answer = await obstore.get_async(store, key)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        self.checks.refuse_size(key, answer.meta["size"])
        return prototype.buffer.from_bytes(memoryview(await answer.bytes_async()))

    def problem(self, key: str, value: Buffer | Array | None, *, whole: bool = True) -> str | None:
        """Return an error text for a chunk that is missing (None) or damaged, or None if it is sound."""
        if value is None:
            is_written = self.checks.digest(key) is not None
            if self.checks.missing == "fill" and not is_written:
                return None
            hint = "write the store again" if is_written else f"replace it by the fill value with {FILL}"
            return f"chunk {key} of {self.checks.location} is missing or not a regular file. Restore it, or {hint}."
        if not whole:
            return None
        data = memoryview(value.as_buffer_like()) if isinstance(value, Buffer) else value.data
        reason = self._find_damage(key, data) if data.nbytes else "it is empty"
        return self.checks.damage(key, reason) if reason else None

    def _find_damage(self, key: str, data: memoryview) -> str | None:
        """Describe the damage to a chunk's bytes that can be detected without decoding them, or return None."""
        if reason := self.checks.size_damage(key, data.nbytes):
            return reason
        if (written := self.checks.digest(key)) is not None:
            hashed = digest_of(data)[1]
            return None if hashed == written[1] else f"its bytes were changed (hash {hashed:x}, not {written[1]:x})"
        if self.checks.is_blosc:
            # Blosc itself accepts a truncated chunk if it was stored without compression.
            length, claimed = data.nbytes, int.from_bytes(data.cast("B")[12:16], "little")
            if claimed != length:
                return f"it has {length:,} bytes, but its header says {claimed:,}"
        decoded, most = decoded_size(self.checks.codec, data), self.checks.most_bytes
        if decoded is not None and most is not None and decoded > most:
            return f"it decodes to {decoded:,} bytes, but at most {most:,} are possible"
        if self.checks.index is None:
            return None
        n_absent, is_outside = self.checks.index.count_absent(key, data)
        if is_outside:
            return f"its index does not match its {data.nbytes:,} bytes; some were lost or added"
        if not n_absent or self.checks.missing == "fill":
            return None
        verb = "is" if n_absent == 1 else "are"
        return f"{n_absent:,} of its inner chunks {verb} missing ({FILL} replaces missing chunks by the fill value)"


def is_local(store: Store) -> bool:
    """Whether a store is a folder, a file or memory, which answer at once."""
    return isinstance(bare_store(store), (LocalStore, ZipStore, MemoryStore, FileStore))


def rows_of(array: StoredArray) -> RandomAccessRows | None:
    """Return the rows of an array that is a file, or None if it is not, or if a wrapper counts or changes its reads."""
    store = array.store_path.store
    inner = store._store if type(store) is CheckedStore else None
    return inner.rows.get(array.path) if type(inner) is FileStore else None
