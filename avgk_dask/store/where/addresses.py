"""What may be shown of stores, and of what their clients say: never credentials."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from zarr.abc.store import Store
from zarr.storage import FsspecStore, ObjectStore, StorePath, WrapperStore

from ... import credentials
from ...credentials import environment_secrets, hide, hide_pairs
from .zarr_calls import inside

#: Storage options, by name; of what type each is, only the client knows.
Options = Mapping[str, Any]
Path = str | os.PathLike[str]
#: What can be written to: where it is, or an opened store.
Writable = Path | Store

_OBJECT_STORES = {"S3Store": "s3", "GCSStore": "gs", "AzureStore": "az"}
#: Longer texts of clients are shortened.
_MOST = 400


def shown(place: object) -> str:
    """Return a path, a URL or a Zarr store as it may be shown.

    Examples
    --------
    >>> shown("https://me:secret@example.org/scores.zarr?sig=abc")
    'https://***@example.org/scores.zarr'

    """
    if isinstance(place, StorePath):
        return f"{shown(place.store)}/{place.path}".rstrip("/")
    if isinstance(place, (FsspecStore, ObjectStore)):
        return credentials.shown(address_of(place))
    return hide(str(place)) if isinstance(place, Store) else credentials.shown(place)


def address_of(store: Store) -> str:
    """Return where a store is, as its client was told: with credentials, if there are any in its URL."""
    if isinstance(store, FsspecStore) and "://" not in store.path:
        kind = store.fs.protocol if isinstance(store.fs.protocol, str) else store.fs.protocol[0]
        return f"{kind}://{store.path if kind == 'file' else store.path.lstrip('/')}"
    if isinstance(store, FsspecStore):
        return str(store.path)
    client: Any = getattr(store, "store", None)
    kind = _OBJECT_STORES.get(type(client).__name__, "")
    if isinstance(store, ObjectStore) and kind:  # not as obstore shows it, which may fail
        bucket = client.config.get("bucket") or client.config.get("container_name")
        return f"{kind}://{bucket}/{client.prefix or ''}"
    return str(getattr(client, "url", None) or store)


def secrets_of(*given: object) -> tuple[str, ...]:
    """Return what must not be shown of locations, options and Zarr stores."""
    return credentials.secrets_of(*(_options_of(one) if isinstance(one, (Store, StorePath)) else one for one in given))


def _options_of(store: object) -> list[object]:
    """Return what an opened store was told of where it is and how to reach it."""
    if isinstance(store, StorePath):
        return _options_of(store.store)
    if isinstance(store, WrapperStore):
        return _options_of(inside(store))
    client = getattr(store, "store", None)  # of obstore
    found = [getattr(client, name, None) for name in ("url", "config", "client_options")]
    files = getattr(store, "fs", None)
    while files is not None:
        found += [getattr(files, "storage_options", None), getattr(store, "path", None)]
        files = getattr(files, "sync_fs", None) or getattr(files, "fs", None)
    return found


def scrubbed(text: str, secrets: Iterable[str] = ()) -> str:
    """Return an error text in one line without credentials: neither these nor those of the environment."""
    code = re.search(r"<Code>(.*?)</Code>(?:\s*<Message>(.*?)</Message>)?", text, re.DOTALL)
    if code:  # what else S3 and Azure say may hold keys and signatures
        text = f"{code[1]}: {code[2]}" if code[2] else code[1]
    text = " ".join(hide_pairs(hide(text, {*secrets, *environment_secrets()})).split())
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"
