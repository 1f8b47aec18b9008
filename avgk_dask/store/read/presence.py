"""Presence: which chunks of an array are there, and how long; missing and damaged ones are refused before reading."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from zarr.codecs import BytesCodec
from zarr.storage import LocalStore

from ...errors import ReadError
from ..where.array_kinds import StoredArray
from ..where.failures import refuse_forked
from ..where.zarr_calls import is_uneven
from .checked import FILL, CheckedStore, bare_store
from .grids import outer_sizes
from .listing import chunk_key, in_threads, listed
from .manifest import chunk_grid, index_of

#: Chunks named in an error.
_NAMED = 3
#: What stands for the length of a chunk that is not there, and of one whose store does not tell it.
ABSENT, UNKNOWN = -1, -2

Lengths = NDArray[np.int64]


def chunk_lengths(array: StoredArray) -> Lengths | None:
    """Return the length of every stored chunk (or shard) by its index, or ABSENT or UNKNOWN; None where the store cannot list."""
    store = bare_store(array.store_path.store)
    try:
        if isinstance(store, LocalStore):
            return _measure_files(array, str(store.root))
        found = listed(store, array.path)
        if found is None:
            return None
        lengths = np.full(chunk_grid(array), ABSENT, np.int64)
        for key, length in found:
            index = _index_in(array, key, lengths.shape)
            if index is not None:
                lengths[index] = UNKNOWN if length is None else length
    except Exception:  # of any client: reading may be allowed where listing is not
        return None
    return lengths


def _index_in(array: StoredArray, key: str, grid: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the index in the chunk grid of a key; None where it is none of an array's chunks."""
    index = index_of(array.path, key)
    if index is None or len(index) != len(grid) or any(i >= n for i, n in zip(index, grid, strict=True)):
        return None
    return index if chunk_key(array, index) == key else None


def _measure_files(array: StoredArray, root: str) -> Lengths:
    """Return the lengths of an array's chunks in a folder, asking for each: much faster than listing a folder for each."""
    grid = chunk_grid(array)

    def measure(numbers: Sequence[int]) -> list[int]:
        return [_file_length(f"{root}/{chunk_key(array, _unravel(number, grid))}") for number in numbers]

    lengths = chain.from_iterable(in_threads(measure, range(math.prod(grid))))
    return np.fromiter(lengths, np.int64, math.prod(grid)).reshape(grid)


def _file_length(path: str) -> int:
    """Return the length of a plain file; a folder or a dangling link is no chunk."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    return found.st_size if stat.S_ISREG(found.st_mode) else ABSENT


def _unravel(number: int, grid: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of the chunk of a number, in row-major order."""
    index: tuple[int, ...] = ()
    for n in reversed(grid):
        number, i = divmod(number, n)
        index = (i, *index)
    return index


def missing_chunks(array: StoredArray) -> tuple[list[str], list[tuple[str, str]]] | None:
    """Return the keys of missing chunks, and damaged ones with what is wrong; None where the store cannot list."""
    lengths = chunk_lengths(array)
    if lengths is None:
        return None
    checks = array.store_path.store.checks
    written = None if checks.manifest is None else checks.manifest.table[..., 0].astype(np.int64)
    absent = lengths == ABSENT if checks.missing == "raise" or written is not None else np.zeros(lengths.shape, bool)
    expected, most = _plain_length(array), None if written is not None else checks.most_bytes
    bad = lengths == 0
    for other in (written, expected):
        bad |= False if other is None else lengths != other
    bad |= False if most is None else lengths > most
    missing = [chunk_key(array, index) for index in _indices(absent)]
    damaged = []
    for index in _indices(bad & (lengths >= 0)):
        told = None if written is None else int(written[index])
        damaged.append((chunk_key(array, index), _damage(int(lengths[index]), told, expected, most)))
    return missing, damaged


def _indices(where: NDArray[np.bool_]) -> Iterator[tuple[int, ...]]:
    return map(tuple, np.argwhere(where).tolist())


def _damage(length: int, written: int | None, expected: int | None, most: int | None) -> str:
    """Say what is wrong with a chunk of a length."""
    if length == 0:
        return "it is empty"
    if written is not None and length != written:
        return f"it has {length:,} bytes, and was written with {written:,}"
    if expected is not None and length != expected:
        return f"it has {length:,} bytes instead of {expected:,}"
    return f"it has {length:,} bytes, and can need {most:,} at most"


def _plain_length(array: StoredArray) -> int | None:
    """Return the length of every chunk of an array whose codecs leave no choice; None otherwise."""
    metadata = array.metadata
    if metadata.zarr_format != 3 or len(metadata.codecs) != 1 or not isinstance(metadata.codecs[0], BytesCodec):
        return None
    return None if is_uneven(array) else int(array.dtype.itemsize * math.prod(array.chunks))


def check_chunks(array: StoredArray) -> None:
    """Refuse an array with missing or damaged chunks, by listing them; reads no chunk.

    Raises
    ------
    ReadError
        With the number of such chunks and the keys of the first.

    """
    store = array.store_path.store
    if not isinstance(store, CheckedStore):
        return
    refuse_forked(store)
    found = missing_chunks(array)
    if found is None:
        return
    missing, damaged = found
    if missing:
        sizes = outer_sizes(array)
        them, each = ("it", "") if len(missing) == 1 else ("them", " each")
        cure = f"Restore {them}, or write the store again."
        if store.checks.manifest is None:
            cure = (
                f"Restore {them}, or take {them} as the fill value with {FILL}: "
                "a writer may leave out chunks that hold nothing else."
            )
        rows, size = sizes[0], array.dtype.itemsize * math.prod(sizes)
        raise ReadError(
            f"{_how_many(array, len(missing))} missing: {_first(missing)} "
            f"({rows:,} samples and {size:,} bytes{each} when decoded). {cure}"
        )
    if damaged:
        named = "; ".join(f"{key}: {what}" for key, what in damaged[:_NAMED])
        raise ReadError(f"{_how_many(array, len(damaged))} damaged: {named}. Write the store again.")


def _how_many(array: StoredArray, n: int) -> str:
    """Return how many chunks of an array, up to the verb."""
    total = math.prod(chunk_grid(array))
    where = f"array {array.path or '/'!r} in {array.store_path.store.checks.location}"
    if total == 1:
        return f"the one chunk of {where} is"
    return f"{n:,} of the {total:,} chunks of {where} {'is' if n == 1 else 'are'}"


def _first(keys: list[str]) -> str:
    more = f" and {len(keys) - _NAMED:,} more" if len(keys) > _NAMED else ""
    return ", ".join(keys[:_NAMED]) + more
