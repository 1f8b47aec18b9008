"""Verification: find missing and damaged chunks, from a listing before reading or by reading every chunk.

``info`` shows facts from the same listing. To verify a chunk is to compare it with the manifest or, without one, to decode it.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from zarr.codecs import BytesCodec
from zarr.storage import LocalStore

from ...errors import AvgkError, ReadError
from ...files.rows import LoadedRows
from ...results.text import ShownAsTable
from ..where.addresses import StoredArray, bare_store, get, is_uneven, refuse_forked, wait
from ..where.locations import FileStore
from .bands import read_stored
from .checked import FILL, CheckedStore, is_local
from .grids import Axis, chunks_of, codec_configs, grid_of, outer_sizes, shards_of
from .listing import chunk_key, list_entries, map_batches
from .manifest import chunk_grid, chunk_slices, index_of, indices_within, metadata_digest
from .nodes import consolidated_document, same_array

#: Chunks named in an error.
_NAMED = 3
#: In place of the length of a missing chunk, and of one whose store does not report it.
ABSENT, UNKNOWN = -1, -2

Lengths = NDArray[np.int64]


def chunk_lengths(array: StoredArray) -> Lengths | None:
    """Return the length (or ABSENT or UNKNOWN) of every stored chunk or shard; None if the store cannot be listed."""
    store = bare_store(array.store_path.store)
    try:
        if isinstance(store, LocalStore):
            return _measure_files(array, str(store.root))
        entries = list_entries(store, array.path)
        if entries is None:
            return None
        lengths = np.full(chunk_grid(array), ABSENT, np.int64)
        for entry in entries:
            index = index_of(array.path, entry.key, lengths.shape)
            if index is not None and chunk_key(array, index) == entry.key:
                lengths[index] = UNKNOWN if entry.length is None else entry.length
    except Exception:  # any client's: reading may be allowed although listing is not
        return None
    return lengths


def _measure_files(array: StoredArray, root: str) -> Lengths:
    """Return the lengths of an array's chunk files: one stat per file is much faster than listing their folders."""
    grid = chunk_grid(array)

    def measure(numbers: Sequence[int]) -> list[int]:
        lengths = []
        for index in np.transpose(np.unravel_index(np.asarray(numbers), grid)).tolist():
            try:
                status = os.stat(f"{root}/{chunk_key(array, tuple(index))}")
                lengths.append(status.st_size if stat.S_ISREG(status.st_mode) else ABSENT)
            except (FileNotFoundError, NotADirectoryError):
                lengths.append(ABSENT)
        return lengths

    n_chunks = math.prod(grid)
    lengths = chain.from_iterable(map_batches(measure, range(n_chunks)))
    return np.fromiter(lengths, np.int64, n_chunks).reshape(grid)


def find_bad_chunks(array: StoredArray) -> tuple[list[str], list[tuple[str, str]]] | None:
    """Return the keys of missing chunks, and of damaged ones with a reason; None if the store cannot be listed."""
    lengths = chunk_lengths(array)
    if lengths is None:
        return None
    checks = array.store_path.store.checks
    written = None if checks.manifest is None else checks.manifest.table[..., 0].astype(np.int64)
    absent = lengths == ABSENT if checks.missing == "raise" or written is not None else np.zeros(lengths.shape, bool)
    expected, most = _fixed_length(array), None if written is not None else checks.most_bytes
    bad = lengths == 0
    for other in (written, expected):
        bad |= False if other is None else lengths != other
    bad |= False if most is None else lengths > most
    missing = [chunk_key(array, index) for index in _indices(absent)]
    damaged = []
    for index in _indices(bad & (lengths >= 0)):
        length = int(lengths[index])
        key, reason = chunk_key(array, index), "it is empty"
        if length:
            reason = checks.size_damage(key, length) or f"it has {length:,} bytes instead of {expected:,}"
        damaged.append((key, reason))
    return missing, damaged


def _indices(mask: NDArray[np.bool_]) -> Iterator[tuple[int, ...]]:
    return map(tuple, np.argwhere(mask).tolist())


def _fixed_length(array: StoredArray) -> int | None:
    """Return the length that all chunks of an array have because they are not compressed, or None."""
    metadata = array.metadata
    if metadata.zarr_format != 3 or len(metadata.codecs) != 1 or not isinstance(metadata.codecs[0], BytesCodec):
        return None
    return None if is_uneven(array) else int(array.dtype.itemsize * math.prod(array.chunks))


def check_chunks(array: StoredArray) -> None:
    """Raise ReadError if a listing of an array shows missing or damaged chunks; reads no chunk."""
    store = array.store_path.store
    if not isinstance(store, CheckedStore):
        return
    refuse_forked(store)
    missing, damaged = find_bad_chunks(array) or ([], [])
    if missing:
        sizes = outer_sizes(array)
        them, each = ("it", "") if len(missing) == 1 else ("them", " each")
        hint = f"Restore {them}, or write the store again."
        if store.checks.manifest is None:
            hint = (
                f"Restore {them}, or replace {them} by the fill value with {FILL}: some writers omit chunks that "
                "contain nothing else."
            )
        more = f" and {len(missing) - _NAMED:,} more" if len(missing) > _NAMED else ""
        raise ReadError(
            f"{_count_chunks(array, len(missing))} missing: {', '.join(missing[:_NAMED])}{more} "
            f"({sizes[0]:,} samples and {array.dtype.itemsize * math.prod(sizes):,} bytes{each} when decoded). {hint}"
        )
    if damaged:
        named = "; ".join(f"{key}: {reason}" for key, reason in damaged[:_NAMED])
        raise ReadError(f"{_count_chunks(array, len(damaged))} damaged: {named}. Write the store again.")


def _count_chunks(array: StoredArray, n: int) -> str:
    """Return the beginning of a sentence about n chunks of an array, up to the verb."""
    total = math.prod(chunk_grid(array))
    name = f"array {array.path or '/'!r} in {array.store_path.store.checks.location}"
    if total == 1:
        return f"the one chunk of {name} is"
    return f"{n:,} of the {total:,} chunks of {name} {'is' if n == 1 else 'are'}"


_CHECKSUMS = ("crc32c", "gzip", "crc32", "adler32", "fletcher32")


@dataclass(frozen=True)
class StoreFacts:
    """How an array is stored; numbers from the listing are None if the store cannot be listed."""

    #: None for a file.
    zarr_format: int | None
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None
    codecs: tuple[str, ...]
    n_chunks: int
    n_columns: int
    n_bytes: int
    object_bytes: int
    n_stored_bytes: int | None
    n_missing_chunks: int | None
    has_manifest: bool
    has_checksum: bool
    is_remote: bool
    #: Whether it is a file, and whether the whole file is in memory.
    is_file: bool
    is_in_memory: bool
    rounding: str | None


def gather_facts(array: StoredArray) -> StoreFacts:
    """Return the facts about an array; reads no chunk."""
    sizes, grid = outer_sizes(array), chunk_grid(array)
    lengths = chunk_lengths(array)
    codecs = tuple(_describe_codecs(array))
    file = bare_store(array.store_path.store)
    if isinstance(file, FileStore):
        lengths, codecs = np.array([stamp.n_bytes for stamp in file.file.marks]), (file.format,)
    n_stored = None if lengths is None or (lengths == UNKNOWN).any() else int(lengths[lengths > 0].sum())
    item = array.dtype.itemsize
    return StoreFacts(
        zarr_format=None if isinstance(file, FileStore) else array.metadata.zarr_format,
        chunks=chunks_of(array),
        shards=shards_of(array),
        codecs=codecs,
        n_chunks=math.prod(grid),
        n_columns=grid[-1] if len(grid) > 1 else 1,
        n_bytes=math.prod(array.shape) * item,
        object_bytes=math.prod(sizes) * item,
        n_stored_bytes=n_stored,
        n_missing_chunks=None if lengths is None else int((lengths == ABSENT).sum()),
        has_manifest=array.store_path.store.checks.manifest is not None,
        has_checksum=any(name in codec for codec in codecs for name in _CHECKSUMS) or "checksum" in str(codecs),
        is_remote=not is_local(array.store_path.store),
        is_file=isinstance(file, FileStore),
        is_in_memory=isinstance(file, FileStore) and isinstance(file.file.scores, LoadedRows),
        rounding=array.attrs.get("rounding"),
    )


def _describe_codecs(array: StoredArray) -> Iterator[str]:
    """Yield each codec's name with its main options."""
    if array.metadata.zarr_format == 2:
        yield "bytes"
    for config in codec_configs(array):
        options = config.get("configuration") or {}
        details = [str(options[name]) for name in ("cname", "shuffle") if options.get(name) not in (None, 0)]
        details += [f"level {options[name]}" for name in ("level", "clevel") if name in options]
        details += ["checksum"] if options.get("checksum") else []
        if config["name"] != "sharding_indexed":
            yield f"{config['name']} ({', '.join(details)})" if details else str(config["name"])


#: Kinds of dtypes whose chunks are decoded. Arrays of texts or objects are not used here, and their chunks may claim any size.
_NUMBERS = "biufcV"


@dataclass(frozen=True)
class Verification(ShownAsTable):
    """The outcome of a verification.

    Attributes
    ----------
    n_chunks, n_bytes
        Number of chunks read, and of their bytes.
    damaged
        The key of each bad chunk and the reason.
    has_manifest
        Whether a manifest covers every chunk and the metadata; without one, changed values can go unnoticed.
    """

    n_chunks: int
    n_bytes: int
    damaged: tuple[tuple[str, str], ...]
    has_manifest: bool

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damaged

    @classmethod
    def merge(cls, parts: Sequence[Verification]) -> Verification:
        """Return the verification of several arrays, or parts of one, together."""
        return cls(
            sum(part.n_chunks for part in parts),
            sum(part.n_bytes for part in parts),
            tuple(bad for part in parts for bad in part.damaged),
            bool(parts) and all(part.has_manifest for part in parts),
        )


def verify_stretch(array: StoredArray, first: int, last: int, bad: Collection[tuple[int, ...]] = ()) -> Verification:
    """Check an array's stored chunks (or shards) from number ``first`` to before ``last`` with one read each.

    Skip those whose index is in ``bad``: the listing has already reported them.
    """
    store = array.store_path.store
    damaged, n_bytes, grid, counts = [], 0, grid_of(array), chunk_grid(array)
    for number in range(first, last):
        index = tuple(int(i) for i in np.unravel_index(number, counts))
        if index in bad:
            continue
        key = chunk_key(array, index)
        try:
            if store.checks.digest(key) is not None or array.dtype.kind not in _NUMBERS:
                data = wait(get(store, key))
                n_bytes += 0 if data is None else len(data)
            else:
                n_bytes += read_stored(array, chunk_slices(grid, index)).nbytes
        except AvgkError as error:
            inner = [] if shards_of(array) is None else _bad_inner_chunks(array, chunk_slices(grid, index), str(error))
            named = f" Bad inner chunks: {', '.join(map(str, inner))}." if inner else ""
            damaged.append((key, f"{error}{named}"))
    return Verification(last - first, n_bytes, tuple(damaged), store.checks.sealed is not None)


def _bad_inner_chunks(array: StoredArray, shard: tuple[slice, ...], failure: str) -> list[tuple[int, ...]]:
    """Return the indices of the unreadable inner chunks of a shard; empty if all fail with the error of the shard itself."""
    inner_grid = tuple(Axis(n, size) for n, size in zip(array.shape, array.chunks, strict=True))
    indices = indices_within(inner_grid, shard)
    failures = {}
    for index in indices:
        try:
            read_stored(array, chunk_slices(inner_grid, index))
        except AvgkError as error:
            failures[index] = str(error)
    return [] if len(failures) == len(indices) and set(failures.values()) == {failure} else list(failures)


def verify_metadata(array: StoredArray) -> Verification:
    """Check an array's own metadata against the seal, and the copy in its group's metadata against its own."""
    store = array.store_path.store
    if store.checks.sealed is None:
        return Verification(0, 0, (), False)
    folder, _, name = array.path.rpartition("/")
    damaged, key = [], f"{array.path}/zarr.json"
    try:
        own, copy = store.document(key), consolidated_document(store, folder, name)
        if own is None or metadata_digest(own) != store.checks.sealed:
            damaged.append((key, "it is missing" if own is None else "it was changed"))
        elif copy is not None and not same_array(store, array.path, copy, own):
            damaged.append((f"{folder}/zarr.json".lstrip("/"), f"its copy of the metadata of {name} was changed"))
    except AvgkError as error:
        damaged.append((key, str(error)))
    return Verification(0, 0, tuple(damaged), True)


def verify_listing(array: StoredArray) -> Verification:
    """Find missing chunks of an array and chunks of a wrong length in its listing; reads none."""
    missing, damaged = find_bad_chunks(array) or ([], [])
    return Verification(0, 0, tuple([(key, "it is missing") for key in missing] + damaged), True)
