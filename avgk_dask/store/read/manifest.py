"""What a store of ours says of itself: its documents, the manifest of its chunks and its seal, all checked strictly.

- A document is a JSON file of a store. What is not a JSON object is refused by name.
- A manifest is a Zarr group ``manifest`` next to the arrays it covers, with one array of the same name for each of them:
  for each index of the chunk grid the length and the XXH3 of the stored bytes. (A CRC-32C of bytes that end in their own
  CRC-32C, as the checksum codec leaves them, is a constant.)
- A seal is the attribute ``avgk_dask`` of a group: its format and whether its writer finished. Of a finished one it holds,
  for each array, the SHA-256 of the manifest's table, the SHA-256 of the metadata and the number of chunks; and last the
  SHA-256 of all that. So whatever changes a number is covered: the bytes of every chunk by the tables, how they are read
  by the digests of the metadata. Attributes that change no number are a user's own.
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
from .grids import Grid, configured, grid_of

#: Names of the keys that hold metadata, and no chunk.
METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
#: Those that are asked for to open an array, by the version of the Zarr format.
METADATA_OF = {2: (".zarray", ".zgroup", ".zattrs"), 3: ("zarr.json",)}

Document = dict[str, Any]
_CURE = "Restore it, or write the store again."


def is_metadata(key: str) -> bool:
    """Return whether a key is one of metadata."""
    return key.rpartition("/")[2] in METADATA


def parse_document(data: bytes, what: str) -> Document:
    """Return the JSON object in some bytes; ``what`` names them in the StoreError for anything else.

    Examples
    --------
    >>> parse_document(b'{"a": 1}', "zarr.json of x.zarr")
    {'a': 1}

    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{what} is damaged: it is no JSON ({error}). {_CURE}") from None
    if not isinstance(found, dict):
        raise StoreError(f"{what} is damaged: it must hold a JSON object, and holds a {type(found).__name__}. {_CURE}")
    return found


#: Group that holds the tables.
GROUP = "manifest"

#: Bytes hashed at once: more, and the hash gives up Python's lock and waits for it afterwards, which takes
#: longer than hashing while other threads compute.
_PIECE = 1 << 16

Table = NDArray[np.uint64]
#: Length and hash of a chunk's stored bytes.
Digest = tuple[int, int]
#: Those of several chunks, by their keys.
Digests = dict[str, Digest]


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


def index_of(array: str, key: str, grid: tuple[int, ...] | None = None) -> tuple[int, ...] | None:
    """Return the index in the chunk grid of a key of the array at a path; None for a key of something else, or outside of the grid.

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
    """The digests of the chunks of the array at a path."""

    array: str
    table: Table

    def find(self, key: str) -> Digest | None:
        """Return the digest of a chunk by its key; None for a key that is none of the array's chunks."""
        index = index_of(self.array, key, self.table.shape[:-1])
        if index is None:
            return None
        length, hashed = self.table[index].tolist()
        return length, hashed

    def complaint(self, key: str, data: memoryview) -> str | None:
        """Say what is wrong with a chunk's stored bytes; None if they are as written."""
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


#: Offset and length of a chunk that a shard does not hold.
_ABSENT = 2**64 - 1


@dataclass(frozen=True)
class ShardIndex:
    """Where the index of each of an array's shards lies, and which inner chunks belong to the array."""

    array: str
    shape: tuple[int, ...]
    shard: tuple[int, ...]
    chunk: tuple[int, ...]
    at_end: bool

    @classmethod
    def of(cls, array: StoredArray) -> ShardIndex | None:
        """Return the index of an array with ordinary shards; None for any other."""
        codecs: tuple[object, ...] = getattr(array.metadata, "codecs", ())
        if len(codecs) != 1 or not isinstance(codecs[0], ShardingCodec):
            return None
        coding = codecs[0]
        if [type(codec) for codec in coding.index_codecs] != [BytesCodec, Crc32cCodec]:
            return None
        return cls(
            array.path, array.shape, array.shards or (), array.chunks, configured(coding, "index_location") == "end"
        )

    def n_absent(self, key: str, data: memoryview) -> tuple[int, bool]:
        """Return the number of inner chunks that lie in the array and not in the shard, and whether its index points outside of it."""
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

    zarr reads a shard that reaches beyond the array's edge by one request for its index and one for each inner
    chunk; of a whole shard it takes all in one.
    """
    shape = tuple(-(-n // size) * size for n, size in zip(array.shape, array.shards or array.chunks, strict=True))
    if shape == array.shape:
        return array
    metadata = dataclasses.replace(array.metadata, shape=shape)
    return zarr.Array(zarr.AsyncArray(metadata=metadata, store_path=array.store_path, config={"order": array.order}))


def chunk_slices(grid: Grid, index: tuple[int, ...]) -> tuple[slice, ...]:
    """Return the part of an array that the stored chunk (or shard) at an index of its grid holds."""
    return tuple(slice(*axis.span(i)) for i, axis in zip(index, grid, strict=True))


def indices_within(grid: Grid, where: tuple[slice, ...]) -> list[tuple[int, ...]]:
    """Return the indices in the chunk (or shard) grid that a part of an array touches."""
    parts = zip(where, grid, strict=True)
    return list(itertools.product(*(axis.indices(part.start, part.stop) for part, axis in parts)))


#: Attribute of the group.
ATTRIBUTE = "avgk_dask"
#: Version of what is written. Version 1 had tables only: changed metadata go unnoticed there.
FORMAT = 2
#: Attributes of arrays and groups that change what is read: of ours, and those that values are decoded by.
SEALED_ATTRIBUTES = ("dtype", "n_classes", *ENCODING_ATTRIBUTES)
#: What a store notes whose appended rows are being put in their place: the digests of what is staged.
STAGED = "staged"


@dataclass(frozen=True)
class Seal:
    """What a group says of itself; the digests are by the name of the array, the group's own under an empty name."""

    format: int
    complete: bool
    #: What its writer noted for one that goes on with it.
    noted: Mapping[str, object] = field(default_factory=dict)
    manifest: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    n_chunks: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, attributes: object, location: str) -> Seal | None:
        """Return the seal among a group's attributes, or None; refuse one that is damaged or of an unknown format."""
        if not isinstance(attributes, Mapping) or ATTRIBUTE not in attributes:
            return None
        state = attributes[ATTRIBUTE]
        if not isinstance(state, Mapping) or not is_count(state.get("format")):
            raise _damaged(location, "it tells no format")
        if not 1 <= state["format"] <= FORMAT:
            raise StoreError(
                f"{location} must be of format 1 to {FORMAT}; got {state['format']}. Install a newer avgk_dask to read it."
            )
        if not isinstance(state.get("complete"), bool):
            raise _damaged(location, f"complete must be true or false; got {state.get('complete')!r}")
        if state["format"] == 1 and any(name in state for name in ("metadata", "n_chunks", "seal")):
            raise _damaged(location, "it is not of the format that it tells")
        noted = {name: value for name, value in state.items() if name not in _FIELDS}
        if not state["complete"]:
            return cls(state["format"], False, noted)
        return cls(state["format"], True, noted, **_digests(state, location))

    def to_state(self) -> Document:
        """Return the attribute that says so."""
        state: Document = {"format": self.format, "complete": self.complete, **self.noted}
        if self.complete:
            state |= {"manifest": self.manifest, "metadata": self.metadata, "n_chunks": self.n_chunks}
            state["seal"] = _sha256(state)
        return state

    def covers(self, name: str, document: Document) -> bool:
        """Return whether the metadata of an array (or of the group, with an empty name) are those that were written."""
        return not self.metadata or metadata_digest(document) == self.metadata.get(name)


_FIELDS = ("format", "complete", "manifest", "metadata", "n_chunks", "seal")


def _digests(state: Mapping[str, Any], location: str) -> Document:
    """Return the digests of a finished store, all of the form they must have."""
    kinds = {"manifest": _is_text, "metadata": _is_text, "n_chunks": is_count}
    names = ["manifest"] if state["format"] == 1 else list(kinds)
    for name in names:
        is_kind = kinds[name]
        found = state.get(name)
        if not isinstance(found, Mapping) or not all(map(is_kind, found.values())):
            raise _damaged(location, f"{name} is not as it was written")
    if state["format"] > 1 and state.get("seal") != _sha256({k: v for k, v in state.items() if k != "seal"}):
        raise _damaged(location, "its digests are not those written")
    return {name: dict(state[name]) for name in names}


def _damaged(location: str, what: str) -> StoreError:
    return StoreError(f"the manifest of {location} is damaged: {what}. {_CURE}")


def metadata_digest(document: Document) -> str:
    """Return the SHA-256 of what of an array's or group's metadata changes a number.

    Examples
    --------
    >>> metadata_digest({"shape": [3], "attributes": {"note": 1}}) == metadata_digest({"shape": [3]})
    True

    """
    return _sha256({n: value for n, value in without_notes(document).items() if n != "consolidated_metadata"})


def without_notes(document: Document) -> Document:
    """Return metadata without the attributes that change no number, which are a user's own."""
    attributes = document.get("attributes") or {}
    if isinstance(attributes, Mapping):
        attributes = {name: attributes[name] for name in SEALED_ATTRIBUTES if name in attributes}
    return {**document, "attributes": attributes}


def form_digest(document: Document) -> str:
    """Return the SHA-256 of an array's metadata but for its number of rows, which grows while it is written."""
    return metadata_digest({**document, "shape": document["shape"][1:]})


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def is_count(value: object) -> bool:
    """Return whether a value from JSON is a whole number, not negative."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
