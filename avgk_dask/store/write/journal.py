"""Staging: a finished store stays as it is while rows are appended to it; what replaces a part of it takes its place at the end.

Chunks behind the last one are written where they belong: nothing refers to them yet. All else that an append writes (chunks
that were not full, metadata, the manifest) is staged below ``scores/append``. At the end the root says that the store is
incomplete, with the digests of what is staged; that is copied into place, the root's metadata last. A writer killed before leaves the
old store; one killed within, a store that says it is incomplete and that the next writer finishes (``settle``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest, Store

from ...arrays import Ints
from ...errors import StoreError
from ..read.checked import Wrapping
from ..read.listing import listed_keys
from ..read.manifest import ATTRIBUTE, FORMAT, STAGED, Digest, Seal, chunk_grid, digest_of, index_of, is_count
from ..where.addresses import read_key, wait, write_key
from .drafts import RECORD, Digests, Draft, read_append_record, read_document, write_document
from .leases import lease_of, tell

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


# Journals: one small record for each stored chunk, written after it; what has a record survives a kill.
#
# A record is whole or refused: its number, its rows, the digests of its chunks, the form of the arrays they belong to,
# its labels and the draft it is of are all under one digest.


#: Inside an array, where zarr does not look for further nodes.
_JOURNAL_FOLDER = "scores/journal"


@dataclass(frozen=True)
class JournalRecord:
    """What was written of one stretch of rows: the digests of its chunks, and its hard labels."""

    number: int
    first_row: int
    n_rows: int
    digests: Digests
    labels: Ints | None = None
    #: The form of each array that the chunks belong to (``Draft.forms``).
    forms: Mapping[str, str] = field(default_factory=dict)
    #: The draft that the record is of (``Draft.owner``); empty if that is not known.
    owner: str = ""

    @property
    def labelled(self) -> str:
        """The kind of labels these rows have."""
        if self.labels is not None:
            return "hard labels"
        return "soft labels" if any(key.startswith("labels/") for key in self.digests) else "no labels"

    def to_bytes(self) -> bytes:
        """Return the record as a line with a digest, a line of JSON that tells what was written, and the labels."""
        head = {
            "number": self.number, "first_row": self.first_row, "n_rows": self.n_rows, "digests": self.digests,
            "forms": dict(self.forms), "labelled": self.labels is not None, "owner": self.owner,
        }  # fmt: skip
        labels = b"" if self.labels is None else self.labels.astype("<i8").tobytes()
        body = json.dumps(head).encode() + b"\n" + labels
        return json.dumps(digest_of(body)).encode() + b"\n" + body

    @classmethod
    def from_bytes(cls, data: bytes) -> JournalRecord:
        """Return the record in some bytes; raise ValueError where they are not those that were written."""
        told, _, body = data.partition(b"\n")
        if tuple(json.loads(told)) != digest_of(body):
            raise ValueError("its digest does not fit")
        line, _, labels = body.partition(b"\n")
        head = json.loads(line)
        counts = head["number"], head["first_row"], head["n_rows"]
        if not all(map(is_count, counts)) or not counts[2]:
            raise ValueError(f"its number, first row and rows are {counts}")
        digests = {key: (length, value) for key, (length, value) in head["digests"].items()}
        if {key.split("/")[0] for key in digests} != {"scores", *head["forms"]}:
            raise ValueError(f"it tells the chunks of {', '.join(digests) or 'no array'}")
        if len(labels) != 8 * counts[2] * bool(head["labelled"]):
            raise ValueError(f"it has {len(labels):,} bytes of labels for {counts[2]} rows")
        mine = np.frombuffer(labels, "<i8") if head["labelled"] else None
        return cls(*counts, digests, mine, head["forms"], str(head.get("owner", "")))


class Journal:
    """The records of a draft, by the number of their stretch of rows."""

    def __init__(self, store: Store, location: str) -> None:
        self._store, self._location = store, location

    def write(self, record: JournalRecord) -> None:
        """Write the record of a stretch of rows whose chunks are all written."""
        write_key(self._store, _key(record.number), record.to_bytes())

    def read(self, owner: str) -> Iterator[JournalRecord]:
        """Return the records of a draft from the first on, up to the first that is absent or whose chunks are not there.

        Raises
        ------
        StoreError
            For a record that is damaged, of another draft, or in the place of another record.

        """
        names = listed_keys(self._store, _JOURNAL_FOLDER)
        stored = {key: length for key, length in listed_keys(self._store, "").items() if "/c/" in key}
        first_row = 0
        for number in range(len(names)):
            if names.get(_key(number), 0) == 0:  # absent, or empty: a record that a crash left without its bytes
                return
            record = self._read(number, first_row, owner)
            if record is None or any(
                stored.get(key, 0) not in (length, None) for key, (length, _) in record.digests.items()
            ):
                return
            first_row += record.n_rows
            yield record

    def _read(self, number: int, first_row: int, owner: str) -> JournalRecord | None:
        found = read_key(self._store, _key(number))
        if found is None:
            return None
        try:
            record = JournalRecord.from_bytes(found)
            if (record.number, record.first_row) != (number, first_row):
                raise ValueError(f"it is record {record.number}, of the rows from {record.first_row} on")
            if record.owner not in ("", owner):
                raise ValueError("it is a record of another store")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise StoreError(
                f"record {_key(number)} of {self._location} is damaged: {error}. "
                "Restore it; or remove it and the records behind it, and append their rows again."
            ) from None
        return record

    def drop(self, number: int) -> None:
        """Remove the records from a number on: what they tell of is written again."""
        for key in listed_keys(self._store, _JOURNAL_FOLDER):
            if key >= _key(number):
                wait(self._store.delete(key))

    def clear(self) -> None:
        """Remove all records."""
        wait(self._store.delete_dir(_JOURNAL_FOLDER))


def _key(number: int) -> str:
    return f"{_JOURNAL_FOLDER}/{number:010}"
