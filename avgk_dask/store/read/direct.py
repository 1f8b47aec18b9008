"""Reading chunk files directly: for local, plainly coded arrays twice as fast as through zarr.

zarr hands every chunk from thread to thread and copies it once more in its event loop, into memory that is
new each time. Where a chunk is one local file in one of the common codecs, reading and decoding it in the
task's own thread, into memory used before, needs none of that. Anything unusual is left to zarr.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import sys
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import google_crc32c
import numcodecs
import numpy as np
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ZstdCodec
from zarr.storage import LocalStore

from ...arrays import Array
from ...errors import ReadError
from ..where.addresses import StoredArray, is_uneven
from .checked import CheckedStore
from .grids import configured, decoded_size, grid_of, shards_of
from .listing import chunk_key
from .manifest import chunk_slices, indices_within

#: Decodes the first array into the second one, which has the size it must have; may give the first as it is.
Decode = Callable[[Array, Array], Array]


#: Members of a gzip file that a chunk may be; each is looked at after all that follow are copied.
_MOST_MEMBERS = 64


class Scratch:
    """Memory that one thread reads into, again and again."""

    def __init__(self) -> None:
        self._spaces: dict[str, Array] = {}

    def space(self, name: str, n_bytes: int) -> Array:
        """Return this many bytes of the memory with this name; what was there before is gone."""
        held = self._spaces.get(name)
        if held is None or held.size < n_bytes:
            self._spaces.pop(name, None)
            held = self._spaces[name] = np.empty(n_bytes, np.uint8)
        return held[:n_bytes]


class ChunkFiles:
    """Reads parts of an array from its files."""

    def __init__(self, array: StoredArray, decode: Decode, has_checksum: bool) -> None:
        self._array, self._decode, self._has_checksum = array, decode, has_checksum
        self._chunks, self._dtype = tuple(array.chunks), np.dtype(array.dtype)
        self._n_bytes = math.prod(self._chunks) * self._dtype.itemsize
        self._grid = grid_of(array)
        self._root = str(array.store_path.store._store.root)

    @classmethod
    def of(cls, array: StoredArray) -> ChunkFiles | None:
        """Return the reader of an array's files; None if zarr must read it."""
        store = array.store_path.store
        if type(store) is not CheckedStore or type(store._store) is not LocalStore or sys.byteorder != "little":
            return None
        dtype = np.dtype(array.dtype)
        if is_uneven(array) or array.shards is not None or dtype.byteorder == ">" or dtype.hasobject:
            return None
        decode, has_checksum = _coding(array.metadata)
        return cls(array, decode, has_checksum) if decode else None

    def read(self, where: tuple[slice, ...], scratch: Scratch) -> Array | None:
        """Return a part of the array, good until the scratch is used again; None if zarr must read it."""
        indices = indices_within(self._grid, where)
        if len(indices) == 1:
            chunk = self._chunk(indices[0], scratch, scratch.space("chunk", self._n_bytes))
            return chunk if chunk is None else _part_of(chunk, where, chunk_slices(self._grid, indices[0]))
        shape = tuple(part.stop - part.start for part in where)
        space = scratch.space("part", math.prod(shape) * self._dtype.itemsize)
        whole: Array = space.view(self._dtype).reshape(shape)
        for index in indices:
            mine = chunk_slices(self._grid, index)
            shared = tuple(slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(where, mine, strict=True))
            self._put(index, mine, shared, _part_of(whole, shared, where), scratch)
        return whole

    def _put(
        self, index: tuple[int, ...], mine: tuple[slice, ...], shared: tuple[slice, ...], place: Array, scratch: Scratch
    ) -> None:
        """Put what is shared of a chunk into its place: decoded there, if the place has the whole chunk's form."""
        fits = place.shape == self._chunks and place.flags.c_contiguous
        out = place.reshape(-1).view(np.uint8) if fits else scratch.space("chunk", self._n_bytes)
        chunk = self._chunk(index, scratch, out)
        if chunk is None:
            place[...] = np.asarray(self._array[shared])
        elif not (fits and np.may_share_memory(chunk, place)):
            place[...] = _part_of(chunk, shared, mine)

    def _chunk(self, index: tuple[int, ...], scratch: Scratch, out: Array) -> Array | None:
        """Return a whole chunk, decoded into the bytes given or elsewhere; None if the file is missing, which zarr fills in."""
        data = self._data(chunk_key(self._array, index), scratch, out)
        if data is None:
            return None
        chunk: Array = self._decode(data, out).view(self._dtype).reshape(self._chunks)
        return chunk

    def _data(self, key: str, scratch: Scratch, out: Array) -> Array | None:
        """Return a chunk's stored bytes, checked, without their own checksum; None if the file is missing."""
        store = self._array.store_path.store
        into = out if self._decode is _as_it_is and not self._has_checksum else None
        data = _read_file(f"{self._root}/{key}", scratch, partial(store.checks.refuse_size, key), into)
        problem = store.problem(key, data)
        if problem:
            raise ReadError(problem)
        if data is None or not self._has_checksum:
            return data
        # The manifest's hash covered all of it; otherwise its own checksum must fit.
        checksum = int.from_bytes(data[-4:].tobytes(), "little")
        if store.checks.digest(key) is None and google_crc32c.value(data[:-4]) != checksum:
            raise ValueError("its checksum does not fit")
        return data[:-4]


def slab_copies(array: StoredArray) -> int:
    """Return how often a slab is in memory, at most, while it is read: encoded, decoded and in its place.

    Codecs that do not decode into one buffer, such as gzip, hold what they have decoded twice.
    """
    decode, _ = _coding(array.metadata)
    in_one_buffer = decode is not None and decode not in (_decode_gzip, _decode_zlib)
    return 3 if in_one_buffer or shards_of(array) else 4


def _read_file(
    path: str, scratch: Scratch, check_size: Callable[[int], None], into: Array | None = None
) -> Array | None:
    """Return a file's bytes, of a size that is checked first, where they fit in ``into``; None if it is not a regular file."""
    try:
        # A pipe without a writer would block the opening, but for the flag.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket, or a device that is not there
            return None
        raise
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            return None
        check_size(found.st_size)
        fits = into is not None and into.size == found.st_size
        data = into if into is not None and fits else scratch.space("file", found.st_size)
        n = 0
        while n < data.size and (more := os.readv(file, [data[n:].data])):
            n += more
        return data[:n]
    finally:
        os.close(file)


def _part_of(block: Array, part: tuple[slice, ...], whole: tuple[slice, ...]) -> Array:
    """Return a part of a block that holds some larger part of the array."""
    return block[tuple(slice(p.start - w.start, p.stop - w.start) for p, w in zip(part, whole, strict=True))]


def _decode_blosc(data: Array, out: Array) -> Array:
    # The header of a Blosc chunk gives its decoded and its encoded size in bytes 4..8 and 12..16.
    decoded, encoded = (int.from_bytes(data[i : i + 4].tobytes(), "little") for i in (4, 12))
    if decoded != out.size or encoded != data.size:
        raise ValueError(f"the chunk has {data.size} bytes for {out.size}, its header says {encoded} for {decoded}")
    numcodecs.Blosc().decode(data, out=out)
    return out


def _decode_zstd(data: Array, out: Array) -> Array:
    size = decoded_size("zstd", data.data)
    if size == out.size:
        numcodecs.Zstd().decode(data, out=out)
        return out
    if size is not None:
        raise ValueError(f"the chunk decodes to {size} bytes, not {out.size}")
    return _as_it_is(np.frombuffer(numcodecs.Zstd().decode(data), np.uint8), out)


def _decode_deflated(wbits: int, data: Array, out: Array) -> Array:
    """Decode what zlib wrote, one member or several, and no more than there is space for."""
    n, rest = 0, data.tobytes()
    for _ in range(_MOST_MEMBERS):
        member = zlib.decompressobj(wbits)
        piece = member.decompress(rest, out.size - n + 1)
        if n + len(piece) > out.size or not member.eof:
            raise ValueError(f"the chunk does not decode to {out.size} bytes")
        out[n : n + len(piece)] = np.frombuffer(piece, np.uint8)
        n, rest = n + len(piece), member.unused_data.lstrip(b"\0")
        if not rest:
            return _as_it_is(out[:n], out)
    raise ValueError(f"the chunk has more than {_MOST_MEMBERS} members")


def _as_it_is(data: Array, out: Array) -> Array:
    if data.size != out.size:
        raise ValueError(f"the chunk decodes to {data.size} bytes, not {out.size}")
    return data


#: With a header of gzip, and of zlib.
_decode_gzip, _decode_zlib = partial(_decode_deflated, 31), partial(_decode_deflated, 15)
_CODECS: dict[type, Decode] = {BloscCodec: _decode_blosc, ZstdCodec: _decode_zstd, GzipCodec: _decode_gzip}
#: Those of Zarr's older format, by name.
_CODECS_V2: dict[str, Decode] = {
    "blosc": _decode_blosc,
    "zstd": _decode_zstd,
    "gzip": _decode_gzip,
    "zlib": _decode_zlib,
}


def _coding(metadata: Any) -> tuple[Decode | None, bool]:
    """Return what decodes the chunks of an array, and whether a checksum follows them; None if zarr must."""
    if metadata.zarr_format == 2:
        if metadata.filters or metadata.order != "C":
            return None, False
        codec = metadata.compressor
        return _as_it_is if codec is None else _CODECS_V2.get(codec.codec_id), False
    first, *rest = metadata.codecs
    if not isinstance(first, BytesCodec) or configured(first, "endian") == "big":
        return None, False
    has_checksum = bool(rest) and isinstance(rest[-1], Crc32cCodec)
    rest = rest[:-1] if has_checksum else rest
    decode = _as_it_is if not rest else _CODECS.get(type(rest[0])) if len(rest) == 1 else None
    return decode, has_checksum
