"""Results as tables of text, for the terminal and the page, and the output of ``avgk info``."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr

from .. import plot
from ..arrays import Ints
from ..errors import OptionError
from ..results.datasets import StoreInfo, ValuesInfo, are_probabilities, check_result, check_source
from ..results.text import Screen, wrap
from ..results.text import Table as Table


def fixed(value: float, digits: int, sign: str = "-") -> str:
    """Format a number with a fixed number of decimals, without a minus sign if it rounds to 0.

    Examples
    --------
    >>> fixed(-0.001, 2), fixed(-0.001, 1, "+"), fixed(-0.25, 1)
    ('0.00', '+0.0', '-0.2')
    """
    return f"{round(value, digits) + 0.0:{sign}.{digits}f}"


def percent(value: float) -> str:
    """Format a fraction in percent; empty for NaN."""
    return "" if math.isnan(value) else f"{fixed(100 * value, 2)} %"


#: Maximum number of decimals of a percentage.
_MOST_DIGITS = 6


def with_error(value: float, stderr: float, digits: int = 2, sign: str = "-") -> str:
    """Format a fraction in percent with its standard error unless that is NaN; empty for NaN.

    Decimals are added if the standard error would round to 0.

    Examples
    --------
    >>> with_error(0.0594, 0.0033), with_error(0.5, math.nan), with_error(math.nan, 0.1)
    ('5.94 ±0.33 %', '50.00 %', '')
    >>> with_error(0.147, 0.0000112)
    '14.700 ±0.001 %'
    """
    if math.isnan(value):
        return ""
    if stderr > 0 and round(100 * stderr, digits) == 0:
        digits = min(-math.floor(math.log10(100 * stderr)), _MOST_DIGITS)
    reach = "" if math.isnan(stderr) else f" ±{fixed(100 * stderr, digits)}"
    return f"{fixed(100 * value, digits, sign)}{reach} %"


def stderr_of(one: xr.Dataset, name: str) -> float:
    """Return the standard error of a variable, or NaN if it has none."""
    return float(one[f"{name}_stderr"]) if f"{name}_stderr" in one else math.nan


def share(one: xr.Dataset, name: str, digits: int = 2, sign: str = "-") -> str:
    """Format a variable in percent with its standard error, if it has one; empty for NaN."""
    return with_error(float(one[name]), stderr_of(one, name), digits, sign)


def number(value: float) -> str:
    """Format a number with four digits; empty for NaN."""
    return "" if math.isnan(value) else f"{value + 0.0:.4g}"


#: Variables that tables and reports need.
_NEEDED = (
    "threshold", "top_k_error", "average_k_error", "relative_gain", "set_size_count", "n_above", "n_ties", "n_kept",
)  # fmt: skip


def check_evaluation(result: xr.Dataset) -> None:
    """Check that a Dataset is the result of one ``evaluate``, with its attributes."""
    check_result(result, _NEEDED)
    missing = [name for name in ("n_samples", "n_classes", "reads") if name not in result.attrs]
    if missing:
        raise OptionError(
            f"result must have the attributes that evaluate gave it; got none called {missing[0]}. "
            "Keep them: xarray.set_options(keep_attrs=True), or result.assign_attrs(...)."
        )


#: Meaning of the columns of results.
_COLUMNS = {
    "gain": "share of the top-k errors that average-k avoids",
    "quartiles": "a quarter, half and three quarters of the sets have at most this many labels",
    "ties": "scores equal to the threshold",
    "kept": "ties included in the sets to reach k labels per sample on average",
}


def results_table(result: xr.Dataset) -> Table:
    """Return one row per budget: threshold, errors and gain with standard errors, quartiles of the set sizes, and ties."""
    header = ("k", "threshold", "top-k error", "avg-k error", "gain", "quartiles", "ties", "kept")
    rows: list[tuple[str, ...]] = []
    tones: dict[tuple[int, str], str] = {}
    clear, crowded = plot.is_clear(result), plot.is_crowded(result)
    for i, k in enumerate(result.k.values):
        one = result.isel(k=i)
        if crowded[i] or not clear[i]:
            tones[i, "gain"] = "aside"
        elif not math.isnan(float(one.relative_gain)):
            tones[i, "gain"] = "good" if float(one.relative_gain) > 0 else "bad"
        rows.append((
            f"{k:g}",
            _score(one.threshold),
            share(one, "top_k_error"),
            share(one, "average_k_error"),
            share(one, "relative_gain", 1, "+"),
            "/".join(map(str, size_quartiles(one.set_size_count.values))),
            f"{int(one.n_ties):,}",
            f"{int(one.n_kept):,}",
        ))  # fmt: skip
    return Table(header, rows, ("kept", "ties", "quartiles", "threshold", "top-k error"), tones=tones, legend=_COLUMNS)


def transfer_table(result: xr.Dataset) -> Table:
    """Return one row per budget of ``transfer``: size and error at the calibration threshold and at the samples' own."""
    check_result(result)
    header = ("k", "threshold", "set size", "error", "own threshold", "own size", "own error")
    rows: list[tuple[str, ...]] = []
    for i, k in enumerate(result.k.values):
        one = result.isel(k=i)
        error, own_error = percent(float(one.average_k_error)), percent(float(one.own_average_k_error))
        size = _size(float(one.average_set_size), stderr_of(one, "average_set_size"))
        own = _score(one.own_threshold), number(float(one.own_average_set_size)), own_error
        rows.append((f"{k:g}", _score(one.threshold), size, error, *own))
    return Table(header, rows, ("own threshold", "threshold", "own size", "own error"))


def _size(value: float, stderr: float) -> str:
    """Format a mean set size with its standard error, if that is positive."""
    if not stderr > 0:  # NaN, or all sets have the same size
        return number(value)
    digits = max(0, 1 - math.floor(math.log10(stderr)))
    return f"{fixed(value, digits)} \N{PLUS-MINUS SIGN}{fixed(stderr, digits)}"


def _score(value: xr.DataArray) -> str:
    return f"{value.item():.6g}" if value.dtype.kind == "f" else str(value.item())


def size_quartiles(counts: Ints) -> tuple[int, int, int]:
    """Return the quartiles of the set sizes."""
    cumulative = np.cumsum(counts)
    first, second, third = (int(np.searchsorted(cumulative, q * cumulative[-1] / 4)) for q in (1, 2, 3))
    return first, second, third


def ambiguity_table(result: xr.Dataset) -> Table | None:
    """Return one row per integer budget: overlap of neighbouring ranks and straddle of order 1; None if not analysed."""
    if "supports_overlap" not in result:
        return None
    bounded = are_probabilities(result)  # the bound holds for probabilities only
    header = ("k", "lowest score of rank\u00a0k", "highest score of rank\u00a0k\u00a0+\u00a01", "overlap",
              "straddling pairs", "their mean difference", *(["lower bound on the errors avoided (points)"] * bounded))  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for i, k in enumerate(result.k.values):
        one = result.isel(k=i)
        if math.isnan(float(one.supports_overlap)):
            continue
        first = one.sel(order=1)
        highest = float(one.support_high.sel(rank=k + 1)) if k + 1 in one["rank"].values else math.nan
        rows.append((
            f"{k:g}",
            number(float(one.support_low.sel(rank=k))),
            number(highest),
            "yes" if one.supports_overlap else "no",
            percent(float(first.straddle_weight)),
            number(float(first.straddle_magnitude)),
            *([number(100 * float(one.straddle_bound))] * bounded),
        ))  # fmt: skip
    return Table(header, rows) if rows else None


def tie_table(result: xr.Dataset) -> Table | None:
    """Return one row per budget whose error depends on which ties are kept; None if none does."""
    if "average_k_error_lowest" not in result:
        return None
    header = ("k", "ties", "kept", "lowest error", "expected", "highest error", "as kept here")
    rows: list[tuple[str, ...]] = []
    for i, k in enumerate(result.k.values):
        one = result.isel(k=i)
        low, high = float(one.average_k_error_lowest), float(one.average_k_error_highest)
        if high > low:
            errors = (low, float(one.average_k_error_expected), high, float(one.average_k_error))
            rows.append((f"{k:g}", f"{int(one.n_ties):,}", f"{int(one.n_kept):,}", *map(percent, errors)))
    return Table(header, rows) if rows else None


def print_utilities(result: xr.Dataset, *, width: int | None = None, colour: bool = False) -> str:
    """Return a ``set_utility`` result as text: a table, and a sentence for each utility; options as for ``print_table``."""
    return Screen(width, colour).page(utilities_table(result), utility_sentences(result), strong=None)


def _several(result: xr.Dataset) -> list[xr.Dataset]:
    """Return the utilities one by one, after checking that they come from ``set_utility``."""
    check_source(result, "set_utility", ["average_k_utility"], ["k"], argument="utilities")
    if "utility" in result.dims:
        return [result.isel(utility=i) for i in range(result.sizes["utility"])]
    return [result]


def _name(one: xr.Dataset) -> str:
    name = str(one["utility"].item()) if "utility" in one.coords else str(one.attrs["utility"])
    beta = float(one.attrs.get("beta", 1.0))
    return f"F{beta:g}" if name == "f" else {"discounted": "1/size"}.get(name, name)


def utilities_table(result: xr.Dataset) -> Table:
    """Return one row per budget, with each utility of both rules."""
    several = _several(result)
    header = ("k", *(f"{rule} {_name(one)}" for one in several for rule in ("top-k", "avg-k")))
    values = [one[f"{rule}_k_utility"].values for one in several for rule in ("top", "average")]
    rows = [
        (f"{k:g}", *("" if math.isnan(v[i]) else f"{v[i] + 0.0:.4f}" for v in values))
        for i, k in enumerate(result.k.values)
    ]
    return Table(header, rows)


def utility_sentences(result: xr.Dataset) -> list[str]:
    """Return for each utility the budget with the highest value of each rule."""
    return [sentence for one in _several(result) if (sentence := _utility_sentence(one))]


def _utility_sentence(one: xr.Dataset) -> str:
    best = []
    for rule in ("average", "top"):
        values = one[f"{rule}_k_utility"].values
        if not np.isnan(values).all():
            i = int(np.nanargmax(values))
            best.append(f"{values[i] + 0.0:.4f} for {rule}-k at k = {float(one.k.values[i]):g}")
    if not best:
        return ""
    cost = float(one.attrs.get("cost", 0.0))
    unit = "unit of the logarithm of a set's size" if one.attrs.get("cost_of") == "log" else "label"
    less = f" (minus {cost:g} per {unit})" if cost else ""
    return f"Highest {_name(one)}{less} at these budgets: {' and '.join(best)}."


#: Width of the names in the output of ``avgk info``.
_NAMES = 10


def print_info(info: StoreInfo, *, width: int | None = None, colour: bool = False) -> str:
    """Return the description of a store as text; options as for ``print_table``."""
    screen = Screen(width, colour)
    details = [
        f" ({info['rounding']})" if info["rounding"] else "",
        f", decoded by {info['encoding']}" if info["encoding"] else "",
        f", {info['truncated']}" if info["truncated"] else "",
    ]
    chunks = " x ".join(f"{n:,}" for n in info["chunks"])
    shards = "" if info["shards"] is None else f" in shards of {' x '.join(f'{n:,}' for n in info['shards'])}"
    form = "file" if info["zarr_format"] is None else f"Zarr v{info['zarr_format']}"
    stored, missing = info["n_stored_bytes"], info["n_missing_chunks"]
    rows = [
        ("store", info["store"]),
        ("scores", f"{info['n_samples']:,} samples x {info['n_classes']:,} classes, {info['dtype']}{''.join(details)}"),
        ("labels", info["labels"] or "none"),
        ("layout", f"{_count(info['n_chunks'], 'shard' if shards else 'chunk')}, chunks of {chunks}{shards}"),
        ("codecs", f"{form}: {' + '.join(info['codecs'])}"),
        ("size", _bytes(info["n_bytes"]) + ("" if stored is None else f", {_bytes(stored)} stored")),
        ("missing", "cannot be listed" if missing is None else _count(missing, "chunk")),
        ("manifest", "yes, every read is checked" if info["has_manifest"] else "none"),
        ("values", _values(info["values"])),
        (
            "memory",
            f"{_bytes(info['task_memory'])} per task (k = 1:10), of {_bytes(info['memory_limit'])}; "
            f"{_bytes(info['merge_memory'])} to merge, {_bytes(info['client_memory'])} in the client",
        ),
        ("reads", info["reads"]),
        *(("advice", text) for text in info["advice"]),
    ]
    lines = []
    for name, text in rows:
        first, *more = wrap(text, None if width is None else width - _NAMES)
        lines.append(screen.paint(name, "strong") + " " * (_NAMES - len(name)) + first)
        lines += [" " * _NAMES + line for line in more]
    return "\n".join(lines)


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _values(values: ValuesInfo | None) -> str:
    if values is None:
        return "no chunk is stored"
    if values["low"] is None or values["high"] is None:
        return values["kind"]
    return f"{values['kind']} ({values['low'] + 0.0:.6g} to {values['high'] + 0.0:.6g} in the first {values['n_rows_sampled']} rows)"


def _bytes(n: int) -> str:
    size, units = float(n), ["bytes", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.0f} bytes" if units[0] == "bytes" else f"{size:.1f} {units[0]}"
