"""Sizes: how large a stored object is, and how large it may be, before it is read."""

from __future__ import annotations

import math
import os
import stat
import zipfile

from zarr.abc.store import Store
from zarr.storage import LocalStore, ZipStore

from ..where.array_kinds import StoredArray
from .grids import chunks_of, outer_sizes, shards_of

#: Codecs that add a share of what they encode at the most: they store what they cannot compress.
_MODEST = frozenset(
    (
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
    )
)
#: What such codecs may add to the decoded bytes: one part in so many, and so many bytes for each inner chunk.
_SHARE, _EACH = 16, 1 << 12
#: Codecs that are not known may widen each value to 16 times as many bytes.
_WIDENED = 16


class NotAFileError(OSError):
    """What lies at a key is a device, a pipe or a socket: reading it may never end."""


def local_size(store: Store, key: str) -> int | None:
    """Return the bytes at a key of a folder or zip file, without reading them; None where that is not known.

    Raises
    ------
    NotAFileError
        Where a device, a pipe or a socket is there.

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
    """Return how many bytes a chunk decodes to, as its header tells; None where it does not."""
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
