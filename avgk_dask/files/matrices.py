"""Opening score files, whose name or content determines the format: as a stream of row blocks, or for reading any rows."""

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
from ..credentials import is_url, shown
from ..errors import LabelsError, StoreError
from .csv import CsvTable
from .npy import open_npy, open_npz, open_stream
from .rows import (
    CSV_SUFFIXES,
    SUFFIXES,
    AnyRows,
    FileMark,
    LoadedRows,
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
from .tables import ArrowTable, ParquetTable, Table, hub_files, in_range, open_table

_HUB_FILES = ("state.json", "dataset_dict.json")


def is_row_file(path: object) -> bool:
    """Whether this is a score file of a format read here: determined by its name, or for a folder by its content.

    Examples
    --------
    >>> is_row_file("scores.parquet"), is_row_file("scores.zarr"), is_row_file("-")
    (True, False, True)

    """
    if not isinstance(path, (str, os.PathLike)):
        return _is_stream(path)
    name = str(path)
    if os.path.isdir(name):
        return _folder_format(name) is not None
    return name == "-" or name.lower().endswith(SUFFIXES)


def open_file(path: object, *, scores: str | None = None, labels: str | None = None) -> RowFile:
    """Open a score file as a stream of row blocks; reads its header or footer, no more.

    ``path`` is an npy, npz, Parquet, CSV, Arrow or Feather file, a folder of Parquet or Arrow files
    (of a Hugging Face dataset, say), ``-`` for an npy stream on standard input, or a binary file
    object with such a stream. ``scores`` and ``labels`` name the member or column to use.

    Raises
    ------
    StoreError
        If there is no file, it is damaged, its format is unknown, or it has nothing of that name.
    ScoresError, LabelsError, DtypeError
        If it holds no matrix of numbers, or labels that are no class numbers.

    """
    if _is_stream(path) or str(path) == "-":
        stream = path if _is_stream(path) else sys.stdin.buffer
        location = shown(getattr(stream, "name", type(stream).__name__))
        _check_no_names(location, scores, labels)
        return open_stream(stream, location)
    path = check_path(path)
    if path.lower().endswith(".npy"):
        _check_no_names(path, scores, labels)
        return open_npy(path)
    if path.lower().endswith(".npz"):
        return open_npz(path, scores, labels)
    table = as_table(path, labels)
    if isinstance(table, CsvTable):
        table.check_numbers()
    return open_table(table, scores, labels)


def check_path(path: object) -> str:
    """Return the path as text, or refuse one that is not here."""
    if not isinstance(path, (str, os.PathLike)):
        raise StoreError(
            f"a score file must be a path, '-' or a binary file object; got {type(path).__name__}. Pass its path."
        )
    name = str(path)
    if "://" in name:
        raise StoreError(f"a score file must be on this machine; got {shown(name)!r}. Download it first.")
    if not os.path.exists(name):
        raise StoreError(f"a score file must exist; got {shown(name)!r}, and nothing is there. {path_advice(name)}")
    check_plain(name)
    if not is_row_file(name):
        raise StoreError(
            f"a score file must be of a format that is read here; got the {'folder' if os.path.isdir(name) else 'file'} "
            f"{name!r}. {file_advice(name)}"
        )
    return name


def as_table(path: str, labels: str | None) -> Table:
    """Open a file or folder of columns; ``labels`` names the label column of a CSV file, which has no types."""
    if os.path.isdir(path):
        files = _parquet_files(path) if _folder_format(path) == "parquet" else hub_files(path)
        if not files:
            raise StoreError(f"{path} must hold at least one Arrow file; its state.json lists none. Save it again.")
        return ParquetTable(files, path) if _folder_format(path) == "parquet" else ArrowTable(files, path)
    if path.lower().endswith(CSV_SUFFIXES):
        return CsvTable(path, labels)
    return ParquetTable([path], path) if path.lower().endswith(".parquet") else ArrowTable([path], path)


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


def _check_no_names(location: str, scores: str | None, labels: str | None) -> None:
    if scores is not None or labels is not None:
        raise StoreError(f"{location} is a single array without names; got {shown(scores or labels)!r}. Drop the name.")


# Files as scores themselves: opened for reading any rows, or held whole if they can only be read from front to back.

#: Bytes of a file that are read at once into what is held.
_BLOCK_BYTES = 16 << 20
#: What a folder has at its top that is a Zarr store.
_ZARR = ("zarr.json", ".zgroup", ".zarray")


@dataclass(frozen=True)
class MatrixFile:
    """A file of scores: the rows that tasks read, and what else is known of it."""

    scores: AnyRows
    labels: AnyRows | None
    class_names: list[str] | None
    marks: tuple[FileMark, ...]


def is_matrix_file(path: object) -> bool:
    """Return whether a path is that of a score file rather than of a store, judged by its name or its content.

    Raises
    ------
    StoreError
        For a folder that is called like a file, and is neither a store nor a folder of such files; for standard input.

    """
    if not isinstance(path, (str, os.PathLike)):
        return False
    name = os.fspath(path)
    if not isinstance(name, str) or "\0" in name:
        return False
    name = re.split(r"[?#]", name)[0] if is_url(name) else name  # signed ones end in their signature
    name = name.removeprefix("file://")
    if name == "-":
        raise StoreError(
            "scores must be a file or store that can be read again; got - for standard input. "
            "Copy it into a store first: avgk ingest - --out scores.zarr"
        )
    if not os.path.isdir(name):
        return name.lower().endswith(SUFFIXES)
    if any(os.path.lexists(os.path.join(name, known)) for known in _ZARR):
        return False
    if is_row_file(name):
        return True
    if name.rstrip("/").lower().endswith(SUFFIXES):
        raise StoreError(
            f"scores must be a file, as their name says, or a store; got the folder {shown(name)!r}, which is neither a store nor "
            "holds files of scores. Check the path."
        )
    return False


def open_matrix_file(path: str, scores: str | None = None, labels: str | None = None) -> MatrixFile:
    """Open a score file for reading any of its rows; reads its header or footer, or all of a CSV file.

    The file is opened as ``open_file`` does, under the same rules for what is scores and labels.

    Raises
    ------
    StoreError
        As ``open_file``; and where the file would have to be held in memory, and is too large for that.
    ScoresError, LabelsError, DtypeError
        As ``open_file``.

    """
    path = os.path.abspath(check_path(path.removeprefix("file://")))  # workers may have another working folder
    marks = tuple(_marks_of(path)) if os.path.exists(path) else ()  # before anything of it is read
    file = open_file(path, scores=scores, labels=labels)
    found = file.any_rows(marks) or _loaded_rows(file, marks, scores, labels)
    check_marks(marks)
    return MatrixFile(*found, file.class_names, marks)


def _marks_of(path: str) -> Iterator[FileMark]:
    """Return the marks of the files that a path stands for: itself, or those of a folder."""
    is_folder = os.path.isdir(path)
    for part in [os.path.join(path, name) for name in sorted(os.listdir(path))] if is_folder else [path]:
        if not is_folder or os.path.isfile(part):
            with reading(part):
                yield FileMark.of(part)


def _loaded_rows(
    file: RowFile, marks: tuple[FileMark, ...], scores: str | None, labels: str | None
) -> tuple[AnyRows, AnyRows | None]:
    """Return scores and labels that are held in memory, from the first read on; at once if only reading determines how many."""
    if file.n_samples is not None:
        _check_fits(file, file.n_samples)
    load = partial(_load, file.location, scores, labels)
    mine = loaded(load, marks)  # which is gone with the last who has it
    n_samples = len(mine.values()[0]) if file.n_samples is None else file.n_samples

    def rows(number: int, more: tuple[int, ...], dtype: Dtype) -> LoadedRows:
        shape = (n_samples, *more)
        return LoadedRows(
            location=file.location, shape=shape, dtype=dtype, part_rows=rows_of_bytes(shape, dtype),
            load=load, marks=marks, number=number,
        )  # fmt: skip

    return rows(0, (file.n_classes,), file.dtype), None if file.label_form is None else rows(1, *file.label_form)


def _load(path: str, scores: str | None, labels: str | None) -> tuple[Array, ...]:
    """Read a whole file."""
    file = open_file(path, scores=scores, labels=labels)
    n, found, mine = 0, np.empty((file.n_samples or 0, file.n_classes), file.dtype), []
    for block, some in file.blocks(_BLOCK_BYTES):
        if n + len(block) > len(found):
            _check_fits(file, n + len(block))
            # In place: a copy would take as much again.
            rows = max(n + len(block), min(2 * len(found), held_limit() // file.row_bytes))
            found.resize((rows, file.n_classes), refcheck=False)
        found[n : n + len(block)] = block
        n += len(block)
        if some is not None:
            mine.append(in_range(some))
    found.resize((n, file.n_classes), refcheck=False)
    if not file.has_labels:
        return (found,)
    if sum(map(len, mine)) != n:
        raise LabelsError(
            f"labels must be one for each of the {n} samples; got {sum(map(len, mine))} in {path}. Check it."
        )
    return found, np.concatenate(mine) if mine else np.empty(0, np.int64)


def _check_fits(file: RowFile, n_samples: int) -> None:
    """Refuse a file that is larger than one that is held may be."""
    n_bytes, limit = n_samples * file.row_bytes, held_limit()
    if n_bytes > limit:
        raise StoreError(
            f"scores, with their labels, must have at most {limit:,} bytes in a file that can only be read from front to back (the setting avgk.file-bytes, "
            f"and a quarter of the memory); {file.location} has {n_bytes:,}{'' if file.n_samples else ' or more'}. {file_advice(file.location)}"
        )
