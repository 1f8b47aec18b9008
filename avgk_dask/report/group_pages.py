"""A breakdown as a page of its own."""

from __future__ import annotations

import os

import numpy as np
import xarray as xr

from ..credentials import shown
from .figures import group_pictures
from .group_tables import breakdown_sentence, check_breakdown, threshold_sentence, worst_table
from .page import provenance, render, write_page
from .pair_tables import pairs_sentence, pairs_table
from .shortening import MOST_NAME, clipped, clipped_cells, first_rows
from .tables import Table, percent

#: Groups that a page shows; the files beside it have all.
_WORST = 50
#: The sections of a page.
_SECTIONS = (
    ("means", "Means over all"),
    ("worst", "The worst"),
    ("pairs", "Classes in sets together"),
    ("provenance", "Provenance"),
)


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
    worst = clipped_cells(worst_table(result, n=_WORST))
    together = None if pairs is None else clipped_cells(pairs_table(pairs, _WORST))
    return render(
        "breakdown.html",
        title=f"Errors by {by}",
        store=clipped(shown(result.attrs.get("store", ""))),
        headline=breakdown_sentence(result),
        details=[threshold_sentence(result, by)],
        sections=[part for part in _SECTIONS if part[0] != "pairs" or pairs is not None],
        by=by,
        means=means_table(result),
        worst=worst,
        worst_in_sight=first_rows(worst),
        n_groups=int((result.n_labelled.values > 0).sum()),
        pairs=together,
        pairs_in_sight=first_rows(together),
        pairs_told="" if pairs is None else pairs_sentence(pairs),
        pictures=group_pictures(result),
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


def means_table(result: xr.Dataset) -> Table:
    """Return a row for each budget: the means over groups of both errors, and how many groups miss more than half."""
    rows = []
    some = result.n_labelled.values > 0
    for i, k in enumerate(result.k.values):
        means = [percent(float(result[f"macro_{rule}_k_error"].values[i])) for rule in ("top", "average")]
        bad = int(np.count_nonzero(result.average_k_error.values[i][some] > 0.5))
        rows.append((f"{k:g}", *means, f"{bad:,}"))
    return Table(("k", "mean top-k error", "mean avg-k error", "with more than half missed"), rows)
