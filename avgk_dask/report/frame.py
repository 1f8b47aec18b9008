"""The common parts of all pages: frame, folded tables, clipped texts, provenance, downloads, and atomic writing.

User-defined text is escaped, and nothing is fetched. Downloads are CSV and JSON files inside the page, in full precision.
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

from ..credentials import is_url, redact
from ..errors import DtypeError, OptionError, visible
from ..plot.canvas import space_evenly
from ..results.datasets import are_probabilities, fingerprint
from ..results.text import Table
from .tables import size_quartiles

#: Maximum number of budgets in tables and pictures, and the longest table that is not folded.
_MOST_BUDGETS, MOST_OPEN = 100, 15
#: Maximum number of characters of a text, and of a name in a table; and the maximum number of facts added by users.
_MOST_CHARACTERS, MOST_NAME, _MOST_FACTS = 2_000, 100, 40

#: A table and, if it is long, the rows that are visible while it is folded.
Folded: TypeAlias = tuple[Table, Table | None]


def thin_budgets(result: xr.Dataset, keep: float, most: int = _MOST_BUDGETS) -> xr.Dataset:
    """Return a result with at most ``most`` of its budgets, and one to keep."""
    return result.isel(k=space_evenly(result.sizes["k"], most, int(np.flatnonzero(result.k.values == keep)[0])))


def fold(
    table: Table | None, choose: Callable[[list[tuple[str, ...]]], list[tuple[str, ...]]] | None = None
) -> Folded | None:
    """Return a table and, if it is long, the chosen or first rows of it; None for None."""
    if table is None:
        return None
    if len(table.rows) <= MOST_OPEN:
        return table, None
    return table, Table(table.header, table.rows[:MOST_OPEN] if choose is None else choose(table.rows))


def clip(text: str, most: int = _MOST_CHARACTERS) -> str:
    """Replace the end of a long text by its length.

    Examples
    --------
    >>> clip("abc"), clip("abcdef", 3)
    ('abc', 'abc … (6 characters)')
    """
    return text if len(text) <= most else f"{text[:most]} … ({len(text):,} characters)"


def clip_cells(table: Table) -> Table:
    """Clip the cells of a table to the length of a name."""
    return Table(table.header, [tuple(clip(cell, MOST_NAME) for cell in row) for row in table.rows])


def render(name: str, pictures: Mapping[str, object], **values: object) -> str:
    """Render a template of this folder: all values are escaped, and only its own script may run, by its hash."""
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
    environment.globals |= {"script": Markup(script), "script_hash": f"sha256-{digest}"}  # part of the package
    template = environment.get_template(name)
    page = template.render(sections=[], pictures=pictures, **values)
    titles = re.findall(r'<section id="([^"]*)"[^>]*>\s*<h2>(.*?)</h2>', page)  # escaped already
    return template.render(sections=[(place, Markup(title)) for place, title in titles], pictures=pictures, **values)


def _text_of(name: str) -> str:
    """Return the text of a file of this folder."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def write_page(path: str | os.PathLike[str], render_page: Callable[[], str]) -> None:
    """Check the path, render a page, which takes seconds, and write it to a file, atomically."""
    from ..store.where.addresses import writing
    from ..store.write.targets import atomic_write

    if not isinstance(path, (str, os.PathLike)):
        raise DtypeError(
            f"path must be the path of the new file; got {type(path).__name__}. Pass the result, then its path."
        )
    if is_url(path):
        raise OptionError(f"path must be a file on this machine; got {redact(path)!r}. Choose a local one.")
    page = render_page()
    with writing(str(path)), atomic_write(pathlib.Path(path)) as place:
        place.write_text(page, encoding="utf-8")


#: Attributes that the facts show under other names.
_NAMED = ("store", "fingerprint", "n_samples", "n_classes", "n_labelled", "reads", "versions")


def provenance(result: xr.Dataset, seconds: float | None, written: str | None) -> Table:
    """Return the origin of a result: inputs, versions, cost and time."""
    attrs = result.attrs
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    store = attrs.get("store") or [""]
    stores = [store] if isinstance(store, str) else list(store)
    labelled = attrs.get("n_labelled", 0)
    facts: dict[str, str] = {
        "Store": ", ".join(redact(one) if one else "none: an array" for one in stores),
        "Fingerprint of the stored scores": attrs.get("fingerprint", ""),
        "Fingerprint of the result": fingerprint(result),
        "Samples": f"{attrs['n_samples']:,}",
        "Classes": f"{attrs['n_classes']:,}",
        "Labelled samples": f"{labelled:,}" if labelled else "none",
        "Full reads": f"{attrs['reads']} for these results (without the pilot of a few chunks and the reads of other sections)",
        "Computed in": "" if seconds is None else f"{seconds:.2f} s",
        "Written": written or now,
        "Versions": attrs.get("versions", ""),
    }
    more = {name: value for name, value in attrs.items() if name not in _NAMED}
    texts = [(str(n), ", ".join(map(str, v)) if isinstance(v, list) else str(v)) for n, v in (facts | more).items()]
    rows: list[tuple[str, ...]] = [(clip(name, MOST_NAME), clip(text)) for name, text in texts if text]
    return Table(("fact", "value"), rows[: len(facts) + _MOST_FACTS])


#: Maximum number of rows of a download, so that a page stays below 1 MB; and the maximum number of characters of the
#: name of a model in it.
_MOST_ROWS, _MOST_MODEL_NAME = 400, 80
_MEASURES = (
    "threshold", "n_above", "n_ties", "n_kept", "average_set_size", "top_k_error", "top_k_error_stderr", "average_k_error",
    "average_k_error_stderr", "average_k_error_lowest", "average_k_error_highest", "average_k_error_expected", "adaptive_gain",
    "adaptive_gain_stderr", "relative_gain", "relative_gain_stderr",
)  # fmt: skip
_AMBIGUITY = ("supports_overlap", "straddle_bound", "straddle_bound_error")
#: Beginnings of cells that a spreadsheet would take for formulas, also in full-width letters.
_FORMULA = re.compile(r"[\t\r]|\W*?[=+\-@\uff1d\uff0b\uff0d\uff20]")
_DIFFERENCES = (
    "difference", "difference_stderr", "discordant", "discordant_reversed", "mcnemar_p", "mcnemar_p_adjusted",
)  # fmt: skip

Columns = dict[str, list[object]]


@dataclass(frozen=True)
class Download:
    """A file inside a page."""

    name: str
    url: str


def report_columns(result: xr.Dataset, curve: xr.Dataset | None = None) -> tuple[Columns, int]:
    """Return columns with one row per budget of a result and of its curve, and the number of rows before thinning."""
    asked = set(result.k.values.tolist())
    rows = [_row(result, i) for i in space_evenly(result.sizes["k"], _MOST_ROWS)]
    others = [] if curve is None else [i for i, k in enumerate(curve.k.values.tolist()) if k not in asked]
    if curve is not None:
        rows += [_row(curve, others[i]) for i in space_evenly(len(others), max(_MOST_ROWS - len(rows), 2))]
    rows.sort(key=lambda row: row["k"])  # type: ignore[arg-type, return-value]
    names = [*dict.fromkeys(name for row in rows for name in row)]
    columns: Columns = {name: [row.get(name) for row in rows] for name in names}
    columns = {name: values for name, values in columns.items() if any(value is not None for value in values)}
    columns["asked"] = [row["k"] in asked for row in rows]
    return columns, result.sizes["k"] + len(others)


def _row(result: xr.Dataset, i: int) -> dict[str, object]:
    """Return the numbers of one budget."""
    bounded = are_probabilities(result)  # the bound holds for probabilities only
    names = [*_MEASURES, *(name for name in _AMBIGUITY if bounded or name == "supports_overlap")]
    quartiles = size_quartiles(result.set_size_count.values[i])
    sizes = dict(zip(("set_size_25", "set_size_50", "set_size_75"), quartiles, strict=True))
    numbers = {name: _plain(result[name].values[i]) for name in names if name in result}
    return {"k": _plain(result.k.values[i]), **numbers, **sizes}


def comparison_columns(result: xr.Dataset) -> tuple[Columns, int]:
    """Return columns with one row per budget and model, and the number of rows before thinning."""
    names = [name for name in _MEASURES if name in result]
    rows = [(k, model) for k in range(result.sizes["k"]) for model in range(result.sizes["model"])]
    return _stacked(result, ("k", "model"), rows, names), len(rows)


def difference_columns(result: xr.Dataset) -> tuple[Columns, int]:
    """Return columns with one row per budget, rule and pair of models, and the number of rows before thinning."""
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
    """Return the coordinates and variables of rows, given by their indices along dimensions, as columns; many are thinned."""
    some = [rows[i] for i in space_evenly(len(rows), _MOST_ROWS)]
    columns: Columns = {}
    for axis, dim in enumerate(dims):
        index = [clip(one, _MOST_MODEL_NAME) if isinstance(one, str) else one for one in result[dim].values.tolist()]
        columns[dim] = [index[row[axis]] for row in some]
    for name in names:
        values = result[name].transpose(*dims).values
        columns[name] = [_plain(values[row]) for row in some]
    return columns


def _plain(value: np.generic) -> object:
    """Convert a NumPy scalar for JSON: None for NaN, text for infinities."""
    number = value.item()
    if isinstance(number, float) and not math.isfinite(number):
        return None if math.isnan(number) else str(number)
    return number


def downloads(tables: Mapping[str, Columns], attrs: Mapping[str, object]) -> list[Download]:
    """Return tables as downloads: a CSV file for each, and one JSON file of all that has the name of the first."""
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
    """Convert a value to a cell: empty if missing, and without formulas or control characters."""
    if isinstance(value, str):
        return f"'{visible(value)}" if _FORMULA.match(value) and value != "-inf" else visible(value)
    return {None: "", True: 1, False: 0}.get(value, value) if value is None or isinstance(value, bool) else value


def _url(kind: str, text: str) -> str:
    return f"data:{kind};charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"
