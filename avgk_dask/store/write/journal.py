"""Journals: what a writer leaves for the one that goes on after it was killed, all of it checked by digests.

- One small record for each stored chunk, written after it; what has a record survives a kill. A record is whole or
  refused: its number, its rows, the digests of its chunks, the form of the arrays they belong to, its labels and its
  draft are all under one digest.
- Which rows the last append added, recorded until its run ends: run again after a kill, it must not add them twice. The
  record is written just before the root that says the store is complete with them, and names that root. So it is
  believed only of an append that was finished, and of the last one.
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
from ..read.listing import listed_keys
from ..read.manifest import Digests, digest_of, is_count
from ..where.addresses import read_key, remove_key, wait, write_key

#: Inside an array, where zarr does not look for further nodes.
_FOLDER, RECORD = "scores/journal", "scores/appended.json"


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
        """Return the record as a line with a digest, a line of JSON with what was written, and the labels."""
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
        digest, _, body = data.partition(b"\n")
        if tuple(json.loads(digest)) != digest_of(body):
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

        Refuse a record that is damaged, of another draft, or in the place of another record.
        """
        names = listed_keys(self._store, _FOLDER)
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

    def check(self, forms: Mapping[str, str], owner: str) -> int:
        """Return the number of good records; refuse bad ones, and arrays that are not as they were written to."""
        n_records, labelled = 0, None
        for record in self.read(owner):
            labelled = labelled or record.labelled
            for name, form in record.forms.items():
                if forms.get(name) != form:
                    raise StoreError(
                        f"the metadata of array {name!r} of {self._location} are damaged: they are not those that its "
                        "chunks were written with. Restore them, or write the store again."
                    )
            if record.labelled != labelled:
                raise StoreError(
                    f"the records of {self._location} are damaged: number {n_records} has {record.labelled}, and those "
                    f"before it {labelled}. Restore them, or write the store again."
                )
            n_records += 1
        return n_records

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
        """Remove the records from a number on: their rows are written again."""
        for key in listed_keys(self._store, _FOLDER):
            if key >= _key(number):
                wait(self._store.delete(key))

    def clear(self) -> None:
        """Remove all records."""
        wait(self._store.delete_dir(_FOLDER))


def _key(number: int) -> str:
    return f"{_FOLDER}/{number:010}"


class RowsHash:
    """A hash of rows of several arrays, the same in whichever batches they come."""

    def __init__(self) -> None:
        self._hashes: list[xxhash.xxh3_128] = []

    def add(self, arrays: Sequence[Array]) -> None:
        """Add the same rows of some arrays, in the form in which they are stored."""
        self._hashes = self._hashes or [xxhash.xxh3_128() for _ in arrays]
        for hashed, array in zip(self._hashes, arrays, strict=True):
            hashed.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def hexdigest(self) -> str:
        """Return the hash."""
        return "-".join(hashed.hexdigest() for hashed in self._hashes)


def write_append_record(store: Store, root: bytes, rows: str) -> None:
    """Record the hash of the rows that a store has with this root, which is not written yet."""
    write_key(store, RECORD, json.dumps({"root": digest_of(root), "rows": rows}).encode())


def read_append_record(store: Store) -> str | None:
    """Return the hash of the rows of the last append if it was finished and its run did not end, else None."""
    data, root = read_key(store, RECORD), read_key(store, "zarr.json")
    if data is None or root is None:
        return None
    try:
        record = json.loads(data)
        return str(record["rows"]) if tuple(record["root"]) == digest_of(root) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def remove_append_record(store: Store) -> None:
    """Remove the record: the run that appended has ended."""
    remove_key(store, RECORD)
