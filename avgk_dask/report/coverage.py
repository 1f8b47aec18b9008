"""Conformal sets on new samples: their coverage and sizes as text, tables and a page."""

from __future__ import annotations

import math
import os

import numpy as np
import xarray as xr

from ..credentials import redact
from ..results.datasets import check_result, check_source
from ..results.registry import CONFORMAL_METHODS
from ..results.text import Screen
from .figures import coverage_pictures
from .frame import clip, clip_cells, fold, provenance, render, write_page
from .tables import Table, number, percent, share, size_quartiles, with_error
from .text import STDERR

#: Maximum number of classes or groups in the table of a terminal, and on a page.
_FEW, _MOST = 20, 50
#: The quantile of coverage below which a class or group is counted as low.
_LOW = 0.05


def print_coverage(result: xr.Dataset, *, width: int | None = None, colour: bool = False) -> str:
    """Return the ``evaluate`` result of a conformal predictor as text; options as for ``print_table``."""
    screen = Screen(width, colour)
    attrs = result.attrs
    size = (
        f"{attrs['n_samples']:,} samples x {attrs['n_classes']:,} classes; {attrs['n_labelled']:,} samples have labels."
    )
    table = coverage_table(result) if attrs["n_labelled"] else None
    parts = parts_table(result, "class" if attrs["by"] == "class" else "group", _FEW)
    notes = [size, coverage_sentence(result), *([] if table is None else [_STDERR])]
    text = screen.page(table, notes, strong=1)
    return text if parts is None else f"{text}\n\n{screen.page(parts, [])}"


_STDERR = STDERR.replace("kind.", "kind and the same threshold.")


def coverage_sentence(result: xr.Dataset) -> str:
    """Compare the number of hits with the expected range."""
    n = result.attrs["n_labelled"]
    if not n:
        return f"Coverage needs labels; the sets have {float(result.average_set_size):.4g} labels on average."
    n_hits, p = int(result.n_hits), float(result.p_value_low)
    inside = f"{n_hits:,} of {n:,} labels are inside their sets"
    if math.isnan(p):
        return (
            f"{inside}; each threshold should cover at least {percent(1 - result.attrs['alpha'])}.{_low_parts(result)}"
        )
    low, high = int(result.hits_low), int(result.hits_high)
    order = "fewer than" if n_hits < low else "more than" if n_hits > high else "as"
    p_value = f"; p = {p:.2g}" if n_hits < low else ""
    return f"{inside}, {order} expected ({low:,} to {high:,} with {100 * result.attrs['confidence']:g} % probability{p_value})."


def _low_parts(result: xr.Dataset) -> str:
    """Count the classes or groups whose coverage is improbably low, which chance alone makes of some."""
    by = str(result.attrs["by"])
    p = result[f"{by}_p_value_low"].values if f"{by}_p_value_low" in result else np.zeros(0)
    n, n_low = int((~np.isnan(p)).sum()), int((p < _LOW).sum())
    if not n:
        return ""
    level = f"{100 * _LOW:g} %"
    return (
        f" {n_low:,} of {n:,} {'classes' if by == 'class' else 'groups'} {'has' if n_low == 1 else 'have'} improbably low coverage "
        f"(p < {_LOW:g}); by chance, about {level} would."
    )


def coverage_table(result: xr.Dataset) -> Table:
    """Return one row: coverage of the samples and of the classes, and set sizes."""
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
    tones = {(0, "coverage"): "bad"} if int(result.n_hits) < float(result.hits_low) else {}
    legend = {
        "quartiles": "a quarter, half and three quarters of the sets have at most this many labels",
        "macro coverage": "mean over classes",
        "classes < 50 %": "share of the classes with a coverage below 50 %",
    }
    return Table(header, [row], ("classes < 50 %", "quartiles", "macro coverage"), tones=tones, legend=legend)


def parts_table(result: xr.Dataset, by: str, most: int) -> Table | None:
    """Return the classes or groups of the lowest coverage, or None; with equal coverage those with more samples come first."""
    if f"{by}_coverage" not in result or by not in result.coords:
        return None
    coverage, n = result[f"{by}_coverage"].values, result[f"{by}_n_labelled"].values
    worst = [int(i) for i in np.lexsort((-n, coverage)) if n[i] > 0][:most]
    with np.errstate(invalid="ignore", divide="ignore"):
        stderr = np.sqrt(coverage * (1 - coverage) / n)
    stderr[stderr == 0] = np.nan  # a coverage of 0 or 1 has no estimated standard error
    p = result.get(f"{by}_p_value_low")  # present if each class or group has its own threshold
    names = result["class_name"].values if by == "class" and "class_name" in result else result[by].values
    rows: list[tuple[str, ...]] = [
        (
            str(names[i]),
            f"{n[i]:,}",
            with_error(float(coverage[i]), stderr[i]),
            number(float(result[f"{by}_average_set_size"].values[i])),
            *([f"{p.values[i]:.2g}"] if p is not None else []),
        )
        for i in worst
    ]
    header = (by, "labelled", "coverage", "set size", *(["p"] if p is not None else []))
    legend = {"p": "probability of a coverage this low or lower if the guarantee holds"}
    return Table(header, rows, ("p",), names=(by,), legend=legend) if rows else None


def sizes_table(result: xr.Dataset) -> Table:
    """Return one row per set size, the most frequent ones if there are many: samples and coverage."""
    counts = result.set_size_count.values
    sizes = np.flatnonzero(counts)
    frequent = np.sort(sizes[np.argsort(-counts[sizes], kind="stable")][:_MOST])
    rows: list[tuple[str, ...]] = [
        (f"{size:,}", f"{counts[size]:,}", percent(float(result.size_coverage.values[size])))
        for size in frequent.tolist()
    ]
    return Table(("set size", "samples", "coverage"), rows)


def coverage_headline(result: xr.Dataset) -> str:
    """Compare the coverage with its target, and give the mean set size."""
    size = f"{float(result.average_set_size):.4g} labels on average"
    target = percent(1 - float(result.attrs["alpha"]))
    if not result.attrs["n_labelled"]:
        return f"Sets for a coverage of {target} have {size}."
    return f"{percent(float(result.coverage))} of the sets hold the label of their sample (target: {target}); a set has {size}."


def _check_coverage(result: xr.Dataset) -> None:
    """Raise OptionError unless a result is that of evaluating a conformal predictor."""
    check_source(result, "evaluate of a conformal predictor", ("coverage", "size_coverage", "hits_low", "alpha"))


def render_coverage(result: xr.Dataset, *, seconds: float | None = None, written: str | None = None) -> str:
    """Return the coverage and sizes of conformal sets as one self-contained HTML page.

    Parameters
    ----------
    result
        The ``evaluate`` result of a conformal predictor.
    seconds
        Duration of the computation, if known.
    written
        Date and time to show; by default now, in UTC.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> coverage = avgk.conformal.calibrate(np.eye(3), np.arange(3), alpha=0.5).evaluate(np.eye(3), np.arange(3))
    >>> avgk.report.render_coverage(coverage).startswith("<!doctype html>")
    True
    """
    _check_coverage(result)
    by, method = str(result.attrs["by"]), str(result.attrs["method"])
    is_split = by in ("class", "group")
    groups, classes = (parts_table(result, part, _MOST) for part in ("group", "class"))
    return render(
        "coverage.html",
        coverage_pictures(result),
        title="Conformal sets",
        store=clip(redact(result.attrs.get("store", ""))),
        headline=coverage_headline(result),
        details=[
            coverage_sentence(result),
            f"A set holds {CONFORMAL_METHODS.get(method, method)} ({method}){f', with a threshold for each {by}' if is_split else ''}.",
            *([_STDERR] if result.attrs["n_labelled"] else []),
        ],
        target=percent(1 - float(result.attrs["alpha"])),
        scope=f"for the samples of each {by}" if is_split else "for all samples together",
        p_value="; p is the probability of a coverage this low or lower if the guarantee holds" if is_split else "",
        coverage=coverage_table(result) if result.attrs["n_labelled"] else None,
        groups=fold(groups and clip_cells(groups)),
        classes=fold(classes and clip_cells(classes)),
        n_parts={
            part: int((result[f"{part}_n_labelled"].values > 0).sum())
            for part in ("group", "class")
            if f"{part}_n_labelled" in result
        },
        sizes=fold(sizes_table(result)),
        facts=provenance(result, seconds, written),
    )


def write_coverage(result: xr.Dataset, path: str | os.PathLike[str], *, seconds: float | None = None) -> None:
    """Write the page of ``render_coverage`` to a file, atomically.

    Raises
    ------
    DtypeError, OptionError
        If the result is not one of a conformal predictor, or path is not path-like.
    WriteError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile, numpy as np, avgk_dask as avgk
    >>> path = tempfile.mkdtemp() + "/coverage.html"
    >>> coverage = avgk.conformal.calibrate(np.eye(3), np.arange(3), alpha=0.5).evaluate(np.eye(3), np.arange(3))
    >>> avgk.report.write_coverage(coverage, path)
    """
    _check_coverage(result)
    write_page(path, lambda: render_coverage(result, seconds=seconds))
