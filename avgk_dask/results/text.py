"""Lay out text for a width: tables that lose their least important columns, and sentences wrapped at words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from html import escape

from ..errors import clean, visible

#: Escape sequences of the tones of text.
_TONES = {"strong": "\x1b[1m", "good": "\x1b[32m", "bad": "\x1b[31m", "aside": "\x1b[2m"}
_GAP = "  "
#: Width of user-defined names below which other columns are left out; minimum width; maximum width in lines of any length.
_NAME_WIDTH, _LEAST_NAME, _MOST_NAME = 16, 8, 400
#: A number with its standard error and unit, ``k = 5``, or a word: never broken across lines.
_UNBROKEN = re.compile(r"k [=+] \S+|\S+ ±\S+ (?:%|points)\S*|\S+ (?:%|±\S+|points|kB|MB|GB|TB)(?![\w%])\S*|\S+")


@dataclass(frozen=True)
class Table:
    """A header and rows of visible text, with hints for narrow terminals and for colours."""

    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    #: Columns that may be left out, the least important first.
    least: tuple[str, ...] = ()
    #: Columns of user-defined names, which may be cut.
    names: tuple[str, ...] = ()
    #: Tones of cells by row and column.
    tones: dict[tuple[int, str], str] = field(default_factory=dict)
    #: Meaning of columns whose header does not explain itself.
    legend: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        header, names = (tuple(map(visible, cells)) for cells in (self.header, self.names))
        rows = [tuple(map(visible, row)) for row in self.rows]
        for name, value in (("header", header), ("names", names), ("rows", rows)):
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Screen:
    """The maximum length of lines, None for any, and whether text has colours."""

    width: int | None = None
    colour: bool = False

    def table(self, table: Table) -> list[str]:
        """Return a table as lines with aligned columns, and a line that names the columns left out.

        If even the indispensable columns do not fit side by side, each row becomes a wrapped sentence.
        """
        shown, lost = fit_table(drop_empty_columns(table), self.width)
        widths = _widths(shown)
        if self.width is None or _total(widths) <= self.width:
            lines = [self._line(shown, i, row, widths) for i, row in enumerate([shown.header, *shown.rows], -1)]
        else:
            rows = (zip(shown.header, row, strict=True) for row in shown.rows)
            lines = [line for row in rows for line in self.text(", ".join(map(" ".join, row)), indent=2)]
        if not lost:
            return lines
        return [*lines, *self.text(f"left out: {', '.join(lost)}; use a wider terminal or --json", "aside")]

    def page(self, table: Table | None, sentences: Sequence[str], strong: int | None = 0) -> str:
        """Return a table, sentences of which one is strong, and the legend of the columns shown."""
        above = [] if table is None else self.table(table)
        below = [line for i, one in enumerate(sentences) for line in self.text(one, "strong" if i == strong else "")]
        if table is not None:
            header = fit_table(drop_empty_columns(table), self.width)[0].header
            legend = "; ".join(f"{name}: {meaning}" for name, meaning in table.legend.items() if name in header)
            below += self.text(f"{legend}.", "aside") if legend else []
        return "\n".join([*above, *([""] if above and below else []), *below])

    def _line(self, table: Table, number: int, row: tuple[str, ...], widths: list[int]) -> str:
        cells = []
        for name, cell, width in zip(table.header, row, widths, strict=True):
            tone = "strong" if number < 0 else table.tones.get((number, name), "")
            cells.append(" " * (width - display_width(cell)) + self.paint(cell, tone))
        return _GAP.join(cells).rstrip()

    def text(self, sentence: str, tone: str = "", indent: int = 0) -> list[str]:
        """Return a sentence as lines wrapped at words, all but the first indented."""
        return [self.paint(line, tone) for line in wrap(sentence, self.width, indent)]

    def paint(self, text: str, tone: str) -> str:
        """Return a text in a tone: ``strong``, ``good``, ``bad``, ``aside``, or empty for none."""
        return f"{_TONES[tone]}{text}\x1b[0m" if self.colour and tone and text else text


def drop_empty_columns(table: Table) -> Table:
    """Return a table without the columns in which all cells are empty.

    Examples
    --------
    >>> drop_empty_columns(Table(("k", "gain"), [("1", ""), ("2", "")]))
    Table(header=('k',), rows=[('1',), ('2',)], least=(), names=(), tones={})
    """
    return _without(
        table, {name for c, name in enumerate(table.header) if table.rows and not any(row[c] for row in table.rows)}
    )


def fit_table(table: Table, width: int | None) -> tuple[Table, list[str]]:
    """Return the table that fits a width, and the columns left out of it, in their order.

    Columns go in the order of ``table.least``. User-defined names are cut to 16 columns before any goes, and to 8 once all
    have gone. The rest stays, however wide.

    Examples
    --------
    >>> table = Table(("k", "gain", "ties"), [("1", "+3.0 ±0.1 %", "1,000")], least=("ties",))
    >>> fit_table(table, 16)
    (Table(header=('k', 'gain'), rows=[('1', '+3.0 ±0.1 %')], least=('ties',), names=(), tones={}), ['ties'])
    """
    if width is None:
        return _shorten_names(table, _MOST_NAME), []
    removable = [name for name in table.least if name in table.header]
    for n in range(len(removable) + 1):
        lost = set(removable[:n])
        left = _without(table, lost)
        widths = list(zip(left.header, _widths(left), strict=True))
        names = [wide for name, wide in widths if name in left.names]
        others = _total([0 if name in left.names else wide for name, wide in widths])
        room = (width - others) // max(len(names), 1)  # negative if even the other columns do not fit
        if room >= min(_NAME_WIDTH, max(names, default=0)):
            break
    return _shorten_names(left, max(room, _LEAST_NAME)), [name for name in table.header if name in lost]


def _without(table: Table, names: set[str]) -> Table:
    """Return a table without some columns."""
    left = [c for c, name in enumerate(table.header) if name not in names]
    header, *rows = (tuple(row[c] for c in left) for row in (table.header, *table.rows))
    return replace(table, header=header, rows=rows)


def _widths(table: Table) -> list[int]:
    return [max(map(display_width, column)) for column in zip(table.header, *table.rows, strict=True)]


def _total(widths: list[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _shorten_names(table: Table, width: int) -> Table:
    """Return a table with user-defined names, and their headers, cut to a width."""
    is_name = [name in table.names for name in table.header]
    header, *rows = (
        tuple(shorten(cell, width) if cut else cell for cell, cut in zip(row, is_name, strict=True))
        for row in (table.header, *table.rows)
    )
    return replace(table, header=header, rows=rows)


def display_width(text: str) -> int:
    """Return the columns of a terminal that a text takes: two for wide East Asian characters, none for combining marks.

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


def shorten(text: str, width: int) -> str:
    """Cut a text to a width with an ellipsis in its middle, because names often differ only at their ends.

    Examples
    --------
    >>> shorten("Ursus maritimus", 9), shorten("bear", 9)
    ('Ursu…imus', 'bear')
    """
    if display_width(text) <= width:
        return text
    tail = _head(text[::-1], (width - 1) // 2)[::-1]
    return f"{_head(text, width - 1 - display_width(tail))}…{tail}"


def _head(text: str, width: int) -> str:
    """Return the leading characters that fit a width."""
    taken = 0
    for i, character in enumerate(text):
        taken += _columns(character)
        if taken > width:
            return text[:i]
    return text


def wrap(text: str, width: int | None, indent: int = 0) -> list[str]:
    """Return a text as visible lines that fit a width; units stay with their numbers, and paths stay whole to be copied.

    Examples
    --------
    >>> wrap("an error of 5.94 ±0.33 % at k = 5", 20, indent=2)
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
    """Break a word, or a group of words, into pieces that fit a width, except for paths."""
    if display_width(word) > width and " " in word:
        return [piece for part in word.split() for piece in _pieces(part, width)]
    pieces = []
    while display_width(word) > width and "/" not in word:
        piece = _head(word, width) or word[:1]
        pieces.append(piece)
        word = word[len(piece) :]
    return [*pieces, word]


#: Longer values are cut.
_MOST = 300


class ShownAsTable:
    """A dataclass that a notebook shows as a table of its fields, with all text escaped."""

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(field.name)}</th>"
            f"<td style='text-align:left'>{_html(getattr(self, field.name))}</td></tr>"
            for field in fields(self)  # type: ignore[arg-type]
        )
        return f"<table><caption>{escape(type(self).__name__)}</caption><tbody>{rows}</tbody></table>"


def _html(value: object) -> str:
    if isinstance(value, ShownAsTable):
        return value._repr_html_()
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return escape(visible(text if len(text) <= _MOST else f"{text[:_MOST]} …"))
