"""Any rows of an array in npy format: a file of its own, or a member of an npz file that is not compressed.

Rows are read, not mapped: a mapped file that another process cuts short ends this one with a signal, and pages of a map
stay resident until it goes.
"""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..arrays import Array
from ..errors import ReadError
from ..kernels.keys import check_dtype
from .any_rows import AnyRows, FileMark, rows_of_bytes
from .npy import NpyHeader, map_header, read_header
from .row_blocks import Block, RowFile, check_matrix, reading

#: Bytes of a column of a Fortran-ordered file that are read together, and of all columns at most: small pieces would read pages of the
#: file several times.
_STRIP_BYTES, _STRIPS_BYTES = 1 << 14, 1 << 25
#: Columns of such a file that are turned into rows together.
_COLUMNS = 256
#: The part of a zip file's local header that tells how long it is: the lengths of the name and of more fields.
_LOCAL_HEADER, _LENGTHS = 30, slice(26, 30)


@dataclass(frozen=True, kw_only=True)
class NpyRows(AnyRows):
    """Rows of an array in npy format, at an offset in a file."""

    mark: FileMark
    header: NpyHeader
    offset: int

    def fill(self, first: int, last: int, out: Array) -> None:
        """Read some rows into an array."""
        self.mark.check()
        with reading(self.location, EOFError):
            file = os.open(self.mark.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                (self._strips if self.header.fortran else self._rows)(file, first, last, out)
                self.mark.check(file)
            finally:
                os.close(file)
        if not self.header.dtype.isnative:
            out.byteswap(inplace=True)

    def _rows(self, file: int, first: int, last: int, out: Array) -> None:
        _read_at(file, self.offset + first * (self.nbytes // self.shape[0]), out)

    def _strips(self, file: int, first: int, last: int, out: Array) -> None:
        n_samples, n_classes = self.shape
        for column in range(0, n_classes, _COLUMNS):
            strips = np.empty((min(_COLUMNS, n_classes - column), last - first), self.dtype)
            for i, strip in enumerate(strips, column):
                _read_at(file, self.offset + (i * n_samples + first) * self.dtype.itemsize, strip)
            out[:, column : column + len(strips)] = strips.T


def _read_at(file: int, offset: int, out: Array) -> None:
    """Fill a C-ordered array with the bytes at an offset of a file."""
    space, n = out.reshape(-1).view(np.uint8), 0
    while n < space.size:
        more = os.preadv(file, [space[n:].data], offset + n)
        if not more:
            raise EOFError(f"it ends {space.size - n} bytes early")
        n += more


def npy_rows(path: str) -> NpyRows:
    """Open an npy file; reads its header."""
    mark = FileMark.of(path)
    header, offset = map_header(path)
    return _rows_at(mark, header, offset)


@dataclass(frozen=True, kw_only=True)
class NpyFile(RowFile):
    """An npy file, in blocks."""

    rows: NpyRows

    def blocks(self, max_bytes: int) -> Iterator[Block]:
        """Return the rows in blocks."""
        n_samples, rows = self.rows.shape[0], self.rows_per_block(max_bytes)
        for start in range(0, n_samples, rows):
            yield self.rows.read(start, min(start + rows, n_samples)), None


def open_npy(path: str) -> NpyFile:
    """Open an npy file of scores; reads its header only."""
    header, _ = map_header(path)
    n_samples, n_classes = check_matrix(header.shape, path)
    dtype = check_dtype(header.dtype, path)
    return NpyFile(location=path, n_samples=n_samples, n_classes=n_classes, dtype=dtype, rows=npy_rows(path))


def member_rows(path: str, name: str) -> NpyRows | None:
    """Open a member of an npz file; None where it is compressed or encrypted, and has to be read from front to back."""
    mark = FileMark.of(path)
    with reading(path, ValueError, zipfile.BadZipFile, struct.error), zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{name}.npy")
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
            return None
        with open(path, "rb") as stream:
            stream.seek(member.header_offset)
            lengths = struct.unpack("<HH", stream.read(_LOCAL_HEADER)[_LENGTHS])
            stream.seek(member.header_offset + _LOCAL_HEADER + sum(lengths))
            header, offset = read_header(stream, path), stream.tell()
    if offset + header.nbytes > mark.n_bytes:
        raise ReadError(f"member {name!r} of {path} must end inside the file; it does not. Write or copy it again.")
    return _rows_at(mark, header, offset)


def _rows_at(mark: FileMark, header: NpyHeader, offset: int) -> NpyRows:
    dtype, shape = header.dtype.newbyteorder("="), header.shape
    rows = rows_of_bytes(shape, dtype)
    if header.fortran:
        rows = max(rows, min(_STRIP_BYTES // dtype.itemsize, rows_of_bytes(shape, dtype, _STRIPS_BYTES)))
    return NpyRows(
        location=mark.path, shape=shape, dtype=dtype, part_rows=max(1, min(rows, shape[0])), mark=mark, header=header, offset=offset
    )  # fmt: skip
