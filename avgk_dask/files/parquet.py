"""Parquet files, alone or as the parts of a folder."""

from __future__ import annotations

import json
import mmap
import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any

import numpy as np

from ..arrays import Array, Dtype
from ..errors import ReadError, StoreError
from ..masks import with_unlabelled
from .arrow import ArrowBatch, ArrowSchema, Columns, Part, PartedTable, TableFile, label_block, load_arrow, score_block
from .names import listed
from .rows import PART_BYTES, AnyRows, FileMark, reading, rows_of_bytes

#: The buffers of all columns together take a block's bytes, within these bounds for one column.
_LEAST_BUFFER, _MOST_BUFFER = 1 << 12, 1 << 20


class ParquetTable:
    """Parquet files one after the other, decoded in batches of rows, not in row groups.

    Beside a batch, memory holds a page of each column that is read, stored and decoded: about 2 MiB
    with pyarrow's usual pages. So a column of lists is cheap, and a thousand class columns take 2 GiB
    unless they were written in small row groups.
    """

    def __init__(self, paths: list[str], location: str) -> None:
        self.location = location
        self._paths = paths
        self._errors = (load_arrow().ArrowException, ValueError, KeyError)
        self.n_rows: int | None = 0
        self.schema: Any = None
        self._parts: list[Part] = []
        for path in paths:
            self._add(path)

    def _add(self, path: str) -> None:
        with reading(path, *self._errors), load_arrow("pyarrow.parquet").ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
            groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        self._parts += [Part(path, i, n) for i, n in enumerate(groups)]
        self.schema = schema if self.schema is None else self.schema
        check_same(schema, self.schema, path)
        self.n_rows = (self.n_rows or 0) + rows

    def batches(self, names: list[str], rows: int, max_bytes: int) -> Iterator[ArrowBatch]:
        """Return these columns in record batches of at most ``rows`` rows."""
        buffer = min(max(max_bytes // len(names), _LEAST_BUFFER), _MOST_BUFFER)
        for path in self._paths:
            with reading(path, *self._errors), self._open(path, buffer) as file:
                yield from file.iter_batches(batch_size=rows, columns=names, use_threads=False)

    def parts(self) -> list[Part]:
        """Return the row groups."""
        return self._parts

    def part_batches(self, part: Part, names: list[str], rows: int) -> Iterator[ArrowBatch]:
        """Return these columns of a row group."""
        with (
            reading(part.path, *self._errors),
            self._open(part.path, _MOST_BUFFER // len(names) + _LEAST_BUFFER) as file,
        ):
            yield from file.iter_batches(batch_size=rows, row_groups=[part.index], columns=names, use_threads=False)

    def _open(self, path: str, buffer: int) -> Any:
        # Without a buffer, or with pre-buffering, whole column chunks come to memory.
        return load_arrow("pyarrow.parquet").ParquetFile(path, buffer_size=buffer, pre_buffer=False)


def check_same(schema: ArrowSchema, first: ArrowSchema, path: str) -> None:
    """Refuse a part of a folder whose columns differ from those of the first part."""
    mine, others = ([(field.name, field.type) for field in each] for each in (schema, first))
    if mine != others:
        differing = sorted({name for name, _ in set(mine) ^ set(others)}) or ["their order"]
        raise StoreError(
            f"the files of a folder must have the same columns; {path} differs from the first in "
            f"{', '.join(differing[:5])}. Write them alike, or read them one by one."
        )


# Arrow files: IPC files and streams, Feather, and the folders of Hugging Face datasets.


_FILE_MAGIC, _FEATHER_1 = b"ARROW1", b"FEA1"


class ArrowTable:
    """Arrow files one after the other, mapped to memory, their record batches split into slices.

    What was read is given back to the system after each slice, so that the resident memory stays
    that of a slice. Compressed record batches (Feather's default) are decompressed whole, though.
    """

    def __init__(self, paths: list[str], location: str) -> None:
        self.location = location
        self._paths = paths
        self._errors = (load_arrow().ArrowException, ValueError, KeyError, EOFError)
        self.n_rows: int | None = 0
        self.schema: Any = None
        for path in paths:
            self._add(path)

    def _add(self, path: str) -> None:
        with reading(path, *self._errors):
            mapped = _map(path)
            reader = _reader(mapped)
            self.schema = reader.schema if self.schema is None else self.schema
            check_same(reader.schema, self.schema, path)
            self.n_rows = (self.n_rows or 0) + _count_rows(reader, mapped)

    def batches(self, names: list[str], rows: int, max_bytes: int) -> Iterator[ArrowBatch]:
        """Return these columns in record batches of at most ``rows`` rows."""
        for path in self._paths:
            with reading(path, *self._errors):
                mapped = _map(path)
                for batch in _record_batches(_reader(mapped)):
                    batch.validate()
                    # Naming the columns to Arrow's reader would copy the batch to memory; this keeps it mapped.
                    chosen = batch.select(names)
                    for start in range(0, batch.num_rows, rows):
                        yield chosen.slice(start, rows)
                        _release(mapped)
                    # A decompressed batch must be gone before the next one comes.
                    del batch, chosen

    def parts(self) -> list[Part] | None:
        """Return the record batches; None where they are compressed: telling their lengths takes decompressing them."""
        found = []
        for path in self._paths:
            with reading(path, *self._errors):
                mapped = _map(path)
                for index, batch in enumerate(_record_batches(_reader(mapped))):
                    if not _lies_in(batch, mapped):
                        return None
                    found.append(Part(path, index, int(batch.num_rows)))
        return found

    def part_batches(self, part: Part, names: list[str], rows: int) -> Iterator[ArrowBatch]:
        """Return these columns of a record batch; those before it in a stream are passed over."""
        with reading(part.path, *self._errors, StopIteration):
            batch = next(_record_batches(_reader(_map(part.path)), part.index))
            batch.validate()
            chosen = batch.select(names)
        for start in range(0, part.n_rows, rows):
            yield chosen.slice(start, rows)


def hub_files(folder: str) -> list[str]:
    """Return the Arrow files of a Hugging Face dataset saved to disk, or of a plain folder, in order.

    Raises
    ------
    StoreError
        For a folder of several splits, or a dataset whose rows are chosen by an index.

    """
    if os.path.exists(os.path.join(folder, "dataset_dict.json")):
        splits = [os.path.join(folder, str(name)) for name in _json(folder, "dataset_dict.json").get("splits", [])]
        raise StoreError(f"{folder} holds several splits: {listed(splits)}. Name the folder of one of them.")
    if not os.path.exists(os.path.join(folder, "state.json")):
        names = [name for name in sorted(os.listdir(folder)) if name.lower().endswith(".arrow")]
        return [os.path.join(folder, name) for name in names]
    state = _json(folder, "state.json")
    if state.get("_indices_files") or state.get("_indices_data_files"):
        raise StoreError(
            f"{folder} must hold its rows in order; it has an index of rows. Save dataset.flatten_indices() instead."
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
    # The pages are the file's own: those still needed come back from its cache.
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
    """Return the record batches of an IPC file (which has a table of them) or of a stream, from one on."""
    if hasattr(reader, "num_record_batches"):
        for index in range(first, reader.num_record_batches):
            yield reader.get_batch(index)
    else:
        yield from islice(reader, first, None)


def _lies_in(batch: Any, mapped: mmap.mmap) -> bool:
    """Return whether the values of a batch are those of the file itself: not decompressed into other memory."""
    whole = load_arrow().py_buffer(mapped)
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None and buffer.size]
    return all(whole.address <= buffer.address < whole.address + whole.size for buffer in buffers)


def _count_rows(reader: Any, mapped: mmap.mmap) -> int:
    if hasattr(reader, "count_rows"):
        return int(reader.count_rows())
    rows = 0
    for batch in _record_batches(reader):
        rows += batch.num_rows
        _release(mapped)
    return rows


# Any rows of a table: the parts they lie in, row groups or record batches, are decoded.


#: Bytes of scores that a part may have; a file of larger ones is held whole, which takes less memory.
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class TableRows(AnyRows):
    """Rows of the scores or of the labels of a table that has parts."""

    table: PartedTable
    columns: Columns
    is_label: bool
    n_classes: int
    parts: tuple[Part, ...]
    #: Rows at which the parts end.
    ends: tuple[int, ...]
    marks: tuple[FileMark, ...]

    def fill(self, first: int, last: int, out: Array) -> None:
        """Read some rows into an array."""
        at = first
        while at < last:
            number = bisect_right(self.ends, at)
            end = min(last, self.ends[number])
            self._fill_from(number, at, end, out[at - first : end - first])
            at = end

    def _fill_from(self, number: int, first: int, last: int, out: Array) -> None:
        """Read rows that lie in one part."""
        part = self.parts[number]
        mark = next(mark for mark in self.marks if mark.path == part.path)
        mark.check()
        at = self.ends[number] - part.n_rows
        rows = rows_of_bytes(self.shape, self.dtype, PART_BYTES)
        names = [self.columns.label] if self.is_label and self.columns.label else list(self.columns.scores)
        for batch in self.table.part_batches(part, names, rows):
            begin, end = max(first, at), min(last, at + batch.num_rows)
            if begin < end:
                out[begin - first : end - first] = self._values(batch.slice(begin - at, end - begin), begin)
            at += batch.num_rows
            if at >= last:
                break
        mark.check()
        if at < last:
            raise ReadError(
                f"{part.path} must have the {part.n_rows} rows that it tells of; got fewer. Write or copy it again."
            )

    def _values(self, batch: ArrowBatch, start: int) -> Array:
        if not self.is_label:
            return score_block(batch, self.columns, self.n_classes, start, self.location)
        found = label_block(batch, self.columns, self.n_classes, start, self.location)
        assert found is not None
        return in_range(found)


def in_range(labels: Array) -> Array:
    """Return labels that int64 can hold: too large a class number must be refused, and not become a negative one."""
    return with_unlabelled(labels, np.zeros(labels.shape, bool)) if labels.dtype == np.uint64 else labels


def table_rows(file: TableFile, marks: tuple[FileMark, ...]) -> tuple[TableRows, TableRows | None] | None:
    """Return the scores and labels of a table as rows that can be read in any order.

    None where they cannot: the table has no parts, or such large ones that all of it is better held at once.
    """
    table = file.table
    if not isinstance(table, (ParquetTable, ArrowTable)):
        return None
    parts = [part for part in table.parts() or () if part.n_rows]
    row_bytes = file.n_classes * file.dtype.itemsize
    if not parts or max(part.n_rows for part in parts) * row_bytes > _MOST_BYTES:
        return None
    shape = sum(part.n_rows for part in parts), file.n_classes

    def rows(shape: tuple[int, ...], dtype: Dtype, is_label: bool) -> TableRows:
        return TableRows(
            location=file.location, shape=shape, dtype=dtype, part_rows=_together(parts, rows_of_bytes(shape, dtype)),
            table=table, columns=file.columns, is_label=is_label, n_classes=file.n_classes, parts=tuple(parts),
            ends=tuple(accumulate(part.n_rows for part in parts)), marks=marks,
        )  # fmt: skip

    scores = rows(shape, file.dtype, False)
    if file.columns.label is None:
        return scores, None
    soft = file.columns.label_dtype
    return scores, rows(shape[:1], np.dtype(np.int64), True) if soft is None else rows(shape, soft, True)


def _together(parts: list[Part], rows: int) -> int:
    """Return how many rows to read together, so that no part, or few of them, are decoded twice.

    Examples
    --------
    >>> _together([Part("a", 0, 100), Part("a", 1, 100), Part("a", 2, 7)], 250)
    200
    >>> _together([Part("a", 0, 100), Part("b", 0, 30), Part("b", 1, 100)], 50)
    100

    """
    first = parts[0].n_rows
    if all(part.n_rows == first for part in parts[:-1]) and parts[-1].n_rows <= first:
        return first * max(1, rows // first)
    return max(rows, *(part.n_rows for part in parts))
