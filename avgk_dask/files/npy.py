"""The npy format: headers, and streams."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from tokenize import TokenError
from typing import BinaryIO, Protocol

import numpy as np

from ..arrays import Array, Dtype
from ..errors import ReadError, StoreError
from ..kernels.keys import check_dtype
from .row_blocks import Block, RowFile, check_matrix, reading

#: What NumPy raises on headers that are none, or whose array cannot be.
NPY_ERRORS = (
    *(ValueError, TypeError, KeyError, SyntaxError, TokenError),
    *(OverflowError, MemoryError, RecursionError, EOFError),
)

#: Bytes asked of a stream at once.
_PIECE = 1 << 20


class Readable(Protocol):
    """A binary stream, read from front to back."""

    def read(self, n: int = ..., /) -> bytes:
        """Return the next bytes, at most so many if a number is given; none at the end."""


@dataclass(frozen=True)
class NpyHeader:
    """What stands before the numbers of an npy file."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: Dtype

    @property
    def nbytes(self) -> int:
        """How many bytes the numbers take."""
        count = self.dtype.itemsize
        for length in self.shape:
            count *= length
        return count


def read_header(stream: Readable, location: str) -> NpyHeader:
    """Read the header, and leave the stream at the first number. Object arrays are described, never loaded."""
    with reading(location, *NPY_ERRORS):
        version = np.lib.format.read_magic(stream)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"its header is of version {version}, which is not known")
        # Version 3 is version 2 with UTF-8 field names; arrays with fields are refused later.
        first = version == (1, 0)
        read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
        if min(shape, default=0) < 0:
            raise ValueError(f"its header has the shape {shape}")
    return NpyHeader(shape, fortran and len(shape) > 1 and sorted(shape)[-2] > 1, dtype)


def map_header(path: str) -> tuple[NpyHeader, int]:
    """Return the header of an npy file and where its numbers begin; refuses a file shorter than its header says."""
    with reading(path), open(path, "rb") as stream:
        header, offset = read_header(stream, path), stream.tell()
        size = os.fstat(stream.fileno()).st_size
    if not header.dtype.hasobject:
        check_size(header, size - offset, path)
    return header, offset


def check_size(header: NpyHeader, nbytes: int, location: str) -> None:
    """Refuse a file with fewer bytes of numbers than its header says."""
    if nbytes < header.nbytes:
        raise ReadError(
            f"{location} must have {header.nbytes} bytes of numbers for shape {header.shape} of {header.dtype}; "
            f"got {nbytes}. The file is truncated; write or copy it again."
        )


def check_order(header: NpyHeader, location: str) -> None:
    """Refuse an array in Fortran order, whose rows lie apart: a stream would have to be held whole."""
    if header.fortran:
        raise StoreError(
            f"{location} must be in C order to be read as a stream; got Fortran order. "
            "Save numpy.ascontiguousarray of it, or an npy file, where both orders can be read."
        )


def fill(block: Array, stream: Readable) -> None:
    """Fill a C-ordered block with the next bytes of a stream, which may give fewer at a time than asked for."""
    target, filled = block.reshape(-1).view(np.uint8), 0
    while filled < target.size:
        piece = stream.read(min(_PIECE, target.size - filled))
        if not piece:
            raise EOFError(f"it ends {target.size - filled} bytes early")
        target[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
        filled += len(piece)


class NpyStream:
    """An array in npy format read from front to back, a stretch of rows at a time."""

    def __init__(self, stream: Readable, location: str) -> None:
        self.header = read_header(stream, location)
        self.n_read = 0
        self._stream = stream
        self._location = location
        check_dtype(self.header.dtype, location)
        check_order(self.header, location)

    def take(self, rows: int) -> Array:
        """Return the next rows, or as many as are left, in native byte order."""
        shape, dtype = self.header.shape, self.header.dtype
        rows = min(rows, shape[0] - self.n_read)
        with reading(self._location, *NPY_ERRORS):
            block = np.empty((rows, *shape[1:]), dtype)
            fill(block, self._stream)
        self.n_read += rows
        return block.astype(dtype.newbyteorder("="), copy=False)


@dataclass(frozen=True, kw_only=True)
class StreamFile(RowFile):
    """Scores in npy format from standard input or a file object; they can be read once."""

    stream: NpyStream

    def blocks(self, max_bytes: int) -> Iterator[Block]:
        """Return the rows in blocks."""
        rows = self.rows_per_block(max_bytes)
        if self.stream.n_read:
            raise ReadError(f"{self.location} must be read once; its rows are gone. Open a new stream.")
        while self.stream.n_read < self.stream.header.shape[0]:
            yield self.stream.take(rows), None


def open_stream(stream: BinaryIO, location: str) -> StreamFile:
    """Open scores in npy format from a binary file object; reads the header only."""
    source = NpyStream(stream, location)
    n_samples, n_classes = check_matrix(source.header.shape, location)
    return StreamFile(
        location=location,
        n_samples=n_samples,
        n_classes=n_classes,
        dtype=check_dtype(source.header.dtype, location),
        stream=source,
    )
