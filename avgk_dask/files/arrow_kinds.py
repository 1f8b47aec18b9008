"""What is used of Arrow's types, columns and record batches: pyarrow tells no types of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, Self

from ..arrays import Array


class ArrowType(Protocol):
    """The type of a column; its name is its text."""

    @property
    def value_type(self) -> ArrowType:
        """Of lists: the type of what they hold."""

    @property
    def list_size(self) -> int:
        """Of lists that are all of one size: that size."""

    def to_pandas_dtype(self) -> type:
        """Return NumPy's type."""


class ArrowField(Protocol):
    """A column of a schema."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def type(self) -> ArrowType:
        """Its type."""


class ArrowSchema(Protocol):
    """The names and types of the columns of a table."""

    @property
    def names(self) -> list[str]:
        """The names, in order."""

    def field(self, name: str, /) -> ArrowField:
        """Return a column by its name."""

    def __iter__(self) -> Iterator[ArrowField]:
        """Return all columns, in order."""


class ArrowColumn(Protocol):
    """The values of a column."""

    @property
    def type(self) -> ArrowType:
        """Their type."""

    @property
    def null_count(self) -> int:
        """How many are missing."""

    @property
    def offsets(self) -> ArrowColumn:
        """Of lists of any size: where each begins, and where the last one ends."""

    def __len__(self) -> int:
        """Return how many there are."""

    def to_numpy(self, *, zero_copy_only: bool) -> Array:
        """Return them as an array; without a copy, or not at all, if that is asked for."""

    def is_null(self) -> ArrowColumn:
        """Return which are missing."""

    def drop_null(self) -> ArrowColumn:
        """Return those that are not missing."""

    def flatten(self) -> ArrowColumn:
        """Of lists: return what they hold, one after the other."""

    def validate(self, *, full: bool) -> None:
        """Raise an error for values that are damaged."""


class ArrowBatch(Protocol):
    """Some rows of a table."""

    @property
    def num_rows(self) -> int:
        """How many."""

    def column(self, name: str, /) -> ArrowColumn:
        """Return a column by its name."""

    def select(self, names: list[str], /) -> Self:
        """Return these columns only."""

    def slice(self, start: int, rows: int, /) -> Self:
        """Return some of the rows."""

    def validate(self) -> None:
        """Raise an error for rows that are damaged."""


@dataclass(frozen=True)
class Part:
    """Rows of a table that are decoded together: a row group of a Parquet file, a record batch of an Arrow file."""

    path: str
    index: int
    n_rows: int
