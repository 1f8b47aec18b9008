"""Checked stores: no missing chunk is filled in, no damaged one passes, each is named; a large object comes in several ranges."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest, Store
from zarr.storage import LocalStore, MemoryStore, ObjectStore, WrapperStore, ZipStore

from ...arrays import Array
from ...errors import AvgkError, ReadError, refuse
from ...files.rows import AnyRows
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
from .manifest import Digest, Document, Manifest, ShardIndex, is_metadata, parse_document

if TYPE_CHECKING:
    from obstore import GetOptions


#: Without its type, which newer versions of zarr contradict in their own wrapper.
_STORE: Any = Store


class Wrapping(WrapperStore[Store]):
    """Wraps a store; subclasses see every read in ``get`` and every write in ``set``.

    zarr's own wrapper hands all further ways to read and write (several parts at once, many keys at once, without its event
    loop) to the store inside, past what a subclass does; and newer versions have more of them than older ones.
    """

    #: zarr 3.4 and later read and write without their event loop where a store says that it can.
    _supports_sync_io = False

    _get_many = Store._get_many
    _set_many = Store._set_many
    if hasattr(Store, "get_ranges"):  # from zarr 3.4 on
        get_ranges = _STORE.get_ranges

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Read parts of keys, each through ``get``."""
        return [await self.get(key, prototype, part) for key, part in key_ranges]


#: Bytes up to which an object is fetched whole, and those of a range of a larger one: at 60 MB/s, twice the time it
#: takes until the first byte comes.
_WHOLE, _RANGE = 16 << 20, 8 << 20


def n_ranges(n_bytes: int) -> int:
    """Return the number of ranges in which an object of this size is fetched.

    Examples
    --------
    >>> n_ranges(10_000_000), n_ranges(100_000_000)
    (1, 12)

    """
    return 1 if n_bytes <= _WHOLE else math.ceil(n_bytes / _RANGE)


async def get_in_ranges(store: ObjectClient, key: str, check_size: Callable[[int], None]) -> Array:
    """Return the bytes of an object, of a size that is checked first; all ranges are of the same version of it."""
    import obstore

    first = await obstore.get_async(store, key, options={"range": (0, _RANGE)})
    size = first.meta["size"]
    check_size(size)
    same: GetOptions = {"if_match": tag} if (tag := first.meta["e_tag"]) else {}
    space: Array = np.empty(size, np.uint8)

    async def fill(start: int, end: int, found: Any = None) -> None:
        found = found or await obstore.get_async(store, key, options={"range": (start, end), **same})
        space[start:end] = np.frombuffer(await found.bytes_async(), np.uint8)

    async with asyncio.TaskGroup() as group:
        for start in range(0, size, _RANGE):
            group.create_task(fill(start, min(start + _RANGE, size), None if start else first))
    return space


#: How a missing chunk is taken as the fill value, in Python and in a terminal.
FILL = 'missing="fill" (on the command line --missing fill)'
#: How often a chunk that is not as written is read, unless it is so in the same way twice.
_ATTEMPTS = 3
#: Seconds until a read that failed is tried again, at first; and those for which metadata are: who opens a store waits for it.
_FIRST_PAUSE, _METADATA_SECONDS = 0.1, 1


@dataclass(frozen=True)
class Checks:
    """How reads of a store are checked, and how it is named in errors."""

    location: str
    #: "raise" refuses a missing chunk, "fill" takes the array's fill value, as zarr does.
    missing: str = "raise"
    #: What the chunks of the array must be, and which inner chunks its shards must hold, where that is known.
    manifest: Manifest | None = None
    index: ShardIndex | None = None
    #: The digest of the metadata that the array was written with (of a store of ours).
    sealed: str | None = None
    #: Whether chunks are stored as Blosc leaves them: their header has their length.
    is_blosc: bool = False
    #: The codec whose header a chunk begins with, by name; that of shards is their own.
    codec: str = ""
    #: The bytes that a chunk of the array can have, where that is known.
    most_bytes: int | None = None
    #: Values that must not appear in an error.
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def digest(self, key: str) -> Digest | None:
        """Return the digest that a chunk was written with; None if that is not known."""
        return None if self.manifest is None else self.manifest.find(key)

    def refuse_size(self, key: str, size: int) -> None:
        """Raise ReadError for what is larger than a key can hold, before it is read."""
        written = self.digest(key)
        if is_metadata(key):
            most = setting("metadata-bytes")
            if size > most:
                raise ReadError(
                    f"{key} of {self.location} is damaged: it has {size:,} bytes, and metadata may have {most:,}. "
                    "Restore it, or raise the setting avgk.metadata-bytes."
                )
        elif written is not None and size != written[0]:
            raise self._damage(key, f"it has {size:,} bytes, and was written with {written[0]:,}")
        elif self.most_bytes is not None and size > self.most_bytes:
            raise self._damage(key, f"it has {size:,} bytes, and can need {self.most_bytes:,} at most")

    def _damage(self, key: str, what: str) -> ReadError:
        return ReadError(f"chunk {key} of {self.location} is damaged: {what}. Write the store again.")

    def scrub(self, error: BaseException) -> str:
        """Return an error's class and text without credentials."""
        return cause(error, self.secrets)


class CheckedStore(Wrapping):
    """Wraps a store; every whole chunk read through it is checked."""

    def __init__(self, store: Store, checks: Checks) -> None:
        super().__init__(store)
        self.checks = checks
        self._last: tuple[str | None, Buffer | None] = (None, None)
        #: Metadata as they were read, and other keys that were fetched ahead of their one use.
        self._held: dict[str, Buffer | None] = {}
        self._documents: dict[str, Document | None] = {}
        self._has_ranges = True

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_last": (None, None), "_held": {}, "_documents": {}}

    def __repr__(self) -> str:
        return f"CheckedStore({self.checks.location!r})"

    def __str__(self) -> str:
        return self.checks.location

    def _with_store(self, store: Store) -> CheckedStore:
        return type(self)(store, self.checks)

    def with_read_only(self, read_only: bool = False) -> CheckedStore:
        """Return the store in its read-only (or writable) form, with the same checks."""
        return type(self)(self._store.with_read_only(read_only), self.checks)

    def with_checks(self, checks: Checks) -> CheckedStore:
        """Return the store with other checks; metadata that were read stay known."""
        made = type(self)(self._store, checks)
        made._documents = self._documents
        return made

    def document(self, key: str) -> Document | None:
        """Return the JSON object at a key; read now unless it was before, or None if there is none."""
        if key not in self._documents:
            wait(get(self, key))
        return self._documents.get(key)

    def fetch(self, keys: Iterable[str]) -> None:
        """Read keys that will be asked for, all at once: one wait in place of many. What fails is read again when asked for."""
        wait(self._fetch(keys))

    async def _fetch(self, keys: Iterable[str]) -> None:
        wanted = [key for key in keys if key not in self._held]
        found = await asyncio.gather(*(get(self, key) for key in wanted), return_exceptions=True)
        self._held.update(
            {key: value for key, value in zip(wanted, found, strict=True) if not isinstance(value, BaseException)}
        )

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Read a key; raise ReadError where it fails, or where a chunk is missing or damaged.

        A chunk that is not as written is read again: it may have changed on its way only. A part of one
        whose bytes can be checked is taken from the whole, which is held for the parts that follow. Metadata are
        read once: what was checked is what is used.
        """
        if is_metadata(key):
            return await self._get_metadata(key, prototype)
        if byte_range is None:
            return self._held.pop(key) if key in self._held else await self._get_whole(key, prototype)
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
        if key not in self._held:
            value = await self._get(key, prototype)
            what = f"{key} of {self.checks.location}"
            self._documents[key] = None if value is None else parse_document(value.to_bytes(), what)
            self._held[key] = value
        return self._held[key]

    async def _get_whole(self, key: str, prototype: BufferPrototype) -> Buffer | None:
        problems: list[str] = []
        while True:
            value = await self._get(key, prototype)
            problem = self.problem(key, value)
            if problem is None:
                return value
            if value is None or problem in problems or len(problems) == _ATTEMPTS:
                break
            problems.append(problem)
        if value is not None and problem not in problems:  # another each time: nothing is known of the chunk itself
            why = problem.partition("damaged: ")[2].removesuffix(". Write the store again.")
            problem = (
                f"chunk {key} of {self.checks.location} comes differently each time it is read (last: {why}). "
                "Check the network and the disk."
            )
        raise ReadError(problem)

    async def _get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Read a key or a part of it, again and again for a while where it fails in a way that may pass."""
        begun, pause = time.monotonic(), _FIRST_PAUSE
        limit = min(setting("retry-seconds"), _METADATA_SECONDS if is_metadata(key) else math.inf)
        while True:
            try:
                return await self._get_once(key, prototype, byte_range)
            except AvgkError:
                raise
            except Exception as error:
                if not may_pass(error) or time.monotonic() + pause - begun > limit:
                    why = explain(error, self.checks.secrets, "Check the store, and try again.")
                    refuse(ReadError(f"could not read {key} of {self.checks.location}: {why}"))
            await asyncio.sleep(pause)
            pause *= 2

    async def _get_once(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None) -> Buffer | None:
        """Read a key or a part of it; a whole object only if it is not larger than it can be."""
        refuse_forked(self)
        try:
            size = local_size(bare_store(self), key)
        except NotAFileError as error:
            if not is_metadata(key):
                return None  # as a folder: no chunk is there
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
        """Read an object, whose size is known before its bytes come; a large one in several ranges at once."""
        import obstore

        try:
            if self._has_ranges and n_ranges(self.checks.most_bytes or 0) > 1:
                try:
                    space = await get_in_ranges(store, key, partial(self.checks.refuse_size, key))
                    return prototype.buffer.from_array_like(space)
                except (AvgkError, FileNotFoundError, NotADirectoryError, IsADirectoryError):
                    raise
                except Exception:  # a server without ranges, or an object that changed meanwhile
                    self._has_ranges = False  # all others are read whole from then on
            found = await obstore.get_async(store, key)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        self.checks.refuse_size(key, found.meta["size"])
        return prototype.buffer.from_bytes(memoryview(await found.bytes_async()))

    def problem(self, key: str, value: Buffer | Array | None, *, whole: bool = True) -> str | None:
        """Say what is wrong with a chunk as read (None: it is not there); None if nothing is."""
        where = f"chunk {key} of {self.checks.location}"
        if value is None:
            is_written = self.checks.digest(key) is not None
            if self.checks.missing == "fill" and not is_written:
                return None
            cure = "write the store again" if is_written else f"take it as the fill value with {FILL}"
            return f"{where} is missing, or no plain file. Restore it, or {cure}."
        if not whole:
            return None
        data = memoryview(value.as_buffer_like()) if isinstance(value, Buffer) else value.data
        complaint = self._complaint(key, data) if data.nbytes else "it is empty"
        return f"{where} is damaged: {complaint}. Write the store again." if complaint else None

    def _complaint(self, key: str, data: memoryview) -> str | None:
        """Say what is wrong with a chunk's bytes, as far as can be told without decoding them."""
        if self.checks.digest(key) is not None and self.checks.manifest is not None:
            return self.checks.manifest.complaint(key, data)
        if self.checks.is_blosc:
            # Blosc itself takes a chunk that was stored without compression as it is, however short.
            length, claimed = data.nbytes, int.from_bytes(data.cast("B")[12:16], "little")
            if claimed != length:
                return f"it has {length:,} bytes, and its header says {claimed:,}"
        decoded, most = decoded_size(self.checks.codec, data), self.checks.most_bytes
        if decoded is not None and most is not None and decoded > most:
            return f"it decodes to {decoded:,} bytes, and can need {most:,} at most"
        return self._absent(key, data)

    def _absent(self, key: str, data: memoryview) -> str | None:
        """Say that inner chunks are missing from a shard; None if all are there, or none must be."""
        if self.checks.index is None:
            return None
        n, misfits = self.checks.index.n_absent(key, data)
        if misfits:
            return f"its index does not fit its {data.nbytes:,} bytes; some were lost or added"
        if not n or self.checks.missing == "fill":
            return None
        return f"{n:,} of its inner chunks {'is' if n == 1 else 'are'} missing ({FILL} takes such as the fill value)"


def is_local(store: Store) -> bool:
    """Whether a store answers at once: a folder, a file or memory."""
    return isinstance(bare_store(store), (LocalStore, ZipStore, MemoryStore, FileStore))


def rows_of(array: StoredArray) -> AnyRows | None:
    """Return the rows of an array that is a file, unless something between counts or changes what is read; else None."""
    store = array.store_path.store
    inner = store._store if type(store) is CheckedStore else None
    return inner.rows.get(array.path) if type(inner) is FileStore else None
