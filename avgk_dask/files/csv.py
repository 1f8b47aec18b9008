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

from ..errors import LabelsError, ScoresError
from .columns import ArrowBatch, load_arrow
from .rows import LABEL_NAMES, OTHER_LABEL_NAMES, find_name, listed, reading
from .tables import Table

#: Longest line that is read: a million classes of 64 characters each.
_LONGEST_LINE = 1 << 26
#: Text is parsed in blocks of at least the first size (a line must fit) and, where lines allow, at most the second.
_LEAST_TEXT, _MOST_TEXT = 1 << 20, 1 << 24
_CONVERSION = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to \w+: (.*)")


class CsvTable(Table):
    """A CSV file: every column but the labels is float64, the labels are int64.

    The first line is a header unless all of its fields are numbers. Without one the columns are
    called ``f0``, ``f1`` and so on. Every score is read as the float64 nearest to its text; integers that
    float64 does not hold are refused. ``nan`` and ``inf`` are numbers; an empty field is a missing one.
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
        """Return the column with another usual name for labels that begins with an integer, where others do not."""
        whole = {name: _is_whole(field) for name, field in zip(self._names, self._second, strict=False)}
        found = [name for name in OTHER_LABEL_NAMES if whole.get(name)]
        return found[0] if len(found) == 1 and sum(whole.values()) == 1 < len(whole) else None

    def _check_header(self, first: list[str]) -> None:
        if "" in self._names:
            raise ScoresError(
                f"every column must have a name; column {self._names.index('') + 1} of {self.location} has none. "
                "If it is the index of a pandas frame, save with index=False; else name it."
            )
        counts = len(first) > 2 and first == [str(index) for index in range(len(first))]
        # Different integers above a line with fractions are class numbers, or the name that pandas gives a lone column.
        differ = len(first) > 1 and len(set(first)) == len(first) and all(map(_is_whole, first))
        if counts or (differ and not all(_is_whole(field) for field in self._second)):
            raise ScoresError(
                f"the first line must be names or scores; that of {self.location} is {', '.join(first[:3])}, ... and may be either. "
                "Name the columns (c0,c1,...), or write scores as 0.0,1.0,..."
            )

    def check_numbers(self) -> None:
        """Refuse a column that is not the labels' and does not begin with a number."""
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
        whole, is_exact = _WholeColumns([*scores]), False
        with reading(self.location, *self._errors):
            try:
                for batch in self._open(names, max_bytes):
                    whole.look(batch)
                    if not is_exact and any(_has_large(batch, name) for name in scores):
                        self._refuse_lost_digits(scores, max_bytes)  # of all columns, in one more read
                        is_exact = True
                    for start in range(0, batch.num_rows, rows):
                        yield batch.slice(start, rows)
                self._refuse_numbers_of_groups(whole)
            except load_arrow().ArrowInvalid as error:
                raise self._refusal(error) from error

    def _refuse_numbers_of_groups(self, found: _WholeColumns) -> None:
        """Refuse columns of integers, written without a point, among fractional ones: numbers of groups or samples, most likely."""
        written = dict(zip(self._names, self._second, strict=False))
        whole = [name for name in found.whole if _is_whole(written.get(name, ""))]
        if whole and found.has_fractions:
            raise ScoresError(
                f"columns of scores must all be fractional numbers or all integers; {listed(whole)} of {self.location} "
                f"{'is' if len(whole) == 1 else 'are'} integers among others. Name the labels, and drop what is no score; "
                "write scores with a point (1.0)."
            )

    def _refuse_lost_digits(self, names: list[str], max_bytes: int) -> None:
        """Read the text of columns that have values from 2**53 on; refuse integers that float64 does not hold."""
        row = 1 + int(self._has_header)
        for batch in self._open(names, max_bytes, as_text=True):
            columns = {name: batch.column(name).to_numpy(zero_copy_only=False).tolist() for name in names}
            lost = [(i, name) for name, texts in columns.items() for i, text in enumerate(texts) if _loses_digits(text)]
            if lost:
                i, name = min(lost)
                raise ScoresError(
                    f"scores are read as float64, which does not hold all integers beyond 2**53; line {row + i}, column "
                    f"{name!r} of {self.location} has {columns[name][i].strip()[:40]}. Save integers as .npy or Parquet, or "
                    "write them with a point (.0) to have the nearest float64."
                )
            row += batch.num_rows

    def _open(self, names: list[str], max_bytes: int, *, as_text: bool = False) -> Iterator[ArrowBatch]:
        text = load_arrow("pyarrow.csv")
        types = {name: load_arrow().string() for name in names} if as_text else self.schema
        # A number has at least two bytes of text and becomes eight, so that text grows fourfold at most.
        size = max(min(max_bytes // 4, _MOST_TEXT), _LEAST_TEXT, 64 * len(self._names), 4 * self._longest)
        found: Iterator[ArrowBatch] = text.open_csv(
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
        return found

    def _refusal(self, error: Exception) -> Exception:
        found = _CONVERSION.search(str(error))
        if found is None:
            return error
        name = self._names[int(found[1])]
        line = f"line {found[2]}, " if found[2] else ""
        if name == self._label:
            return LabelsError(
                f"labels must be integers; {line}column {name!r} of {self.location} has an {found[3]}. Correct it."
            )
        return ScoresError(
            f"scores must be numbers; {line}column {name!r} of {self.location} has an {found[3]}. "
            "Correct it, drop the column, or name it if it holds the labels."
        )


class _WholeColumns:
    """Which columns hold nothing but integers, not all of them 0, as far as they were looked at; and whether others do not."""

    def __init__(self, names: list[str]) -> None:
        self._names, self._nonzero, self.has_fractions = dict.fromkeys(names), set[str](), False

    @property
    def whole(self) -> list[str]:
        """The columns of integers."""
        return [name for name in self._names if name in self._nonzero]

    def look(self, batch: ArrowBatch) -> None:
        """Look at more rows."""
        for name in list(self._names):
            values = np.asarray(batch.column(name).to_numpy(zero_copy_only=False), np.float64)
            with np.errstate(invalid="ignore"):
                fractional = bool((values != np.floor(values)).any()) or not np.isfinite(values).all()
            if fractional:
                self.has_fractions = True
                del self._names[name]
            elif values.any():
                self._nonzero.add(name)


def _has_large(batch: ArrowBatch, name: str) -> bool:
    """Return whether a column has values among which floats do not hold all integers."""
    values = np.asarray(batch.column(name).to_numpy(zero_copy_only=False), np.float64)
    return bool((np.abs(values) >= 2.0**53).any())


def _loses_digits(text: str) -> bool:
    """Return whether a text is an integer that float64 does not hold.

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
    """Return the fields of the first two lines; the second is empty if there is only one line."""
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
