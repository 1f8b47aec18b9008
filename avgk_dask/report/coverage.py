"""What conformal sets are on new samples, as a page of its own."""

from __future__ import annotations

import os

import numpy as np
import xarray as xr

from ..credentials import shown
from ..errors import OptionError
from ..results.datasets import check_result
from ..results.registry import CONFORMAL_METHODS
from .downloads import clipped, clipped_cells, first_rows
from .figures import coverage_pictures
from .page import provenance, render, write_page
from .tables import Table, coverage_table, parts_table, percent
from .text import coverage_sentence

#: Classes or groups that a page shows.
_WORST = 50
#: The sections of a page.
_SECTIONS = (
    ("coverage", "Coverage"),
    ("groups", "By group"),
    ("classes", "By class"),
    ("sizes", "By set size"),
    ("provenance", "Provenance"),
)
_PROMISED_OF = {"class": "for the samples of each class", "group": "for the samples of each group"}


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
    by = str(result.attrs["by"])
    tables = {
        "coverage": coverage_table(result) if result.attrs["n_labelled"] else None,
        "groups": _parts(result, "group"),
        "classes": _parts(result, "class"),
        "sizes": sizes_table(result),
    }
    return render(
        "coverage.html",
        title="Sets with a promised coverage",
        store=clipped(shown(result.attrs.get("store", ""))),
        headline=coverage_headline(result),
        details=[coverage_sentence(result), _promise(result)],
        sections=[part for part in _SECTIONS if tables.get(part[0], True)],
        promised=percent(1 - float(result.attrs["alpha"])),
        promised_of=_PROMISED_OF.get(by, "for all samples together"),
        chance="; p is the probability of so few labels inside, or fewer, if the promise holds"
        if by in _PROMISED_OF
        else "",
        pictures=coverage_pictures(result),
        facts=provenance(result, seconds, written),
        **tables,
        **{f"{name}_in_sight": first_rows(table) for name, table in tables.items()},
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
    check_result(result)
    lost = [name for name in ("coverage", "size_coverage", "hits_low") if name not in result]
    if lost or "alpha" not in result.attrs:
        raise OptionError(
            f"result must be what evaluate of a conformal predictor gives; got one without {(lost or ['alpha'])[0]}. "
            "Pass its result."
        )


def coverage_headline(result: xr.Dataset) -> str:
    """Say how many labels are inside, how many were promised, and how large the sets are."""
    size = f"{float(result.average_set_size):.4g} labels per sample on average"
    promised = percent(1 - float(result.attrs["alpha"]))
    if not result.attrs["n_labelled"]:
        return f"Sets for a coverage of {promised} hold {size}."
    return f"The sets hold {percent(float(result.coverage))} of the labels, {promised} were promised, with {size}."


def _promise(result: xr.Dataset) -> str:
    by = {"class": ", with a threshold for each class", "group": ", with a threshold for each group"}
    method = str(result.attrs["method"])
    return f"A set holds {CONFORMAL_METHODS.get(method, method)} ({method}){by.get(str(result.attrs['by']), '')}."


def sizes_table(result: xr.Dataset) -> Table:
    """Return a row for each set size there is, the frequent ones where they are many: samples, and coverage."""
    counts = result.set_size_count.values
    there = np.flatnonzero(counts)
    some = np.sort(there[np.argsort(-counts[there], kind="stable")][:_WORST])
    rows: list[tuple[str, ...]] = [
        (f"{size:,}", f"{counts[size]:,}", percent(float(result.size_coverage.values[size]))) for size in some.tolist()
    ]
    return Table(("set size", "samples", "coverage"), rows)


def _parts(result: xr.Dataset, what: str) -> Table | None:
    table = parts_table(result, what, _WORST)
    return table and clipped_cells(table)
