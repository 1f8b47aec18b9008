"""Journals: records from which a writer continues after an earlier one was killed, protected by digests.

- One small record per stored chunk, written after the chunk: rows with a record survive a kill. One digest covers the number,
  rows, chunk digests, array metadata, labels and draft of a record, so a damaged record is refused.
- A hash of the rows of the last append, kept until its run ends, so that repeating the run after a kill does not add
  them twice. This record contains a digest of the root that completes the append and is written just before that root. So it
  is valid only for the last append, and only if that was finished.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import xxhash
from zarr.abc.store import Store

from ...arrays import Array, Ints
from ...errors import StoreError
from ..read.listing import list_keys_or_raise
from ..read.manifest import Digests, digest_of, is_count
from ..where.addresses import read_key, remove_key, wait, write_key

#: Inside an array, where zarr does not look for further nodes.
_FOLDER, RECORD = "scores/journal", "scores/appended.json"


@dataclass(frozen=True)
class JournalRecord:
    """A record of written rows: the digests of their chunks, and their hard labels."""

    number: int
    first_row: int
    n_rows: int
    digests: Digests
    labels: Ints | None = None
    #: A digest of the metadata of each array that the chunks belong to (``Draft.forms``).
    forms: Mapping[str, str] = field(default_factory=dict)
    #: The draft that the record belongs to (``Draft.owner``); empty if unknown.
    owner: str = ""

    @property
    def labelled(self) -> str:
        """The kind of labels these rows have."""
        if self.labels is not None:
            return "hard labels"
        return "soft labels" if any(key.startswith("labels/") for key in self.digests) else "no labels"

    def to_bytes(self) -> bytes:
        """Return the record: a line with a digest, a line of JSON, and the labels."""
        head = {
            "number": self.number, "first_row": self.first_row, "n_rows": self.n_rows, "digests": self.digests,
            "forms": dict(self.forms), "labelled": self.labels is not None, "owner": self.owner,
        }  # fmt: skip
        labels = b"" if self.labels is None else self.labels.astype("<i8").tobytes()
        body = json.dumps(head).encode() + b"\n" + labels
        return json.dumps(digest_of(body)).encode() + b"\n" + body

    @classmethod
    def from_bytes(cls, data: bytes) -> JournalRecord:
        """Parse a record; raise ValueError if it is damaged."""
        digest, _, body = data.partition(b"\n")
        if tuple(json.loads(digest)) != digest_of(body):
            raise ValueError("its digest does not match")
        line, _, labels = body.partition(b"\n")
        head = json.loads(line)
        counts = head["number"], head["first_row"], head["n_rows"]
        if not all(map(is_count, counts)) or not counts[2]:
            raise ValueError(f"its number, first row and rows are {counts}")
        digests = {key: (length, value) for key, (length, value) in head["digests"].items()}
        if {key.split("/")[0] for key in digests} != {"scores", *head["forms"]}:
            raise ValueError(f"it lists the chunks {', '.join(digests) or 'of no array'}")
        if len(labels) != 8 * counts[2] * bool(head["labelled"]):
            raise ValueError(f"it has {len(labels):,} bytes of labels for {counts[2]} rows")
        values = np.frombuffer(labels, "<i8") if head["labelled"] else None
        return cls(*counts, digests, values, head["forms"], str(head.get("owner", "")))


class Journal:
    """The records of a draft, numbered in the order of their rows."""

    def __init__(self, store: Store, location: str) -> None:
        self._store, self._location = store, location

    def write(self, record: JournalRecord) -> None:
        """Write the record of rows whose chunks are all written."""
        write_key(self._store, _key(record.number), record.to_bytes())

    def read(self, owner: str) -> Iterator[JournalRecord]:
        """Return the records of a draft, in order, up to the first that is missing or whose chunks are missing.

        A record that is damaged, of another draft, or in the place of another record raises an error.
        """
        names = list_keys_or_raise(self._store, _FOLDER)
        stored = {key: length for key, length in list_keys_or_raise(self._store, "").items() if "/c/" in key}
        first_row = 0
        for number in range(len(names)):
            # Only listed files are read, which excludes pipes. A record is empty after a crash of the system.
            data = read_key(self._store, _key(number)) if names.get(_key(number), 0) != 0 else None
            if data is None:
                return
            record = self._parse(data, number, first_row, owner)
            if any(stored.get(key, 0) not in (length, None) for key, (length, _) in record.digests.items()):
                return
            first_row += record.n_rows
            yield record

    def check(self, forms: Mapping[str, str], owner: str) -> int:
        """Return the number of valid records; refuse damaged ones, and arrays whose metadata have changed."""
        n_records, labelled = 0, None
        for record in self.read(owner):
            labelled = labelled or record.labelled
            for name, form in record.forms.items():
                if forms.get(name) != form:
                    raise StoreError(
                        f"the metadata of array {name!r} of {self._location} are damaged: its chunks were written with "
                        "other metadata. Restore them, or write the store again."
                    )
            if record.labelled != labelled:
                raise StoreError(
                    f"the records of {self._location} are damaged: number {n_records} has {record.labelled}, but those "
                    f"before it have {labelled}. Restore them, or write the store again."
                )
            n_records += 1
        return n_records

    def _parse(self, data: bytes, number: int, first_row: int, owner: str) -> JournalRecord:
        try:
            record = JournalRecord.from_bytes(data)
            if (record.number, record.first_row) != (number, first_row):
                raise ValueError(f"it is record {record.number}, of the rows from {record.first_row} on")
            if record.owner not in ("", owner):
                raise ValueError("it is a record of another store")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise StoreError(
                f"record {_key(number)} of {self._location} is damaged: {error}. "
                "Restore it; or remove it and the records after it, and append their rows again."
            ) from None
        return record

    def drop(self, number: int) -> None:
        """Remove the records from a number on; their rows are to be written again."""
        for key in list_keys_or_raise(self._store, _FOLDER):
            if key >= _key(number):
                wait(self._store.delete(key))

    def clear(self) -> None:
        """Remove all records."""
        wait(self._store.delete_dir(_FOLDER))


def _key(number: int) -> str:
    return f"{_FOLDER}/{number:010}"


class RowsHash:
    """A hash of the rows of several arrays, independent of the batches in which they are added."""

    def __init__(self) -> None:
        self._hashes: list[xxhash.xxh3_128] = []

    def add(self, arrays: Sequence[Array]) -> None:
        """Add the same rows of each array, in their stored form."""
        self._hashes = self._hashes or [xxhash.xxh3_128() for _ in arrays]
        for hashed, array in zip(self._hashes, arrays, strict=True):
            hashed.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def hexdigest(self) -> str:
        """Return the hash."""
        return "-".join(hashed.hexdigest() for hashed in self._hashes)


def write_append_record(store: Store, root: bytes, rows: str) -> None:
    """Record the hash of the appended rows, together with a digest of the root that will complete the append."""
    write_key(store, RECORD, json.dumps({"root": digest_of(root), "rows": rows}).encode())


def read_append_record(store: Store) -> str | None:
    """Return the hash of the rows of the last append if it was finished but its run was killed, else None."""
    data, root = read_key(store, RECORD), read_key(store, "zarr.json")
    if data is None or root is None:
        return None
    try:
        record = json.loads(data)
        return str(record["rows"]) if tuple(record["root"]) == digest_of(root) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def remove_append_record(store: Store) -> None:
    """Remove the record, as the run that appended has ended."""
    remove_key(store, RECORD)
