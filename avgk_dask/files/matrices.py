"""Opening score files as blocks of rows, or for reading any rows. The name or content of a file determines its format."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, TypeGuard

import numpy as np

from ..arrays import Array, Dtype
from ..credentials import is_url, redact
from ..errors import LabelsError, StoreError
from .csv import CsvTable
from .npy import open_npy, open_npz, open_stream
from .rows import (
    ARROW_SUFFIXES,
    CSV_SUFFIXES,
    SUFFIXES,
    FileMark,
    LoadedRows,
    RandomAccessRows,
    RowFile,
    check_marks,
    check_plain,
    file_advice,
    held_limit,
    loaded,
    path_advice,
    reading,
    rows_of_bytes,
)
from .tables import ArrowTable, ParquetTable, Table, as_signed, hub_files, open_table

_HUB_FILES = ("state.json", "dataset_dict.json")


def is_row_file(path: object) -> bool:
    """Whether this is a score file of a supported format, judged by its name, or by its content for a folder."""
    if not isinstance(path, (str, os.PathLike)):
        return _is_stream(path)
    name = str(path)
    if os.path.isdir(name):
        return _folder_format(name) is not None
    return name == "-" or name.lower().endswith(SUFFIXES)


def open_file(path: object, *, scores: str | None = None, labels: str | None = None) -> RowFile:
    """Open a score file, reading only its header or footer.

    ``path`` is an npy, npz, Parquet, CSV, Arrow or Feather file, a folder of Parquet or Arrow files
    (such as a Hugging Face dataset), ``-`` for an npy stream on standard input, or a binary file
    object with such a stream. ``scores`` and ``labels`` are the names of members or columns.
    """
    if _is_stream(path) or str(path) == "-":
        stream = path if _is_stream(path) else sys.stdin.buffer
        location = redact(getattr(stream, "name", type(stream).__name__))
        _refuse_names(location, scores, labels)
        return open_stream(stream, location)
    path = check_path(path)
    if path.lower().endswith(".npy"):
        _refuse_names(path, scores, labels)
        return open_npy(path)
    if path.lower().endswith(".npz"):
        return open_npz(path, scores, labels)
    table = as_table(path, labels)
    if isinstance(table, CsvTable):
        table.check_numbers()
    return open_table(table, scores, labels)


def check_path(path: object) -> str:
    """Return the path of a score file on this machine as text; refuse anything else."""
    if not isinstance(path, (str, os.PathLike)):
        raise StoreError(
            f"a score file must be a path, '-' or a binary file object; got {type(path).__name__}. Pass its path."
        )
    name = str(path)
    if "://" in name:
        raise StoreError(f"a score file must be on this machine; got {redact(name)!r}. Download it first.")
    if not os.path.exists(name):
        raise StoreError(f"no such file: {redact(name)!r}. {path_advice(name)}")
    check_plain(name)
    if not is_row_file(name):
        raise _unknown_format(name)
    return name


def _unknown_format(path: str) -> StoreError:
    kind = "folder" if os.path.isdir(path) else "file"
    return StoreError(f"the format of the {kind} {path!r} is not supported. {file_advice(path)}")


def as_table(path: str, labels: str | None) -> Table:
    """Open a file or folder of columns; ``labels`` is the name of the label column of a CSV file, which has no types."""
    if os.path.isdir(path):
        if _folder_format(path) == "parquet":
            return ParquetTable(_parquet_files(path), path)
        files = hub_files(path)
        if not files:
            raise StoreError(f"{path} has no Arrow file: its state.json lists none. Save it again.")
        return ArrowTable(files, path)
    name = path.lower()
    if name.endswith(CSV_SUFFIXES):
        return CsvTable(path, labels)
    if name.endswith(".parquet"):
        return ParquetTable([path], path)
    if name.endswith(ARROW_SUFFIXES):
        return ArrowTable([path], path)
    raise _unknown_format(path)


def _is_stream(value: object) -> TypeGuard[BinaryIO]:
    return callable(getattr(value, "read", None))


def _folder_format(folder: str) -> str | None:
    names = os.listdir(folder)
    if any(name in names for name in _HUB_FILES) or any(name.lower().endswith(".arrow") for name in names):
        return "arrow"
    return "parquet" if _parquet_files(folder) else None


def _parquet_files(folder: str) -> list[str]:
    names = sorted(name for name in os.listdir(folder) if name.lower().endswith(".parquet"))
    return [os.path.join(folder, name) for name in names if not name.startswith((".", "_"))]


def _refuse_names(location: str, scores: str | None, labels: str | None) -> None:
    if scores is not None or labels is not None:
        raise StoreError(
            f"{location} is a single array without names; got {redact(scores or labels)!r}. Drop the name."
        )


# Files that are evaluated directly, without a store: read in any order, or held in memory if that is impossible.

#: Bytes read at once from a file that is held in memory.
_BLOCK_BYTES = 16 << 20


@dataclass(frozen=True)
class MatrixFile:
    """A file of scores that tasks read, with its labels and class names if it has any."""

    scores: RandomAccessRows
    labels: RandomAccessRows | None
    class_names: list[str] | None
    marks: tuple[FileMark, ...]


def is_matrix_file(path: object) -> bool:
    """Whether a path names a score file rather than a store, judged by its name or content."""
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(name, str) or "\0" in name:
        return False
    name = re.split(r"[?#]", name)[0] if is_url(name) else name  # signed URLs end in their signature
    name = name.removeprefix("file://")
    if name == "-":
        raise StoreError(
            "scores must be a file or store that can be read repeatedly; got - for standard input. "
            "Copy it into a store first: avgk ingest - --out scores.zarr"
        )
    if not os.path.isdir(name):
        return name.lower().endswith(SUFFIXES)
    if any(os.path.lexists(os.path.join(name, root)) for root in ("zarr.json", ".zgroup", ".zarray")):
        return False
    if is_row_file(name):
        return True
    if name.rstrip("/").lower().endswith(SUFFIXES):
        raise StoreError(
            f"the folder {redact(name)!r} is neither a store nor does it contain score files. Check the path."
        )
    return False


def open_matrix_file(path: str, scores: str | None = None, labels: str | None = None) -> MatrixFile:
    """Open a score file for reading any of its rows; reads its header or footer, or all of a CSV file.

    Raises the same errors as ``open_file``, and StoreError if the file must be held in memory and is too large for that.
    """
    path = os.path.abspath(check_path(path.removeprefix("file://")))  # workers may have another working folder
    marks = tuple(_mark_files(path))  # before reading
    file = open_file(path, scores=scores, labels=labels)
    rows = file.random_access_rows(marks) or _loaded_rows(file, marks, scores, labels)
    check_marks(marks)
    return MatrixFile(*rows, file.class_names, marks)


def _mark_files(path: str) -> Iterator[FileMark]:
    """Return the mark of a file, or of each file in a folder."""
    files = [path]
    if os.path.isdir(path):
        files = [file for name in sorted(os.listdir(path)) if os.path.isfile(file := os.path.join(path, name))]
    for file in files:
        with reading(file):
            yield FileMark.from_path(file)


def _loaded_rows(
    file: RowFile, marks: tuple[FileMark, ...], scores: str | None, labels: str | None
) -> tuple[RandomAccessRows, RandomAccessRows | None]:
    """Return scores and labels that are held in memory after the first read; read now if their number is unknown."""
    if file.n_samples is not None:
        _check_fits(file, file.n_samples)
    content = loaded(partial(_load, file.location, scores, labels), marks)
    n_samples = len(content.values()[0]) if file.n_samples is None else file.n_samples

    def rows(number: int, more: tuple[int, ...], dtype: Dtype) -> LoadedRows:
        shape = (n_samples, *more)
        return LoadedRows(
            location=file.location, shape=shape, dtype=dtype, part_rows=rows_of_bytes(shape, dtype),
            content=content, number=number,
        )  # fmt: skip

    return rows(0, (file.n_classes,), file.dtype), None if file.label_form is None else rows(1, *file.label_form)


def _load(path: str, scores: str | None, labels: str | None) -> tuple[Array, ...]:
    """Read a whole file."""
    file = open_file(path, scores=scores, labels=labels)
    n, matrix, label_blocks = 0, np.empty((file.n_samples or 0, file.n_classes), file.dtype), []
    for block, labels_of_block in file.blocks(_BLOCK_BYTES):
        if n + len(block) > len(matrix):
            _check_fits(file, n + len(block))
            # In place, as a copy would take the same memory again.
            rows = max(n + len(block), min(2 * len(matrix), held_limit() // file.row_bytes))
            matrix.resize((rows, file.n_classes), refcheck=False)
        matrix[n : n + len(block)] = block
        n += len(block)
        if labels_of_block is not None:
            label_blocks.append(as_signed(labels_of_block))
    matrix.resize((n, file.n_classes), refcheck=False)
    if not file.has_labels:
        return (matrix,)
    n_labels = sum(map(len, label_blocks))
    if n_labels != n:
        raise LabelsError(f"labels must have one entry per sample; {path} has {n_labels} for {n} samples. Check it.")
    return matrix, np.concatenate(label_blocks) if label_blocks else np.empty(0, np.int64)


def _check_fits(file: RowFile, n_samples: int) -> None:
    """Refuse a file that is too large to be held in memory."""
    n_bytes, limit = n_samples * file.row_bytes, held_limit()
    if n_bytes > limit:
        raise StoreError(
            f"{file.location} has {n_bytes:,} bytes{'' if file.n_samples else ' or more'} and can only be read "
            f"sequentially; the limit for such files is {limit:,} bytes (the setting avgk.file-bytes, or a quarter of "
            f"the memory if less). {file_advice(file.location)}"
        )
