"""Clients of stores: access to single keys, and errors of zarr, fsspec and obstore without credentials and with advice.

Only this module uses private interfaces of zarr, and the asynchronous methods of fsspec, which begin with an underscore.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import zipfile
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

import zarr
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.core.sync import _get_loop, sync
from zarr.storage import FsspecStore, ObjectStore, StorePath, WrapperStore, ZipStore

from ... import credentials
from ...arrays import Array, Dtype
from ...credentials import environment_secrets, has_short, hide, hide_pairs
from ...errors import AvgkError, StoreError, WriteError, refuse
from ...threads import FORK_HINT, was_forked_with

if TYPE_CHECKING:
    import obstore.store

ObjectClient: TypeAlias = "obstore.store.ObjectStore"
#: An array that zarr has opened, of either format.
ZarrArray: TypeAlias = "zarr.Array[Any]"
#: A part of an array, whole along the axes not given.
Part = tuple[slice, ...] | slice | EllipsisType
#: Storage options, by name; their types depend on the client.
Options = Mapping[str, Any]
Path = str | os.PathLike[str]
Writable = Path | Store

_OBJECT_STORES = {"S3Store": "s3", "GCSStore": "gs", "AzureStore": "az"}
#: The longest text of a client in an error.
_MOST_TEXT = 400

Value = TypeVar("Value")


class StoredArray(Protocol):
    """A Zarr array of either format, read through a checked store; it has the same properties as a Zarr array.

    ``chunks`` and ``shards`` exist only if they are regular, and ``dtype`` is the stored one.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def ndim(self) -> int: ...  # noqa: D102
    @property
    def dtype(self) -> Dtype: ...  # noqa: D102
    @property
    def chunks(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def shards(self) -> tuple[int, ...] | None: ...  # noqa: D102
    @property
    def path(self) -> str: ...  # noqa: D102
    @property
    def order(self) -> Literal["C", "F"]: ...  # noqa: D102
    @property
    def attrs(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def metadata(self) -> Any: ...  # noqa: D102
    @property
    def store(self) -> Store: ...  # noqa: D102
    @property
    def store_path(self) -> Any: ...  # noqa: D102
    def __getitem__(self, part: Part, /) -> object: ...


class WritableArray(StoredArray, Protocol):
    """An array that is being written."""

    def __setitem__(self, part: Part, values: Array, /) -> None: ...
    def resize(self, shape: tuple[int, ...]) -> None: ...  # noqa: D102


def wait(coroutine: Coroutine[Any, Any, Value], timeout: float | None = None) -> Value:
    """Run a coroutine on zarr's event loop and return its result."""
    return sync(coroutine, timeout=timeout)


def begin(coroutine: Coroutine[Any, Any, Value]) -> Future[Value]:
    """Start a coroutine on zarr's event loop and return its future."""
    return asyncio.run_coroutine_threadsafe(coroutine, _get_loop())


async def get(store: Store, key: str) -> Buffer | None:
    """Return the buffer of a key, or None; open the store first if necessary."""
    await store._ensure_open()
    return await store.get(key, default_buffer_prototype())


async def put(store: Store, key: str, data: bytes) -> None:
    """Write a key."""
    await store.set(key, default_buffer_prototype().buffer.from_bytes(data))


def read_key(store: Store, key: str) -> bytes | None:
    """Return the bytes of a key, or None."""
    buffer = wait(get(store, key))
    return None if buffer is None else bytes(buffer.to_bytes())


def write_key(store: Store, key: str, data: bytes) -> None:
    """Write a key and wait until it is written."""
    wait(put(store, key, data))


def remove_key(store: Store, key: str) -> None:
    """Remove a key if it exists."""
    wait(store.delete(key))


def metadata_bytes(array: StoredArray) -> bytes:
    """Return the ``zarr.json`` of an array."""
    return bytes(array.metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes())


def is_uneven(array: Any) -> bool:
    """Return whether an array's chunk grid allows several sizes along an axis."""
    return hasattr(getattr(array.metadata, "chunk_grid", None), "chunk_shapes")


def chunk_sizes(array: Any) -> tuple[tuple[int, ...], ...]:
    """Return the sizes of uneven chunks along each axis, clipped at the array's edge."""
    return tuple(tuple(map(int, sizes)) for sizes in array.write_chunk_sizes)


def zip_entries(store: ZipStore) -> list[zipfile.ZipInfo]:
    """Return the entries of a zip store; newer versions of zarr also accept an open file, which has no path."""
    if store.path is None:
        wait(store._ensure_open())
        return store._zf.infolist()
    with zipfile.ZipFile(store.path) as archive:
        return archive.infolist()


def inner_store(store: object) -> Store | None:
    """Return the store inside a wrapper, or None if it is not a wrapper."""
    return store._store if isinstance(store, WrapperStore) else None


def bare_store(store: Store) -> Store:
    """Return the store inside all wrappers."""
    while (inner := inner_store(store)) is not None:
        store = inner
    return store


def byte_bounds(byte_range: ByteRequest, length: int) -> slice:
    """Return the slice of a value of some length that a byte range selects."""
    if isinstance(byte_range, RangeByteRequest):
        return slice(byte_range.start, byte_range.end)
    if isinstance(byte_range, OffsetByteRequest):
        return slice(byte_range.offset, length)
    return slice(max(0, length - byte_range.suffix), length)


def _path(store: FsspecStore, key: str) -> str:
    return f"{store.path.rstrip('/')}/{key}"


async def find_files(store: FsspecStore, prefix: str) -> dict[str, Any]:
    """Return the details of each file below a prefix of a store, by its path in the file system."""
    files: dict[str, Any] = await store.fs._find(_path(store, prefix), detail=True)
    return files


async def list_bucket(store: FsspecStore) -> None:
    """List the bucket of a store; fails if it does not exist."""
    await store.fs._ls(store.path.split("/")[0])


async def copy(store: FsspecStore, old: str, new: str) -> None:
    """Copy a key inside a store."""
    await store.fs._cp_file(_path(store, old), _path(store, new))


async def create(store: FsspecStore, key: str, data: bytes) -> bool:
    """Create a key unless it exists; return False if the file system does not support the condition."""
    try:
        with contextlib.suppress(FileExistsError):
            await store.fs._pipe_file(_path(store, key), data, mode="create")
    except (TypeError, NotImplementedError):
        return False
    return True


def redact(place: object) -> str:
    """Return a path, a URL or the location of a Zarr store without credentials."""
    if isinstance(place, StorePath):
        return f"{redact(place.store)}/{place.path}".rstrip("/")
    if isinstance(place, (FsspecStore, ObjectStore)):
        return credentials.redact(address_of(place))
    return hide(str(place)) if isinstance(place, Store) else credentials.redact(place)


def address_of(store: Store) -> str:
    """Return the address of a store as its client has it, including credentials in its URL."""
    if isinstance(store, FsspecStore) and "://" not in store.path:
        kind = store.fs.protocol if isinstance(store.fs.protocol, str) else store.fs.protocol[0]
        return f"{kind}://{store.path if kind == 'file' else store.path.lstrip('/')}"
    if isinstance(store, FsspecStore):
        return str(store.path)
    client: Any = getattr(store, "store", None)
    kind = _OBJECT_STORES.get(type(client).__name__, "")
    if isinstance(store, ObjectStore) and kind:  # its own text may fail
        bucket = client.config.get("bucket") or client.config.get("container_name")
        return f"{kind}://{bucket}/{client.prefix or ''}"
    return str(getattr(client, "url", None) or store)


def secrets_of(*places: object) -> tuple[str, ...]:
    """Return the secrets in locations, options and Zarr stores."""
    return credentials.secrets_of(
        *(_options_of(place) if isinstance(place, (Store, StorePath)) else place for place in places)
    )


def _options_of(store: Store | StorePath) -> list[object]:
    """Return the locations and options that an opened store was created with."""
    store = bare_store(store.store if isinstance(store, StorePath) else store)
    client = getattr(store, "store", None)  # obstore's
    options = [getattr(client, name, None) for name in ("url", "config", "client_options")]
    files = getattr(store, "fs", None)
    while files is not None:
        options += [getattr(files, "storage_options", None), getattr(store, "path", None)]
        files = getattr(files, "sync_fs", None) or getattr(files, "fs", None)
    return options


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """Return an error text in one line, without the given secrets and those of the environment."""
    code = re.search(r"<Code>(.*?)</Code>(?:\s*<Message>(.*?)</Message>)?", text, re.DOTALL)
    if code:  # the rest of an answer of S3 or Azure may contain keys and signatures
        text = f"{code[1]}: {code[2]}" if code[2] else code[1]
    text = " ".join(hide_pairs(hide(text, {*secrets, *environment_secrets()})).split())
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"


_NETWORK = "Check the endpoint and the network."
_KNOWN = {
    ("No space left", "os error 28", "quota exceeded", "QuotaExceeded", "File too large"): "Make room, or choose another place.",
    ("169.254.169.254", "NoCredentials", "locate credentials"): "No credentials were found: set them in the environment, "
    "pass them as storage options, or anon=True.",
    ("[Errno 13]", "Permission denied (os error 13)"): "Check the permissions.",
    ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403", "401", "Forbidden", "Unauthor",
     "AuthenticationFailed", "Authorization", "PermissionDenied", "PermissionError", "NoAuthenticationInformation", "Access Key"):
    "Check the credentials and their permissions.",
    ("NoSuchBucket", "bucket does not exist", "ContainerNotFound", "NoSuchContainer"): "Check the bucket's name.",
    ("sending request", "onnect", "resolve", "dns", "imeout"): _NETWORK,
    ("unexpected keyword", "got an unexpected"): "Check the names of the storage options.",
}  # fmt: skip


def advice(text: str, otherwise: str) -> str:
    """Return the advice for an error text of a store's client."""
    for signs, todo in _KNOWN.items():
        # A number must stand alone, not be part of a time.
        if any(sign in text and (not sign.isdigit() or re.search(rf"(?<![\d.]){sign}(?!\d)", text)) for sign in signs):
            return todo
    return otherwise


#: Errors that a second attempt cannot solve: wrong calls, missing files and missing permissions.
_LASTING = (
    TypeError, AttributeError, LookupError, NameError, ImportError, NotImplementedError, AssertionError, MemoryError,
    FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError,
)  # fmt: skip


def may_pass(error: BaseException) -> bool:
    """Return whether an error of a store's client may be temporary."""
    todo = advice(f"{type(error).__name__}: {error}", _NETWORK)
    return not isinstance(error, _LASTING) and todo == _NETWORK


def refuse_forked(store: Store) -> None:
    """Refuse a store whose client's threads stayed in the parent of this forked process: it would wait forever.

    obstore's threads belong to the process, the threads of fsspec belong to a file system, and a new file system has
    new threads.
    """
    inner = bare_store(store)
    is_stale = isinstance(inner, ObjectStore) and was_forked_with("obstore")
    if isinstance(inner, FsspecStore) and not hasattr(inner.fs, "sync_fs"):
        is_stale = getattr(inner.fs, "_pid", os.getpid()) != os.getpid()
    if is_stale:
        raise StoreError(
            f"{redact(inner)} cannot be used in this process: its client's threads did not survive the fork of the process. "
            f"Instead of forking, {FORK_HINT}."
        )


def cause(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """Return an error's class and text in one line without credentials; the class alone if a secret cannot be removed."""
    name, secrets = type(error).__name__, tuple(secrets)
    text = scrub(str(error).split("Debug source:")[0], secrets).rstrip(".")
    return name if has_short(text, secrets) else f"{name}: {text}"


def explain(error: BaseException, secrets: Iterable[str], otherwise: str) -> str:
    """Return an error's class and text without credentials, followed by advice."""
    why = cause(error, secrets)
    return f"{why}. {advice(why, otherwise)}"


@contextmanager
def writing(location: str, *places: object) -> Iterator[None]:
    """Turn errors while writing into a WriteError; ``places`` are the path and options, whose secrets are removed."""
    try:
        yield
    except AvgkError:
        raise
    except Exception as error:
        why = explain(error, secrets_of(*places), "Check the location and its permissions.")
        refuse(WriteError(f"could not write {location}: {why}"))
