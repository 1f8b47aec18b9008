"""Opening score files: the format is told by the name, or for a folder by what is in it."""

from __future__ import annotations

import os
import sys
from typing import BinaryIO, TypeGuard

from ..credentials import shown
from ..errors import StoreError
from .arrow_tables import Table, open_table
from .delimited import CsvTable
from .ipc import ArrowTable, hub_files
from .names import CSV_SUFFIXES, SUFFIXES, check_plain, file_advice, path_advice
from .npy import open_stream
from .npy_rows import open_npy
from .npz import open_npz
from .parquet import ParquetTable
from .row_blocks import RowFile

_HUB_FILES = ("state.json", "dataset_dict.json")


def is_row_file(path: object) -> bool:
    """Whether this is a score file of a format read here: told by its name, or for a folder by what is in it.

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
        Where there is no file, it is damaged, its format is unknown, or it has nothing of that name.
    ScoresError, LabelsError, DtypeError
        Where it holds no matrix of numbers, or labels that are no class numbers.

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
