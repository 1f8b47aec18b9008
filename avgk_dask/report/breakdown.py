"""Breakdowns by class or group, and classes that share sets, as text, tables and a page."""

from __future__ import annotations

import math
import os

import numpy as np
import xarray as xr

from ..credentials import redact
from ..errors import OptionError
from ..results.datasets import check_source
from ..results.text import Screen
from .figures import group_pictures
from .frame import MOST_NAME, clip, clip_cells, fold, provenance, render, write_page
from .tables import Table, fixed, number, percent

#: Groups in the table of a terminal by default, and groups or pairs on a page; the downloads have all.
WORST, _MOST = 10, 50


def print_breakdown(
    result: xr.Dataset, k: float | None = None, n: int = WORST, *, width: int | None = None, colour: bool = False
) -> str:
    """Return the n classes or groups with the highest errors as text, for one budget (by default the largest).

    The other options are as for ``print_table``.
    """
    summary = [
        breakdown_sentence(result, k),
        f"Sorted by the lower end of the 95 % interval of the average-k error, so that a {_noun(result)} with few samples does not "
        "come first by chance.",
        threshold_sentence(result),
    ]
    if k is None and result.sizes.get("k", 1) > 1:
        summary.append("The table is for the largest budget; --json and --out have the others.")
    return Screen(width, colour).page(worst_table(result, k, n), summary)


def threshold_sentence(result: xr.Dataset) -> str:
    """Say whether groups share one threshold."""
    if result.attrs.get("thresholds") == "own":
        return f"Each {_noun(result)} has its own threshold, so that its sets hold k labels per sample on average."
    return "All samples share one threshold, for k labels per sample on average."


def _noun(result: xr.Dataset) -> str:
    return "class" if result.attrs.get("by") == "class" else "group"


def check_breakdown(result: xr.Dataset) -> None:
    """Check that a Dataset is the result of ``breakdown``."""
    names = ("average_k_error_low", "n_labelled", "macro_average_k_error")
    check_source(result, "breakdown", names, ["k", "group"], argument="breakdown")


def _one_budget(result: xr.Dataset, k: float | None = None) -> xr.Dataset:
    """Return the part of a breakdown for one budget, by default the largest."""
    check_breakdown(result)
    budgets = result.k.values.tolist()
    if k is not None and k not in budgets:
        known = ", ".join(f"{one:g}" for one in budgets[:10])
        raise OptionError(f"k must be a budget of the result; got {k:g}. Choose one of {known}.")
    return result.sel(k=max(budgets) if k is None else k).compute()


def worst_table(result: xr.Dataset, k: float | None = None, n: int = WORST) -> Table:
    """Return the n groups with the highest errors for one budget, by the lower ends of their intervals."""
    one = _one_budget(result, k)
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
    tones = {(row, "avg-k error"): "bad" for row, i in enumerate(worst) if one.average_k_error.values[i] > 0.5}
    least = ("threshold", "set size", "labelled", "top-k error")
    return Table(header, [_row(one.isel(group=i)) for i in worst], least, header[:1], tones)


def _row(one: xr.Dataset) -> tuple[str, ...]:
    low, high = (fixed(100 * float(one[f"average_k_error_{end}"]), 1) for end in ("low", "high"))
    return (
        str(one["name"].item()) if "name" in one else str(one.group.item()),
        f"{int(one.n_labelled):,}",
        percent(float(one.top_k_error)),
        percent(float(one.average_k_error)),
        f"{low} to {high} %",
        number(float(one.average_set_size)),
        *([f"{float(one.group_threshold):.6g}"] if "group_threshold" in one else []),
    )


def breakdown_sentence(result: xr.Dataset, k: float | None = None) -> str:
    """Give the macro averages for one budget, and the number of groups with most labels missed."""
    one = _one_budget(result, k)
    labelled = one.n_labelled.values > 0
    if not labelled.any():
        return "No sample is labelled, so there are no errors."
    n, noun = int(labelled.sum()), _noun(result)
    groups = noun if n == 1 else "classes" if noun == "class" else "groups"
    n_bad = int((one.average_k_error.values[labelled] > 0.5).sum())
    mean, top = (float(one[name].values[labelled].mean()) for name in ("average_k_error", "top_k_error"))
    return (
        f"At k = {float(one.k):g}, the mean average-k error of {n:,} {groups} is {percent(mean)}"
        f"{'' if math.isnan(top) else f' (top-k: {percent(top)})'}; {f'{n_bad:,}' if n_bad else 'none'} of them {'has' if n_bad == 1 else 'have'} an "
        "average-k error above 50 %."
    )


def print_pairs(result: xr.Dataset, n: int = 20, *, width: int | None = None, colour: bool = False) -> str:
    """Return the n most frequent pairs of a ``set_pairs`` result as text; the other options are as for ``print_table``."""
    return Screen(width, colour).page(pairs_table(result, n), [pairs_sentence(result)])


def pairs_table(result: xr.Dataset, n: int = 20) -> Table:
    """Return one row per pair: both classes, the sets with both, and their share of the sets of each class."""
    check_source(result, "set_pairs", ("class_a", "class_b", "count", "n_sets_a", "n_sets_b"), ["pair"])
    rows: list[tuple[str, ...]] = []
    for i in range(min(n, result.sizes["pair"])):
        one = result.isel(pair=i)
        names = [str(one[f"name_{end}" if f"name_{end}" in one else f"class_{end}"].item()) for end in "ab"]
        count = int(one["count"])
        rows.append((*names, f"{count:,}", *(percent(count / int(one[f"n_sets_{end}"])) for end in "ab")))
    header = ("class", "other class", "sets with both", "share of class", "share of other")
    legend = {
        "share of class": "share of the sets with class that also hold other class",
        "share of other": "share of the sets with other class that also hold class",
    }
    return Table(header, rows, least=header[:2:-1], names=header[:2], legend=legend)


def pairs_sentence(result: xr.Dataset) -> str:
    """Give the number of pairs."""
    attrs = result.attrs
    n = int(attrs["n_pairs"])
    pairs = (
        "no two classes share" if not n else "1 pair of classes shares" if n == 1 else f"{n:,} pairs of classes share"
    )
    return f"At k = {attrs['k']:g}, {pairs} at least one of the average-k sets of {attrs['n_samples']:,} samples."


def means_table(result: xr.Dataset) -> Table:
    """Return one row per budget: the means of both errors over groups, and the number of groups with most labels missed."""
    rows = []
    labelled = result.n_labelled.values > 0
    for i, k in enumerate(result.k.values):
        means = [percent(float(result[f"macro_{rule}_k_error"].values[i])) for rule in ("top", "average")]
        n_bad = int(np.count_nonzero(result.average_k_error.values[i][labelled] > 0.5))
        rows.append((f"{k:g}", *means, f"{n_bad:,}"))
    groups = "classes" if _noun(result) == "class" else "groups"
    return Table(("k", "mean top-k error", "mean avg-k error", f"{groups} with avg-k error > 50 %"), rows)


def render_breakdown(
    result: xr.Dataset, *, pairs: xr.Dataset | None = None, seconds: float | None = None, written: str | None = None
) -> str:
    """Return a breakdown by class or group as one self-contained HTML page.

    Parameters
    ----------
    result
        The result of ``breakdown``.
    pairs
        The result of ``set_pairs``, for a section on classes that share sets.
    seconds
        Duration of the computation, if known.
    written
        Date and time to show; by default now, in UTC.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> by_class = avgk.breakdown(np.eye(3), np.array([0, 1, 1]), k=[1, 2])
    >>> avgk.report.render_breakdown(by_class).startswith("<!doctype html>")
    True
    """
    check_breakdown(result)
    by = clip(str(result.attrs.get("by", "group")), MOST_NAME)
    return render(
        "breakdown.html",
        group_pictures(result),
        title=f"Errors by {by}",
        store=clip(redact(result.attrs.get("store", ""))),
        headline=breakdown_sentence(result),
        details=[threshold_sentence(result)],
        by=by,
        means=means_table(result),
        worst=fold(clip_cells(worst_table(result, n=_MOST))),
        n_groups=int((result.n_labelled.values > 0).sum()),
        pairs=None if pairs is None else fold(clip_cells(pairs_table(pairs, _MOST))),
        pairs_summary="" if pairs is None else pairs_sentence(pairs),
        facts=provenance(result, seconds, written),
    )


def write_breakdown(
    result: xr.Dataset, path: str | os.PathLike[str], *, pairs: xr.Dataset | None = None, seconds: float | None = None
) -> None:
    """Write the page of ``render_breakdown`` to a file, atomically.

    Raises
    ------
    DtypeError, OptionError
        If the result is not one of ``breakdown``, or path is not path-like.
    WriteError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile, numpy as np, avgk_dask as avgk
    >>> path = tempfile.mkdtemp() + "/breakdown.html"
    >>> avgk.report.write_breakdown(avgk.breakdown(np.eye(3), np.array([0, 1, 1]), k=1), path)
    """
    write_page(path, render_breakdown(result, pairs=pairs, seconds=seconds))
