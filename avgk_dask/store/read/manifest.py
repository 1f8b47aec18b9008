"""Integrity data in our stores: metadata documents, the manifest of the chunks and the seal, all checked strictly.

- A document is a JSON file of a store. It must hold a JSON object.
- A manifest is a Zarr group ``manifest`` next to the arrays it covers. It has an array of the same name for each of them:
  the length and the XXH3 of the stored bytes for each index of the chunk grid. (A CRC-32C would be a constant: the checksum
  codec appends one to each chunk.)
- A seal is the attribute ``avgk_dask`` of a group: its format and whether its writer finished. If so, it also holds the
  SHA-256 of the manifest's table, the SHA-256 of the metadata and the number of chunks of each array, and the SHA-256 of all
  of these. So everything that determines a number is covered: the bytes of every chunk by the tables, their decoding by the
  digests of the metadata. Users may change other attributes.
- The index of a shard shows which of its inner chunks are absent.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xxhash
import zarr
from numpy.typing import NDArray
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec

from ...errors import StoreError
from ..where.addresses import StoredArray
from .encoding import ENCODING_ATTRIBUTES
from .grids import Grid, codec_option, grid_of

METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
#: The keys read to open an array, by the version of the Zarr format.
METADATA_OF = {2: (".zarray", ".zgroup", ".zattrs"), 3: ("zarr.json",)}

Document = dict[str, Any]
_HINT = "Restore it, or write the store again."


def is_metadata(key: str) -> bool:
    """Return whether a key holds metadata, not a chunk."""
    return key.rpartition("/")[2] in METADATA


def parse_document(data: bytes, name: str) -> Document:
    """Parse a JSON object; ``name`` names it in the StoreError for anything else."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{name} is damaged: it is not JSON ({error}). {_HINT}") from None
    if not isinstance(document, dict):
        raise StoreError(f"{name} is damaged: it holds a {type(document).__name__}, not a JSON object. {_HINT}")
    return document


#: The group that holds the tables.
GROUP = "manifest"

#: Bytes hashed per call. For more, xxhash releases Python's lock, and waiting for it again takes longer than hashing while
#: other threads compute.
_PIECE = 1 << 16

Table = NDArray[np.uint64]
#: Length and hash of a chunk's stored bytes.
Digest = tuple[int, int]
#: Digests of several chunks, by key.
Digests = dict[str, Digest]


def digest_of(data: bytes | bytearray | memoryview) -> Digest:
    """Return the length and the XXH3 (64 bits) of stored bytes."""
    view, hashed = memoryview(data).cast("B"), xxhash.xxh3_64()
    for first in range(0, view.nbytes, _PIECE):
        hashed.update(view[first : first + _PIECE])
    return view.nbytes, hashed.intdigest()


def empty_table(grid: tuple[int, ...]) -> Table:
    """Return a table of zeros for a chunk grid: no chunk is recorded yet."""
    return np.zeros((*grid, 2), np.uint64)


def chunk_grid(array: StoredArray) -> tuple[int, ...]:
    """Return the number of stored chunks (or shards) along each axis of an array."""
    return tuple(axis.count for axis in grid_of(array))


def index_of(array: str, key: str, grid: tuple[int, ...] | None = None) -> tuple[int, ...] | None:
    """Return the index in the chunk grid of a chunk key, or None if it is not a chunk of the array at path ``array``.

    Examples
    --------
    >>> index_of("run/scores", "run/scores/c/3/0"), index_of("", "3.0"), index_of("labels", "scores/c/0")
    ((3, 0), (3, 0), None)
    """
    prefix = f"{array}/" if array else ""
    if not key.startswith(prefix):
        return None
    index = tuple(map(int, re.findall(r"\d+", key[len(prefix) :])))
    is_outside = grid is not None and (len(index) != len(grid) or any(i >= n for i, n in zip(index, grid, strict=True)))
    return None if is_outside else index


@dataclass(frozen=True)
class Manifest:
    """The digests of the chunks of the array at path ``array``."""

    array: str
    table: Table

    def find(self, key: str) -> Digest | None:
        """Return the digest of a chunk, or None if the key is not a chunk of the array."""
        index = index_of(self.array, key, self.table.shape[:-1])
        if index is None:
            return None
        length, hashed = self.table[index].tolist()
        return length, hashed


def table_digest(table: Table) -> str:
    """Return the SHA-256 of a table."""
    return hashlib.sha256(np.ascontiguousarray(table, "<u8").tobytes()).hexdigest()


#: Offset and length of a chunk that a shard does not hold.
_ABSENT = 2**64 - 1


@dataclass(frozen=True)
class ShardIndex:
    """The position of the index in an array's shards, and the shapes that show which inner chunks belong to the array."""

    array: str
    shape: tuple[int, ...]
    shard: tuple[int, ...]
    chunk: tuple[int, ...]
    at_end: bool

    @classmethod
    def from_array(cls, array: StoredArray) -> ShardIndex | None:
        """Return the index of an array with ordinary shards, or None."""
        codecs: tuple[object, ...] = getattr(array.metadata, "codecs", ())
        if len(codecs) != 1 or not isinstance(codecs[0], ShardingCodec):
            return None
        if [type(codec) for codec in codecs[0].index_codecs] != [BytesCodec, Crc32cCodec]:
            return None
        at_end = codec_option(codecs[0], "index_location") == "end"
        return cls(array.path, array.shape, array.shards or (), array.chunks, at_end)

    def count_absent(self, key: str, data: memoryview) -> tuple[int, bool]:
        """Return how many of the array's inner chunks a shard lacks, and whether its index points outside the shard."""
        index = index_of(self.array, key)
        if index is None:
            return 0, False
        grid = tuple(s // c for s, c in zip(self.shard, self.chunk, strict=True))
        n = int(np.prod(grid))
        view = data.cast("B")
        if view.nbytes < 16 * n + 4:
            return 0, True
        table = np.frombuffer(view[-16 * n - 4 : -4] if self.at_end else view[: 16 * n], "<u8")
        absent = (table.reshape(*grid, 2) == _ABSENT).all(-1)
        ends = table.reshape(*grid, 2).sum(-1, where=~absent[..., None])
        inside = tuple(
            min(per, -(-max(0, size - i * shard) // chunk))
            for per, size, i, shard, chunk in zip(grid, self.shape, index, self.shard, self.chunk, strict=True)
        )
        return int(absent[tuple(map(slice, inside))].sum()), bool(ends.max() > view.nbytes)


def whole_shards(array: StoredArray) -> StoredArray:
    """Return an array with its shape rounded up to whole shards.

    zarr reads a whole shard with one request, but a shard that extends beyond the array's edge with one request for its index
    and one for each inner chunk.
    """
    shape = tuple(-(-n // size) * size for n, size in zip(array.shape, array.shards or array.chunks, strict=True))
    if shape == array.shape:
        return array
    metadata = dataclasses.replace(array.metadata, shape=shape)
    return zarr.Array(zarr.AsyncArray(metadata=metadata, store_path=array.store_path, config={"order": array.order}))


def chunk_slices(grid: Grid, index: tuple[int, ...]) -> tuple[slice, ...]:
    """Return the extent of the stored chunk (or shard) at an index of the grid."""
    return tuple(slice(*axis.span(i)) for i, axis in zip(index, grid, strict=True))


def indices_within(grid: Grid, part: tuple[slice, ...]) -> list[tuple[int, ...]]:
    """Return the indices of the stored chunks (or shards) that overlap a part of an array."""
    axes = zip(part, grid, strict=True)
    return list(itertools.product(*(axis.indices(stretch.start, stretch.stop) for stretch, axis in axes)))


#: The attribute that is the seal.
ATTRIBUTE = "avgk_dask"
#: Version of the format. In version 1, with tables only, changed metadata cannot be noticed.
FORMAT = 2
#: The attributes that determine values.
SEALED_ATTRIBUTES = ("dtype", "n_classes", *ENCODING_ATTRIBUTES)
#: The note with the digests of staged rows, while an append moves them into place.
STAGED = "staged"


@dataclass(frozen=True)
class Seal:
    """The seal of a group. Digests are by the name of the array; the name of the group itself is empty."""

    format: int
    complete: bool
    #: Notes of its writer, for one that continues.
    noted: Mapping[str, object] = field(default_factory=dict)
    manifest: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    n_chunks: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, attributes: object, location: str) -> Seal | None:
        """Return the seal in a group's attributes, or None; raise StoreError if it is damaged or of an unknown format."""
        if not isinstance(attributes, Mapping) or ATTRIBUTE not in attributes:
            return None
        state = attributes[ATTRIBUTE]
        if not isinstance(state, Mapping) or not is_count(state.get("format")):
            raise _damaged(location, "it has no format")
        if not 1 <= state["format"] <= FORMAT:
            raise StoreError(
                f"{location} has format {state['format']}, and this version reads formats 1 to {FORMAT}. Install a "
                "newer avgk_dask."
            )
        if not isinstance(state.get("complete"), bool):
            raise _damaged(location, f"complete must be true or false; got {state.get('complete')!r}")
        if state["format"] == 1 and any(name in state for name in ("metadata", "n_chunks", "seal")):
            raise _damaged(location, "it has fields of a later format")
        noted = {name: value for name, value in state.items() if name not in _FIELDS}
        if not state["complete"]:
            return cls(state["format"], False, noted)
        return cls(state["format"], True, noted, **_digests(state, location))

    def to_state(self) -> Document:
        """Return the value of the attribute."""
        state: Document = {"format": self.format, "complete": self.complete, **self.noted}
        if self.complete:
            state |= {"manifest": self.manifest, "metadata": self.metadata, "n_chunks": self.n_chunks}
            state["seal"] = _sha256(state)
        return state

    def covers(self, name: str, document: Document) -> bool:
        """Return whether the metadata of an array (or of the group, if the name is empty) are unchanged."""
        return not self.metadata or metadata_digest(document) == self.metadata.get(name)


_FIELDS = ("format", "complete", "manifest", "metadata", "n_chunks", "seal")


def _digests(state: Mapping[str, Any], location: str) -> Document:
    """Return the digests of a finished store, with their types checked."""
    names = ["manifest"] if state["format"] == 1 else ["manifest", "metadata", "n_chunks"]
    for name in names:
        digests = state.get(name)
        is_valid = is_count if name == "n_chunks" else lambda value: isinstance(value, str)
        if not isinstance(digests, Mapping) or not all(map(is_valid, digests.values())):
            raise _damaged(location, f"{name} was changed")
    if state["format"] > 1 and state.get("seal") != _sha256({k: v for k, v in state.items() if k != "seal"}):
        raise _damaged(location, "its digests were changed")
    return {name: dict(state[name]) for name in names}


def _damaged(location: str, why: str) -> StoreError:
    return StoreError(f"the manifest of {location} is damaged: {why}. {_HINT}")


def metadata_digest(document: Document) -> str:
    """Return the SHA-256 of the metadata of an array or group, without attributes that do not affect values."""
    return _sha256({n: value for n, value in without_notes(document).items() if n != "consolidated_metadata"})


def without_notes(document: Document) -> Document:
    """Return metadata without the attributes that do not affect values, which users may change."""
    attributes = document.get("attributes") or {}
    if isinstance(attributes, Mapping):
        attributes = {name: attributes[name] for name in SEALED_ATTRIBUTES if name in attributes}
    return {**document, "attributes": attributes}


def form_digest(document: Document) -> str:
    """Return the SHA-256 of an array's metadata without its number of rows, which grows while it is written."""
    return metadata_digest({**document, "shape": document["shape"][1:]})


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def is_count(value: object) -> bool:
    """Return whether a value from JSON is a non-negative integer."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
