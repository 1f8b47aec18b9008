"""Text that fits a width: tables without their least important columns, and sentences wrapped at words. Lines out, nothing else."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from html import escape

from ..errors import clean, visible

#: How tones of text are shown where there is colour.
_TONES = {"strong": "\x1b[1m", "good": "\x1b[32m", "bad": "\x1b[31m", "aside": "\x1b[2m"}
_GAP = "  "
#: Columns of users' names are cut to no less than this while others can be left out, and to no less than that ever.
_NAME_WIDTH, _LEAST_NAME = 16, 8
#: Their width at most if lines may have any width.
_MOST_NAME = 400
#: What stays together where lines are wrapped: a number with its error bar and unit, ``k = 5``, or else a word.
_UNBROKEN = re.compile(r"k [=+] \S+|\S+ ±\S+ (?:%|points)\S*|\S+ (?:%|±\S+|points|kB|MB|GB|TB)(?![\w%])\S*|\S+")


@dataclass(frozen=True)
class Table:
    """A header and rows of visible text, and what to do where there is little room or some colour."""

    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    #: Columns that may be left out, the least important first.
    least: tuple[str, ...] = ()
    #: Columns of users' names, which may be cut.
    names: tuple[str, ...] = ()
    #: What cells mean, by row and column: good, bad, or strong.
    tones: dict[tuple[int, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        header, names = (tuple(map(visible, cells)) for cells in (self.header, self.names))
        rows = [tuple(map(visible, row)) for row in self.rows]
        for name, value in (("header", header), ("names", names), ("rows", rows)):
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Screen:
    """What text is laid out for: so many columns, or any number with None; with colours or without."""

    width: int | None = None
    colour: bool = False

    def table(self, table: Table) -> list[str]:
        """Return a table as lines with aligned columns, and a line that says what was left out to fit.

        Where even the columns that must stay do not fit side by side, a row is one wrapped sentence.
        """
        shown, lost = fitted(filled(table), self.width)
        widths = _widths(shown)
        if self.width is None or _total(widths) <= self.width:
            lines = [self._line(shown, i, row, widths) for i, row in enumerate([shown.header, *shown.rows], -1)]
        else:
            told = (zip(shown.header, row, strict=True) for row in shown.rows)
            lines = [line for row in told for line in self.text(", ".join(map(" ".join, row)), indent=2)]
        if not lost:
            return lines
        said = f"left out: {', '.join(lost)}; use a wider terminal or --json"
        return [*lines, *self.text(said, "aside")]

    def page(self, table: Table | None, sentences: Sequence[str], strong: int | None = 0) -> str:
        """Return a table, and sentences below it, as text; one of them is strong."""
        lines = [] if table is None else [*self.table(table), ""]
        for i, sentence in enumerate(sentences):
            lines += self.text(sentence, "strong" if i == strong else "")
        return "\n".join(lines)

    def _line(self, table: Table, number: int, row: tuple[str, ...], widths: list[int]) -> str:
        cells = []
        for name, cell, width in zip(table.header, row, widths, strict=True):
            tone = "strong" if number < 0 else table.tones.get((number, name), "")
            cells.append(" " * (width - display_width(cell)) + self.painted(cell, tone))
        return _GAP.join(cells).rstrip()

    def text(self, sentence: str, tone: str = "", indent: int = 0) -> list[str]:
        """Return a sentence as lines wrapped at words, all but the first of them indented."""
        return [self.painted(line, tone) for line in wrapped(sentence, self.width, indent)]

    def painted(self, text: str, tone: str) -> str:
        """Return a text in a tone: ``strong``, ``good``, ``bad``, ``aside``, or none."""
        return f"{_TONES[tone]}{text}\x1b[0m" if self.colour and tone and text else text


def filled(table: Table) -> Table:
    """Return a table without the columns in which all cells are empty.

    Examples
    --------
    >>> filled(Table(("k", "gain"), [("1", ""), ("2", "")]))
    Table(header=('k',), rows=[('1',), ('2',)], least=(), names=(), tones={})

    """
    empty = {name for c, name in enumerate(table.header) if table.rows and not any(row[c] for row in table.rows)}
    return _without(table, empty)


def fitted(table: Table, width: int | None) -> tuple[Table, list[str]]:
    """Return the table that fits a width, and the columns left out of it, in their order.

    Columns go as ``table.least`` has them. Names of users are cut to 16 columns before any goes, and to 8 once none can go
    any more. What is left then stays, however wide.

    Examples
    --------
    >>> table = Table(("k", "gain", "ties"), [("1", "+3.0 ±0.1 %", "1,000")], least=("ties",))
    >>> fitted(table, 16)
    (Table(header=('k', 'gain'), rows=[('1', '+3.0 ±0.1 %')], least=('ties',), names=(), tones={}), ['ties'])

    """
    if width is None:
        return _with_names(table, _MOST_NAME), []
    there = [name for name in table.least if name in table.header]
    for n in range(len(there) + 1):
        lost = set(there[:n])
        left = _without(table, lost)
        room, widest = _name_widths(left, width)
        if room >= min(_NAME_WIDTH, widest):
            break
    return _with_names(left, max(room, _LEAST_NAME)), [name for name in table.header if name in lost]


def _without(table: Table, names: set[str]) -> Table:
    """Return a table without some columns."""
    mine = [c for c, name in enumerate(table.header) if name not in names]
    header, *rows = (tuple(row[c] for c in mine) for row in (table.header, *table.rows))
    return replace(table, header=header, rows=rows)


def _name_widths(table: Table, width: int) -> tuple[int, int]:
    """Return how wide columns of users' names may be, less than 0 where even the others do not fit; and the widest name."""
    widths = list(zip(table.header, _widths(table), strict=True))
    named = [wide for name, wide in widths if name in table.names]
    fixed = _total([0 if name in table.names else wide for name, wide in widths])
    return (width - fixed) // max(len(named), 1), max(named, default=0)


def _widths(table: Table) -> list[int]:
    """Return how wide each column is."""
    return [max(map(display_width, column)) for column in zip(table.header, *table.rows, strict=True)]


def _total(widths: list[int]) -> int:
    """Return how long the lines of columns so wide are."""
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _with_names(table: Table, width: int) -> Table:
    """Return a table whose names of users, and their headers, are cut to a width."""
    named = [name in table.names for name in table.header]
    header, *rows = (
        tuple(shortened(cell, width) if is_name else cell for cell, is_name in zip(row, named, strict=True))
        for row in (table.header, *table.rows)
    )
    return replace(table, header=header, rows=rows)


def display_width(text: str) -> int:
    """Return how many columns of a terminal a text takes: two for wide East Asian characters, none for combining marks.

    Examples
    --------
    >>> display_width("cat"), display_width("猫"), display_width("e" + chr(0x301))
    (3, 2, 1)

    """
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shortened(text: str, width: int) -> str:
    """Return a text cut to a width, with an ellipsis in its middle where something is missing: ends tell names apart, too.

    Examples
    --------
    >>> shortened("Ursus maritimus", 9), shortened("bear", 9)
    ('Ursu…imus', 'bear')

    """
    if display_width(text) <= width:
        return text
    tail = _head(text[::-1], (width - 1) // 2)[::-1]
    return f"{_head(text, width - 1 - display_width(tail))}…{tail}"


def _head(text: str, width: int) -> str:
    """Return as many of the first characters as fit a width."""
    taken = 0
    for i, character in enumerate(text):
        taken += _columns(character)
        if taken > width:
            return text[:i]
    return text


def wrapped(text: str, width: int | None, indent: int = 0) -> list[str]:
    """Return a text as visible lines that fit a width; a number stays with its unit, and a path, which is there to be copied, whole.

    Examples
    --------
    >>> wrapped("an error of 5.94 ±0.33 % at k = 5", 20, indent=2)
    ['an error of', '  5.94 ±0.33 % at', '  k = 5']

    """
    text = clean(text)
    if width is None:
        return [text]
    lines = [""]
    for word in _UNBROKEN.findall(text):
        for piece in _pieces(word, max(width - indent, 1)):
            longer = f"{lines[-1]} {piece}"
            if not lines[-1]:
                lines[-1] = piece
            elif display_width(longer) <= width:
                lines[-1] = longer
            else:
                lines.append(" " * indent + piece)
    return lines


def _pieces(word: str, width: int) -> list[str]:
    """Return a word, or several that stay together, in pieces that fit a width; what looks like a path, whole."""
    if display_width(word) > width and " " in word:
        return [piece for part in word.split() for piece in _pieces(part, width)]
    pieces = []
    while display_width(word) > width and "/" not in word:
        piece = _head(word, width) or word[:1]
        pieces.append(piece)
        word = word[len(piece) :]
    return [*pieces, word]


#: Longer values are shortened where they are shown.
_MOST = 300


class ShownAsTable:
    """A dataclass that a notebook shows as a table of its fields; what users named is escaped."""

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(field.name)}</th>"
            f"<td style='text-align:left'>{_shown(getattr(self, field.name))}</td></tr>"
            for field in fields(self)  # type: ignore[arg-type]
        )
        return f"<table><caption>{escape(type(self).__name__)}</caption><tbody>{rows}</tbody></table>"


def _shown(value: object) -> str:
    if isinstance(value, ShownAsTable):
        return value._repr_html_()
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return escape(visible(text if len(text) <= _MOST else f"{text[:_MOST]} …"))
