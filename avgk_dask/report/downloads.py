"""What a page shows of much: some budgets of many, some rows of a table, the beginning of a long text."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from ..errors import visible
from ..results.datasets import are_probabilities
from .tables import Table, size_quartiles

#: Budgets that tables and pictures of a page show at most.
MOST_BUDGETS = 100
#: Rows that a table may have before it is folded, and how many then stay in sight.
MOST_OPEN, IN_SIGHT = 15, 8
#: Characters that a page shows of one text, and texts that users may add.
MOST_CHARACTERS, MOST_FACTS = 2_000, 40
#: Characters of a name in a table.
MOST_NAME = 100


def places(n: int, most: int, keep: int | None = None) -> list[int]:
    """Return which of n to show where they are too many: evenly spaced ones, the first and the last, and one to keep.

    Examples
    --------
    >>> places(3, 5), places(100, 4), places(100, 4, keep=5)
    ([0, 1, 2], [0, 33, 66, 99], [0, 5, 33, 66, 99])

    """
    if n <= most:
        return list(range(n))
    spaced = np.linspace(0, n - 1, most).round().astype(int).tolist()
    return sorted({*spaced, *([] if keep is None else [keep])})


def spaced(result: xr.Dataset, keep: float | None = None, most: int = MOST_BUDGETS) -> xr.Dataset:
    """Return a result with so many of its budgets at most, and one to keep."""
    kept = None if keep is None else int(np.flatnonzero(result.k.values == keep)[0])
    return result.isel(k=places(result.sizes["k"], most, kept))


def in_sight(table: Table, keep: str | None = None) -> Table | None:
    """Return a few rows of a long table, among them those that begin with a text to keep; nothing of a short one."""
    if len(table.rows) <= MOST_OPEN:
        return None
    kept = [i for i, row in enumerate(table.rows) if row[0] == keep]
    return Table(table.header, [table.rows[i] for i in places(len(table.rows), IN_SIGHT, kept[0] if kept else None)])


def columns(table: Table, names: Sequence[str]) -> Table:
    """Return some columns of a table, in this order.

    Examples
    --------
    >>> found = columns(Table(("k", "error", "gain"), [("1", "5 %", "1 %")]), ("gain", "k"))
    >>> found.header, found.rows
    (('gain', 'k'), [('1 %', '1')])

    """
    found = [table.header.index(name) for name in names if name in table.header]
    return Table(tuple(table.header[c] for c in found), [tuple(row[c] for c in found) for row in table.rows])


def clipped(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return the beginning of a text that is too long to show, and how long it is.

    Examples
    --------
    >>> clipped("abc"), clipped("abcdef", 3)
    ('abc', 'abc … (6 characters)')

    """
    return text if len(text) <= most else f"{text[:most]} … ({len(text):,} characters)"


def clipped_cells(table: Table, most: int = MOST_NAME) -> Table:
    """Return a table in which no cell is longer than the name of a class should be."""
    return Table(table.header, [tuple(clipped(cell, most) for cell in row) for row in table.rows])


def first_rows(table: Table | None) -> Table | None:
    """Return the first rows of a long table, which are the worst; nothing of a short one."""
    return None if table is None or len(table.rows) <= MOST_OPEN else Table(table.header, table.rows[:MOST_OPEN])


# The numbers of a page as files inside it: CSV and JSON, in full precision.


#: Rows of a file at most: a page stays below 1 MB.
_MOST_ROWS = 400
_MEASURES = (
    "threshold", "n_above", "n_ties", "n_kept", "average_set_size", "top_k_error", "top_k_error_stderr", "average_k_error",
    "average_k_error_stderr", "average_k_error_lowest", "average_k_error_highest", "average_k_error_expected", "adaptive_gain",
    "adaptive_gain_stderr", "relative_gain", "relative_gain_stderr",
)  # fmt: skip
_AMBIGUITY = ("supports_overlap", "straddle_bound", "straddle_bound_error")
#: Cells that a spreadsheet would take for a formula begin so, in Asian letters of full width, too.
_FORMULA = re.compile(r"[\t\r]|\W*?[=+\-@\uff1d\uff0b\uff0d\uff20]")

_DIFFERENCES = ("difference", "difference_stderr", "discordant", "mcnemar_p", "mcnemar_p_adjusted")
#: Characters of the name of a model.
_MOST_NAME = 80

Columns = dict[str, list[object]]


@dataclass(frozen=True)
class Download:
    """A file inside a page."""

    name: str
    url: str


def report_columns(result: xr.Dataset, curve: xr.Dataset | None = None) -> tuple[Columns, int]:
    """Return a row for each budget as columns, those asked for and those of the curve; and how many there would be."""
    asked = set(result.k.values.tolist())
    rows = [_row(result, i) for i in places(result.sizes["k"], _MOST_ROWS)]
    others = [] if curve is None else [i for i, k in enumerate(curve.k.values.tolist()) if k not in asked]
    if curve is not None:
        rows += [_row(curve, others[i]) for i in places(len(others), max(_MOST_ROWS - len(rows), 2))]
    rows.sort(key=lambda row: row["k"])  # type: ignore[arg-type, return-value]
    names = [*dict.fromkeys(name for row in rows for name in row)]
    found: Columns = {name: [row.get(name) for row in rows] for name in names}
    columns = {name: values for name, values in found.items() if any(value is not None for value in values)}
    columns["asked"] = [row["k"] in asked for row in rows]
    return columns, result.sizes["k"] + len(others)


def _row(result: xr.Dataset, i: int) -> dict[str, object]:
    """Return the numbers of one budget."""
    bounded = are_probabilities(result)  # the bound is a theorem for probabilities only
    names = [*_MEASURES, *(name for name in _AMBIGUITY if bounded or name == "supports_overlap")]
    quartiles = size_quartiles(result.set_size_count.values[i])
    sizes = dict(zip(("set_size_25", "set_size_50", "set_size_75"), quartiles, strict=True))
    numbers = {name: _plain(result[name].values[i]) for name in names if name in result}
    return {"k": _plain(result.k.values[i]), **numbers, **sizes}


def comparison_columns(result: xr.Dataset) -> tuple[Columns, int]:
    """Return a row for each budget and model as columns, and how many there would be."""
    names = [name for name in _MEASURES if name in result]
    pairs = [(k, model) for k in range(result.sizes["k"]) for model in range(result.sizes["model"])]
    some = [pairs[i] for i in places(len(pairs), _MOST_ROWS)]
    columns: Columns = {
        "k": [_plain(result.k.values[k]) for k, _ in some],
        "model": [_named(result, model) for _, model in some],
    }
    for name in names:
        values = result[name].transpose("k", "model").values
        columns[name] = [_plain(values[place]) for place in some]
    return columns, len(pairs)


def difference_columns(result: xr.Dataset) -> tuple[Columns, int]:
    """Return a row for each budget, rule and pair of models as columns, and how many there would be."""
    n_models = result.sizes["model"]
    pairs = [(model, other) for model in range(n_models) for other in range(model + 1, n_models)]
    rows = [
        (rule, *pair, k) for k in range(result.sizes["k"]) for rule in range(result.sizes["rule"]) for pair in pairs
    ]
    some = [rows[i] for i in places(len(rows), _MOST_ROWS)]
    columns: Columns = {
        "k": [_plain(result.k.values[row[3]]) for row in some],
        "rule": [str(result.rule.values[row[0]]) for row in some],
        "model": [_named(result, row[1]) for row in some],
        "other": [_named(result, row[2]) for row in some],
    }
    for name in _DIFFERENCES:
        values = result[name].transpose("rule", "model", "other", "k").values
        columns[name] = [_plain(values[row]) for row in some]
        if name == "discordant":
            columns["discordant_reversed"] = [_plain(values[rule, b, a, k]) for rule, a, b, k in some]
    return columns, len(rows)


def _named(result: xr.Dataset, model: int) -> str:
    return clipped(str(result.model.values[model]), _MOST_NAME)


def _plain(value: np.generic) -> object:
    """Return a number as Python and JSON have it; None for NaN, text for infinities."""
    found = value.item()
    if isinstance(found, float) and not math.isfinite(found):
        return None if math.isnan(found) else str(found)
    return found


def downloads(tables: Mapping[str, Columns], attrs: Mapping[str, object]) -> list[Download]:
    """Return tables by name as files inside a page: a CSV for each, and one JSON of all, called as the first."""
    about = {
        key: _plain(np.float64(value)) if isinstance(value, float) else value
        for key, value in attrs.items()
        if isinstance(value, (int, float))
    }
    text = json.dumps({"attrs": about, "tables": tables}, allow_nan=False)
    files = [Download(f"{name}.csv", _url("text/csv", _csv(columns))) for name, columns in tables.items()]
    return [*files, Download(f"{next(iter(tables))}.json", _url("application/json", text))]


def _csv(columns: Columns) -> str:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in zip(*columns.values(), strict=True))
    return written.getvalue()


def _cell(value: object) -> object:
    """Return a value as a cell: nothing for what is missing, and no formula or control character of what users named."""
    if isinstance(value, str):
        return f"'{visible(value)}" if _FORMULA.match(value) and value != "-inf" else visible(value)
    return {None: "", True: 1, False: 0}.get(value, value) if value is None or isinstance(value, bool) else value


def _url(kind: str, text: str) -> str:
    return f"data:{kind};charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"
