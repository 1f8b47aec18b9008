"""The numbers of a page as files inside it: CSV and JSON, in full precision."""

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
from .frame import clipped, places
from .tables import size_quartiles

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

_DIFFERENCES = (
    "difference",
    "difference_stderr",
    "discordant",
    "discordant_reversed",
    "mcnemar_p",
    "mcnemar_p_adjusted",
)
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
    columns: Columns = {name: [row.get(name) for row in rows] for name in names}
    columns = {name: values for name, values in columns.items() if any(value is not None for value in values)}
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
    rows = [(k, model) for k in range(result.sizes["k"]) for model in range(result.sizes["model"])]
    return _stacked(result, ("k", "model"), rows, names), len(rows)


def difference_columns(result: xr.Dataset) -> tuple[Columns, int]:
    """Return a row for each budget, rule and pair of models as columns, and how many there would be."""
    n = result.sizes["model"]
    pairs = [(model, other) for model in range(n) for other in range(model + 1, n)]
    rows = [
        (k, rule, *pair) for k in range(result.sizes["k"]) for rule in range(result.sizes["rule"]) for pair in pairs
    ]
    whole = result.assign(discordant_reversed=result.discordant.rename(model="other", other="model"))
    return _stacked(whole, ("k", "rule", "model", "other"), rows, _DIFFERENCES), len(rows)


def _stacked(
    result: xr.Dataset, dims: tuple[str, ...], rows: Sequence[tuple[int, ...]], names: Sequence[str]
) -> Columns:
    """Return the places of some rows along dimensions, and variables there, as columns; of very many rows some."""
    some = [rows[i] for i in places(len(rows), _MOST_ROWS)]
    columns: Columns = {}
    for axis, dim in enumerate(dims):
        known = [clipped(one, _MOST_NAME) if isinstance(one, str) else one for one in result[dim].values.tolist()]
        columns[dim] = [known[row[axis]] for row in some]
    for name in names:
        values = result[name].transpose(*dims).values
        columns[name] = [_plain(values[row]) for row in some]
    return columns


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
