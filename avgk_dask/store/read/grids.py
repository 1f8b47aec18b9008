"""Grids: how an array is split into stored chunks (or shards) along each axis, and how large these can be.

Nothing else assumes that the chunks of an array are alike. Layouts are the grids and codecs of the stores we write.
"""

from __future__ import annotations

import math
import os
import stat
import zipfile
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from zarr.abc.codec import BytesBytesCodec, Codec
from zarr.abc.store import Store
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec
from zarr.storage import LocalStore, ZipStore

from ...arrays import whole_number
from ...errors import OptionError
from ..where.addresses import StoredArray, is_uneven, uneven_sizes


@dataclass(frozen=True)
class Axis:
    """One axis of a grid: its length, the size of its chunks (of uneven ones the largest), and where uneven ones end."""

    n: int
    size: int
    ends: tuple[int, ...] | None = None

    @property
    def count(self) -> int:
        """Number of chunks."""
        return -(-self.n // self.size) if self.ends is None else len(self.ends)

    def span(self, index: int) -> tuple[int, int]:
        """Return where the chunk of an index begins and ends, clipped at the array's edge."""
        if self.ends is None:
            return index * self.size, min((index + 1) * self.size, self.n)
        return self.ends[index - 1] if index else 0, self.ends[index]

    def indices(self, first: int, last: int) -> range:
        """Return the indices of the chunks that values from ``first`` to before ``last`` lie in.

        Examples
        --------
        >>> Axis(10, 4).indices(3, 9), Axis(10, 6, (1, 7, 10)).indices(1, 8)
        (range(0, 3), range(1, 3))

        """
        if self.ends is None:
            return range(first // self.size, -(-last // self.size))
        return range(bisect_right(self.ends, first), bisect_left(self.ends, last) + 1)

    def bounds(self) -> list[int]:
        """Return where the chunks begin, and where the last one ends."""
        return [*range(0, self.n, self.size), self.n] if self.ends is None else [0, *self.ends]

    def joined(self, most: float) -> list[int]:
        """Return the bounds of stretches of whole chunks, of at most this many values each unless a chunk has more.

        Examples
        --------
        >>> Axis(10, 2).joined(5), Axis(10, 6, (1, 3, 9, 10)).joined(4)
        ([0, 4, 8, 10], [0, 3, 9, 10])

        """
        if self.ends is None:
            step = self.size * max(1, int(most // self.size))
            return [*range(0, self.n, step), self.n]
        bounds, last = [0], 0
        for end in self.ends:
            if end - bounds[-1] > most and last > bounds[-1]:
                bounds.append(last)
            last = end
        return [*bounds, last]


Grid = tuple[Axis, ...]


def grid_of(array: StoredArray) -> Grid:
    """Return the axes of an array's grid of stored chunks (or shards)."""
    uneven = uneven_sizes(array)
    if uneven is None:
        return tuple(Axis(n, size) for n, size in zip(array.shape, array.shards or array.chunks, strict=True))
    return tuple(Axis(n, max(sizes), tuple(accumulate(sizes))) for n, sizes in zip(array.shape, uneven, strict=True))


def outer_sizes(array: StoredArray) -> tuple[int, ...]:
    """Return the size of the stored chunks (or shards) along each axis; of uneven ones the largest."""
    return tuple(axis.size for axis in grid_of(array))


def shards_of(array: StoredArray) -> tuple[int, ...] | None:
    """Return the sizes of an array's shards; None if there are none."""
    return None if is_uneven(array) or array.shards is None else tuple(array.shards)


def chunks_of(array: StoredArray) -> tuple[int, ...]:
    """Return the sizes of an array's chunks, inside of shards if there are any; of uneven ones the largest."""
    return outer_sizes(array) if is_uneven(array) else tuple(array.chunks)


#: Chunks of whole rows of about this many bytes read fastest.
CHUNK_BYTES = 10_000_000
#: Labels are few bytes, and many small chunks of them would cost more to read than the scores.
LABEL_ROWS = 1 << 20
#: Chunks of a shard on an object store, where fewer and larger objects read faster.
SHARD_CHUNKS = 4
CODECS = ("blosc", "zstd", "gzip", "none")


@dataclass(frozen=True)
class Layout:
    """How a matrix is split and coded: chunks of rows x columns, ``shard_chunks`` of them in a shard."""

    chunk_rows: int
    columns: int
    chunk_columns: int
    shard_chunks: int = 1
    codec: str = "blosc"

    @classmethod
    def of(
        cls, columns: int, itemsize: int, *, chunk_rows: int | None = None, shard_chunks: int = 1, codec: str = "blosc"
    ) -> Layout:
        """Return the layout of whole rows that reads fastest.

        Examples
        --------
        >>> Layout.of(1000, 4).chunk_rows
        2500

        """
        if codec not in CODECS:
            raise OptionError(f"codec must be one of {', '.join(CODECS)}; got {codec!r}. Leave it out for blosc.")
        for name, value in (("chunk_rows", chunk_rows), ("shard_chunks", shard_chunks)):
            if value is not None and whole_number(value) < 1:
                raise OptionError(f"{name} must be a positive integer; got {value!r}. Leave it out for the default.")
        rows = int(chunk_rows or max(1, CHUNK_BYTES // (columns * itemsize)))
        return cls(rows, columns, columns, int(shard_chunks), codec)

    @property
    def rows(self) -> int:
        """Rows of one stored object: a chunk, or a shard of several."""
        return self.chunk_rows * self.shard_chunks

    def keywords(self, itemsize: int) -> dict[str, Any]:
        """Return zarr's arguments that create an array of this layout."""
        chunks = self.chunk_rows, self.chunk_columns
        shards = (self.rows, self.columns) if self.shard_chunks > 1 else None
        return {"chunks": chunks, "shards": shards, "compressors": codecs(self.codec, itemsize)}


def codecs(name: str, itemsize: int) -> list[BytesBytesCodec]:
    """Return the codecs of a name, with a checksum of what they give."""
    compressors: dict[str, list[BytesBytesCodec]] = {
        "blosc": [BloscCodec(cname="lz4", clevel=5, shuffle="bitshuffle", typesize=itemsize)],
        "zstd": [ZstdCodec(level=1)],
        "gzip": [GzipCodec(level=1)],
        "none": [],
    }
    return [*compressors[name], Crc32cCodec()]


def configured(codec: Codec, option: str) -> object:
    """Return an option of a codec as its stored metadata spell it, None where it is absent.

    As attributes the same options are enumerations in some versions of zarr and strings in others.
    """
    options: Any = codec.to_dict().get("configuration") or {}
    return options.get(option)


#: Codecs that add a share of what they encode at the most: they store what they cannot compress.
_MODEST = frozenset(
    [
        "bytes",
        "crc32c",
        "transpose",
        "blosc",
        "zstd",
        "gzip",
        "sharding_indexed",
        "zlib",
        "lz4",
        "bz2",
        "lzma",
        "shuffle",
    ]
)
#: What such codecs may add to the decoded bytes: one part in this many, and this many bytes for each inner chunk.
_SHARE, _EACH = 16, 1 << 12
#: Codecs that are not known may widen each value to 16 times as many bytes.
_WIDENED = 16


class NotAFileError(OSError):
    """What lies at a key is a device, a pipe or a socket: reading it may never end."""


def local_size(store: Store, key: str) -> int | None:
    """Return the bytes at a key of a folder or zip file, without reading them; None if that is not known.

    Raise NotAFileError if a device, a pipe or a socket is there.
    """
    if isinstance(store, LocalStore):
        try:
            found = os.stat(store.root / key)
        except OSError:  # absent, or not to be reached: reading it says so
            return None
        if stat.S_ISDIR(found.st_mode):
            return None
        if not stat.S_ISREG(found.st_mode):
            raise NotAFileError("it is no plain file")
        return found.st_size
    archive = getattr(store, "_zf", None) if isinstance(store, ZipStore) else None
    if isinstance(archive, zipfile.ZipFile) and key in archive.NameToInfo:
        return archive.NameToInfo[key].file_size
    return None


def most_bytes(array: StoredArray) -> int:
    """Return how many bytes a stored chunk (or shard) of an array can have: its decoded size and what codecs add.

    Examples
    --------
    >>> import zarr
    >>> most_bytes(zarr.create_array({}, shape=(1000, 400), chunks=(100, 400), dtype="f4"))
    174096

    """
    outer = outer_sizes(array)
    decoded = math.prod(outer) * array.dtype.itemsize
    n_inner = math.prod(outer) // max(1, math.prod(chunks_of(array)))
    if not set(_codec_names(array)) <= _MODEST:
        decoded *= _WIDENED
    return int(decoded + decoded // _SHARE + (n_inner + (shards_of(array) is not None)) * _EACH)


def outer_codecs(array: StoredArray) -> list[str]:
    """Return the names of an array's codecs, the one that is decoded first in front; of a shard, its own alone."""
    if array.metadata.zarr_format == 2:
        return _codec_names(array)[::-1]
    return [str(codec.to_dict()["name"]).removeprefix("numcodecs.") for codec in array.metadata.codecs][::-1]


def decoded_size(codec: str, data: memoryview) -> int | None:
    """Return how many bytes a chunk decodes to, by its header; None if it does not."""
    head = bytes(data.cast("B")[:18])
    if codec == "blosc" and len(head) >= 16:
        return int.from_bytes(head[4:8], "little")
    if codec != "zstd" or len(head) < 18:
        return None
    flags = head[4]
    single, dictionary, kind = flags >> 5 & 1, (0, 1, 2, 4)[flags & 3], flags >> 6
    first, length = 5 + (1 - single) + dictionary, (single, 2, 4, 8)[kind]
    size = int.from_bytes(head[first : first + length], "little")
    return None if not length else size + 256 if length == 2 else size


def _codec_names(array: StoredArray) -> list[str]:
    metadata = array.metadata
    if metadata.zarr_format == 2:
        return [str(codec.codec_id) for codec in (*(metadata.filters or ()), metadata.compressor) if codec is not None]
    names, waiting = [], [codec.to_dict() for codec in metadata.codecs]
    while waiting:
        codec = waiting.pop()
        names.append(str(codec["name"]).removeprefix("numcodecs."))
        waiting += (codec.get("configuration") or {}).get("codecs", ())
    return names
