"""Presence: which chunks of an array are there, how long they are, and whether every stored byte is as it was written.

Missing and damaged chunks are refused before reading, from a listing. The same listing gives the facts about an array that
``info`` shows. Verifying reads every chunk and checks it against the manifest, or by decoding it if there is none.
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
from .grids import Axis, chunks_of, grid_of, outer_sizes, shards_of
from .listing import chunk_key, in_threads, listed
from .manifest import Document, chunk_grid, chunk_slices, index_of, indices_within, metadata_digest
from .nodes import copied_document, same_array

#: Chunks named in an error.
_NAMED = 3
#: What stands for the length of a chunk that is not there, and of one whose store does not report it.
ABSENT, UNKNOWN = -1, -2

Lengths = NDArray[np.int64]


def chunk_lengths(array: StoredArray) -> Lengths | None:
    """Return the length of every stored chunk (or shard) by its index, or ABSENT or UNKNOWN; None if the store cannot list."""
    store = bare_store(array.store_path.store)
    try:
        if isinstance(store, LocalStore):
            return _measure_files(array, str(store.root))
        found = listed(store, array.path)
        if found is None:
            return None
        lengths = np.full(chunk_grid(array), ABSENT, np.int64)
        for entry in found:
            index = index_of(array.path, entry.key, lengths.shape)
            if index is not None and chunk_key(array, index) == entry.key:
                lengths[index] = UNKNOWN if entry.length is None else entry.length
    except Exception:  # of any client: reading may be allowed where listing is not
        return None
    return lengths


def _measure_files(array: StoredArray, root: str) -> Lengths:
    """Return the lengths of an array's chunks in a folder, asking for each: much faster than listing a folder for each."""
    grid = chunk_grid(array)

    def measure(numbers: Sequence[int]) -> list[int]:
        indices = np.transpose(np.unravel_index(np.asarray(numbers), grid)).tolist()
        return [_file_length(f"{root}/{chunk_key(array, tuple(index))}") for index in indices]

    lengths = chain.from_iterable(in_threads(measure, range(math.prod(grid))))
    return np.fromiter(lengths, np.int64, math.prod(grid)).reshape(grid)


def _file_length(path: str) -> int:
    """Return the length of a regular file; a folder or a dangling link is no chunk."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    return found.st_size if stat.S_ISREG(found.st_mode) else ABSENT


def missing_chunks(array: StoredArray) -> tuple[list[str], list[tuple[str, str]]] | None:
    """Return the keys of missing chunks, and damaged ones with what is wrong; None if the store cannot list."""
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
        known = None if written is None else int(written[index])
        damaged.append((chunk_key(array, index), _damage(int(lengths[index]), known, expected, most)))
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
    """Refuse an array with missing or damaged chunks (ReadError), by listing them; reads no chunk."""
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


_CHECKSUMS = ("crc32c", "gzip", "crc32", "adler32", "fletcher32")


@dataclass(frozen=True)
class StoreFacts:
    """How an array is stored; numbers from the listing are None where the store cannot list."""

    #: None of a file.
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
    #: Whether it is a file, and whether that is held whole in memory.
    is_file: bool
    is_held: bool
    rounding: str | None


def gather_facts(array: StoredArray) -> StoreFacts:
    """Gather the facts about an array; reads no chunk."""
    sizes, grid = outer_sizes(array), chunk_grid(array)
    lengths = chunk_lengths(array)
    known = lengths is not None and not (lengths == UNKNOWN).any()
    codecs = tuple(_codec_names(array))
    file = bare_store(array.store_path.store)
    if isinstance(file, FileStore):
        lengths, known, codecs = np.array([stamp.n_bytes for stamp in file.file.marks]), True, (file.format,)
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
        n_stored_bytes=int(lengths[lengths > 0].sum()) if lengths is not None and known else None,
        n_missing_chunks=None if lengths is None else int((lengths == ABSENT).sum()),
        has_manifest=array.store_path.store.checks.manifest is not None,
        has_checksum=any(name in codec for codec in codecs for name in _CHECKSUMS) or "checksum" in str(codecs),
        is_remote=not is_local(array.store_path.store),
        is_file=isinstance(file, FileStore),
        is_held=isinstance(file, FileStore) and isinstance(file.file.scores, LoadedRows),
        rounding=array.attrs.get("rounding"),
    )


def _codec_names(array: StoredArray) -> list[str]:
    metadata = array.metadata
    if metadata.zarr_format == 2:
        named = [*(metadata.filters or ()), *([metadata.compressor] if metadata.compressor else [])]
        return ["bytes", *(_described(codec.get_config(), "id") for codec in named)]
    found = []
    for codec in metadata.codecs:
        config = codec.to_dict()
        inner = config.get("configuration", {}).get("codecs") if config["name"] == "sharding_indexed" else None
        found += [_described(c, "name") for c in inner] if inner else [_described(config, "name")]
    return found


def _described(config: Document, field: str) -> str:
    """Return a codec's name with what matters of its configuration."""
    options = config.get("configuration", config) or {}
    details = [str(options[name]) for name in ("cname", "shuffle") if options.get(name) not in (None, 0)]
    details += [f"level {options[name]}" for name in ("level", "clevel") if name in options]
    details += ["checksum"] if options.get("checksum") else []
    return f"{config[field]} ({', '.join(details)})" if details else str(config[field])


#: Kinds of dtypes whose chunks are decoded: of texts and objects, which nothing here uses, a chunk claims any size.
_NUMBERS = "biufcV"


@dataclass(frozen=True)
class Verification(ShownAsTable):
    """What a verification found.

    Attributes
    ----------
    n_chunks, n_bytes
        How many chunks were read, and their bytes.
    damaged
        The key of each bad chunk and what is wrong with it.
    has_manifest
        Whether a manifest records what every chunk and the metadata must be; without one, changed values can go unnoticed.
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
    def merge(cls, found: Sequence[Verification]) -> Verification:
        """Return the verification of several arrays, or parts of one, together."""
        return cls(
            sum(v.n_chunks for v in found),
            sum(v.n_bytes for v in found),
            tuple(bad for v in found for bad in v.damaged),
            bool(found) and all(v.has_manifest for v in found),
        )


def verify_stretch(array: StoredArray, first: int, last: int, bad: Collection[tuple[int, ...]] = ()) -> Verification:
    """Check an array's stored chunks (or shards) from number ``first`` to before ``last``, each by one read.

    Chunks whose index is in ``bad`` are left out: the listing has already reported them.
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
                found = wait(get(store, key))
                n_bytes += 0 if found is None else len(found)
            else:
                n_bytes += read_stored(array, chunk_slices(grid, index)).nbytes
        except AvgkError as error:
            inner = [] if shards_of(array) is None else _bad_inner_chunks(array, chunk_slices(grid, index), str(error))
            named = f" Bad inner chunks: {', '.join(map(str, inner))}." if inner else ""
            damaged.append((key, f"{error}{named}"))
    return Verification(last - first, n_bytes, tuple(damaged), store.checks.sealed is not None)


def _bad_inner_chunks(array: StoredArray, shard: tuple[slice, ...], failure: str) -> list[tuple[int, ...]]:
    """Return the indices of the inner chunks of a shard that cannot be read; none if all fail as the shard itself does."""
    grid = tuple(Axis(n, size) for n, size in zip(array.shape, array.chunks, strict=True))
    indices = indices_within(grid, shard)
    failures = {}
    for index in indices:
        try:
            read_stored(array, chunk_slices(grid, index))
        except AvgkError as error:
            failures[index] = str(error)
    return [] if len(failures) == len(indices) and set(failures.values()) == {failure} else list(failures)


def verify_metadata(array: StoredArray) -> Verification:
    """Check an array's own metadata against the store's seal, and the copy next to those of its group against them."""
    store = array.store_path.store
    if store.checks.sealed is None:
        return Verification(0, 0, (), False)
    place, _, name = array.path.rpartition("/")
    damaged, key = [], f"{array.path}/zarr.json"
    try:
        own, copy = store.document(key), copied_document(store, place, name)
        if own is None or metadata_digest(own) != store.checks.sealed:
            damaged.append((key, "it is missing" if own is None else "it is not as it was written"))
        elif copy is not None and not same_array(store, array.path, copy, own):
            damaged.append(
                (f"{place}/zarr.json".lstrip("/"), f"its copy of the metadata of {name} is not as it was written")
            )
    except AvgkError as error:
        damaged.append((key, str(error)))
    return Verification(0, 0, tuple(damaged), True)


def verify_listing(array: StoredArray) -> Verification:
    """Check which chunks of an array are there, and their lengths where these are known; reads none."""
    found = missing_chunks(array)
    if found is None:
        return Verification(0, 0, (), True)
    missing, damaged = found
    return Verification(0, 0, tuple([(key, "it is missing") for key in missing] + damaged), True)
