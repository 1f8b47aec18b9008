"""What conformal sets are on new samples: in words, as tables, and as a page."""

from __future__ import annotations

import math
import os

import numpy as np
import xarray as xr

from ..credentials import shown
from ..results.datasets import check_result, check_source
from ..results.registry import CONFORMAL_METHODS
from ..results.text import Screen
from .figures import coverage_pictures
from .frame import clipped, clipped_cells, fold, provenance, render, write_page
from .tables import Table, number, percent, share, size_quartiles, with_error

#: Classes or groups that a table of a terminal shows, those of the least coverage first; and those that a page shows.
_FEW, _MOST = 20, 50
#: What is unlikely of one class or group.
_UNLIKELY = 0.05
_SECTIONS = (
    ("coverage", "Coverage", ("coverage",)),
    ("groups", "By group", ("groups",)),
    ("classes", "By class", ("classes",)),
    ("sizes", "By set size", ("sizes",)),
    ("provenance", "Provenance", ("facts",)),
)


def print_coverage(result: xr.Dataset, *, width: int | None = None, colour: bool = False) -> str:
    """Return the table of what a conformal predictor's ``evaluate`` gave as text, and sentences on how likely it is.

    The rest is as for ``print_table``.
    """
    screen = Screen(width, colour)
    attrs = result.attrs
    size = f"{attrs['n_samples']:,} samples x {attrs['n_classes']:,} classes, {attrs['n_labelled']:,} of them labelled."
    table = coverage_table(result) if attrs["n_labelled"] else None
    lines = screen.page(table, [size, coverage_sentence(result)], strong=1)
    groups = parts_table(result, "class" if attrs["by"] == "class" else "group", _FEW)
    return lines if groups is None else "\n".join([lines, "", *screen.table(groups)])


def coverage_sentence(result: xr.Dataset) -> str:
    """Say how many hits there are, and how many there should be."""
    n = result.attrs["n_labelled"]
    if not n:
        return f"Without labels there is no coverage; the sets have {float(result.average_set_size):.4g} labels on average."
    found = f"{int(result.n_hits):,} of {n:,} labels are inside"
    if np.isnan(float(result.p_value_low)):
        return f"{found}; at least {percent(1 - result.attrs['alpha'])} are to be expected of each threshold.{_unlikely(result)}"
    low, high, chance = int(result.hits_low), int(result.hits_high), float(result.p_value_low)
    sure = f"{100 * result.attrs['confidence']:g} %"
    told = "more than that" if int(result.n_hits) > high else "that is as promised"
    if int(result.n_hits) < low:
        told = f"so few, or fewer, have a probability of {chance:.2g}"
    return f"{found}; {low:,} to {high:,} are to be expected ({sure}): {told}."


def _unlikely(result: xr.Dataset) -> str:
    """Say how many classes, or groups, have a coverage that is unlikely under their promise, and how many have by chance."""
    what = str(result.attrs["by"])
    chances = result[f"{what}_p_value_low"].values if f"{what}_p_value_low" in result else np.zeros(0)
    n, n_low = int((~np.isnan(chances)).sum()), int((chances < _UNLIKELY).sum())
    if not n:
        return ""
    many = "classes" if what == "class" else "groups"
    return (
        f" Of {n:,} {many}, {n_low:,} {'has' if n_low == 1 else 'have'} so few labels inside that less than {100 * _UNLIKELY:g} % of draws give as "
        f"few; by chance some {100 * _UNLIKELY:g} % of them do."
    )


def coverage_table(result: xr.Dataset) -> Table:
    """Return one row for conformal sets: coverage, of the samples and of the classes, and sizes."""
    check_result(result)
    header = ("coverage", "set size", "quartiles", "macro coverage", "classes < 50 %")
    below = float(result.share_below.sel(level=0.5)) if 0.5 in result.get("level", ()) else math.nan
    row = (
        share(result, "coverage"),
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


def sizes_table(result: xr.Dataset) -> Table:
    """Return a row for each set size there is, the frequent ones where they are many: samples, and coverage."""
    counts = result.set_size_count.values
    there = np.flatnonzero(counts)
    some = np.sort(there[np.argsort(-counts[there], kind="stable")][:_MOST])
    rows: list[tuple[str, ...]] = [
        (f"{size:,}", f"{counts[size]:,}", percent(float(result.size_coverage.values[size]))) for size in some.tolist()
    ]
    return Table(("set size", "samples", "coverage"), rows)


def coverage_headline(result: xr.Dataset) -> str:
    """Say how many labels are inside, how many were promised, and how large the sets are."""
    size = f"{float(result.average_set_size):.4g} labels per sample on average"
    promised = percent(1 - float(result.attrs["alpha"]))
    if not result.attrs["n_labelled"]:
        return f"Sets for a coverage of {promised} hold {size}."
    return f"The sets hold {percent(float(result.coverage))} of the labels, {promised} were promised, with {size}."


def render_coverage(result: xr.Dataset, *, seconds: float | None = None, written: str | None = None) -> str:
    """Return what conformal sets are on new samples as one self-contained HTML page.

    Parameters
    ----------
    result
        What ``evaluate`` of a conformal predictor gives.
    seconds
        How long it took to compute, if known.
    written
        Date and time to show; by default now, in UTC.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> found = avgk.conformal.calibrate(np.eye(3), np.arange(3), alpha=0.5).evaluate(np.eye(3), np.arange(3))
    >>> avgk.report.render_coverage(found).startswith("<!doctype html>")
    True

    """
    check_coverage(result)
    by, method = str(result.attrs["by"]), str(result.attrs["method"])
    one_each = f" for each {by}" if by in ("class", "group") else ""
    groups, classes = (parts_table(result, what, _MOST) for what in ("group", "class"))
    return render(
        "coverage.html",
        _SECTIONS,
        coverage_pictures(result),
        title="Sets with a promised coverage",
        store=clipped(shown(result.attrs.get("store", ""))),
        headline=coverage_headline(result),
        details=[
            coverage_sentence(result),
            f"A set holds {CONFORMAL_METHODS.get(method, method)} ({method}){one_each and ', with a threshold'}{one_each}.",
        ],
        promised=percent(1 - float(result.attrs["alpha"])),
        promised_of=f"for the samples of each {by}" if one_each else "for all samples together",
        chance=one_each and "; p is the probability of so few labels inside, or fewer, if the promise holds",
        coverage=coverage_table(result) if result.attrs["n_labelled"] else None,
        groups=fold(groups and clipped_cells(groups)),
        classes=fold(classes and clipped_cells(classes)),
        sizes=fold(sizes_table(result)),
        facts=provenance(result, seconds, written),
    )


def write_coverage(result: xr.Dataset, path: str | os.PathLike[str], *, seconds: float | None = None) -> None:
    """Write what conformal sets are to a file, which is there whole or as it was; the rest as for ``render_coverage``.

    Raises
    ------
    DtypeError, OptionError
        Where the result is none of a conformal predictor, or the path is no path.
    WriteError
        Where the file cannot be written.

    Examples
    --------
    >>> import tempfile, numpy as np, avgk_dask as avgk
    >>> path = tempfile.mkdtemp() + "/coverage.html"
    >>> found = avgk.conformal.calibrate(np.eye(3), np.arange(3), alpha=0.5).evaluate(np.eye(3), np.arange(3))
    >>> avgk.report.write_coverage(found, path)

    """
    check_coverage(result)
    write_page(path, lambda: render_coverage(result, seconds=seconds))


def check_coverage(result: xr.Dataset) -> None:
    """Refuse what a conformal predictor did not give."""
    names = ("coverage", "size_coverage", "hits_low", "alpha")
    check_source(result, "evaluate of a conformal predictor", names)
