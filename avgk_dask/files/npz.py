"""The npz format: members streamed out of the zip archive, none loaded whole."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from ..arrays import Array
from ..errors import LabelsError, StoreError
from ..kernels.keys import check_dtype
from .names import LABEL_NAMES, OTHER_LABEL_NAMES, SCORE_NAMES, check_distinct, find_name, listed
from .npy import NpyHeader, NpyStream, check_order, check_size, read_header
from .row_blocks import Block, RowFile, check_labels, check_matrix, reading

#: What zipfile raises on damaged, encrypted or unknown archives.
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError)


@dataclass(frozen=True, kw_only=True)
class NpzFile(RowFile):
    """An npz file: the rows of the scores, and of the labels where there are, decompressed as they are asked for."""

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
                # The archive's checksum is compared at the end of a member, so the end must be read.
                stream.read(1)


def open_npz(path: str, scores: str | None, labels: str | None) -> NpzFile:
    """Open an npz file of scores, with labels where it has some; reads the members' headers only."""
    check_distinct(scores, labels)
    headers = read_headers(path)
    labels = find_name(labels, [*headers], "member", path) if labels else ("labels" if "labels" in headers else None)
    scores = _scores_name(headers, scores, labels, path)
    shape = check_matrix(headers[scores].shape, f"member {scores!r} of {path}")
    labels = _labels_name(headers, scores) if labels is None else labels
    if labels is not None:
        _check_label_member(headers[labels], shape, f"member {labels!r} of {path}")
    members = (scores,) if labels is None else (scores, labels)
    for name in members:
        check_order(headers[name], f"member {name!r} of {path}")
    return NpzFile(
        location=path,
        n_samples=shape[0],
        n_classes=shape[1],
        dtype=check_dtype(headers[scores].dtype, path),
        has_labels=labels is not None,
        members=members,
        ignored=tuple(name for name in headers if name not in members),
    )


def read_headers(path: str) -> dict[str, NpyHeader]:
    """Return the header of every array in the archive; refuses a member shorter than its header says."""
    headers = {}
    with reading(path, *ZIP_ERRORS), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if not member.filename.endswith(".npy"):
                continue
            with archive.open(member) as stream:
                header = read_header(stream, path)
                if not header.dtype.hasobject:
                    check_size(header, member.file_size - stream.tell(), f"member {member.filename} of {path}")
            headers[member.filename.removesuffix(".npy")] = header
    return headers


def read_member(path: str, name: str) -> Array:
    """Return one member whole."""
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
        f"{path} must have a member 'scores', or one matrix; it has {listed([*headers])}. "
        "Name the member that holds the scores."
    )


def _labels_name(headers: dict[str, NpyHeader], scores: str) -> str | None:
    """Return the member of a usual name for labels that holds an integer for each sample, if it is the only one."""
    n_samples = headers[scores].shape[:1]
    fitting = [name for name, header in headers.items() if header.shape == n_samples and header.dtype.kind in "iu"]
    found = [name for name in (*LABEL_NAMES, *OTHER_LABEL_NAMES) if name in fitting]
    return found[0] if len(found) == 1 else None


def _check_label_member(labels: NpyHeader, shape: tuple[int, int], what: str) -> None:
    check_labels(labels.shape, labels.dtype, what)
    if labels.shape not in ((shape[0],), shape):
        raise LabelsError(f"labels must fit the scores' shape {shape}; {what} has shape {labels.shape}. Check both.")
