"""Parquet files, alone or as the parts of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import StoreError
from .arrow_kinds import ArrowBatch, ArrowSchema, Part
from .arrow_tables import load_arrow
from .row_blocks import reading

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
