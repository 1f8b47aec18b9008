"""Breakdowns by class or group, and classes that are in sets together: in words, as tables, and as a page."""

from __future__ import annotations

import math
import os

import numpy as np
import xarray as xr

from ..credentials import shown
from ..errors import OptionError
from ..results.datasets import check_source
from ..results.text import Screen
from .figures import group_pictures
from .frame import MOST_NAME, clipped, clipped_cells, fold, provenance, render, write_page
from .tables import Table, fixed, number, percent

#: Groups that a table shows unless asked for more, and groups or pairs that a page shows; the files beside it have all.
WORST, _MOST = 10, 50
_SECTIONS = (
    ("means", "Means over all", ("means",)),
    ("worst", "The worst", ("worst",)),
    ("pairs", "Classes in sets together", ("pairs",)),
    ("provenance", "Provenance", ("facts",)),
)


def print_breakdown(
    result: xr.Dataset, k: float | None = None, n: int = WORST, *, width: int | None = None, colour: bool = False
) -> str:
    """Return the worst classes or groups of a breakdown as text, for one budget (the largest), and one sentence.

    Lines fit ``width``; by default they are as long as they are. With ``colour`` they hold the colours of a terminal.
    """
    by = "class" if result.attrs.get("by") == "class" else "group"
    said = [
        breakdown_sentence(result, k),
        "Sorted by the lower end of the 95 % interval of the average-k error, so that few samples alone make no case.",
        threshold_sentence(result, by),
    ]
    if k is None and result.sizes.get("k", 1) > 1:
        said.append("This is the largest budget; the result has the others, too (--json, --out).")
    return Screen(width, colour).page(worst_table(result, k, n), said)


def threshold_sentence(result: xr.Dataset, by: str) -> str:
    """Say what the sets are made by."""
    if result.attrs.get("thresholds") == "own":
        return f"Each {by} has a threshold of its own, so that its sets hold k labels per sample on average."
    return "One threshold serves all samples, k labels per sample on average."


def check_breakdown(result: xr.Dataset) -> None:
    """Refuse what ``breakdown`` did not give."""
    names = ("average_k_error_low", "n_labelled", "macro_average_k_error")
    check_source(result, "breakdown", names, ["k", "group"], argument="breakdown")


def _one_budget(result: xr.Dataset, k: float | None = None) -> xr.Dataset:
    """Return the part of a breakdown for one budget: the one asked for, or the largest."""
    check_breakdown(result)
    budgets = result.k.values.tolist()
    if k is not None and k not in budgets:
        known = ", ".join(f"{one:g}" for one in budgets[:10])
        raise OptionError(f"k must be a budget of the result; got {k:g}. Choose one of {known}.")
    return result.sel(k=max(budgets) if k is None else k).compute()


def worst_table(result: xr.Dataset, k: float | None = None, n: int = WORST) -> Table:
    """Return the groups with the highest errors for one budget, by the lower ends of their intervals."""
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
    missed = {(row, "avg-k error"): "bad" for row, i in enumerate(worst) if one.average_k_error.values[i] > 0.5}
    least = ("threshold", "set size", "labelled", "top-k error")
    return Table(header, [_row(one.isel(group=i)) for i in worst], least, header[:1], missed)


def _row(one: xr.Dataset) -> tuple[str, ...]:
    ends = [fixed(100 * float(one[f"average_k_error_{end}"]), 1) for end in ("low", "high")]
    return (
        str(one["name"].item()) if "name" in one else str(one.group.item()),
        f"{int(one.n_labelled):,}",
        percent(float(one.top_k_error)),
        percent(float(one.average_k_error)),
        f"{ends[0]} to {ends[1]} %",
        number(float(one.average_set_size)),
        *([f"{float(one.group_threshold):.6g}"] if "group_threshold" in one else []),
    )


def breakdown_sentence(result: xr.Dataset, k: float | None = None) -> str:
    """Say what a breakdown tells for one budget: macro averages, and how many groups are served badly."""
    one = _one_budget(result, k)
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


def print_pairs(result: xr.Dataset, n: int = 20, *, width: int | None = None, colour: bool = False) -> str:
    """Return the most frequent pairs of what ``set_pairs`` gave as text, and one sentence; the rest as for ``print_table``."""
    return Screen(width, colour).page(pairs_table(result, n), [pairs_sentence(result)])


def pairs_table(result: xr.Dataset, n: int = 20) -> Table:
    """Return a row for each of the first pairs: both classes, the sets with both, and their share of each one's sets."""
    check_source(result, "set_pairs", ("class_a", "class_b", "count", "n_sets_a", "n_sets_b"), ["pair"])
    rows: list[tuple[str, ...]] = []
    for i in range(min(n, result.sizes["pair"])):
        one = result.isel(pair=i)
        names = [str(one[f"name_{end}" if f"name_{end}" in one else f"class_{end}"].item()) for end in "ab"]
        count = int(one["count"])
        rows.append((*names, f"{count:,}", *(percent(count / int(one[f"n_sets_{end}"])) for end in "ab")))
    header = ("class", "and class", "sets with both", "of the first's", "of the second's")
    return Table(header, rows, least=header[:2:-1], names=header[:2])


def pairs_sentence(result: xr.Dataset) -> str:
    """Say how many pairs there are, and of what."""
    attrs = result.attrs
    n = int(attrs["n_pairs"])
    pairs = "no two classes are" if not n else "1 pair of classes is" if n == 1 else f"{n:,} pairs of classes are"
    return f"In the average-k sets of {attrs['n_samples']:,} samples at k = {attrs['k']:g}, {pairs} together at least once."


def means_table(result: xr.Dataset) -> Table:
    """Return a row for each budget: the means over groups of both errors, and how many groups miss more than half."""
    rows = []
    some = result.n_labelled.values > 0
    for i, k in enumerate(result.k.values):
        means = [percent(float(result[f"macro_{rule}_k_error"].values[i])) for rule in ("top", "average")]
        bad = int(np.count_nonzero(result.average_k_error.values[i][some] > 0.5))
        rows.append((f"{k:g}", *means, f"{bad:,}"))
    return Table(("k", "mean top-k error", "mean avg-k error", "with more than half missed"), rows)


def render_breakdown(
    result: xr.Dataset, *, pairs: xr.Dataset | None = None, seconds: float | None = None, written: str | None = None
) -> str:
    """Return a breakdown by class or group as one self-contained HTML page.

    Parameters
    ----------
    result
        What ``breakdown`` gives.
    pairs
        What ``set_pairs`` gives: the classes that are in sets together become a section.
    seconds
        How long it took to compute, if known.
    written
        Date and time to show; by default now, in UTC.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> found = avgk.breakdown(np.eye(3), np.array([0, 1, 1]), k=[1, 2])
    >>> avgk.report.render_breakdown(found).startswith("<!doctype html>")
    True

    """
    check_breakdown(result)
    by = clipped(str(result.attrs.get("by", "group")), MOST_NAME)
    return render(
        "breakdown.html",
        _SECTIONS,
        group_pictures(result),
        title=f"Errors by {by}",
        store=clipped(shown(result.attrs.get("store", ""))),
        headline=breakdown_sentence(result),
        details=[threshold_sentence(result, by)],
        by=by,
        means=means_table(result),
        worst=fold(clipped_cells(worst_table(result, n=_MOST))),
        n_groups=int((result.n_labelled.values > 0).sum()),
        pairs=None if pairs is None else fold(clipped_cells(pairs_table(pairs, _MOST))),
        pairs_told="" if pairs is None else pairs_sentence(pairs),
        facts=provenance(result, seconds, written),
    )


def write_breakdown(
    result: xr.Dataset,
    path: str | os.PathLike[str],
    *,
    pairs: xr.Dataset | None = None,
    seconds: float | None = None,
) -> None:
    """Write a breakdown to a file, which is there whole or as it was; the rest as for ``render_breakdown``.

    Raises
    ------
    DtypeError, OptionError
        Where the result is none of ``breakdown``, or the path is no path.
    WriteError
        Where the file cannot be written.

    Examples
    --------
    >>> import tempfile, numpy as np, avgk_dask as avgk
    >>> path = tempfile.mkdtemp() + "/breakdown.html"
    >>> avgk.report.write_breakdown(avgk.breakdown(np.eye(3), np.array([0, 1, 1]), k=1), path)

    """
    check_breakdown(result)
    write_page(path, lambda: render_breakdown(result, pairs=pairs, seconds=seconds))
