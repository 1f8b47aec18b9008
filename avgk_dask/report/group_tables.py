"""A breakdown in words and as a table: the worst classes or groups."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr

from ..errors import OptionError
from ..results.datasets import check_dimensions, check_result
from ..results.fitting import Screen
from .tables import Table, fixed, number, percent

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
