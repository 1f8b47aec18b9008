"""The report of an evaluation: its page, with a slider over all integer budgets.

The slider's numbers are those of a second result, the curve: the integers up to 100, added to the budgets of the scan.
It ends where a scan would no longer hold rows (``cheap_budgets``). A page has at most 1 MB: 100 budgets, thinned
pictures, and files of 400 rows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from .. import plot
from ..credentials import shown
from ..errors import OptionError
from ..results.text import drop_empty_columns
from .breakdown import breakdown_sentence, worst_table
from .figures import Picture, Points, calibration_pictures, curve_picture, pictures
from .frame import (
    MOST_NAME,
    Folded,
    clipped,
    clipped_cells,
    downloads,
    fold,
    places,
    provenance,
    render,
    report_columns,
    spaced,
    write_page,
)
from .tables import (
    Table,
    ambiguity_table,
    check_evaluation,
    results_table,
    size_quartiles,
    tie_table,
    utilities_table,
    utility_sentences,
)
from .text import answers, error_words

#: Rows of a long table that stay in sight.
_IN_SIGHT = 8
#: Places of a slider at most.
_MOST = 200
#: What it shows of a table's columns, and what it calls them.
_SHOWN = ("k", "top-k error", "avg-k error", "gain", "threshold", "quartiles")
_NAMES = {"avg-k error": "average-k error", "quartiles": "sizes 25/50/75 %"}


@dataclass(frozen=True)
class Slider:
    """The budgets of a slider: rows of text under names, a sentence for each, and where it begins."""

    names: tuple[str, ...]
    budgets: list[str]
    cells: list[tuple[str, ...]]
    told: list[str]
    start: int
    picture: Picture | None
    marks: Points

    @property
    def content(self) -> dict[str, object]:
        """What the page's script reads."""
        return {"budgets": self.budgets, "cells": self.cells, "told": self.told, "marks": self.marks}


def make_slider(curve: xr.Dataset, start: float) -> Slider | None:
    """Return the slider over the integer budgets of a result, which begins at a budget; None where there are not two."""
    whole = np.flatnonzero(curve.k.values % 1 == 0)
    ordered = curve.isel(k=whole[np.argsort(curve.k.values[whole])])
    shown = ordered.isel(k=places(ordered.sizes["k"], _MOST))
    if shown.sizes["k"] < 2:
        return None
    table = results_table(shown)
    found = [table.header.index(name) for name in _SHOWN]
    header, *rows = (tuple(row[c] for c in found) for row in (table.header, *table.rows))
    table = drop_empty_columns(Table(header, rows))
    clear = plot.is_clear(shown)
    picture, marks = curve_picture(shown)
    return Slider(
        tuple(_NAMES.get(name, name) for name in table.header[1:]),
        [row[0] for row in table.rows],
        [row[1:] for row in table.rows],
        [_told(shown.isel(k=i), bool(clear[i])) for i in range(shown.sizes["k"])],
        int(np.abs(shown.k.values - start).argmin()),
        picture,
        marks,
    )


def _told(one: xr.Dataset, is_clear: bool) -> str:
    errors = error_words(one, is_clear)
    first = f"K = {float(one.k):g}: {errors}." if errors else f"K = {float(one.k):g}."
    quarter, half, three = size_quartiles(one.set_size_count.values)
    labels = "label" if quarter == 1 else "labels"
    return f"{first} A quarter of the sets have at most {quarter:,} {labels}, half at most {half:,}, three quarters at most {three:,}."


#: The sections of a page: their places, titles, and what they are there for.
_SECTIONS = (
    ("errors", "Errors and gains", ("pictures:errors", "pictures:gains")),
    ("any-budget", "At any K", ("slider",)),
    ("results", "Results", ("results",)),
    ("sizes", "Set sizes", ("size_summary",)),
    ("groups", "By class or group", ("groups",)),
    ("utilities", "What sets are worth", ("utilities",)),
    ("why", "When adapting pays, and why", ("why", "pictures:ranked_scores")),
    ("calibration", "Calibration", ("pictures:reliability", "pictures:near_threshold")),
    ("ties", "How far ties matter", ("ties", "crowd")),
    ("numbers", "Numbers", ("downloads",)),
    ("provenance", "Provenance", ("facts",)),
)


def render_report(
    result: xr.Dataset,
    *,
    seconds: float | None = None,
    written: str | None = None,
    calibration: Mapping[str, xr.Dataset] | None = None,
    breakdown: xr.Dataset | None = None,
    utilities: xr.Dataset | None = None,
    curve: xr.Dataset | None = None,
) -> str:
    """Return the report of a result as one self-contained HTML page.

    Parameters
    ----------
    result
        What ``evaluate`` gives.
    seconds
        How long it took to compute, if known.
    written
        Date and time to show; by default now, in UTC.
    calibration
        Tables of ``losses.expected_calibration_error`` by name, such as before and after, and one of
        ``losses.calibration_at_threshold``: they become a section of their own.
    breakdown
        What ``breakdown`` gives: its worst classes or groups become a section.
    utilities
        What ``set_utility`` gives, or several of them along ``utility``: they become a section.
    curve
        What ``evaluate`` gives for more budgets of the same scores, such as ``k=range(1, 101), straddle=False``: a slider
        in the page moves over the integers among them. By default over those of the result.

    Raises
    ------
    DtypeError, OptionError
        Where the result, or the curve, is none of ``evaluate``, or they are of different scores.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> page = avgk.report.render_report(avgk.evaluate(np.eye(3), np.arange(3), k=[1, 2]))
    >>> page.startswith("<!doctype html>")
    True

    """
    check_evaluation(result)
    if curve is not None:
        check_curve(result, curve)
    keep = plot.best_budget(result)
    few = spaced(result, keep)
    is_told = few.sizes["k"] > 1 and not np.isnan(few.relative_gain.values).all()
    columns, n = report_columns(result, curve)
    by = "" if breakdown is None else clipped(str(breakdown.attrs.get("by", "group")), MOST_NAME)
    return render(
        "page.html",
        _SECTIONS,
        pictures(result) | calibration_pictures(calibration or {}),
        title="Average-k evaluation",
        store=clipped(shown(result.attrs.get("store", ""))),
        **answers(result, curve),
        slider=make_slider(result if curve is None else curve, keep),
        keep=f"{keep:g}" if is_told else None,
        results=_fold(drop_empty_columns(results_table(few)), f"{keep:g}"),
        ambiguity=_fold(ambiguity_table(few), f"{keep:g}"),
        ties=_fold(tie_table(few), f"{keep:g}"),
        groups=None if breakdown is None else clipped_cells(worst_table(breakdown)),
        groups_by=by,
        groups_told="" if breakdown is None else breakdown_sentence(breakdown),
        utilities=None if utilities is None else utilities_table(utilities),
        utilities_told=[] if utilities is None else utility_sentences(utilities),
        downloads=downloads({"average-k": columns}, result.attrs),
        downloads_told=_columns_sentence(columns, n),
        facts=provenance(result, seconds, written),
    )


def check_curve(result: xr.Dataset, curve: xr.Dataset) -> None:
    """Refuse a curve that is no result of ``evaluate`` for the same samples and classes."""
    check_evaluation(curve)
    sizes = [{name: data.attrs[name] for name in ("n_samples", "n_classes")} for data in (result, curve)]
    if sizes[0] != sizes[1]:
        raise OptionError(
            f"curve must be of the same scores as the result; got {sizes[1]} beside {sizes[0]}. "
            "Pass what evaluate gives for them with k=range(1, 101)."
        )


def _fold(table: Table | None, keep: str) -> Folded | None:
    """Return a table, and of a long one a few rows: evenly spaced ones, and the first that begins with a text to keep."""

    def choose(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        kept = [i for i, row in enumerate(rows) if row[0] == keep]
        return [rows[i] for i in places(len(rows), _IN_SIGHT, kept[0] if kept else None)]

    return fold(table, choose)


def _columns_sentence(columns: Mapping[str, list[object]], n: int) -> str:
    """Say what the files inside a page hold, of n budgets."""
    rows = len(columns["k"])
    told = f"{rows:,} budget{'s' * (n != 1)}" if rows == n else f"{rows:,} of {n:,} budgets"
    more = "" if rows == n else " The others are in the result itself."
    bars = ", errors with their standard errors" if "adaptive_gain_stderr" in columns else ""
    return f"{told} in full precision{bars}.{more}"


def write_report(
    result: xr.Dataset,
    path: str | os.PathLike[str],
    *,
    seconds: float | None = None,
    calibration: Mapping[str, xr.Dataset] | None = None,
    breakdown: xr.Dataset | None = None,
    utilities: xr.Dataset | None = None,
    curve: xr.Dataset | None = None,
) -> None:
    """Write the report of a result to a file, which is there whole or as it was; the rest as for ``render_report``.

    Raises
    ------
    DtypeError, OptionError
        Where the result is none of ``evaluate``, or the path is no path.
    WriteError
        Where the file cannot be written.

    Examples
    --------
    >>> import tempfile, numpy as np, avgk_dask as avgk
    >>> path = tempfile.mkdtemp() + "/report.html"
    >>> avgk.report.write_report(avgk.evaluate(np.eye(3), np.arange(3), k=[1, 2]), path)

    """
    check_evaluation(result)
    parts: dict[str, Any] = {"calibration": calibration, "breakdown": breakdown, "utilities": utilities, "curve": curve}
    write_page(path, lambda: render_report(result, seconds=seconds, **parts))
