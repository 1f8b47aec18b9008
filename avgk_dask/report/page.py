"""The HTML page: everything from users is escaped, nothing is fetched."""

from __future__ import annotations

import datetime
import os
import pathlib
from collections.abc import Callable, Mapping
from importlib.resources import files

import xarray as xr
from jinja2 import Environment, FunctionLoader, StrictUndefined

from ..credentials import is_url, shown
from ..errors import DtypeError, OptionError
from ..results.datasets import fingerprint
from ..results.score_kinds import kind_sentence
from ..results.showing import visible
from .figures import calibration_pictures, pictures
from .group_tables import breakdown_sentence, worst_table
from .tables import Table, ambiguity_table, check_evaluation, results_table, tie_table
from .text import ambiguity_sentence, headline, least_sentence, size_sentence, stderr_sentence, tie_sentence

#: What is said below the headline.
_DETAILS = (least_sentence, kind_sentence, size_sentence, tie_sentence, stderr_sentence)


def render_report(
    result: xr.Dataset,
    *,
    seconds: float | None = None,
    written: str | None = None,
    calibration: Mapping[str, xr.Dataset] | None = None,
    breakdown: xr.Dataset | None = None,
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

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> page = avgk.report.render_report(avgk.evaluate(np.eye(3), np.arange(3), k=[1, 2]))
    >>> page.startswith("<!doctype html>")
    True

    """
    check_evaluation(result)
    classes = None if breakdown is None else worst_table(breakdown)
    return render(
        "page.html",
        title="Average-k evaluation",
        groups=classes,
        groups_by="class" if breakdown is None else breakdown.attrs.get("by", "group"),
        groups_told="" if breakdown is None else breakdown_sentence(breakdown),
        store=visible(shown(result.attrs.get("store", ""))),
        headline=headline(result),
        details=[sentence(result) for sentence in _DETAILS if sentence(result)],
        why=ambiguity_sentence(result),
        results=results_table(result),
        ambiguity=ambiguity_table(result),
        ties=tie_table(result),
        pictures=pictures(result) | calibration_pictures(calibration or {}),
        facts=provenance(result, seconds, written),
    )


def render(name: str, **values: object) -> str:
    """Return a page of this folder: everything in it is escaped."""
    pages = FunctionLoader(lambda page: files(__package__).joinpath(page).read_text(encoding="utf-8"))
    environment = Environment(
        loader=pages, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    return environment.get_template(name).render(**values)


def write_report(
    result: xr.Dataset,
    path: str | os.PathLike[str],
    *,
    seconds: float | None = None,
    calibration: Mapping[str, xr.Dataset] | None = None,
    breakdown: xr.Dataset | None = None,
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
    write_page(path, lambda: render_report(result, seconds=seconds, calibration=calibration, breakdown=breakdown))


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
    with writing(visible(str(path))), written_whole(pathlib.Path(path)) as place:
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
        "Full reads": f"{attrs['reads']} (besides a pilot of some chunks, where there was one)",
        "Computed in": "" if seconds is None else f"{seconds:.2f} s",
        "Written": written or now,
        "Versions": attrs.get("versions", ""),
    }
    more = {name: value for name, value in attrs.items() if name not in _TOLD}
    told = [
        (visible(str(n)), ", ".join(map(str, v)) if isinstance(v, list) else str(v)) for n, v in (facts | more).items()
    ]
    return Table(("what", "value"), [(name, visible(value)) for name, value in told if value])


_TOLD = ("store", "fingerprint", "n_samples", "n_classes", "n_labelled", "reads", "versions")
