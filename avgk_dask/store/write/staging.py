"""Staging: a finished store stays as it is while rows are appended to it; what replaces a part of it takes its place at the end.

Chunks behind the last one are written where they belong: nothing refers to them yet. All else that an append writes (chunks
that were not full, metadata, the manifest) is staged below ``scores/append``. At the end the root says that the store is
incomplete, with the digests of what is staged; that is copied into place, the root's metadata last. A writer killed before leaves the
old store; one killed within, a store that says it is incomplete and that the next writer finishes (``settle``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest, Store

from ...errors import StoreError
from ..read.listing import listed_keys
from ..read.manifest import Digest, chunk_grid, digest_of, index_of
from ..read.seals import ATTRIBUTE, FORMAT, STAGED, Seal
from ..read.wrapping import Wrapping
from ..where.zarr_calls import read_key, wait, write_key
from .append_record import RECORD, read_append_record
from .drafts import Digests, Draft
from .leased import lease_of
from .leases import tell
from .roots import read_document, write_document

#: Inside an array, where zarr does not look for further nodes.
_FOLDER = "scores/append"
_ROOT = "zarr.json"
#: What may be staged: nothing outside of the store is written, whatever its root says.
_KEY = re.compile(
    rf"zarr\.json|manifest/zarr\.json|(manifest/)?(scores|class_index|labels)/(zarr\.json|c(/[0-9]+)+)|{re.escape(RECORD)}"
)


class StagedStore(Wrapping):
    """Wraps a finished store: a new one is written through it, of which only chunks behind those of the old are not staged."""

    def __init__(self, store: Store, n_stored: Mapping[str, int]) -> None:
        super().__init__(store)
        #: How many chunks each array of the finished store has along its rows.
        self._n_stored = n_stored

    def _with_store(self, store: Store) -> StagedStore:
        return type(self)(store, self._n_stored)

    def is_staged(self, key: str) -> bool:
        """Whether a key is written below the stage, and not in its own place."""
        name, _, rest = key.partition("/")
        return not (rest.startswith("c/") and int(rest.split("/")[1]) >= self._n_stored.get(name, 0))

    def _place(self, key: str) -> str:
        return f"{_FOLDER}/{key}" if self.is_staged(key) else key

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Read metadata; no chunk is there: those that a killed append has left are no part of new ones."""
        return None if "/c/" in key else await super().get(self._place(key), prototype, byte_range)

    async def exists(self, key: str) -> bool:
        """Whether a key is there."""
        return await super().exists(self._place(key))

    async def set(self, key: str, value: Buffer) -> None:
        """Write a key."""
        await super().set(self._place(key), value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Write a key that is not there."""
        await super().set_if_not_exists(self._place(key), value)

    async def delete(self, key: str) -> None:
        """Remove a key."""
        await super().delete(self._place(key))

    async def delete_dir(self, prefix: str) -> None:
        """Remove what is staged below a prefix."""
        await super().delete_dir(f"{_FOLDER}/{prefix}")


def replace_staged(store: Store, location: str, staged: Digests) -> None:
    """Put what is staged in the place of what is there; from the first write to the last the store says it is incomplete."""
    found = _load(store, location, staged)
    root = read_document(store, _ROOT, location)
    state = Seal(FORMAT, False, {STAGED: staged}).to_state()
    root["attributes"] = {**(root.get("attributes") or {}), ATTRIBUTE: state}
    write_document(store, _ROOT, root)
    _move_in(store, found)


def _load(store: Store, location: str, staged: Mapping[str, Digest]) -> dict[str, bytes]:
    """Read what is staged: metadata, and of each array one stretch of rows."""
    found = {}
    for key, digest in staged.items():
        data = read_key(store, f"{_FOLDER}/{key}")
        if data is None or digest_of(data) != tuple(digest):
            raise StoreError(
                f"{_FOLDER}/{key} of {location} is missing or damaged; the rows that were appended cannot take their place. "
                "Restore it, or write the store again."
            )
        found[key] = data
    return found


def _move_in(store: Store, found: Mapping[str, bytes]) -> None:
    lease = lease_of(store)
    for key in sorted(found, key=lambda key: (key == _ROOT, key)):
        if lease:
            lease.check(surely=key == _ROOT)
        write_key(store, key, found[key])
    wait(store.delete_dir(_FOLDER))


def settle(store: Store, location: str) -> str | None:
    """Finish what an append was killed at, or remove what it had begun, with a word.

    Return the hash of the rows of an append that was finished and whose run did not end, or None if there is none.
    """
    seal = Seal.read(read_document(store, _ROOT, location).get("attributes"), location)
    is_staged = seal is not None and not seal.complete and STAGED in seal.noted
    if seal is None or not (seal.complete or is_staged):
        return None
    if is_staged:
        _move_in(store, _load(store, location, _told(seal.noted[STAGED], location)))
    rows = read_append_record(store)
    once = "its rows are in the store" + (", and are not added again if they come unchanged" if rows else "")
    if is_staged:
        tell(f"finished an append to {location} whose writer was gone; {once}")
        return rows
    if listed_keys(store, _FOLDER):
        staged = read_key(store, f"{_FOLDER}/{_ROOT}")
        is_done = staged == read_key(store, _ROOT) or (staged is None and rows is not None)
        drop_staged(store, location)
        if not is_done:
            tell(f"removed the rows of an append to {location} that was not finished; append them again")
    if rows is not None:
        tell(f"an append to {location} was complete when its run was killed; {once}")
    return rows


def _told(staged: object, location: str) -> dict[str, Digest]:
    """Return the digests that the root tells, of the form they must have."""
    try:
        found = {str(key): (int(length), int(value)) for key, (length, value) in staged.items()}  # type: ignore[attr-defined]
        if _ROOT not in found or not all(map(_KEY.fullmatch, found)):
            raise ValueError(_ROOT)
    except (ValueError, TypeError, AttributeError):
        raise StoreError(
            f"{_ROOT} of {location} is damaged: it does not tell what is staged. Restore it, or write the store again."
        ) from None
    return found


def drop_staged(store: Store, location: str) -> None:
    """Remove what an append had begun: chunks behind those of the finished store, and then what was staged."""
    draft = Draft.reopen(store, location)
    for name in draft.names:
        n_stored = chunk_grid(draft.group[name])[0]
        for key in listed_keys(store, f"{name}/c"):
            index = index_of(name, key)
            if index and index[0] >= n_stored:
                wait(store.delete(key))
    draft.clean()
    wait(store.delete_dir(_FOLDER))
