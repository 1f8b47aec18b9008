"""A file of scores as a Zarr store: its rows are the chunks of an array, and its metadata are made up.

So a file goes the way of every store: bands, labels, checkpoints and lazy Datasets know nothing of it.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest, Store

from ...arrays import Array
from ...errors import StoreError
from ...files.any_rows import AnyRows
from ...files.matrix_files import MatrixFile, is_matrix_file, open_matrix_file
from ...files.names import SUFFIXES
from .zarr_calls import byte_bounds

#: More class names than this are not taken along.
MOST_NAMES = 200_000
_DIMENSIONS = ("sample", "class")


class FileStore(Store):
    """The arrays ``scores``, and ``labels`` where there are any, of a file. It cannot be written, or listed."""

    supports_writes = supports_deletes = supports_listing = False

    def __init__(self, file: MatrixFile, location: str) -> None:
        super().__init__(read_only=True)
        self.file, self.location = file, location
        self.rows = {"scores": file.scores} | ({} if file.labels is None else {"labels": file.labels})

    @classmethod
    def at(cls, path: object, scores: str | None, labels: str | None, own_labels: bool) -> FileStore | None:
        """Open the file at a path; None where that is no file of scores, but may be a store."""
        if not is_matrix_file(path):
            return None
        name = str(os.fspath(path))  # type: ignore[call-overload]
        file = open_matrix_file(name, scores, labels)
        if labels is None and not own_labels:
            file = replace(file, labels=None)
        elif labels is not None and file.labels is None:
            raise StoreError(f"{name} must hold labels to be named; got {labels!r}. Check the name.")
        return cls(file, name)

    @property
    def format(self) -> str:
        """How the file's name ends, or that of the files in a folder."""
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
        """Return the store: it is read-only."""
        return self

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Read metadata, or a chunk."""
        data = self._value(key)
        if data is None:
            return None
        return prototype.buffer.from_bytes(data if byte_range is None else data[byte_bounds(byte_range, len(data))])

    def _value(self, key: str) -> bytes | None:
        """Return what is at a key: metadata, or the rows of a chunk."""
        if key == "zarr.json":
            return json.dumps(self._group_document()).encode()
        name, _, rest = key.partition("/")
        if name not in self.rows:
            return None
        return json.dumps(_array_document(self.rows[name])).encode() if rest == "zarr.json" else self._chunk(name, rest)

    def _group_document(self) -> dict[str, Any]:
        names = self.file.class_names
        known = {"class_names": names} if names and len(names) <= MOST_NAMES else {}
        return {"zarr_format": 3, "node_type": "group", "attributes": known}

    def _chunk(self, name: str, key: str) -> bytes | None:
        """Return the rows of a chunk, such as c/3/0; as Zarr has it, the last one is as long as the others."""
        rows = self.rows[name]
        found = re.fullmatch(r"c/(\d+)" + "/0" * (len(rows.shape) - 1), key)
        first = int(found[1]) * rows.part_rows if found else rows.shape[0]
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
        """Return whether there is something at a key."""
        return self._value(key) is not None

    async def set(self, key: str, value: Buffer) -> None:
        """Refuse to write."""
        raise StoreError(f"{self.location} must not be written; it is a file of scores. Write a store.")

    async def delete(self, key: str) -> None:
        """Refuse to delete."""
        raise StoreError(f"{self.location} must not be written; it is a file of scores. Write a store.")

    async def list(self) -> AsyncIterator[str]:
        """Return the keys of metadata."""
        for key in ("zarr.json", *(f"{name}/zarr.json" for name in self.rows)):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Return the keys of metadata that begin so."""
        async for key in self.list():
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Return the names in a folder."""
        for name in ("zarr.json", *(() if prefix.strip("/") else self.rows)):
            yield name


def _array_document(rows: AnyRows) -> dict[str, Any]:
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
