"""What all pages are made of: their frame, shortened tables and texts, provenance, downloads, and files written whole.

Everything from users is escaped, and nothing is fetched. Downloads are CSV and JSON files inside the page, in full precision.
"""

from __future__ import annotations

import base64
import csv
import datetime
import hashlib
import io
import json
import math
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TypeAlias

import numpy as np
import xarray as xr
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from ..credentials import is_url, shown
from ..errors import DtypeError, OptionError, visible
from ..results.datasets import are_probabilities, fingerprint
from ..results.text import Table
from .tables import size_quartiles

#: Budgets that tables and pictures of a page show at most.
MOST_BUDGETS = 100
#: Rows that a table may have before it is folded.
MOST_OPEN = 15
#: Characters that a page shows of one text, and texts that users may add.
MOST_CHARACTERS, MOST_FACTS = 2_000, 40
#: Characters of a name in a table.
MOST_NAME = 100

#: A table and, of a long one, the few rows that stay in sight while it is folded.
Folded: TypeAlias = tuple[Table, Table | None]
#: The sections of a page: their places, titles, and values of which one must be there; pictures as ``pictures:name``.
Sections: TypeAlias = Sequence[tuple[str, str, tuple[str, ...]]]


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


def fold(
    table: Table | None, choose: Callable[[list[tuple[str, ...]]], list[tuple[str, ...]]] | None = None
) -> Folded | None:
    """Return a table with a few rows to keep in sight if it is long: those chosen, or the first ones; nothing for none."""
    if table is None:
        return None
    if len(table.rows) <= MOST_OPEN:
        return table, None
    return table, Table(table.header, table.rows[:MOST_OPEN] if choose is None else choose(table.rows))


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


def render(name: str, sections: Sections, pictures: Mapping[str, object], **values: object) -> str:
    """Return a page of this folder: everything in it is escaped, and its own script is allowed by its hash."""
    environment = Environment(
        loader=FunctionLoader(_text_of),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=lambda value: visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    script = _text_of("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals |= {"script": Markup(script), "script_hash": f"sha256-{digest}"}  # a file of ours
    there = {name for name, value in values.items() if value} | {f"pictures:{name}" for name in pictures}
    contents = [(place, title) for place, title, needs in sections if there.intersection(needs)]
    return environment.get_template(name).render(sections=contents, pictures=pictures, **values)


def _text_of(name: str) -> str:
    """Return a file of this folder."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def write_page(path: str | os.PathLike[str], render_page: Callable[[], str]) -> None:
    """Write a page to a file, which is there whole or as it was."""
    from ..store import writing, written_whole

    if not isinstance(path, (str, os.PathLike)):
        raise DtypeError(
            f"path must be that of the new file; got {type(path).__name__}. Pass the result, then its path."
        )
    if is_url(path):
        raise OptionError(f"path must be that of a file on this machine; got {shown(path)!r}. Choose a local one.")
    page = render_page()
    with writing(str(path)), written_whole(pathlib.Path(path)) as place:
        place.write_text(page, encoding="utf-8")


#: Attributes that have names of their own among the facts.
_NAMED = ("store", "fingerprint", "n_samples", "n_classes", "n_labelled", "reads", "versions")


def provenance(result: xr.Dataset, seconds: float | None, written: str | None) -> Table:
    """Return what a result was computed from, with what and when."""
    attrs = result.attrs
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    store = attrs.get("store") or [""]
    stores = [store] if isinstance(store, str) else list(store)
    labelled = attrs.get("n_labelled", 0)
    facts: dict[str, str] = {
        "Store": ", ".join(shown(one) if one else "none: an array" for one in stores),
        "Fingerprint of the stored scores": attrs.get("fingerprint", ""),
        "Fingerprint of the result": fingerprint(result),
        "Samples": f"{attrs['n_samples']:,}",
        "Classes": f"{attrs['n_classes']:,}",
        "Labelled samples": f"{labelled:,}" if labelled else "none",
        "Full reads": f"{attrs['reads']} for these results (besides a pilot of some chunks, where there was one, and what other sections took)",
        "Computed in": "" if seconds is None else f"{seconds:.2f} s",
        "Written": written or now,
        "Versions": attrs.get("versions", ""),
    }
    more = {name: value for name, value in attrs.items() if name not in _NAMED}
    told = [(str(n), ", ".join(map(str, v)) if isinstance(v, list) else str(v)) for n, v in (facts | more).items()]
    some: list[tuple[str, ...]] = [(clipped(name, MOST_NAME), clipped(value)) for name, value in told if value]
    return Table(("what", "value"), some[: len(facts) + MOST_FACTS])


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
