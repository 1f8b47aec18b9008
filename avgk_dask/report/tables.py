"""A result as tables of text, for the terminal and for the page, and what ``avgk info`` prints."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr

from .. import plot
from ..arrays import Ints
from ..errors import OptionError
from ..results.datasets import StoreInfo, ValuesInfo, are_probabilities, check_result, check_source
from ..results.text import Screen, wrapped
from ..results.text import Table as Table


def fixed(value: float, digits: int, sign: str = "-") -> str:
    """Return a number with so many digits behind the point; what rounds to 0 has no minus.

    Examples
    --------
    >>> fixed(-0.001, 2), fixed(-0.001, 1, "+"), fixed(-0.25, 1)
    ('0.00', '+0.0', '-0.2')

    """
    return f"{round(value, digits) + 0.0:{sign}.{digits}f}"


def percent(value: float) -> str:
    """Return a fraction in percent; nothing for NaN."""
    return "" if math.isnan(value) else f"{fixed(100 * value, 2)} %"


#: Digits behind the point of a percentage at most.
_MOST_DIGITS = 6


def with_error(value: float, stderr: float, digits: int = 2, sign: str = "-") -> str:
    """Return a fraction in percent with its standard error, if there is one; nothing for NaN.

    A standard error that would round to 0, as of very many samples, brings more digits.

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
    """Return the standard error of a variable; NaN where there is none."""
    return float(one[f"{name}_stderr"]) if f"{name}_stderr" in one else math.nan


def share(one: xr.Dataset, name: str, digits: int = 2, sign: str = "-") -> str:
    """Return a variable in percent with its standard error, if it has one; nothing for NaN."""
    return with_error(float(one[name]), stderr_of(one, name), digits, sign)


def number(value: float) -> str:
    """Return a number in a few digits; nothing for NaN."""
    return "" if math.isnan(value) else f"{value + 0.0:.4g}"


#: What a table and a report cannot do without.
_NEEDED = (
    "threshold", "top_k_error", "average_k_error", "relative_gain", "set_size_count", "n_above", "n_ties", "n_kept",
)  # fmt: skip


def check_evaluation(result: xr.Dataset) -> None:
    """Refuse what is not the result of one ``evaluate``, with its attributes."""
    check_result(result, _NEEDED)
    lost = [name for name in ("n_samples", "n_classes", "reads") if name not in result.attrs]
    if lost:
        raise OptionError(
            f"result must have the attributes that evaluate gave it; got none called {lost[0]}. "
            "Keep them: xarray.set_options(keep_attrs=True), or result.assign_attrs(...)."
        )


def results_table(result: xr.Dataset) -> Table:
    """Return a row for each budget: threshold, errors and gain with their standard errors, quartiles of the set sizes, ties."""
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
    return Table(header, rows, ("kept", "ties", "quartiles", "threshold", "top-k error"), tones=tones)


def transfer_table(result: xr.Dataset) -> Table:
    """Return a row for each budget of ``transfer``: size and error at the calibration threshold, and at the own one."""
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
    """Return a mean set size with its standard error, to as many digits; without one, in a few digits."""
    if not stderr > 0:  # none, or of sets that are all alike
        return number(value)
    digits = max(0, 1 - math.floor(math.log10(stderr)))
    return f"{fixed(value, digits)} \N{PLUS-MINUS SIGN}{fixed(stderr, digits)}"


def _score(value: xr.DataArray) -> str:
    return f"{value.item():.6g}" if value.dtype.kind == "f" else str(value.item())


def size_quartiles(counts: Ints) -> tuple[int, int, int]:
    """Return the set sizes that a quarter, half and three quarters of the samples do not exceed."""
    cumulative = np.cumsum(counts)
    first, second, third = (int(np.searchsorted(cumulative, q * cumulative[-1] / 4)) for q in (1, 2, 3))
    return first, second, third


def ambiguity_table(result: xr.Dataset) -> Table | None:
    """Return a row for each integer budget: whether neighbouring ranks overlap, and straddle of order 1; or nothing."""
    if "supports_overlap" not in result:
        return None
    bounded = are_probabilities(result)  # the bound is a theorem for probabilities only
    header = ("k", "lowest score of rank\u00a0k", "highest score of rank\u00a0k\u00a0+\u00a01", "overlap",
              "straddling pairs", "their mean distance", *(["lower bound on the gain"] * bounded))  # fmt: skip
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
            *([number(float(one.straddle_bound))] * bounded),
        ))  # fmt: skip
    return Table(header, rows) if rows else None


def tie_table(result: xr.Dataset) -> Table | None:
    """Return a row for each budget where the error depends on which ties are kept; nothing where none does."""
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


#: What utilities are called in a header.
_UTILITY_NAMES = {"f": "F", "discounted": "1/size"}


def print_utilities(result: xr.Dataset, *, width: int | None = None, colour: bool = False) -> str:
    """Return what ``set_utility`` gave as text, one or several along ``utility``: a table, and a sentence for each.

    The rest is as for ``print_table``.
    """
    return Screen(width, colour).page(utilities_table(result), utility_sentences(result), strong=None)


def _several(result: xr.Dataset) -> list[xr.Dataset]:
    """Return the utilities one by one; refuse what ``set_utility`` did not give."""
    check_source(result, "set_utility", ["average_k_utility"], ["k"], what="utilities")
    if "utility" in result.dims:
        return [result.isel(utility=i) for i in range(result.sizes["utility"])]
    return [result]


def _name(one: xr.Dataset) -> str:
    told = str(one["utility"].item()) if "utility" in one.coords else str(one.attrs["utility"])
    beta = float(one.attrs.get("beta", 1.0))
    return f"F{beta:g}" if told == "f" else _UTILITY_NAMES.get(told, told)


def utilities_table(result: xr.Dataset) -> Table:
    """Return a row for each budget, and for each utility that of both rules."""
    several = _several(result)
    header = ("k", *(f"{rule} {_name(one)}" for one in several for rule in ("top-k", "avg-k")))
    rows = [
        (
            f"{k:g}",
            *(_worth(float(one[f"{r}_k_utility"].values[i])) for one in several for r in ("top", "average")),
        )
        for i, k in enumerate(result.k.values)
    ]
    return Table(header, rows)


def _worth(value: float) -> str:
    return "" if math.isnan(value) else f"{value + 0.0:.4f}"


def utility_sentences(result: xr.Dataset) -> list[str]:
    """Say for each utility where it is largest."""
    return [sentence for one in _several(result) if (sentence := _sentence(one))]


def _sentence(one: xr.Dataset) -> str:
    found = {
        rule: one[f"{rule}_k_utility"].values
        for rule in ("average", "top")
        if not np.isnan(one[f"{rule}_k_utility"].values).all()
    }
    if not found:
        return ""
    told = []
    for rule, values in found.items():
        i = int(np.nanargmax(values))
        told.append(f"{_worth(float(values[i]))} by {rule}-k at k = {float(one.k.values[i]):g}")
    cost = float(one.attrs.get("cost", 0.0))
    unit = "logarithm of a set's size" if one.attrs.get("cost_of") == "log" else "label"
    less = f" (less {cost:g} for each {'unit of the ' if unit != 'label' else ''}{unit})" if cost else ""
    return f"{_name(one)}{less} is highest, of these budgets, with {' and '.join(told)}."


#: Columns of the names of what is told.
_NAMES = 10


def print_info(info: StoreInfo, *, width: int | None = None, colour: bool = False) -> str:
    """Return the description of a store as text.

    Lines fit ``width``; by default they are as long as they are. With ``colour`` they hold the colours of a terminal.
    """
    screen = Screen(width, colour)
    details = [
        f" ({info['rounding']})" if info["rounding"] else "",
        f", decoded by {info['encoding']}" if info["encoding"] else "",
    ]
    details.append(f", {info['truncated']}" if info["truncated"] else "")
    chunks = " x ".join(f"{n:,}" for n in info["chunks"])
    shards = "" if info["shards"] is None else f" in shards of {' x '.join(f'{n:,}' for n in info['shards'])}"
    form = "a file" if info["zarr_format"] is None else f"Zarr v{info['zarr_format']}"
    stored, missing = info["n_stored_bytes"], info["n_missing_chunks"]
    rows = [
        ("store", info["store"]),
        ("scores", f"{info['n_samples']:,} samples x {info['n_classes']:,} classes, {info['dtype']}{''.join(details)}"),
        ("labels", info["labels"] or "none"),
        ("layout", f"{_count(info['n_chunks'], 'shard' if shards else 'chunk')}, chunks of {chunks}{shards}"),
        ("codecs", f"{form}: {' + '.join(info['codecs'])}"),
        ("size", _bytes(info["n_bytes"]) + ("" if stored is None else f", {_bytes(stored)} stored")),
        ("missing", "cannot be listed" if missing is None else _count(missing, "chunk")),
        ("manifest", "yes: every read is checked" if info["has_manifest"] else "none"),
        ("values", _values(info["values"])),
        (
            "memory",
            f"{_bytes(info['task_memory'])} a task (k = 1:10), of {_bytes(info['memory_limit'])}; "
            f"{_bytes(info['merge_memory'])} to merge, {_bytes(info['client_memory'])} to finish",
        ),
        ("reads", info["reads"]),
        *(("advice", text) for text in info["advice"]),
    ]
    lines = []
    for name, text in rows:
        first, *more = wrapped(text, None if width is None else width - _NAMES)
        lines.append(screen.painted(name, "strong") + " " * (_NAMES - len(name)) + first)
        lines += [" " * _NAMES + line for line in more]
    return "\n".join(lines)


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _values(values: ValuesInfo | None) -> str:
    if values is None:
        return "none are stored"
    if values["low"] is None or values["high"] is None:
        return values["kind"]
    return f"{values['kind']} ({values['low'] + 0.0:.6g} to {values['high'] + 0.0:.6g} in the first {values['n_rows_sampled']} rows)"


def _bytes(n: int) -> str:
    size, units = float(n), ["bytes", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.0f} bytes" if units[0] == "bytes" else f"{size:.1f} {units[0]}"
