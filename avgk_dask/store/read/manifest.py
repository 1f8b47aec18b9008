"""Manifests: the length and a 64-bit hash of every stored chunk, stored with it.

A manifest is a Zarr group ``manifest`` beside the arrays it covers, with one array of the same name
for each of them: for each index of the chunk grid the length and the XXH3 of the stored bytes. (A
CRC-32C of bytes that end in their own CRC-32C, as the checksum codec leaves them, is a constant.)
The group's seal (``seals.py``) holds each table's SHA-256.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from ..where.array_kinds import StoredArray
from .grids import grid_of

#: Group that holds the tables.
GROUP = "manifest"

#: Bytes hashed at once: more, and the hash gives up Python's lock and waits for it afterwards, which takes
#: longer than hashing while other threads compute.
_PIECE = 1 << 16

Table = NDArray[np.uint64]
#: Length and hash of a chunk's stored bytes.
Digest = tuple[int, int]


def digest_of(data: bytes | bytearray | memoryview) -> Digest:
    """Return the length and the XXH3 (64 bits) of stored bytes.

    Examples
    --------
    >>> digest_of(b"") == (0, 0x2D06800538D394C2)
    True

    """
    view, hashed = memoryview(data).cast("B"), xxhash.xxh3_64()
    for first in range(0, view.nbytes, _PIECE):
        hashed.update(view[first : first + _PIECE])
    return view.nbytes, hashed.intdigest()


def empty_table(grid: tuple[int, ...]) -> Table:
    """Return a table for a chunk grid, all zeros: no chunk is recorded yet."""
    return np.zeros((*grid, 2), np.uint64)


def chunk_grid(array: StoredArray) -> tuple[int, ...]:
    """Return the number of stored chunks (or shards) along each axis of an array."""
    return tuple(axis.count for axis in grid_of(array))


def index_of(array: str, key: str) -> tuple[int, ...] | None:
    """Return the index in the chunk grid of a key of the array at a path; None for a key of something else.

    Examples
    --------
    >>> index_of("run/scores", "run/scores/c/3/0"), index_of("", "3.0"), index_of("labels", "scores/c/0")
    ((3, 0), (3, 0), None)

    """
    prefix = f"{array}/" if array else ""
    return tuple(map(int, re.findall(r"\d+", key[len(prefix) :]))) if key.startswith(prefix) else None


@dataclass(frozen=True)
class Manifest:
    """The digests of the chunks of the array at a path."""

    array: str
    table: Table

    def find(self, key: str) -> Digest | None:
        """Return the digest of a chunk by its key; None for a key that is none of the array's chunks."""
        index = index_of(self.array, key)
        grid = self.table.shape[:-1]
        if index is None or len(index) != len(grid) or any(i >= n for i, n in zip(index, grid, strict=True)):
            return None
        length, hashed = self.table[index].tolist()
        return length, hashed

    def complaint(self, key: str, data: memoryview) -> str | None:
        """Say what is wrong with a chunk's stored bytes; None where they are as written."""
        expected = self.find(key)
        if expected is None:
            return None
        length = data.nbytes
        if length != expected[0]:
            return f"it has {length:,} bytes, and was written with {expected[0]:,}"
        found = digest_of(data)[1]
        if found != expected[1]:
            return f"its bytes are not those that were written (hash {found:x}, not {expected[1]:x})"
        return None


def table_digest(table: Table) -> str:
    """Return the SHA-256 of a table."""
    return hashlib.sha256(np.ascontiguousarray(table, "<u8").tobytes()).hexdigest()
