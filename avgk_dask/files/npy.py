"""npy and npz files: streams, rows at any place of a file, and members of archives. Nothing is unpickled."""

from __future__ import annotations

import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from tokenize import TokenError
from typing import IO

import numpy as np

from ..arrays import Array, Dtype
from ..errors import LabelsError, ReadError, StoreError
from ..kernels.keys import check_dtype
from .rows import (
    LABEL_NAMES,
    OTHER_LABEL_NAMES,
    SCORE_NAMES,
    Block,
    FileMark,
    RandomAccessRows,
    RowFile,
    check_distinct,
    check_labels,
    check_matrix,
    find_name,
    listed,
    reading,
    rows_of_bytes,
)

#: Errors of NumPy on invalid headers.
NPY_ERRORS = (
    *(ValueError, TypeError, KeyError, SyntaxError, TokenError),
    *(OverflowError, MemoryError, RecursionError, EOFError),
)

#: Bytes read from a stream at once.
_PIECE = 1 << 20


@dataclass(frozen=True)
class NpyHeader:
    """The header of an npy file."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: Dtype

    @property
    def nbytes(self) -> int:
        """Number of bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(stream: IO[bytes], location: str) -> NpyHeader:
    """Read the header, and leave the stream at the first number."""
    with reading(location, *NPY_ERRORS):
        version = np.lib.format.read_magic(stream)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"its header is of the unknown version {version}")
        # Version 3 is version 2 with UTF-8 field names; arrays with fields are refused later.
        is_first = version == (1, 0)
        read = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
        if min(shape, default=0) < 0:
            raise ValueError(f"its header has the shape {shape}")
    return NpyHeader(shape, fortran and len(shape) > 1 and sorted(shape)[-2] > 1, dtype)


def map_header(path: str) -> tuple[NpyHeader, int]:
    """Return the header of an npy file and the offset of its numbers; refuse a truncated file."""
    with reading(path), open(path, "rb") as stream:
        header, offset = read_header(stream, path), stream.tell()
        size = os.fstat(stream.fileno()).st_size
    check_size(header, size - offset, path)
    return header, offset


def check_size(header: NpyHeader, nbytes: int, location: str) -> None:
    """Refuse a truncated file; arrays of objects, whose size is unknown, are refused later."""
    if nbytes < header.nbytes and not header.dtype.hasobject:
        raise ReadError(
            f"{location} is truncated: it has {nbytes} of {header.nbytes} bytes for shape {header.shape} of {header.dtype}. "
            "Write or copy it again."
        )


def check_order(header: NpyHeader, location: str) -> None:
    """Refuse an array in Fortran order, whose rows cannot be read from a stream one after the other."""
    if header.fortran:
        raise StoreError(
            f"{location} must be in C order to be read as a stream; got Fortran order. "
            "Save numpy.ascontiguousarray of it, or save an npy file, which may have either order."
        )


def _fill(block: Array, stream: IO[bytes]) -> None:
    """Fill a C-ordered block with the next bytes of a stream, which may return fewer at a time than requested."""
    target, n = block.reshape(-1).view(np.uint8), 0
    while n < target.size:
        piece = stream.read(min(_PIECE, target.size - n))
        if not piece:
            raise EOFError(f"it ends {target.size - n} bytes early")
        target[n : n + len(piece)] = np.frombuffer(piece, np.uint8)
        n += len(piece)


class NpyStream:
    """An array in npy format, read from front to back, some rows at a time."""

    def __init__(self, stream: IO[bytes], location: str) -> None:
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
            _fill(block, self._stream)
        self.n_read += rows
        return block.astype(dtype.newbyteorder("="), copy=False)


@dataclass(frozen=True, kw_only=True)
class StreamFile(RowFile):
    """Scores in npy format from standard input or a file object, which can be read only once."""

    stream: NpyStream

    def blocks(self, max_bytes: int) -> Iterator[Block]:
        """Return the rows in blocks."""
        rows = self.rows_per_block(max_bytes)
        if self.stream.n_read:
            raise ReadError(f"{self.location} has been read already, and cannot be read again. Open a new stream.")
        while self.stream.n_read < self.stream.header.shape[0]:
            yield self.stream.take(rows), None


def open_stream(stream: IO[bytes], location: str) -> StreamFile:
    """Open scores in npy format from a binary file object; reads only the header."""
    source = NpyStream(stream, location)
    n_samples, n_classes = check_matrix(source.header.shape, location)
    return StreamFile(
        location=location,
        n_samples=n_samples,
        n_classes=n_classes,
        dtype=check_dtype(source.header.dtype, location),
        stream=source,
    )


#: Bytes of a column of a Fortran-ordered file that are read together, and the most of all columns. Smaller pieces would read
#: pages of the file several times.
_STRIP_BYTES, _STRIPS_BYTES = 1 << 14, 1 << 25
#: Columns of such a file that are transposed together.
_COLUMNS = 256
#: The length of a zip file's local header, and the place in it of the lengths of the name and the extra field.
_LOCAL_HEADER, _LENGTHS = 30, slice(26, 30)


@dataclass(frozen=True, kw_only=True)
class NpyRows(RandomAccessRows):
    """Rows of an array in npy format at an offset in a file: an npy file, or an npz file with an uncompressed member.

    The file is not mapped to memory: if another process truncated it, a signal would end this process, and pages of the map
    would stay resident.
    """

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


@dataclass(frozen=True, kw_only=True)
class NpyFile(RowFile):
    """An npy file, in blocks."""

    rows: NpyRows

    def blocks(self, max_bytes: int) -> Iterator[Block]:
        """Return the rows in blocks."""
        n_samples, rows = self.rows.shape[0], self.rows_per_block(max_bytes)
        for start in range(0, n_samples, rows):
            yield self.rows.read(start, min(start + rows, n_samples)), None

    def random_access_rows(self, marks: tuple[FileMark, ...]) -> tuple[RandomAccessRows, None]:
        """Return the rows."""
        return self.rows, None


def open_npy(path: str) -> NpyFile:
    """Open an npy file of scores; reads only its header."""
    with reading(path):
        mark = FileMark.from_path(path)
    header, offset = map_header(path)
    n_samples, n_classes = check_matrix(header.shape, path)
    dtype = check_dtype(header.dtype, path)
    rows = _rows_at(mark, header, offset)
    return NpyFile(location=path, n_samples=n_samples, n_classes=n_classes, dtype=dtype, rows=rows)


def member_rows(path: str, name: str) -> NpyRows | None:
    """Open a member of an npz file, or return None if it is compressed or encrypted."""
    mark = FileMark.from_path(path)
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
        raise ReadError(f"member {name!r} of {path} is truncated. Write or copy it again.")
    return _rows_at(mark, header, offset)


def _rows_at(mark: FileMark, header: NpyHeader, offset: int) -> NpyRows:
    dtype, shape = header.dtype.newbyteorder("="), header.shape
    rows = rows_of_bytes(shape, dtype)
    if header.fortran:
        rows = max(rows, min(_STRIP_BYTES // dtype.itemsize, rows_of_bytes(shape, dtype, _STRIPS_BYTES)))
    return NpyRows(
        location=mark.path, shape=shape, dtype=dtype, part_rows=max(1, min(rows, shape[0])), mark=mark, header=header, offset=offset
    )  # fmt: skip


#: Errors of zipfile on damaged, encrypted or unknown archives.
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError)


@dataclass(frozen=True, kw_only=True)
class NpzFile(RowFile):
    """An npz file: rows of the scores, and of the labels if any, decompressed on demand."""

    members: tuple[str, ...]

    def blocks(self, max_bytes: int) -> Iterator[Block]:
        """Return the rows in blocks."""
        rows = self.rows_per_block(max_bytes)
        with reading(self.location, *ZIP_ERRORS), ExitStack() as stack:
            archive = stack.enter_context(zipfile.ZipFile(self.location))
            opened = [stack.enter_context(archive.open(f"{name}.npy")) for name in self.members]
            streams = [NpyStream(stream, self.location) for stream in opened]
            while streams[0].n_read < streams[0].header.shape[0]:
                taken = [stream.take(rows) for stream in streams]
                yield taken[0], taken[1] if self.has_labels else None
            for stream in opened:
                stream.read(1)  # compares the checksum at the end of the member

    def random_access_rows(
        self, marks: tuple[FileMark, ...]
    ) -> tuple[RandomAccessRows, RandomAccessRows | None] | None:
        """Return the rows, or None if a member is compressed."""
        members = [member_rows(self.location, name) for name in self.members]
        if members[0] is None or members[-1] is None:
            return None
        return members[0], members[1] if self.has_labels else None


def open_npz(path: str, scores: str | None, labels: str | None) -> NpzFile:
    """Open an npz file of scores, and its labels if any; reads only the members' headers."""
    check_distinct(scores, labels)
    headers = read_headers(path)
    labels = find_name(labels, [*headers], "member", path) if labels else ("labels" if "labels" in headers else None)
    scores = _scores_name(headers, scores, labels, path)
    shape = check_matrix(headers[scores].shape, f"member {scores!r} of {path}")
    labels = _labels_name(headers, scores) if labels is None else labels
    members = (scores,) if labels is None else (scores, labels)
    if labels is not None:
        header, location = headers[labels], f"member {labels!r} of {path}"
        check_labels(header.shape, header.dtype, location)
        if header.shape not in (shape[:1], shape):
            raise LabelsError(
                f"labels must fit the scores' shape {shape}; {location} has shape {header.shape}. Check both."
            )
    for name in members:
        check_order(headers[name], f"member {name!r} of {path}")
    return NpzFile(
        location=path,
        n_samples=shape[0],
        n_classes=shape[1],
        dtype=check_dtype(headers[scores].dtype, path),
        label_form=None if labels is None else (headers[labels].shape[1:], headers[labels].dtype.newbyteorder("=")),
        members=members,
        ignored=tuple(name for name in headers if name not in members),
    )


def read_headers(path: str) -> dict[str, NpyHeader]:
    """Return the header of every array in the archive; refuse a truncated member."""
    headers = {}
    with reading(path, *ZIP_ERRORS), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if not member.filename.endswith(".npy"):
                continue
            with archive.open(member) as stream:
                header = read_header(stream, path)
                check_size(header, member.file_size - stream.tell(), f"member {member.filename} of {path}")
            headers[member.filename.removesuffix(".npy")] = header
    return headers


def read_member(path: str, name: str) -> Array:
    """Return the array of a member."""
    with reading(path, *ZIP_ERRORS), zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as stream:
        source = NpyStream(stream, path)
        values = source.take(source.header.shape[0])
        stream.read(1)
    return values


def _scores_name(headers: dict[str, NpyHeader], scores: str | None, labels: str | None, path: str) -> str:
    if scores is not None:
        return find_name(scores, [*headers], "member", path)
    if "scores" in headers and labels != "scores":
        return "scores"
    matrices = [name for name, header in headers.items() if len(header.shape) == 2 and name != labels]
    usual = [name for name in SCORE_NAMES if name in matrices]
    if len(matrices) == 1 or len(usual) == 1:
        return (usual or matrices)[0]
    raise StoreError(
        f"{path} must have a member 'scores', or a single matrix; it has {listed([*headers])}. "
        "Name the member with the scores."
    )


def _labels_name(headers: dict[str, NpyHeader], scores: str) -> str | None:
    """Return the only member with a usual name for labels and one integer per sample, or None."""
    n_samples = headers[scores].shape[:1]
    fitting = [name for name, header in headers.items() if header.shape == n_samples and header.dtype.kind in "iu"]
    candidates = [name for name in (*LABEL_NAMES, *OTHER_LABEL_NAMES) if name in fitting]
    return candidates[0] if len(candidates) == 1 else None
