"""Grids: how an array is split into stored chunks (or shards) along each axis, and how large these can be.

No other module assumes that the chunks of an array have equal sizes. Layouts are the grids and codecs of new stores.
"""

from __future__ import annotations

import math
import os
import stat
import zipfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from zarr.abc.codec import BytesBytesCodec, Codec
from zarr.abc.store import Store
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec
from zarr.storage import LocalStore, ZipStore

from ...arrays import whole_number
from ...errors import OptionError
from ..where.addresses import StoredArray, chunk_sizes, is_uneven


@dataclass(frozen=True)
class Axis:
    """One axis of a grid: its length, the size of its largest chunk, and the ends of its chunks if they are uneven."""

    n: int
    size: int
    ends: tuple[int, ...] | None = None

    @property
    def count(self) -> int:
        """Number of chunks."""
        return -(-self.n // self.size) if self.ends is None else len(self.ends)

    def span(self, index: int) -> tuple[int, int]:
        """Return the bounds of the chunk of an index, clipped at the array's edge."""
        if self.ends is None:
            return index * self.size, min((index + 1) * self.size, self.n)
        return self.ends[index - 1] if index else 0, self.ends[index]

    def indices(self, first: int, last: int) -> range:
        """Return the indices of the chunks that hold the values from ``first`` to before ``last``.

        Examples
        --------
        >>> Axis(10, 4).indices(3, 9), Axis(10, 6, (1, 7, 10)).indices(1, 8)
        (range(0, 3), range(1, 3))
        """
        if self.ends is None:
            return range(first // self.size, -(-last // self.size))
        return range(bisect_right(self.ends, first), bisect_left(self.ends, last) + 1)

    def bounds(self) -> list[int]:
        """Return the bounds of the chunks."""
        return [*range(0, self.n, self.size), self.n] if self.ends is None else [0, *self.ends]

    def join_chunks(self, most: float) -> list[int]:
        """Join chunks into stretches of at most ``most`` values, unless a single chunk has more; return their bounds.

        Examples
        --------
        >>> Axis(10, 2).join_chunks(5), Axis(10, 6, (1, 3, 9, 10)).join_chunks(4)
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
    if not is_uneven(array):
        return tuple(Axis(n, size) for n, size in zip(array.shape, array.shards or array.chunks, strict=True))
    uneven = chunk_sizes(array)
    return tuple(Axis(n, max(sizes), tuple(accumulate(sizes))) for n, sizes in zip(array.shape, uneven, strict=True))


def outer_sizes(array: StoredArray) -> tuple[int, ...]:
    """Return the size of the largest stored chunk (or shard) along each axis."""
    return tuple(axis.size for axis in grid_of(array))


def shards_of(array: StoredArray) -> tuple[int, ...] | None:
    """Return the shape of an array's shards, or None if it is not sharded."""
    return None if is_uneven(array) or array.shards is None else tuple(array.shards)


def chunks_of(array: StoredArray) -> tuple[int, ...]:
    """Return the shape of an array's chunks (inside its shards, if any), or the largest sizes if they are uneven."""
    return outer_sizes(array) if is_uneven(array) else tuple(array.chunks)


#: Chunks of whole rows of about this many bytes read fastest.
CHUNK_BYTES = 10_000_000
#: Rows per chunk of labels: many small chunks of them would cost more to read than the scores.
LABEL_ROWS = 1 << 20
#: Chunks of a shard on an object store, where fewer and larger objects read faster.
SHARD_CHUNKS = 4
CODECS = ("blosc", "zstd", "gzip", "none")


@dataclass(frozen=True)
class Layout:
    """How a matrix is stored: the chunk shape, the number of chunks per shard, and the codec."""

    chunk_rows: int
    columns: int
    chunk_columns: int
    shard_chunks: int = 1
    codec: str = "blosc"

    @classmethod
    def for_columns(
        cls, columns: int, itemsize: int, *, chunk_rows: int | None = None, shard_chunks: int = 1, codec: str = "blosc"
    ) -> Layout:
        """Return the layout of whole rows that is fastest to read.

        Examples
        --------
        >>> Layout.for_columns(1000, 4).chunk_rows
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
        """Rows per stored object, a chunk or a shard."""
        return self.chunk_rows * self.shard_chunks

    def keywords(self, itemsize: int) -> dict[str, Any]:
        """Return zarr's arguments that create an array of this layout."""
        chunks = self.chunk_rows, self.chunk_columns
        shards = (self.rows, self.columns) if self.shard_chunks > 1 else None
        return {"chunks": chunks, "shards": shards, "compressors": codecs(self.codec, itemsize)}


def codecs(name: str, itemsize: int) -> list[BytesBytesCodec]:
    """Return the codecs of a name, followed by a checksum."""
    compressors: dict[str, list[BytesBytesCodec]] = {
        "blosc": [BloscCodec(cname="lz4", clevel=5, shuffle="bitshuffle", typesize=itemsize)],
        "zstd": [ZstdCodec(level=1)],
        "gzip": [GzipCodec(level=1)],
        "none": [],
    }
    return [*compressors[name], Crc32cCodec()]


def codec_option(codec: Codec, option: str) -> object:
    """Return an option of a codec as spelt in the stored metadata, or None; as attributes, the type depends on zarr's version."""
    options: Any = codec.to_dict().get("configuration") or {}
    return options.get(option)


#: Codecs whose output is at most 1 / 16 larger than their input, plus 4 kB per inner chunk.
_MODEST = {
    "bytes", "crc32c", "transpose", "blosc", "zstd", "gzip", "sharding_indexed", "zlib", "lz4", "bz2", "lzma", "shuffle",
}  # fmt: skip
_SHARE, _EACH = 16, 1 << 12
#: The longest header of a Zstandard frame; shorter frames decode to little.
ZSTD_HEADER = 18
#: Unknown codecs may make each value this many times as large.
_WIDENED = 16


class NotAFileError(OSError):
    """A key is a device, a pipe or a socket: reading it may never end."""


def local_size(store: Store, key: str) -> int | None:
    """Return the size of a key of a folder or zip file, or None if it is unknown; raise NotAFileError for a pipe or device."""
    if isinstance(store, LocalStore):
        try:
            status = os.stat(store.root / key)
        except OSError:  # absent or out of reach: reading it raises the error
            return None
        if stat.S_ISDIR(status.st_mode):
            return None
        if not stat.S_ISREG(status.st_mode):
            raise NotAFileError("it is not a regular file")
        return status.st_size
    archive = getattr(store, "_zf", None) if isinstance(store, ZipStore) else None
    if isinstance(archive, zipfile.ZipFile) and key in archive.NameToInfo:
        return archive.NameToInfo[key].file_size
    return None


def most_bytes(array: StoredArray) -> int:
    """Return the largest size that a stored chunk (or shard) of an array can have."""
    outer = outer_sizes(array)
    decoded = math.prod(outer) * array.dtype.itemsize
    n_inner = math.prod(outer) // max(1, math.prod(chunks_of(array)))
    if not set(_codec_names(array)) <= _MODEST:
        decoded *= _WIDENED
    return int(decoded + decoded // _SHARE + (n_inner + (shards_of(array) is not None)) * _EACH)


def outer_codecs(array: StoredArray) -> list[str]:
    """Return the names of an array's codecs in the order of decoding; for shards, without the codecs of their inner chunks."""
    if array.metadata.zarr_format == 2:
        return _codec_names(array)[::-1]
    return [str(codec.to_dict()["name"]).removeprefix("numcodecs.") for codec in array.metadata.codecs][::-1]


def decoded_size(codec: str, data: memoryview) -> int | None:
    """Return how many bytes a chunk decodes to according to its header, or None if that does not say."""
    head = bytes(data.cast("B")[:ZSTD_HEADER])
    if codec == "blosc" and len(head) >= 16:
        return int.from_bytes(head[4:8], "little")
    if codec != "zstd" or len(head) < ZSTD_HEADER:
        return None
    flags = head[4]
    single, dictionary, kind = flags >> 5 & 1, (0, 1, 2, 4)[flags & 3], flags >> 6
    first, length = 5 + (1 - single) + dictionary, (single, 2, 4, 8)[kind]
    size = int.from_bytes(head[first : first + length], "little")
    return None if not length else size + 256 if length == 2 else size


def codec_configs(array: StoredArray) -> Iterator[dict[str, Any]]:
    """Yield the name and configuration of each codec of an array, with the codecs of a shard's inner chunks last."""
    metadata = array.metadata
    if metadata.zarr_format == 3:
        yield from _flatten(codec.to_dict() for codec in metadata.codecs)
        return
    for codec in (*(metadata.filters or ()), metadata.compressor):
        if codec is not None:
            yield {"name": codec.codec_id, "configuration": codec.get_config()}


def _flatten(configs: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for config in configs:
        yield config
        yield from _flatten((config.get("configuration") or {}).get("codecs", ()))


def _codec_names(array: StoredArray) -> list[str]:
    return [str(config["name"]).removeprefix("numcodecs.") for config in codec_configs(array)]
