"""The page of an evaluation, with a slider over all integer budgets.

The slider shows a second result, the curve, for the integers up to 100, as long as these are cheap to add to the scan
(``largest_cheap_budget``). A page has at most 1 MB: 100 budgets, thinned pictures, and downloads of 400 rows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from .. import plot
from ..credentials import redact
from ..errors import OptionError
from ..plot.canvas import space_evenly
from ..results.text import drop_empty_columns
from .breakdown import breakdown_sentence, worst_table
from .figures import Picture, Points, calibration_pictures, curve_picture, pictures
from .frame import (
    MOST_NAME,
    Folded,
    clip,
    clip_cells,
    downloads,
    fold,
    provenance,
    render,
    report_columns,
    thin_budgets,
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

#: Rows of a folded table that stay visible, and the maximum number of positions of a slider.
_VISIBLE, _MOST = 8, 200
#: The columns of a slider, and their names if they differ from the names in the table.
_COLUMNS = ("k", "top-k error", "avg-k error", "gain", "threshold", "quartiles")
_NAMES = {"avg-k error": "average-k error", "quartiles": "sizes 25/50/75 %"}


@dataclass(frozen=True)
class Slider:
    """The budgets of a slider with their cells and sentences, and the first position."""

    names: tuple[str, ...]
    budgets: list[str]
    cells: list[tuple[str, ...]]
    sentences: list[str]
    start: int
    picture: Picture | None
    marks: Points

    @property
    def content(self) -> dict[str, object]:
        """The data of the page's script."""
        return {"budgets": self.budgets, "cells": self.cells, "sentences": self.sentences, "marks": self.marks}


def make_slider(curve: xr.Dataset, start: float) -> Slider | None:
    """Return a slider over the integer budgets of a result, or None if there are fewer than two."""
    whole = np.flatnonzero(curve.k.values % 1 == 0)
    ordered = curve.isel(k=whole[np.argsort(curve.k.values[whole])])
    shown = ordered.isel(k=space_evenly(ordered.sizes["k"], _MOST))
    if shown.sizes["k"] < 2:
        return None
    table = results_table(shown)
    columns = [table.header.index(name) for name in _COLUMNS]
    header, *rows = (tuple(row[c] for c in columns) for row in (table.header, *table.rows))
    table = drop_empty_columns(Table(header, rows))
    clear = plot.is_clear(shown)
    picture, marks = curve_picture(shown)
    return Slider(
        tuple(_NAMES.get(name, name) for name in table.header[1:]),
        [row[0] for row in table.rows],
        [row[1:] for row in table.rows],
        [_sentence(shown.isel(k=i), bool(clear[i])) for i in range(shown.sizes["k"])],
        int(np.abs(shown.k.values - start).argmin()),
        picture,
        marks,
    )


def _sentence(one: xr.Dataset, is_clear: bool) -> str:
    errors = error_words(one, is_clear)
    first = f"k = {float(one.k):g}: {errors}." if errors else f"k = {float(one.k):g}."
    quarter, half, three = size_quartiles(one.set_size_count.values)
    labels = "label" if quarter == 1 else "labels"
    return f"{first} A quarter of the sets have at most {quarter:,} {labels}, half at most {half:,}, three quarters at most {three:,}."


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
        The result of ``evaluate``.
    seconds
        Duration of the computation, if known.
    written
        Date and time to show; by default now, in UTC.
    calibration
        Results of ``losses.expected_calibration_error`` by name, such as before and after, and one of
        ``losses.calibration_at_threshold``, for a section on calibration.
    breakdown
        A result of ``breakdown``, for a section on its worst classes or groups.
    utilities
        The result of ``set_utility``, or several along ``utility``, for a section on them.
    curve
        A result of ``evaluate`` for more budgets of the same scores, such as ``k=range(1, 101), straddle=False``: the page
        has a slider over its integer budgets. By default the slider is over the budgets of the result.

    Raises
    ------
    DtypeError, OptionError
        If the result or the curve is not one of ``evaluate``, or they are of different scores.

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
    few = thin_budgets(result, keep)
    has_headline_row = few.sizes["k"] > 1 and not np.isnan(few.relative_gain.values).all()
    columns, n = report_columns(result, curve)
    by = "" if breakdown is None else clip(str(breakdown.attrs.get("by", "group")), MOST_NAME)
    return render(
        "page.html",
        pictures(result) | calibration_pictures(calibration or {}),
        title="Average-k evaluation",
        store=clip(redact(result.attrs.get("store", ""))),
        **answers(result, curve),
        slider=make_slider(result if curve is None else curve, keep),
        keep=f"{keep:g}" if has_headline_row else None,
        results=_fold(drop_empty_columns(results_table(few)), f"{keep:g}"),
        ambiguity=_fold(ambiguity_table(few), f"{keep:g}"),
        ties=_fold(tie_table(few), f"{keep:g}"),
        groups=None if breakdown is None else clip_cells(worst_table(breakdown)),
        groups_by=by,
        groups_summary="" if breakdown is None else breakdown_sentence(breakdown),
        utilities=None if utilities is None else utilities_table(utilities),
        utilities_summary=[] if utilities is None else utility_sentences(utilities),
        downloads=downloads({"average-k": columns}, result.attrs),
        downloads_summary=_columns_sentence(columns, n),
        facts=provenance(result, seconds, written),
    )


def check_curve(result: xr.Dataset, curve: xr.Dataset) -> None:
    """Check that a curve is a result of ``evaluate`` for the same samples and classes."""
    check_evaluation(curve)
    sizes = [{name: data.attrs[name] for name in ("n_samples", "n_classes")} for data in (result, curve)]
    if sizes[0] != sizes[1]:
        raise OptionError(
            f"curve must be of the same scores as the result; got {sizes[1]} and {sizes[0]}. "
            "Pass the result of evaluate for these scores with k=range(1, 101)."
        )


def _fold(table: Table | None, keep: str) -> Folded | None:
    """Fold a long table except for evenly spaced rows and the one to keep."""

    def choose(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        kept = [i for i, row in enumerate(rows) if row[0] == keep]
        return [rows[i] for i in space_evenly(len(rows), _VISIBLE, kept[0] if kept else None)]

    return fold(table, choose)


def _columns_sentence(columns: Mapping[str, list[object]], n: int) -> str:
    """Describe the downloads, whose columns may have fewer rows than the n budgets."""
    rows = len(columns["k"])
    budgets = f"{rows:,} budget{'s' * (n != 1)}" if rows == n else f"{rows:,} of {n:,} budgets"
    others = "" if rows == n else " The result itself has the others."
    bars = ", errors with their standard errors" if "adaptive_gain_stderr" in columns else ""
    return f"{budgets} in full precision{bars}.{others}"


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
    """Write the page of ``render_report`` to a file, atomically.

    Raises
    ------
    DtypeError, OptionError
        If the result is not one of ``evaluate``, or path is not path-like.
    WriteError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile, numpy as np, avgk_dask as avgk
    >>> path = tempfile.mkdtemp() + "/report.html"
    >>> avgk.report.write_report(avgk.evaluate(np.eye(3), np.arange(3), k=[1, 2]), path)
    """
    check_evaluation(result)
    write_page(
        path,
        lambda: render_report(
            result, seconds=seconds, calibration=calibration, breakdown=breakdown, utilities=utilities, curve=curve
        ),
    )
