"""Journals: one small record for each stored chunk, written after it; what has a record survives a kill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from .drafts import Digests
from .listing import list_keys
from .manifest import digest_of

#: Inside an array, where zarr does not look for further nodes.
_FOLDER = "scores/journal"


@dataclass(frozen=True)
class Record:
    """What was written of one run of rows: the digests of its chunks, and its hard labels."""

    n_rows: int
    digests: Digests
    labels: NDArray[np.int64] | None = None

    @property
    def labelled(self) -> str:
        """The kind of labels these rows have."""
        if self.labels is not None:
            return "hard labels"
        return "soft labels" if any(key.startswith("labels/") for key in self.digests) else "no labels"

    def to_bytes(self) -> bytes:
        """Give the record as a line of JSON with the labels behind it."""
        data = b"" if self.labels is None else self.labels.astype("<i8").tobytes()
        head = {"n_rows": self.n_rows, "digests": self.digests, "labelled": self.labels is not None,
                "digest": digest_of(data)}  # fmt: skip
        return json.dumps(head).encode() + b"\n" + data

    @classmethod
    def from_bytes(cls, data: bytes) -> Record | None:
        """Give the record; None where it is damaged."""
        line, _, labels = data.partition(b"\n")
        try:
            head = json.loads(line)
        except ValueError:
            return None
        if tuple(head["digest"]) != digest_of(labels):
            return None
        digests = {key: (length, value) for key, (length, value) in head["digests"].items()}
        return cls(head["n_rows"], digests, np.frombuffer(labels, "<i8") if head["labelled"] else None)


class Journal:
    """The records of a draft, by the number of their run of rows."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def write(self, number: int, record: Record) -> None:
        """Write the record of a run whose chunks are all written."""
        sync(self._store.set(_key(number), default_buffer_prototype().buffer.from_bytes(record.to_bytes())))

    def read(self) -> Iterator[Record]:
        """Give the records from the first on, up to the first that is absent, damaged or whose chunks are not there."""
        names = list_keys(self._store, _FOLDER) or {}
        stored = {key: length for key, length in (list_keys(self._store, "") or {}).items() if "/c/" in key}
        for number in range(len(names)):
            found = sync(self._store.get(_key(number), default_buffer_prototype())) if _key(number) in names else None
            record = None if found is None else Record.from_bytes(found.to_bytes())
            if record is None or any(stored.get(key) != length for key, (length, _) in record.digests.items()):
                return
            yield record

    def clear(self) -> None:
        """Remove all records."""
        sync(self._store.delete_dir(_FOLDER))


def _key(number: int) -> str:
    return f"{_FOLDER}/{number:010}"
