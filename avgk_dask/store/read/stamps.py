"""Stamps: a hash for each band of what tells its stored chunks from any others, without reading them.

Of a store of ours these are the chunks' digests; of others their lengths and the times at which they were written (or what
an object store tells of each object instead).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, product

import numpy as np
import xxhash
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ObjectStore, ZipStore

from ...errors import OptionError, ReadError, refuse
from ..where import fsspec_calls
from ..where.array_kinds import StoredArray
from ..where.failures import advice
from ..where.file_stores import FileStore
from ..where.zarr_calls import read_key, wait, zip_entries
from .checked import bare_store
from .grids import grid_of
from .listing import chunk_key, list_keys, object_facts, timed_files
from .manifest import Table

#: What file systems of fsspec call a mark that changes with the file, the best first.
_MARKS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "updated", "modified", "created")


def band_stamps(array: StoredArray, bounds: Sequence[int]) -> Table:
    """Return the stamp of each band of an array, given the rows at which bands begin and end.

    Raises
    ------
    OptionError
        Where the store tells nothing by which its chunks could be told from others.

    """
    checks = array.store_path.store.checks
    table = _told_table(array) if checks.manifest is None else checks.manifest.table
    rows, meaning = grid_of(array)[0], _meaning(array)
    inner = math.prod(array.shape[1:-1])  # rows of one index of the first axis
    stamps = []
    for first, last in pairwise(bounds):
        chunks = rows.indices(first // inner, -(-last // inner))
        found = xxhash.xxh3_64(np.ascontiguousarray(table[chunks.start : chunks.stop], "<u8").tobytes())
        found.update(f"{last - first} {meaning}".encode())
        stamps.append(found.intdigest())
    return np.array(stamps, np.uint64)


def _meaning(array: StoredArray) -> str:
    """Return all in an array's metadata that says what its chunks mean, but for its length."""
    document = array.metadata.to_dict()
    document.pop("consolidated_metadata", None)
    shape = document.pop("shape")
    return json.dumps([document, list(shape)[1:]], sort_keys=True, default=str)


def hash_rows(values: object) -> int:
    """Return a hash of an array's values, the same for equal numbers of any integer type."""
    found = np.asarray(values)
    plain = found.astype("<i8" if np.can_cast(found.dtype, "i8") else found.dtype.newbyteorder("<"))
    return xxhash.xxh3_64(f"{plain.dtype.kind}".encode() + np.ascontiguousarray(plain).tobytes()).intdigest()


def _told_table(array: StoredArray) -> Table:
    """Return the length and a mark of each chunk, as the store tells them; zeros for one that is not there."""
    checks = array.store_path.store.checks
    try:
        told = _marks(bare_store(array.store_path.store), array.path)
    except Exception as error:
        why = checks.scrub(error)
        todo = advice(why, "Check the store, and try again.")
        refuse(ReadError(f"could not list {checks.location}, which a checkpoint needs: {why}. {todo}"))
    if told is None:
        raise OptionError(
            f"checkpoint must be of a store that tells when its chunks were written; got {array.store_path.store}. "
            "Copy the store to a folder or an object store, or write it with ScoreWriter."
        )
    shape = tuple(axis.count for axis in grid_of(array))
    if isinstance(told, tuple):
        return np.broadcast_to(np.array(told, np.uint64), (*shape, 2))
    table = np.zeros((*shape, 2), np.uint64)
    for index in product(*map(range, shape)):
        key = chunk_key(array, index)
        if key not in told and checks.missing != "fill":
            raise ReadError(
                f"chunk {key} of {checks.location} is not listed, which a checkpoint needs. Check the store."
            )
        table[index] = told.get(key, (0, 0))
    return table


def _marks(store: Store, prefix: str) -> Mapping[str, tuple[int, int]] | tuple[int, int] | None:
    """Return the length and a mark of every key below a prefix, or of all of them at once; None where the store does not tell."""
    if isinstance(store, FileStore):
        return sum(stamp.n_bytes for stamp in store.file.marks), _number(store.file.marks)
    if isinstance(store, LocalStore):
        return dict(timed_files(str(store.root), prefix))
    if isinstance(store, ZipStore):
        return {entry.filename: (entry.file_size, entry.CRC) for entry in zip_entries(store)}
    if isinstance(store, ObjectStore) and type(store.store).__name__ != "HTTPStore":
        return {name: (size, _number(mark)) for name, size, mark in object_facts(store.store, prefix)}
    if isinstance(store, MemoryStore):
        return {key: _content(store, key) for key in list_keys(store, prefix) or ()}
    if isinstance(store, FsspecStore) and "http" not in str(store.fs.protocol):
        return _fsspec_marks(store, prefix)
    return None


def _fsspec_marks(store: FsspecStore, prefix: str) -> Mapping[str, tuple[int, int]] | None:
    root = store.path.strip("/")
    found = {}
    for name, facts in wait(fsspec_calls.find(store, prefix)).items():
        mark = next((facts[known] for known in _MARKS if facts.get(known) is not None), None)
        if mark is None:
            return None
        found[name.strip("/").removeprefix(root).lstrip("/")] = int(facts.get("size") or 0), _number(mark)
    return found


def _content(store: Store, key: str) -> tuple[int, int]:
    data = read_key(store, key) or b""
    return len(data), xxhash.xxh3_64(data).intdigest()


def _number(mark: object) -> int:
    return xxhash.xxh3_64(str(mark).encode()).intdigest()


def join_stamps(stamps: Iterable[object]) -> str:
    """Return a name of several stamps, the same only where they are the same, in the same order."""
    return xxhash.xxh3_128(" ".join(map(str, stamps)).encode()).hexdigest()
