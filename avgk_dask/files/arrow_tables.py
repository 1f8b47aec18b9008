"""Tables of columns (Parquet, CSV, Arrow) as score files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from ..errors import ScoresError, StoreError
from .arrow_kinds import ArrowBatch, ArrowSchema, Part
from .matrices import label_block, list_matrix, score_block
from .row_blocks import Block, RowFile
from .table_columns import Columns, choose_columns

#: Rows asked for where only the first is looked at.
_PEEK_BYTES = 1 << 20


def load_arrow(module: str = "pyarrow") -> Any:
    """Import pyarrow or a module of it, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise StoreError(
            "Parquet, CSV and Arrow files must be read with pyarrow; it is not installed. "
            "Run: pip install 'avgk_dask[arrow]'."
        ) from error


class Table(Protocol):
    """Columns in record batches; what the formats have in common."""

    @property
    def location(self) -> str:
        """Where the table is stored."""

    @property
    def schema(self) -> ArrowSchema:
        """The Arrow schema: names and types of the columns."""

    @property
    def n_rows(self) -> int | None:
        """The number of rows, where it is known before reading."""

    def batches(self, names: list[str], rows: int, max_bytes: int) -> Iterator[ArrowBatch]:
        """Return these columns in record batches of at most ``rows`` rows, holding about ``max_bytes`` in memory."""


class PartedTable(Table, Protocol):
    """Columns in parts, of which each can be read without those before it."""

    def parts(self) -> list[Part] | None:
        """Return the parts; None where only reading all of them tells."""

    def part_batches(self, part: Part, names: list[str], rows: int) -> Iterator[ArrowBatch]:
        """Return these columns of a part, in record batches of at most ``rows`` rows."""


@dataclass(frozen=True, kw_only=True)
class TableFile(RowFile):
    """Scores in the columns of a table: one column of lists, or one column for each class."""

    table: Table
    columns: Columns

    def blocks(self, max_bytes: int) -> Iterator[Block]:
        """Return the rows in blocks."""
        start = 0
        for batch in self.table.batches(self.columns.names, self.rows_per_block(max_bytes), max_bytes):
            scores = score_block(batch, self.columns, self.n_classes, start, self.location)
            labels = label_block(batch, self.columns, self.n_classes, start, self.location)
            start += batch.num_rows
            # The table may have to free memory for its next batch.
            del batch
            yield scores, labels


def open_table(table: Table, scores: str | None, labels: str | None) -> TableFile:
    """Open the scores of a table, with labels where it has some; reads the schema, and the first row where needed."""
    columns = choose_columns(table.schema, scores, labels, table.location)
    return TableFile(
        location=table.location,
        n_samples=table.n_rows,
        n_classes=_count_classes(table, columns),
        dtype=columns.dtype,
        has_labels=columns.label is not None,
        class_names=None if columns.is_list else list(columns.scores),
        ignored=columns.ignored,
        table=table,
        columns=columns,
    )


def _count_classes(table: Table, columns: Columns) -> int:
    if not columns.is_list:
        return len(columns.scores)
    n_classes = columns.width
    if n_classes is None:
        n_classes = _first_length(table, columns.scores[0])
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
        f"scores must have at least one sample, to tell the number of classes; {table.location} has none. "
        "Check how it was saved."
    )
