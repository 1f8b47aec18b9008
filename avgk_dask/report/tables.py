"""A result as tables of text: for the terminal and for the page."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr

from .. import plot
from ..arrays import Ints
from ..errors import OptionError
from ..results.datasets import are_probabilities, check_dimensions, check_result
from ..results.text import Screen
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


# A breakdown in words and as a table: the worst classes or groups.


#: Groups that a table shows unless asked for more.
WORST = 10


def print_breakdown(
    result: xr.Dataset, k: float | None = None, n: int = WORST, *, width: int | None = None, colour: bool = False
) -> str:
    """Return the worst classes or groups of a breakdown as text, for one budget (the largest), and one sentence.

    Lines fit ``width``; by default they are as long as they are. With ``colour`` they hold the colours of a terminal.
    """
    screen = Screen(width, colour)
    said = (
        "Sorted by the lower end of the 95 % interval of the average-k error, so that few samples alone make no case."
    )
    by = "class" if result.attrs.get("by") == "class" else "group"
    more = (
        ["This is the largest budget; the result has the others, too (--json, --out)."]
        if k is None and result.sizes.get("k", 1) > 1
        else []
    )
    sentences = [said, threshold_sentence(result, by), *more]
    told = [
        *screen.text(breakdown_sentence(result, k), "strong"),
        *(line for sentence in sentences for line in screen.text(sentence)),
    ]
    return "\n".join([*screen.table(worst_table(result, k, n)), "", *told])


def threshold_sentence(result: xr.Dataset, by: str) -> str:
    """Say what the sets are made by."""
    if result.attrs.get("thresholds") == "own":
        return f"Each {by} has a threshold of its own, so that its sets hold k labels per sample on average."
    return "One threshold serves all samples, k labels per sample on average."


def check_breakdown(result: xr.Dataset) -> None:
    """Refuse what ``breakdown`` did not give."""
    check_result(result)
    lost = [name for name in ("average_k_error_low", "n_labelled", "macro_average_k_error") if name not in result]
    if lost:
        raise OptionError(f"breakdown must be what breakdown gives; got one without {lost[0]}. Pass its result.")
    check_dimensions(result, ("k", "group"))


def shown_budget(result: xr.Dataset, k: float | None = None) -> xr.Dataset:
    """Return the part of a breakdown for one budget: the one asked for, or the largest."""
    check_breakdown(result)
    budgets = result.k.values.tolist()
    if k is not None and k not in budgets:
        known = ", ".join(f"{one:g}" for one in budgets[:10])
        raise OptionError(f"k must be a budget of the result; got {k:g}. Choose one of {known}.")
    return result.sel(k=max(budgets) if k is None else k).compute()


def worst_table(result: xr.Dataset, k: float | None = None, n: int = WORST) -> Table:
    """Return the groups with the highest errors for one budget, by the lower ends of their intervals."""
    one = shown_budget(result, k)
    low = np.where(np.isnan(one.average_k_error_low.values), -1.0, one.average_k_error_low.values)
    order = np.lexsort((one.group.values, -np.nan_to_num(one.average_k_error.values), -low))
    worst = [i for i in order if one.n_labelled.values[i] > 0][:n]
    header = (
        str(result.attrs.get("by", "group")),
        "labelled",
        "top-k error",
        "avg-k error",
        "95 % interval",
        "set size",
        *(["threshold"] if "group_threshold" in one else []),
    )
    missed = {(row, "avg-k error"): "bad" for row, i in enumerate(worst) if one.average_k_error.values[i] > 0.5}
    least = ("threshold", "set size", "labelled", "top-k error")
    return Table(header, [_row(one.isel(group=i)) for i in worst], least, header[:1], missed)


def _row(one: xr.Dataset) -> tuple[str, ...]:
    ends = [fixed(100 * float(one[f"average_k_error_{end}"]), 1) for end in ("low", "high")]
    return (
        group_name(one),
        f"{int(one.n_labelled):,}",
        percent(float(one.top_k_error)),
        percent(float(one.average_k_error)),
        f"{ends[0]} to {ends[1]} %",
        number(float(one.average_set_size)),
        *([f"{float(one.group_threshold):.6g}"] if "group_threshold" in one else []),
    )


def group_name(one: xr.Dataset) -> str:
    """Return the name of a group, or its number."""
    return str(one["name"].item()) if "name" in one else str(one.group.item())


def breakdown_sentence(result: xr.Dataset, k: float | None = None) -> str:
    """Say what a breakdown tells for one budget: macro averages, and how many groups are served badly."""
    one = shown_budget(result, k)
    some = one.n_labelled.values > 0
    if not some.any():
        return "No sample is labelled: there are no errors."
    n, what = int(some.sum()), "class" if result.attrs.get("by") == "class" else "group"
    many = "classes" if what == "class" else "groups"
    bad = int((one.average_k_error.values[some] > 0.5).sum())
    mean, top = (float(one[name].values[some].mean()) if n else math.nan for name in ("average_k_error", "top_k_error"))
    half = "more than half of"
    badly = f"{bad:,} of them miss {half} their labels"
    badly = badly if bad > 1 else f"{'one' if bad else 'none'} of them misses {half} its labels"
    against = "" if math.isnan(top) else f" (top-k {percent(top)})"
    return (
        f"At k = {float(one.k):g}, the mean over {n:,} {many if n != 1 else what} of the average-k error is "
        f"{percent(mean)}{against}; {badly}."
    )


# What sets are worth, in words and as a table.


#: What utilities are called in a header.
_UTILITY_NAMES = {"f": "F", "discounted": "1/size"}


def print_utilities(result: xr.Dataset, *, width: int | None = None, colour: bool = False) -> str:
    """Return what ``set_utility`` gave as text, one or several along ``utility``: a table, and a sentence for each.

    The rest is as for ``print_table``.
    """
    screen = Screen(width, colour)
    told = [line for sentence in utility_sentences(result) for line in screen.text(sentence)]
    return "\n".join([*screen.table(utilities_table(result)), "", *told])


def _several(result: xr.Dataset) -> list[xr.Dataset]:
    """Return the utilities one by one; refuse what ``set_utility`` did not give."""
    check_result(result)
    if "average_k_utility" not in result:
        raise OptionError(
            "utilities must be what set_utility gives; got a result without average_k_utility. Pass its result."
        )
    check_dimensions(result, ("k",))
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
