"""Locations: a path or URL becomes a Zarr store, through obstore or fsspec; a file of scores becomes a store of its rows.

The usual names of storage options are translated for obstore. As a file becomes a store, bands, labels, checkpoints and lazy
Datasets need no code for files.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import re
import sys
import zipfile
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from datetime import timedelta
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import numpy as np
from fsspec.registry import known_implementations
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest, Store
from zarr.storage import FsspecStore, LocalStore, ObjectStore, ZipStore

from ...arrays import Array
from ...credentials import is_url, shown_address
from ...errors import OptionError, StoreError, refuse
from ...files.matrices import MatrixFile, is_matrix_file, open_matrix_file
from ...files.rows import SUFFIXES, RandomAccessRows, check_plain, file_advice, is_pickle, path_advice
from .addresses import Options, advice, byte_bounds, cause, explain, redact, refuse_forked, secrets_of, zip_entries

#: The extra to install for each protocol.
CLOUDS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure", "abfss": "azure",
          "https": "http", "http": "http"}  # fmt: skip

# The names in obstore of fsspec's and the clouds' options.
S3_NAMES = {
    "key": "access_key_id", "access_key_id": "access_key_id", "aws_access_key_id": "access_key_id",
    "secret": "secret_access_key", "secret_access_key": "secret_access_key",
    "aws_secret_access_key": "secret_access_key",
    "token": "session_token", "session_token": "session_token", "aws_session_token": "session_token",
    "endpoint_url": "endpoint", "endpoint": "endpoint", "aws_endpoint": "endpoint", "aws_endpoint_url": "endpoint",
    "region": "region", "region_name": "region", "aws_region": "region",
    "anon": "skip_signature", "skip_signature": "skip_signature",
    "requester_pays": "request_payer",
    "virtual_hosted_style_request": "virtual_hosted_style_request",
}  # fmt: skip
_GCS = {"service_account_path": "service_account", "service_account": "service_account",
        "anon": "skip_signature", "skip_signature": "skip_signature"}  # fmt: skip
_AZURE = {
    "account_name": "account_name", "account_key": "account_key", "sas_token": "sas_token",
    "client_id": "client_id", "client_secret": "client_secret", "tenant_id": "tenant_id",
    "endpoint": "endpoint", "endpoint_url": "endpoint", "account_host": "endpoint",
    "anon": "skip_signature", "skip_signature": "skip_signature",
}  # fmt: skip
_CONNECTION = {"AccountName": "account_name", "AccountKey": "account_key", "BlobEndpoint": "endpoint",
               "SharedAccessSignature": "sas_token"}  # fmt: skip

_FLAGS = ("skip_signature", "request_payer", "virtual_hosted_style_request")

#: A dead endpoint fails after the timeout; a server that answers "slow down" is asked again until then.
_RETRIES = {
    "max_retries": 12,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=4), "base": 2},
}


def open_cloud(url: str, options: Options, *, write: bool, required: bool) -> Store | None:
    """Open the store at a URL with obstore, or return None if fsspec must open it."""
    config = _translate(url.split("://")[0], options)
    if find_spec("obstore") is None or config is None:
        if required:
            why = "is not installed" if config is not None else f"does not know all of the options {sorted(options)}"
            raise StoreError(f"the client obstore cannot open this store: it {why}. Drop the option client.")
        return None
    import obstore.store

    client: dict[str, object] = {"connect_timeout": timedelta(seconds=4), "timeout": timedelta(seconds=30)}
    environment = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") or ""
    endpoint = str(config.get("endpoint", environment if url.startswith("s3") else ""))
    if endpoint.startswith("http://") or url.startswith("http://"):
        client["allow_http"] = True
    settings: dict[str, Any] = {"client_options": client, "retry_config": _RETRIES}
    if config:
        settings["config"] = config
    try:
        address, login = _split_login(url.replace("s3a://", "s3://", 1).replace("gcs://", "gs://", 1))
        if login:
            client["default_headers"] = {"authorization": login}
        # obstore would take some web servers for clouds, by their names.
        of_url = obstore.store.HTTPStore.from_url if url.startswith("http") else obstore.store.from_url
        store = of_url(address, **settings)
    except Exception as error:  # obstore's exceptions, and those about invalid URLs
        why = explain(error, secrets_of(url, options), "Check the options.")
        refuse(StoreError(f"could not open {redact(url)}: {why}"))
    return ObjectStore(store, read_only=not write)


def _split_login(url: str) -> tuple[str, str]:
    """Return the URL of a web server without its login, and the header that sends it, which obstore does not add."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    if not at or not url.startswith("http"):
        return url, ""
    user, _, password = map(unquote, login.partition(":"))
    secret = base64.b64encode(f"{user}:{password}".encode()).decode()
    return urlunsplit(parts._replace(netloc=host)), f"Basic {secret}"


def _translate(scheme: str, options: Options) -> Options | None:
    """Return the options under obstore's names, or None if one has no counterpart or credentials are in files."""
    options = {**options}
    if scheme in ("s3", "s3a"):
        names = S3_NAMES
        options |= options.pop("client_kwargs", {})
        if not is_true(options.get("anon", options.get("skip_signature"))) and not _has_s3_credentials(options):
            return None
    elif scheme in ("gs", "gcs"):
        names = _GCS
    elif scheme in ("http", "https"):
        names = {}
    else:
        names = _AZURE
        text = options.pop("connection_string", os.environ.get("AZURE_STORAGE_CONNECTION_STRING", ""))
        pairs = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
        options = {_CONNECTION[name]: value for name, value in pairs.items() if name in _CONNECTION} | options
    if not set(options) <= set(names):
        return None
    config = {names[name]: value for name, value in options.items() if value not in (None, "")}
    return {name: is_true(value) if name in _FLAGS else value for name, value in config.items()}


def is_true(value: object) -> bool:
    """Whether an option is on, as a boolean or a word."""
    return value if isinstance(value, bool) else str(value).lower() in ("1", "true", "yes", "on")


def _has_s3_credentials(options: Options) -> bool:
    """Whether obstore finds credentials: in options, the environment or the host, but not in ~/.aws files."""
    names = "key", "access_key_id", "aws_access_key_id"
    in_files = os.path.exists(os.path.expanduser(os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")))
    return any(name in options for name in names) or "AWS_ACCESS_KEY_ID" in os.environ or not in_files


_S3FS_NAMES = {
    "access_key_id": "key", "secret_access_key": "secret", "session_token": "token", "endpoint": "endpoint_url",
    "skip_signature": "anon", "request_payer": "requester_pays",
}  # fmt: skip
_METADATA = ("zarr.json", ".zgroup", ".zarray")


def locate(path: object, options: Options | None = None, *, write: bool = False) -> Store:
    """Return the Zarr store at a path or URL without reading it.

    obstore opens ``s3://``, ``gs://``, ``az://``, ``abfs://`` and ``https://`` if it is installed and knows all the options,
    fsspec everything else. The option ``client`` (``"obstore"`` or ``"fsspec"``) chooses between them.
    """
    url = os.fspath(path) if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(url, str) or "\0" in url:
        raise StoreError(f"store must be a path or a URL, without null characters; got {url!r}. Check it.")
    if url.startswith("file://"):
        url = url.removeprefix("file://")
    scheme = url.split("://")[0] if "://" in url else ""
    options = dict(options or {})
    client = options.pop("client", None)
    if client not in (None, "obstore", "fsspec"):
        raise OptionError(
            f"client must be 'obstore' or 'fsspec'; got {client!r}. Leave it out to choose automatically."
        )
    if not scheme:
        return _local(url, write)
    for name in ("endpoint", "endpoint_url"):
        if name in options:
            _check_endpoint(name, str(options[name]))
    if scheme in CLOUDS and client != "fsspec":
        store = open_cloud(url, options, write=write, required=client == "obstore")
        if store is not None:
            refuse_forked(store)
            return store
    return _through_fsspec(url, scheme, options, write)


def _check_endpoint(name: str, address: str) -> None:
    """Refuse an endpoint that is not the address of a server, on which clients fail in various ways."""
    try:
        parts = urlsplit(address)
        is_address = "://" in address and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        address = shown_address(address)
        refuse(OptionError(f"{name} must be http://HOST:PORT or https://HOST; got {address!r}. Correct it."))


def _local(path: str, write: bool) -> Store:
    if is_url(path) and path.rpartition("::")[2].split(":")[0].lower() in known_implementations:
        raise StoreError(f"store must be a path or a URL with two slashes; got {redact(path)!r}. Pass a URL as text.")
    if write:
        if path.endswith(".zip"):
            raise StoreError(f"store must be a folder or a URL to be written; got {path!r}. Zip the finished store.")
        return LocalStore(os.path.abspath(path))  # workers may have another working directory
    if not os.path.exists(path):
        raise StoreError(f"no such store or file: {redact(path)!r}. {_find_replaced(path) or path_advice(path)}")
    check_plain(path)
    if os.path.isfile(path) and zipfile.is_zipfile(path) and not (path.endswith(".npz") or is_pickle(path)):
        return ZipStore(path, mode="r")
    if os.path.isfile(path):
        raise StoreError(f"store must be a Zarr store; got the file {path!r}. {file_advice(path)}")
    return LocalStore(os.path.abspath(path), read_only=True)


def staging_paths(target: pathlib.Path) -> list[pathlib.Path]:
    """Return the folders next to a target in which runs prepare their output: ``.NAME-avgk-xxxxxxxx``."""
    name = re.compile(rf"\.{re.escape(target.name)}-avgk-[0-9a-f]{{8}}")
    try:
        return [path for path in target.parent.iterdir() if name.fullmatch(path.name) and not path.is_symlink()]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _find_replaced(path: str) -> str:
    """Return a hint about a store that a killed run was replacing; empty if there is none."""
    for folder in staging_paths(pathlib.Path(path).resolve()):
        if (folder / "owner").is_file() and (folder / "old").is_dir():
            return f"A run that was replacing it was killed: the next run that writes there restores {folder / 'old'}."
    return ""


def _through_fsspec(url: str, scheme: str, options: Options, write: bool) -> Store:
    if scheme in ("s3", "s3a"):
        options = _for_s3fs(options)
    try:
        return FsspecStore.from_url(url, storage_options={**options}, read_only=not write)
    except Exception as error:  # some clients connect at once
        why = cause(error, secrets_of(url, options))
        if isinstance(error, ImportError):
            package = f"avgk_dask[{CLOUDS[scheme]}]" if scheme in CLOUDS else "the fsspec file system of this protocol"
            why = why.partition(": ")[2]
            refuse(StoreError(f"{redact(url)} needs a client that is not installed ({why}). Install {package}."))
        if isinstance(error, (ValueError, TypeError)):
            refuse(StoreError(f"store must be a path or a URL that fsspec knows; got {redact(url)} ({why}). Check it."))
        refuse(StoreError(f"could not open {redact(url)}: {why}. {advice(why, 'Check the URL and the options.')}"))


def _for_s3fs(options: Options) -> Options:
    """Return options for s3fs that avoid a HEAD before each GET and a long wait for a dead endpoint."""
    options = {**options}
    client = {**options.pop("client_kwargs", {})}
    config = {
        "connect_timeout": 4,
        "read_timeout": 15,
        "retries": {"max_attempts": 4},
        **options.pop("config_kwargs", {}),
    }
    translated: dict[str, object] = {"max_concurrency": 1, "config_kwargs": config}
    for name, value in options.items():
        option = S3_NAMES.get(name)
        if option == "region":
            client["region_name"] = value
        elif option in _S3FS_NAMES:
            translated[_S3FS_NAMES[option]] = is_true(value) if option in _FLAGS else value
        else:
            translated[name] = value
    return {**translated, "client_kwargs": client}


def inner_root(store: Store) -> str:
    """Return the folder of a zip file that holds the root of the Zarr hierarchy, as zipping a folder nests it."""
    if not isinstance(store, ZipStore):
        return ""
    names = [entry.filename for entry in zip_entries(store)]
    if any(name in _METADATA for name in names):
        return ""
    roots = {name.rpartition("/")[0] for name in names if name.rpartition("/")[2] in _METADATA}
    least = min((root.count("/") for root in roots), default=0)
    first = sorted(root for root in roots if root.count("/") == least)
    if len(first) > 1:
        raise StoreError(
            f"a zip file must hold one Zarr store; got {store.path} with {', '.join(first[:3])} and no common root. "
            "Zip the whole folder of the store."
        )
    return first[0] if first else ""


#: The largest number of class names that are stored.
MOST_NAMES = 200_000
_DIMENSIONS = ("sample", "class")


class FileStore(Store):
    """A read-only store of the arrays ``scores`` and, if the file has labels, ``labels``; it cannot be listed."""

    supports_writes = supports_deletes = supports_listing = False

    def __init__(self, file: MatrixFile, location: str) -> None:
        super().__init__(read_only=True)
        self.file, self.location = file, location
        self.rows = {"scores": file.scores} | ({} if file.labels is None else {"labels": file.labels})

    @classmethod
    def from_path(cls, path: object, scores: str | None, labels: str | None, own_labels: bool) -> FileStore | None:
        """Open the file at a path, or return None if it is not a file of scores."""
        if not is_matrix_file(path):
            return None
        name = str(os.fspath(path))  # type: ignore[call-overload]
        file = open_matrix_file(name, scores, labels)
        if labels is None and not own_labels:
            file = replace(file, labels=None)
        elif labels is not None and file.labels is None:
            raise StoreError(f"{name} has no labels {labels!r}. Check the name.")
        return cls(file, name)

    @property
    def format(self) -> str:
        """The suffix of the file, or of the files in a folder."""
        names = [mark.path.lower() for mark in self.file.marks]
        return next((end.lstrip(".") for end in SUFFIXES[::-1] for name in names if name.endswith(end)), "file")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileStore) and (self.file.marks, self.location) == (other.file.marks, other.location)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return FileStore, (self.file, self.location)

    def __repr__(self) -> str:
        return f"FileStore({self.location!r})"

    def __str__(self) -> str:
        return self.location

    def with_read_only(self, read_only: bool = False) -> FileStore:
        """Return the store itself, which is read-only."""
        return self

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Read metadata, or a chunk."""
        data = self._value(key)
        if data is None:
            return None
        return prototype.buffer.from_bytes(data if byte_range is None else data[byte_bounds(byte_range, len(data))])

    def _value(self, key: str) -> bytes | None:
        """Return the value of a key: metadata, or the rows of a chunk."""
        if key == "zarr.json":
            names = self.file.class_names
            attributes = {"class_names": names} if names and len(names) <= MOST_NAMES else {}
            return json.dumps({"zarr_format": 3, "node_type": "group", "attributes": attributes}).encode()
        name, _, rest = key.partition("/")
        if name not in self.rows:
            return None
        return json.dumps(_array_document(self.rows[name])).encode() if rest == "zarr.json" else self._chunk(name, rest)

    def _chunk(self, name: str, key: str) -> bytes | None:
        """Return the rows of a chunk, such as c/3/0; in Zarr, the last chunk is as long as the others."""
        rows = self.rows[name]
        match = re.fullmatch(r"c/(\d+)" + "/0" * (len(rows.shape) - 1), key)
        first = int(match[1]) * rows.part_rows if match else rows.shape[0]
        last = min(first + rows.part_rows, rows.shape[0])
        if first >= last:
            return None
        block: Array = np.zeros((rows.part_rows, *rows.shape[1:]), rows.dtype)
        rows.fill(first, last, block[: last - first])
        return block.tobytes()

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Read parts of keys."""
        return [await self.get(key, prototype, part) for key, part in key_ranges]

    async def exists(self, key: str) -> bool:
        """Return whether a key exists."""
        return self._value(key) is not None

    async def set(self, key: str, value: object = None) -> None:
        """Refuse to write or delete."""
        raise StoreError(f"{self.location} is a file of scores and read-only. Write a store.")

    delete = set

    async def list(self) -> AsyncIterator[str]:
        """Yield the keys of metadata."""
        for key in ("zarr.json", *(f"{name}/zarr.json" for name in self.rows)):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys of metadata with a prefix."""
        async for key in self.list():
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names in a folder."""
        for name in ("zarr.json", *(() if prefix.strip("/") else self.rows)):
            yield name


def _array_document(rows: RandomAccessRows) -> dict[str, Any]:
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(rows.shape),
        "data_type": rows.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [rows.part_rows, *rows.shape[1:]]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": False if rows.dtype.kind == "b" else 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": sys.byteorder}}],
        "attributes": {},
        "dimension_names": list(_DIMENSIONS[: len(rows.shape)]),
    }
