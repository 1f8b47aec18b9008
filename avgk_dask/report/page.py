"""The slider of a page: what it shows at each integer budget, as text, and where its mark is in the picture."""

from __future__ import annotations

import base64
import datetime
import hashlib
import os
import pathlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import xarray as xr
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from .. import plot
from ..credentials import is_url, shown
from ..errors import DtypeError, OptionError, visible
from ..results.datasets import fingerprint, kind_sentence
from ..results.text import filled
from .downloads import (
    MOST_FACTS,
    MOST_NAME,
    clipped,
    clipped_cells,
    columns,
    downloads,
    in_sight,
    places,
    report_columns,
    spaced,
)
from .figures import Picture, Points, calibration_pictures, curve_picture, pictures
from .tables import (
    Table,
    ambiguity_table,
    breakdown_sentence,
    check_evaluation,
    results_table,
    size_quartiles,
    tie_table,
    utilities_table,
    utility_sentences,
    worst_table,
)
from .text import (
    ambiguity_sentence,
    answer,
    bound_sentence,
    crowd_sentence,
    error_words,
    headline,
    question,
    shared_out,
    size_sentence,
    soft_sentence,
    stderr_sentence,
    tie_sentence,
    zero_sentence,
)

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
    table = filled(columns(results_table(shown), _SHOWN))
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
    sizes = shared_out(size_quartiles(one.set_size_count.values))
    return f"{first} {sizes[0].upper()}{sizes[1:]}."


# The HTML page: everything from users is escaped, nothing is fetched.


#: What is said below the headline.
_DETAILS = (kind_sentence, soft_sentence, tie_sentence, stderr_sentence, zero_sentence)


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
    parts = (
        _answers(result, curve),
        _tables(spaced(result, keep), f"{keep:g}"),
        _groups(breakdown),
        _utilities(utilities),
        _numbers(result, curve),
    )
    values: dict[str, object] = {
        "slider": make_slider(result if curve is None else curve, keep),
        "pictures": pictures(result) | calibration_pictures(calibration or {}),
        "facts": provenance(result, seconds, written),
    }
    for part in parts:
        values |= part
    return render("page.html", title="Average-k evaluation", **values, sections=_sections(values))


def check_curve(result: xr.Dataset, curve: xr.Dataset) -> None:
    """Refuse a curve that is no result of ``evaluate`` for the same samples and classes."""
    check_evaluation(curve)
    sizes = [{name: data.attrs[name] for name in ("n_samples", "n_classes")} for data in (result, curve)]
    if sizes[0] != sizes[1]:
        raise OptionError(
            f"curve must be of the same scores as the result; got {sizes[1]} beside {sizes[0]}. "
            "Pass what evaluate gives for them with k=range(1, 101)."
        )


def _answers(result: xr.Dataset, curve: xr.Dataset | None) -> dict[str, object]:
    """Return what a page says in sentences."""
    details, crowd = [sentence(result) for sentence in _DETAILS], crowd_sentence(result)
    if "max_error" in result.attrs:  # then another question is answered first
        details.insert(0, headline(result))
    if (result.relative_gain.values < 0).any():  # that asks for an explanation
        details.append(crowd)
    return {
        "store": clipped(shown(result.attrs.get("store", ""))),
        "question": question(result),
        "headline": answer(result, curve),
        "details": [sentence for sentence in details if sentence],
        "sizes_told": size_sentence(result),
        "why": ambiguity_sentence(result),
        "unbounded": bound_sentence(result),
        "crowd": crowd,
    }


def _tables(result: xr.Dataset, keep: str) -> dict[str, object]:
    """Return the tables of a page, and the few rows in sight of long ones."""
    tables = {
        "results": filled(results_table(result)),
        "ambiguity": ambiguity_table(result),
        "ties": tie_table(result),
    }
    few = {f"{name}_in_sight": None if table is None else in_sight(table, keep) for name, table in tables.items()}
    is_told = result.sizes["k"] > 1 and not np.isnan(result.relative_gain.values).all()
    return {**tables, **few, "keep": keep if is_told else None}


def _groups(breakdown: xr.Dataset | None) -> dict[str, object]:
    """Return the worst classes or groups, where there is a breakdown."""
    if breakdown is None:
        return {"groups": None, "groups_by": "", "groups_told": ""}
    by = str(breakdown.attrs.get("by", "group"))
    return {
        "groups": clipped_cells(worst_table(breakdown)),
        "groups_by": clipped(by, MOST_NAME),
        "groups_told": breakdown_sentence(breakdown),
    }


def _utilities(utilities: xr.Dataset | None) -> dict[str, object]:
    """Return what sets are worth, where that was asked for."""
    if utilities is None:
        return {"utilities": None, "utilities_told": []}
    return {"utilities": utilities_table(utilities), "utilities_told": utility_sentences(utilities)}


def _numbers(result: xr.Dataset, curve: xr.Dataset | None) -> dict[str, object]:
    """Return the files inside a page, and what they hold."""
    columns, n = report_columns(result, curve)
    rows = len(columns["k"])
    told = f"{rows:,} budget{'s' * (n != 1)}" if rows == n else f"{rows:,} of {n:,} budgets"
    more = "" if rows == n else " The others are in the result itself."
    bars = ", errors with their standard errors" if "adaptive_gain_stderr" in columns else ""
    return {
        "downloads": downloads({"average-k": columns}, result.attrs),
        "downloads_told": f"{told} in full precision{bars}.{more}",
    }


#: The sections of a page: their places, titles, and what they are there for.
_SECTIONS = (
    ("errors", "Errors and gains", ("pictures:errors", "pictures:gains")),
    ("any-budget", "At any K", ("slider",)),
    ("results", "Results", ("results",)),
    ("sizes", "Set sizes", ("sizes_told",)),
    ("groups", "By class or group", ("groups",)),
    ("utilities", "What sets are worth", ("utilities",)),
    ("why", "When adapting pays, and why", ("why", "pictures:ranked_scores")),
    ("calibration", "Calibration", ("pictures:reliability", "pictures:near_threshold")),
    ("ties", "How far ties matter", ("ties", "crowd")),
    ("numbers", "Numbers", ("downloads",)),
    ("provenance", "Provenance", ("facts",)),
)


def _sections(values: dict[str, object]) -> list[tuple[str, str]]:
    """Return the places and titles of the sections that a page has."""
    drawn = values["pictures"]
    assert isinstance(drawn, dict)
    there = {name for name, value in values.items() if value} | {f"pictures:{name}" for name in drawn}
    return [(place, title) for place, title, needs in _SECTIONS if there.intersection(needs)]


def render(name: str, **values: object) -> str:
    """Return a page of this folder: everything in it is escaped, and its own script is allowed by its hash."""
    pages = FunctionLoader(_text_of)
    environment = Environment(
        loader=pages,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_visible,
    )
    script = _text_of("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals |= {"script": Markup(script), "script_hash": f"sha256-{digest}"}  # a file of ours
    return environment.get_template(name).render(**values)


def _visible(value: object) -> object:
    """Return a value of a page with its control characters written out; what is HTML already stays."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _text_of(name: str) -> str:
    """Return a file of this folder."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


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


def write_page(path: str | os.PathLike[str], render_page: Callable[[], str]) -> None:
    """Write a page to a file, which is there whole or as it was."""
    from ..store import writing, written_whole

    if not isinstance(path, (str, os.PathLike)):
        raise DtypeError(
            f"path must be that of the new file; got {type(path).__name__}. Pass the result, then its path."
        )
    if is_url(path):
        raise OptionError(f"path must be that of a file on this machine; got {shown(path)!r}. Choose a local one.")
    page = render_page()
    with writing(str(path)), written_whole(pathlib.Path(path)) as place:
        place.write_text(page, encoding="utf-8")


def _stores(store: object) -> str:
    """Return where scores are stored, of one model or of several."""
    if isinstance(store, str):
        store = [store]
    return ", ".join(shown(one) if one else "none: an array" for one in list(store or [""]))  # type: ignore[call-overload]


def provenance(result: xr.Dataset, seconds: float | None, written: str | None) -> Table:
    """Return what a result was computed from, with what and when."""
    attrs = result.attrs
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    labelled = attrs.get("n_labelled", 0)
    facts: dict[str, str] = {
        "Store": _stores(attrs.get("store")),
        "Fingerprint of the stored scores": attrs.get("fingerprint", ""),
        "Fingerprint of the result": fingerprint(result),
        "Samples": f"{attrs['n_samples']:,}",
        "Classes": f"{attrs['n_classes']:,}",
        "Labelled samples": f"{labelled:,}" if labelled else "none",
        "Full reads": f"{attrs['reads']} for these results (besides a pilot of some chunks, where there was one, and what other sections took)",
        "Computed in": "" if seconds is None else f"{seconds:.2f} s",
        "Written": written or now,
        "Versions": attrs.get("versions", ""),
    }
    more = {name: value for name, value in attrs.items() if name not in _TOLD}
    told = [(str(n), ", ".join(map(str, v)) if isinstance(v, list) else str(v)) for n, v in (facts | more).items()]
    some: list[tuple[str, ...]] = [(clipped(name, MOST_NAME), clipped(value)) for name, value in told if value]
    return Table(("what", "value"), some[: len(facts) + MOST_FACTS])


_TOLD = ("store", "fingerprint", "n_samples", "n_classes", "n_labelled", "reads", "versions")
