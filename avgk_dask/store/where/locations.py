"""Locations: a path or URL becomes a Zarr store."""

from __future__ import annotations

import os
import pathlib
import zipfile
from urllib.parse import urlsplit

from fsspec.registry import known_implementations
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, ZipStore

from ...credentials import is_url, shown_address
from ...errors import OptionError, StoreError, refuse
from ...files.names import check_plain, file_advice, is_pickle, path_advice
from .addresses import Options, secrets_of, shown
from .beside import folders_beside
from .clouds import CLOUDS, S3_NAMES, is_true, open_cloud
from .failures import advice, cause, refuse_forked
from .zarr_calls import zip_entries

_S3FS_NAMES = {
    "access_key_id": "key", "secret_access_key": "secret", "session_token": "token", "endpoint": "endpoint_url",
    "skip_signature": "anon", "request_payer": "requester_pays",
}  # fmt: skip
_METADATA = ("zarr.json", ".zgroup", ".zarray")


def locate(path: object, options: Options | None = None, *, write: bool = False) -> Store:
    """Return the Zarr store at a path or URL; nothing is read yet.

    ``s3://``, ``gs://``, ``az://``, ``abfs://`` and ``https://`` go through obstore where it is
    installed and knows all the options, everything else through fsspec. The option ``client``
    (``"obstore"`` or ``"fsspec"``) chooses between them.

    Raises
    ------
    StoreError
        Where a local path does not exist, or a needed client is not installed.

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
        raise OptionError(f"client must be 'obstore' or 'fsspec'; got {client!r}. Leave it out for what fits.")
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
    """Refuse an endpoint that is no address of a server: a client may fail on it in any way."""
    if "://" not in address:
        raise OptionError(
            f"{name} must begin with http:// or https://; got {shown_address(address)!r}. Put it in front."
        )
    try:
        is_address = bool(urlsplit(address).hostname) and urlsplit(address).port != 0
    except ValueError:
        is_address = False
    if not is_address:
        refuse(
            OptionError(f"{name} must be http://HOST:PORT or https://HOST; got {shown_address(address)!r}. Correct it.")
        )


def _local(path: str, write: bool) -> Store:
    if is_url(path) and path.rpartition("::")[2].split(":")[0].lower() in known_implementations:
        raise StoreError(f"store must be a path or a URL with two slashes; got {shown(path)!r}. Pass a URL as text.")
    if write:
        if path.endswith(".zip"):
            raise StoreError(f"store must be a folder or a URL to be written; got {path!r}. Zip the finished store.")
        return LocalStore(os.path.abspath(path))  # workers may have another working folder
    if not os.path.exists(path):
        todo = _left(path) or path_advice(path)
        raise StoreError(f"store must exist; got {shown(path)!r}, and nothing is there. {todo}")
    check_plain(path)
    if os.path.isfile(path) and zipfile.is_zipfile(path) and not (path.endswith(".npz") or is_pickle(path)):
        return ZipStore(path, mode="r")
    if os.path.isfile(path):
        raise StoreError(f"store must be a Zarr store; got the file {path!r}. {file_advice(path)}")
    return LocalStore(os.path.abspath(path), read_only=True)


def _left(path: str) -> str:
    """Return where a store is that a run was about to replace when it was killed; empty where there is none."""
    for folder in folders_beside(pathlib.Path(path).resolve()):
        if (folder / "owner").is_file() and (folder / "old").is_dir():
            return (
                f"A run that was to replace it was killed: the next one that writes there puts back {folder / 'old'}."
            )
    return ""


def _through_fsspec(url: str, scheme: str, options: Options, write: bool) -> Store:
    if scheme in ("s3", "s3a"):
        options = _for_s3fs(options)
    try:
        return FsspecStore.from_url(url, storage_options={**options}, read_only=not write)
    except ImportError as error:
        extra, why = CLOUDS.get(scheme), cause(error, secrets_of(url, options)).partition(": ")[2]
        wanted = f"avgk_dask[{extra}]" if extra else "the fsspec file system of this protocol"
        refuse(StoreError(f"{shown(url)} needs a client that is not installed ({why}). Install {wanted}."))
    except (ValueError, TypeError) as error:
        why = cause(error, secrets_of(url, options))
        refuse(StoreError(f"store must be a path or a URL that fsspec knows; got {shown(url)} ({why}). Check it."))
    except Exception as error:  # of a client that connects at once
        why = cause(error, secrets_of(url, options))
        refuse(StoreError(f"could not open {shown(url)}: {why}. {advice(why, 'Check the URL and the options.')}"))


def _for_s3fs(given: Options) -> Options:
    """Return s3fs options: no HEAD before each GET, and no long wait for an endpoint that is dead."""
    options = {**given}
    client = {**options.pop("client_kwargs", {})}
    config = {
        "connect_timeout": 4,
        "read_timeout": 15,
        "retries": {"max_attempts": 4},
        **options.pop("config_kwargs", {}),
    }
    made: dict[str, object] = {"max_concurrency": 1, "config_kwargs": config}
    for name, value in options.items():
        known = S3_NAMES.get(name)
        if known == "region":
            client["region_name"] = value
        elif known in _S3FS_NAMES:
            made[_S3FS_NAMES[known]] = is_true(value) if known in ("skip_signature", "request_payer") else value
        else:
            made[name] = value
    return {**made, "client_kwargs": client}


def inner_root(store: Store) -> str:
    """Return the folder inside a zip file that is the root of the Zarr hierarchy (zipping a folder nests it)."""
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
            f"a zip file must hold one Zarr store; got {store.path} with {', '.join(first[:3])} side by side and no root. "
            "Zip the whole folder of the store."
        )
    return first[0] if first else ""
