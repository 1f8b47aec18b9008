"""CSV files, plain or compressed with gzip."""

from __future__ import annotations

import csv
import gzip
import math
import re
import zlib
from collections.abc import Iterator
from decimal import Decimal

import numpy as np

from ..arrays import Array
from ..errors import LabelsError, ScoresError
from .columns import ArrowBatch, load_arrow, mixed_columns
from .rows import LABEL_NAMES, OTHER_LABEL_NAMES, find_name, reading

#: Longest line that is read: a million classes of 64 characters each.
_LONGEST_LINE = 1 << 26
#: Text is parsed in blocks of at least the first size (a line must fit) and usually at most the second.
_LEAST_TEXT, _MOST_TEXT = 1 << 20, 1 << 24
_CONVERSION = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to \w+: (.*)")


class CsvTable:
    """A CSV file: the labels are int64, all other columns float64.

    The first line is a header unless all of its fields are numbers. Without a header the columns are
    called ``f0``, ``f1`` and so on. Every score is read as the float64 nearest to its text; integers that
    float64 cannot represent raise an error. ``nan`` and ``inf`` are numbers; an empty field is a missing value.
    """

    def __init__(self, path: str, labels: str | None) -> None:
        self.location = path
        arrow = load_arrow()
        self._errors = (arrow.ArrowException, ValueError, EOFError, zlib.error)
        with reading(path, *self._errors, csv.Error):
            first, second = _first_lines(path)
        self._has_header = not all(map(_is_number, first))
        self._names = [*first] if self._has_header else [f"f{index}" for index in range(len(first))]
        self._second = second
        self._longest = max(sum(map(len, line)) + len(line) for line in (first, second))
        self._is_empty = self._has_header and not second
        self.n_rows = 0 if self._is_empty else None
        self._check_header(first)
        self._label = self._label_name(labels)
        self.schema = arrow.schema(
            [(name, arrow.int64() if name == self._label else arrow.float64()) for name in self._names]
        )

    def _label_name(self, labels: str | None) -> str | None:
        if labels is not None:
            return find_name(labels, self._names, "column", self.location)
        usual = next((name for name in LABEL_NAMES if name in self._names), None)
        return self._other_label() if usual is None else usual

    def _other_label(self) -> str | None:
        """Return the column with another usual name for labels, if it alone begins with an integer."""
        whole = {name: _is_whole(field) for name, field in zip(self._names, self._second, strict=False)}
        candidates = [name for name in OTHER_LABEL_NAMES if whole.get(name)]
        return candidates[0] if len(candidates) == 1 and sum(whole.values()) == 1 < len(whole) else None

    def _check_header(self, first: list[str]) -> None:
        if "" in self._names:
            raise ScoresError(
                f"every column must have a name; column {self._names.index('') + 1} of {self.location} has none. "
                "If it is the index of a pandas frame, save with index=False; otherwise name it."
            )
        is_range = len(first) > 2 and first == [str(index) for index in range(len(first))]
        # Distinct integers above a line with fractions are class numbers, or the name that pandas gives a single column.
        is_distinct = len(first) > 1 and len(set(first)) == len(first) and all(map(_is_whole, first))
        if is_range or (is_distinct and not all(_is_whole(field) for field in self._second)):
            raise ScoresError(
                f"the first line of {self.location} is ambiguous: {', '.join(first[:3])}, ... may be names or scores. "
                "Name the columns (c0,c1,...), or write scores as 0.0,1.0,..."
            )

    def check_numbers(self) -> None:
        """Refuse a column, other than the labels, that does not begin with a number."""
        for name, field in zip(self._names, self._second, strict=False):
            if name != self._label and field and not _is_number(field):
                raise ScoresError(
                    f"scores must be numbers; column {name!r} of {self.location} has {field[:40]!r}. "
                    "Drop the column, or name it if it holds the labels."
                )

    def batches(self, names: list[str], rows: int, max_bytes: int) -> Iterator[ArrowBatch]:
        """Return these columns in record batches of at most ``rows`` rows."""
        if self._is_empty:
            return
        scores = [name for name in names if name != self._label]
        integers = dict.fromkeys(scores, False)  # columns of integers so far: whether one is not 0
        is_checked = False
        with reading(self.location, *self._errors):
            try:
                for batch in self._open(names, max_bytes):
                    for name in scores:
                        values = np.asarray(batch.column(name).to_numpy(zero_copy_only=False), np.float64)
                        if not is_checked and (np.abs(values) >= 2.0**53).any():
                            self._refuse_lost_digits(scores, max_bytes)  # checks all columns, in one more read
                            is_checked = True
                        if name in integers and _has_fractions(values):
                            del integers[name]
                        elif name in integers:
                            integers[name] |= bool(values.any())
                    for start in range(0, batch.num_rows, rows):
                        yield batch.slice(start, rows)
            except load_arrow().ArrowInvalid as error:
                raise self._conversion_error(error) from error
        # Columns written without a point among fractional ones are probably numbers of groups or samples.
        written = dict(zip(self._names, self._second, strict=False))
        numbers = [name for name, is_nonzero in integers.items() if is_nonzero and _is_whole(written.get(name, ""))]
        if numbers and len(integers) < len(scores):
            raise ScoresError(mixed_columns(numbers, self.location) + " Write scores with a point (1.0).")

    def _refuse_lost_digits(self, names: list[str], max_bytes: int) -> None:
        """Read the text of columns with values from 2**53 on; refuse integers that float64 cannot represent."""
        row = 1 + int(self._has_header)
        for batch in self._open(names, max_bytes, as_text=True):
            columns = {name: batch.column(name).to_numpy(zero_copy_only=False).tolist() for name in names}
            lost = [(i, name) for name, texts in columns.items() for i, text in enumerate(texts) if _loses_digits(text)]
            if lost:
                i, name = min(lost)
                raise ScoresError(
                    f"scores are read as float64, which cannot represent all integers beyond 2**53; line {row + i}, column "
                    f"{name!r} of {self.location} has {columns[name][i].strip()[:40]}. Save integers as .npy or Parquet, or "
                    "write them with a point (.0) to get the nearest float64."
                )
            row += batch.num_rows

    def _open(self, names: list[str], max_bytes: int, *, as_text: bool = False) -> Iterator[ArrowBatch]:
        text = load_arrow("pyarrow.csv")
        types = {name: load_arrow().string() for name in names} if as_text else self.schema
        # A number has at least two bytes of text and becomes eight, so that text grows fourfold at most.
        size = max(min(max_bytes // 4, _MOST_TEXT), _LEAST_TEXT, 64 * len(self._names), 4 * self._longest)
        batches: Iterator[ArrowBatch] = text.open_csv(
            self.location,
            read_options=text.ReadOptions(
                use_threads=False,
                block_size=min(size, 2**31 - 1),
                column_names=self._names,
                skip_rows=int(self._has_header),
            ),
            convert_options=text.ConvertOptions(
                column_types=types, include_columns=names, null_values=[""], check_utf8=False
            ),
        )
        return batches

    def _conversion_error(self, error: Exception) -> Exception:
        match = _CONVERSION.search(str(error))
        if match is None:
            return error
        name = self._names[int(match[1])]
        line = f"line {match[2]}, " if match[2] else ""
        if name == self._label:
            return LabelsError(
                f"labels must be integers; {line}column {name!r} of {self.location} has an {match[3]}. Correct it."
            )
        return ScoresError(
            f"scores must be numbers; {line}column {name!r} of {self.location} has an {match[3]}. "
            "Correct it, drop the column, or name it if it holds the labels."
        )


def _has_fractions(values: Array) -> bool:
    with np.errstate(invalid="ignore"):
        return bool((values != np.floor(values)).any()) or not np.isfinite(values).all()


def _loses_digits(text: str) -> bool:
    """Whether a text is an integer that float64 cannot represent.

    Examples
    --------
    >>> [_loses_digits(text) for text in ("9007199254740993", "9007199254740992", "9007199254740993.0", "1e300", "9" * 400)]
    [True, False, False, False, True]
    """
    if len(text) < 16 or not _is_whole(text):
        return False
    nearest = float(text)
    return math.isinf(nearest) or Decimal(text) != Decimal(nearest)


def _first_lines(path: str) -> tuple[list[str], list[str]]:
    """Return the fields of the first two lines; no fields for a line that does not exist."""
    with gzip.open(path) if path.lower().endswith(".gz") else open(path, "rb") as stream:
        lines = [stream.readline(_LONGEST_LINE) for _ in range(2)]
    if not lines[0].strip():
        raise ValueError("its first line is empty")
    if any(len(line) == _LONGEST_LINE for line in lines):
        raise ValueError(f"its lines are longer than {_LONGEST_LINE} bytes")
    first, second = (next(csv.reader([line.decode("utf-8-sig").rstrip("\r\n")]), []) for line in lines)
    return first, second


def _is_whole(field: str) -> bool:
    return re.fullmatch(r"\s*[+-]?\d+\s*", field) is not None


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return "_" not in field
