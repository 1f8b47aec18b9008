"""A result as tables of text: for the terminal and for the page."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr

from .. import plot
from ..arrays import Ints
from ..errors import OptionError
from ..results.datasets import check_result
from ..results.fitting import Table as Table
from ..results.score_kinds import are_probabilities


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
        errors = [with_error(float(one[name]), stderr_of(one, name)) for name in ("top_k_error", "average_k_error")]
        rows.append((
            f"{k:g}",
            _score(one.threshold),
            *errors,
            with_error(float(one.relative_gain), stderr_of(one, "relative_gain"), 1, "+"),
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


def coverage_table(result: xr.Dataset) -> Table:
    """Return one row for conformal sets: coverage, of the samples and of the classes, and sizes."""
    check_result(result)
    header = ("coverage", "set size", "quartiles", "macro coverage", "classes < 50 %")
    below = float(result.share_below.sel(level=0.5)) if 0.5 in result.get("level", ()) else math.nan
    row = (
        with_error(float(result.coverage), stderr_of(result, "coverage")),
        number(float(result.average_set_size)),
        "/".join(map(str, size_quartiles(result.set_size_count.values))),
        percent(float(result.macro_coverage)) if "macro_coverage" in result else "",
        percent(below),
    )
    missed = {(0, "coverage"): "bad"} if int(result.n_hits) < float(result.hits_low) else {}
    return Table(header, [row], ("classes < 50 %", "quartiles", "macro coverage"), tones=missed)


def parts_table(result: xr.Dataset, what: str, most: int) -> Table | None:
    """Return the classes, or groups, of the least coverage, those with more samples first among equals; or nothing."""
    if f"{what}_coverage" not in result or what not in result.coords:
        return None
    coverage, n = result[f"{what}_coverage"].values, result[f"{what}_n_labelled"].values
    worst = [int(i) for i in np.lexsort((-n, coverage)) if n[i] > 0][:most]
    chances = result.get(f"{what}_p_value_low")  # where each has a threshold of its own
    names = result["class_name"].values if what == "class" and "class_name" in result else result[what].values
    rows: list[tuple[str, ...]] = [
        (
            str(names[i]),
            f"{n[i]:,}",
            with_error(float(coverage[i]), math.sqrt(coverage[i] * (1 - coverage[i]) / n[i])),
            number(float(result[f"{what}_average_set_size"].values[i])),
            *([f"{chances.values[i]:.2g}"] if chances is not None else []),
        )
        for i in worst
    ]
    header = (what, "labelled", "coverage", "set size", *(["p"] if chances is not None else []))
    return Table(header, rows, ("p",), names=(what,)) if rows else None


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
