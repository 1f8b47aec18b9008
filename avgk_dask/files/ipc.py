"""Arrow files: IPC files and streams, Feather, and the folders of Hugging Face datasets."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ..errors import StoreError
from .arrow_kinds import ArrowBatch, Part
from .arrow_tables import load_arrow
from .names import listed
from .parquet import check_same
from .row_blocks import reading

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
