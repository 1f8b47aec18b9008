"""Which rows the last append added, recorded until its run ends: run again after a kill, it must not add them twice.

The record is written just before the root that says the store is complete with them, and names that root. So it is
believed only of an append that was finished, and of the last one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import xxhash
from zarr.abc.store import Store

from ...arrays import Array
from ..read.manifest import digest_of
from ..where.zarr_calls import read_key, remove_key, write_key

#: Inside an array, where zarr does not look for further nodes.
RECORD = "scores/appended.json"


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
