"""Classes that are in sets together, in words and as a table."""

from __future__ import annotations

import os

import numpy as np
import xarray as xr

from ..credentials import shown
from ..errors import OptionError
from ..results.datasets import check_dimensions, check_result
from ..results.text import Screen
from .downloads import MOST_NAME, clipped, clipped_cells, first_rows
from .figures import group_pictures
from .page import provenance, render, write_page
from .tables import Table, breakdown_sentence, check_breakdown, percent, threshold_sentence, worst_table


def print_pairs(result: xr.Dataset, n: int = 20, *, width: int | None = None, colour: bool = False) -> str:
    """Return the most frequent pairs of what ``set_pairs`` gave as text, and one sentence; the rest as for ``print_table``."""
    screen = Screen(width, colour)
    return "\n".join([*screen.table(pairs_table(result, n)), "", *screen.text(pairs_sentence(result), "strong")])


def check_pairs(result: xr.Dataset) -> None:
    """Refuse what ``set_pairs`` did not give."""
    check_result(result)
    lost = [name for name in ("class_a", "class_b", "count", "n_sets_a", "n_sets_b") if name not in result]
    if lost:
        raise OptionError(f"result must be what set_pairs gives; got one without {lost[0]}. Pass its result.")
    check_dimensions(result, ("pair",))


def pairs_table(result: xr.Dataset, n: int = 20) -> Table:
    """Return a row for each of the first pairs: both classes, the sets with both, and their share of each one's sets."""
    check_pairs(result)
    rows = [_row(result.isel(pair=i)) for i in range(min(n, result.sizes["pair"]))]
    header = ("class", "and class", "sets with both", "of the first's", "of the second's")
    return Table(header, rows, least=header[:2:-1], names=header[:2])


def _row(one: xr.Dataset) -> tuple[str, ...]:
    count = int(one["count"])
    return (
        _name(one, "a"),
        _name(one, "b"),
        f"{count:,}",
        percent(count / int(one.n_sets_a)),
        percent(count / int(one.n_sets_b)),
    )


def _name(one: xr.Dataset, end: str) -> str:
    return str(one[f"name_{end}"].item()) if f"name_{end}" in one else str(int(one[f"class_{end}"]))


def pairs_sentence(result: xr.Dataset) -> str:
    """Say how many pairs there are, and of what."""
    attrs = result.attrs
    n = int(attrs["n_pairs"])
    pairs = "no two classes are" if not n else "1 pair of classes is" if n == 1 else f"{n:,} pairs of classes are"
    return f"In the average-k sets of {attrs['n_samples']:,} samples at k = {attrs['k']:g}, {pairs} together at least once."


# A breakdown as a page of its own.


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
