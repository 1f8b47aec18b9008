"""Score files with columns: Parquet and Arrow, single files or all files of a folder. CSV files are read in csv.py."""

from __future__ import annotations

import json
import mmap
import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any, TypeAlias

import numpy as np

from ..arrays import Array, Dtype
from ..errors import ReadError, ScoresError, StoreError
from ..masks import with_unlabelled
from .columns import ArrowBatch, ArrowSchema, Columns, choose_columns, label_array, list_matrix, load_arrow, score_block
from .csv import CsvTable
from .rows import PART_BYTES, Block, FileMark, LabelForm, RandomAccessRows, RowFile, listed, reading, rows_of_bytes

#: Bytes to read when only the first row is needed.
_PEEK_BYTES = 1 << 20
#: Smallest and largest buffer of a column in bytes. Between these limits, all buffers together are as large as a block.
_LEAST_BUFFER, _MOST_BUFFER = 1 << 12, 1 << 20
#: A file with larger parts (bytes of scores) is read into memory once, which takes less memory than decoding them per task.
_MOST_BYTES = 64 << 20
_FILE_MAGIC, _FEATHER_1 = b"ARROW1", b"FEA1"


@dataclass(frozen=True)
class Part:
    """Rows of a table that are decoded together: a row group of a Parquet file or a record batch of an Arrow file."""

    path: str
    index: int
    n_rows: int


class FilesTable(ABC):
    """A table in one or more files with the same columns. Its parts can be read in any order."""

    #: Names and types of the columns.
    schema: ArrowSchema

    def __init__(self, paths: list[str], location: str) -> None:
        self.location, self._paths = location, paths
        self._errors = (load_arrow().ArrowException, ValueError, KeyError, EOFError)
        self.schema, self.n_rows = None, 0
        for path in paths:
            with reading(path, *self._errors):
                schema, n_rows = self._inspect(path)
                self.schema = schema if self.schema is None else self.schema
                _check_same(schema, self.schema, path)
            self.n_rows += n_rows

    def batches(self, names: list[str], rows: int, max_bytes: int) -> Iterator[ArrowBatch]:
        """Return these columns in record batches of at most ``rows`` rows, holding about ``max_bytes`` in memory."""
        for path in self._paths:
            with reading(path, *self._errors):
                yield from self._read(path, names, rows, max_bytes)

    def part_batches(self, part: Part, names: list[str], rows: int) -> Iterator[ArrowBatch]:
        """Return these columns of a part, in record batches of at most ``rows`` rows."""
        with reading(part.path, *self._errors):
            yield from self._read(part.path, names, rows, _MOST_BUFFER, part.index)

    @abstractmethod
    def parts(self) -> list[Part] | None:
        """Return the parts, or None if their lengths are unknown before reading all of them."""

    @abstractmethod
    def _inspect(self, path: str) -> tuple[ArrowSchema, int]:
        """Return the schema and the number of rows of a file."""

    @abstractmethod
    def _read(
        self, path: str, names: list[str], rows: int, max_bytes: int, index: int | None = None
    ) -> Iterator[ArrowBatch]:
        """Return these columns of a file, or of one part of it."""


def _check_same(schema: ArrowSchema, first: ArrowSchema, path: str) -> None:
    """Raise if the columns of a file differ from the first file of its folder."""
    fields, first_fields = ([(field.name, field.type) for field in each] for each in (schema, first))
    if fields != first_fields:
        differing = sorted({name for name, _ in set(fields) ^ set(first_fields)}) or ["their order"]
        raise StoreError(
            f"the files of a folder must have the same columns; {path} differs from the first in "
            f"{', '.join(differing[:5])}. Write all files with the same columns, or read them one by one."
        )


class ParquetTable(FilesTable):
    """Parquet files one after the other, decoded in batches of rows, not in row groups.

    In addition to a batch, memory holds one page of each column, compressed and decoded: about 2 MiB
    with pyarrow's default pages. So a column of lists is cheap, and a thousand class columns take 2 GiB
    unless they were written in small row groups.
    """

    def __init__(self, paths: list[str], location: str) -> None:
        self._parts: list[Part] = []
        super().__init__(paths, location)

    def parts(self) -> list[Part]:
        """Return the row groups."""
        return self._parts

    def _inspect(self, path: str) -> tuple[ArrowSchema, int]:
        with load_arrow("pyarrow.parquet").ParquetFile(path) as file:
            metadata = file.metadata
            self._parts += [Part(path, i, metadata.row_group(i).num_rows) for i in range(metadata.num_row_groups)]
            return file.schema_arrow, metadata.num_rows

    def _read(
        self, path: str, names: list[str], rows: int, max_bytes: int, index: int | None = None
    ) -> Iterator[ArrowBatch]:
        buffer = min(max(max_bytes // len(names), _LEAST_BUFFER), _MOST_BUFFER)
        groups = None if index is None else [index]
        # Without a buffer, or with pre-buffering, pyarrow reads whole column chunks.
        with load_arrow("pyarrow.parquet").ParquetFile(path, buffer_size=buffer, pre_buffer=False) as file:
            yield from file.iter_batches(batch_size=rows, row_groups=groups, columns=names, use_threads=False)


class ArrowTable(FilesTable):
    """Arrow files (IPC files and streams, Feather), mapped to memory and read in slices of their record batches.

    Pages are released after each slice, so only one slice is resident. Compressed record batches (Feather's default)
    are decompressed as a whole.
    """

    def parts(self) -> list[Part] | None:
        """Return the record batches, or None if they are compressed: decompressing determines their lengths."""
        parts = []
        for path in self._paths:
            with reading(path, *self._errors):
                mapped = _map(path)
                for index, batch in enumerate(_record_batches(_reader(mapped))):
                    if not _is_mapped(batch, mapped):
                        return None
                    parts.append(Part(path, index, int(batch.num_rows)))
        return parts

    def _inspect(self, path: str) -> tuple[ArrowSchema, int]:
        mapped = _map(path)
        reader = _reader(mapped)
        if hasattr(reader, "count_rows"):
            return reader.schema, int(reader.count_rows())
        n_rows = 0
        for batch in _record_batches(reader):
            n_rows += batch.num_rows
            _release(mapped)
        return reader.schema, n_rows

    def _read(
        self, path: str, names: list[str], rows: int, max_bytes: int, index: int | None = None
    ) -> Iterator[ArrowBatch]:
        mapped = _map(path)
        for batch in islice(_record_batches(_reader(mapped), index or 0), None if index is None else 1):
            batch.validate()
            # Passing the names to Arrow's reader would copy the batch to memory; this keeps it mapped.
            columns = batch.select(names)
            for start in range(0, batch.num_rows, rows):
                yield columns.slice(start, rows)
                _release(mapped)
            # Free a decompressed batch before the next one is read.
            del batch, columns


def hub_files(folder: str) -> list[str]:
    """Return the Arrow files of a Hugging Face dataset saved to disk, or of a plain folder, in order."""
    if os.path.exists(os.path.join(folder, "dataset_dict.json")):
        splits = [os.path.join(folder, str(name)) for name in _json(folder, "dataset_dict.json").get("splits", [])]
        raise StoreError(f"{folder} has several splits: {listed(splits)}. Name the folder of one of them.")
    if not os.path.exists(os.path.join(folder, "state.json")):
        names = [name for name in sorted(os.listdir(folder)) if name.lower().endswith(".arrow")]
        return [os.path.join(folder, name) for name in names]
    state = _json(folder, "state.json")
    if state.get("_indices_files") or state.get("_indices_data_files"):
        raise StoreError(
            f"{folder} is a selection from another dataset: its row indices are saved separately. Save "
            "dataset.flatten_indices() instead."
        )
    with reading(os.path.join(folder, "state.json"), KeyError, TypeError):
        return [os.path.join(folder, os.path.basename(part["filename"])) for part in state["_data_files"]]


def _json(folder: str, name: str) -> dict[str, Any]:
    path = os.path.join(folder, name)
    with reading(path, ValueError, RecursionError):
        with open(path, encoding="utf-8") as stream:
            content = json.load(stream)
        if not isinstance(content, dict):
            raise ValueError("it is not a JSON object")
    return content


def _map(path: str) -> mmap.mmap:
    with open(path, "rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def _release(mapped: mmap.mmap) -> None:
    # The pages stay in the operating system's cache.
    if hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def _reader(mapped: mmap.mmap) -> Any:
    if mapped[: len(_FEATHER_1)] == _FEATHER_1:
        raise ValueError("it is Feather version 1; write it again with version 2")
    ipc = load_arrow("pyarrow.ipc")
    opened = ipc.open_file if mapped[: len(_FILE_MAGIC)] == _FILE_MAGIC else ipc.open_stream
    options = ipc.IpcReadOptions(use_threads=False)
    return opened(load_arrow().py_buffer(mapped), options=options)


def _record_batches(reader: Any, first: int = 0) -> Iterator[ArrowBatch]:
    """Return the record batches of an IPC file or stream, starting with number ``first``."""
    if hasattr(reader, "num_record_batches"):
        for index in range(first, reader.num_record_batches):
            yield reader.get_batch(index)
    else:
        yield from islice(reader, first, None)


def _is_mapped(batch: Any, mapped: mmap.mmap) -> bool:
    """Whether the values of a batch are in the mapped file, rather than decompressed into other memory."""
    whole = load_arrow().py_buffer(mapped)
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None and buffer.size]
    return all(whole.address <= buffer.address < whole.address + whole.size for buffer in buffers)


Table: TypeAlias = CsvTable | FilesTable


@dataclass(frozen=True, kw_only=True)
class TableFile(RowFile):
    """Scores in the columns of a table: one column of lists, or one column per class."""

    table: Table
    columns: Columns

    def blocks(self, max_bytes: int) -> Iterator[Block]:
        """Return the rows in blocks."""
        start = 0
        for batch in self.table.batches(self.columns.names, self.rows_per_block(max_bytes), max_bytes):
            scores = score_block(batch, self.columns, self.n_classes, start, self.location)
            labels = None
            if self.columns.label is not None:
                labels = label_array(batch, self.columns.label, self.n_classes, start, self.location)
            start += batch.num_rows
            del batch  # so that the table can free its memory
            yield scores, labels

    def random_access_rows(
        self, marks: tuple[FileMark, ...]
    ) -> tuple[RandomAccessRows, RandomAccessRows | None] | None:
        """Return scores and labels whose rows can be read in any order, or None if the table has no parts or large ones."""
        row_bytes, table = self.n_classes * self.dtype.itemsize, self.table
        if not isinstance(table, FilesTable):
            return None
        parts = [part for part in table.parts() or () if part.n_rows]
        if not parts or max(part.n_rows for part in parts) * row_bytes > _MOST_BYTES:
            return None
        n_samples, files = sum(part.n_rows for part in parts), table

        def rows(label: str | None, more: tuple[int, ...], dtype: Dtype) -> TableRows:
            shape = (n_samples, *more)
            return TableRows(
                location=self.location, shape=shape, dtype=dtype, part_rows=_rows_per_read(parts, rows_of_bytes(shape, dtype)),
                table=files, columns=self.columns, label=label, n_classes=self.n_classes, parts=tuple(parts),
                ends=tuple(accumulate(part.n_rows for part in parts)), marks=marks,
            )  # fmt: skip

        labels = None if self.label_form is None else rows(self.columns.label, *self.label_form)
        return rows(None, (self.n_classes,), self.dtype), labels


def open_table(table: Table, scores: str | None, labels: str | None) -> TableFile:
    """Open the scores of a table, and its labels if any; reads only the schema, and the first row if needed."""
    columns = choose_columns(table.schema, scores, labels, table.location)
    n_classes, soft = _count_classes(table, columns), columns.label_dtype
    form: LabelForm = ((), np.dtype(np.int64)) if soft is None else ((n_classes,), soft)
    return TableFile(
        location=table.location,
        n_samples=table.n_rows,
        n_classes=n_classes,
        dtype=columns.dtype,
        label_form=None if columns.label is None else form,
        class_names=None if columns.is_list else list(columns.scores),
        ignored=columns.ignored,
        table=table,
        columns=columns,
    )


def _count_classes(table: Table, columns: Columns) -> int:
    n_classes = _first_length(table, columns.scores[0]) if columns.width is None else columns.width
    if n_classes < 1:
        raise ScoresError(
            f"scores must have at least one class; the lists of {table.location} have {n_classes} numbers. "
            "Check how it was saved."
        )
    return n_classes


def _first_length(table: Table, name: str) -> int:
    for batch in table.batches([name], 1, _PEEK_BYTES):
        row = list_matrix(batch.column(name), None, 0, ScoresError, f"column {name!r} of {table.location}")
        return int(row.shape[1])
    raise ScoresError(
        f"scores must have at least one sample to determine the number of classes; {table.location} has none. "
        "Check how it was saved."
    )


@dataclass(frozen=True, kw_only=True)
class TableRows(RandomAccessRows):
    """The scores or the labels of a table with parts, readable in any order of rows."""

    table: FilesTable
    columns: Columns
    #: The column of labels, or None for the scores.
    label: str | None
    n_classes: int
    parts: tuple[Part, ...]
    #: Rows at which the parts end.
    ends: tuple[int, ...]
    marks: tuple[FileMark, ...]

    def fill(self, first: int, last: int, out: Array) -> None:
        """Read the rows from ``first`` to ``last`` into an array."""
        row = first
        while row < last:
            number = bisect_right(self.ends, row)
            end = min(last, self.ends[number])
            self._fill_from(number, row, end, out[row - first : end - first])
            row = end

    def _fill_from(self, number: int, first: int, last: int, out: Array) -> None:
        """Read rows of one part."""
        part = self.parts[number]
        mark = next(mark for mark in self.marks if mark.path == part.path)
        mark.check()
        row = self.ends[number] - part.n_rows
        rows = rows_of_bytes(self.shape, self.dtype, PART_BYTES)
        names = list(self.columns.scores) if self.label is None else [self.label]
        for batch in self.table.part_batches(part, names, rows):
            begin, end = max(first, row), min(last, row + batch.num_rows)
            if begin < end:
                values = batch.slice(begin - row, end - begin)
                if self.label is None:
                    block = score_block(values, self.columns, self.n_classes, begin, self.location)
                else:
                    block = as_signed(label_array(values, self.label, self.n_classes, begin, self.location))
                out[begin - first : end - first] = block
            row += batch.num_rows
            if row >= last:
                break
        mark.check()
        if row < last:
            raise ReadError(f"{part.path} has fewer rows than its metadata say. Write or copy it again.")


def as_signed(labels: Array) -> Array:
    """Return uint64 labels as int64, with class numbers beyond its range at its maximum; return other labels unchanged."""
    return with_unlabelled(labels, np.zeros(labels.shape, bool)) if labels.dtype == np.uint64 else labels


def _rows_per_read(parts: list[Part], rows: int) -> int:
    """Return the number of rows per read that avoids decoding most parts twice.

    Examples
    --------
    >>> _rows_per_read([Part("a", 0, 100), Part("a", 1, 100), Part("a", 2, 7)], 250)
    200
    >>> _rows_per_read([Part("a", 0, 100), Part("b", 0, 30), Part("b", 1, 100)], 50)
    100
    """
    first, last = parts[0].n_rows, parts[-1].n_rows
    if all(part.n_rows == first for part in parts[:-1]) and last <= first:
        return first * max(1, rows // first)
    return max(rows, *(part.n_rows for part in parts))
