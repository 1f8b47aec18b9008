"""A comparison of models in words, as tables, and as a page of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import xarray as xr

from .. import plot
from ..errors import OptionError
from ..results.datasets import check_dimensions, check_result
from ..results.fitting import Screen
from ..results.score_kinds import ATTRIBUTE, kind_sentence
from .comparison_answers import comparison_headline, is_clear, named
from .downloads import comparison_columns, difference_columns, downloads
from .figures import comparison_pictures
from .page import provenance, render, write_page
from .shortening import MOST_OPEN, clipped_cells, spaced
from .tables import Table, stderr_of, with_error
from .text import stderr_sentence

#: What p-values below this are told as.
_TINY = 1e-4


def print_comparison(result: xr.Dataset, *, width: int | None = None, colour: bool = False) -> str:
    """Return what ``compare`` gave as text: errors of the models, their differences, and a sentence.

    Lines fit ``width``; by default they are as long as they are. With ``colour`` they hold the colours of a terminal.
    """
    check_comparison(result)
    screen = Screen(width, colour)
    parts = [screen.table(models_table(result)), screen.table(differences_table(result))]
    told = against_table(result)
    if told is not None:
        parts.append([*screen.text("Where average-k beats the top-k of a better model:"), *screen.table(told)])
    parts.append(screen.text(comparison_headline(result), "strong"))
    parts.append([line for said in (*_kind(result), *_legend(result)) for line in screen.text(said)])
    return "\n\n".join("\n".join(part) for part in parts)


def _kind(result: xr.Dataset) -> list[str]:
    """Say which scores are no probabilities; nothing where all are."""
    kind = str(result.attrs.get(ATTRIBUTE, ""))
    mixed = f"Not all scores are probabilities, which average-k is meant for ({kind})." if ";" in kind else ""
    told = kind_sentence(result) or mixed
    return [told] if told else []


def _legend(result: xr.Dataset) -> list[str]:
    """Return what the columns of the differences are."""
    n = result.attrs.get("n_clusters")
    draws = f"{n:,} clusters" if n else "samples"
    return [
        "difference: error of model less error of other. discordant: samples that only model, and that only other, gets right.",
        "p: McNemar's exact p-value for independent samples, adjusted for all rows (Benjamini and Hochberg).",
        f"\N{PLUS-MINUS SIGN} is one standard error, over draws of {draws} like these. A difference is clear beyond 1.96 of them{'' if n else ', with p below 0.05'}.",
    ]


def render_comparison(result: xr.Dataset, *, seconds: float | None = None, written: str | None = None) -> str:
    """Return the comparison of models as one self-contained HTML page.

    Parameters
    ----------
    result
        What ``compare`` gives.
    seconds
        How long it took to compute, if known.
    written
        Date and time to show; by default now, in UTC.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> found = avgk.compare({"a": np.eye(3), "b": np.eye(3)[::-1]}, np.arange(3), k=[1, 2])
    >>> avgk.report.render_comparison(found).startswith("<!doctype html>")
    True

    """
    check_comparison(result)
    few = _few(result)
    whole = {"models": models_table(few), "differences": differences_table(few), "against": against_table(few)}
    tables = {name: table and clipped_cells(table) for name, table in whole.items()}
    in_view = {
        f"{name}_in_sight": table and _in_sight(table, f"{few.k.values.max():g}") for name, table in tables.items()
    }
    drawn = comparison_pictures(few)
    return render(
        "comparison.html",
        title="Comparison of models",
        store=", ".join(named(name) for name in few.model.values),
        headline=comparison_headline(few),
        details=[*_kind(result), *([stderr_sentence(result)] if stderr_sentence(result) else [])],
        left_out=_left_out(result, few),
        pictures=drawn,
        facts=provenance(result, seconds, written),
        sections=[part for part in _SECTIONS if {"errors": drawn, "against": tables["against"]}.get(part[0], True)],
        **tables,
        **in_view,
        **_files(result),
    )


#: The sections of a page.
_SECTIONS = (
    ("errors", "Errors"),
    ("models", "Models"),
    ("differences", "Differences"),
    ("against", "Where adapting beats a better model"),
    ("numbers", "Numbers"),
    ("provenance", "Provenance"),
)
#: Models and rows of differences that a page shows at most.
_MOST_MODELS, _MOST_ROWS = 12, 200


def _few(result: xr.Dataset) -> xr.Dataset:
    """Return what a page shows of a comparison: the models with the fewest errors where there are many, and some budgets."""
    errors = result.average_k_error.sel(k=result.k.values.max()).values
    best = np.sort(np.argsort(errors, kind="stable")[:_MOST_MODELS])
    n_pairs = max(best.size * (best.size - 1) // 2, 1)
    largest = float(result.k.values.max())
    return spaced(result.isel(model=best, other=best), largest, max(_MOST_ROWS // (2 * n_pairs), 2))


def _in_sight(table: Table, k: str) -> Table | None:
    """Return the rows of a long table that the headline speaks of: those of its budget; nothing of a short one."""
    if len(table.rows) <= MOST_OPEN:
        return None
    return Table(table.header, [row for row in table.rows if row[0] == k][:MOST_OPEN])


def _left_out(result: xr.Dataset, few: xr.Dataset) -> str:
    """Say what a page does not show of a comparison; nothing where it shows all."""
    left = [
        f"{few.sizes[name]} of {result.sizes[name]:,} {what}"
        for name, what in (("model", "models, those with the fewest errors"), ("k", "budgets"))
        if few.sizes[name] < result.sizes[name]
    ]
    return f"Shown are {' and '.join(left)}." if left else ""


def _files(result: xr.Dataset) -> dict[str, object]:
    """Return the files inside a page, and what they hold."""
    (models, n), (differences, n_pairs) = comparison_columns(result), difference_columns(result)
    told = [f"{len(table['k']):,} of {of:,} {what}" for table, of, what in (
        (models, n, "rows of models and budgets"), (differences, n_pairs, "rows of differences"),
    )]  # fmt: skip
    return {
        "downloads": downloads({"models": models, "differences": differences}, result.attrs),
        "downloads_told": f"{' and '.join(told)}, in full precision and with standard errors.",
    }


def write_comparison(result: xr.Dataset, path: str | os.PathLike[str], *, seconds: float | None = None) -> None:
    """Write the comparison of models to a file, which is there whole or as it was; the rest as for ``render_comparison``.

    Raises
    ------
    DtypeError, OptionError
        Where the result is none of ``compare``, or the path is no path.
    WriteError
        Where the file cannot be written.

    Examples
    --------
    >>> import tempfile, numpy as np, avgk_dask as avgk
    >>> path = tempfile.mkdtemp() + "/comparison.html"
    >>> found = avgk.compare({"a": np.eye(3), "b": np.eye(3)[::-1]}, np.arange(3), k=[1, 2])
    >>> avgk.report.write_comparison(found, path)

    """
    check_comparison(result)
    write_page(path, lambda: render_comparison(result, seconds=seconds))


def check_comparison(result: xr.Dataset) -> None:
    """Refuse what ``compare`` did not give."""
    check_result(result)
    for name in ("difference", "difference_stderr", "discordant", "mcnemar_p_adjusted"):
        if name not in result:
            raise OptionError(f"result must have {name}; got one without it. Pass what compare gives.")
    check_dimensions(result, ("k", "rule", "model", "other"))


def models_table(result: xr.Dataset) -> Table:
    """Return a row for each budget and model."""
    rows: list[tuple[str, ...]] = []
    for k in result.k.values:
        for name in result.model.values:
            one = result.sel(k=k, model=name)
            errors = [with_error(float(one[n]), stderr_of(one, n)) for n in ("top_k_error", "average_k_error")]
            gain = with_error(float(one.relative_gain), stderr_of(one, "relative_gain"), 1, "+")
            rows.append((f"{k:g}", str(name), *errors, gain))
    return Table(("k", "model", "top-k error", "avg-k error", "gain"), rows, ("gain", "top-k error"), ("model",))


def _pairs(result: xr.Dataset) -> Iterator[xr.Dataset]:
    """Return each pair of models, for each budget and rule that has errors."""
    names = result.model.values
    for k in result.k.values:
        for rule in result.rule.values:
            for i, model in enumerate(names):
                for other in names[i + 1 :]:
                    one = result.sel(k=k, rule=rule, model=model, other=other)
                    if not np.isnan(one.difference):
                        yield one.assign_coords(
                            reversed=int(result.discordant.sel(k=k, rule=rule, model=other, other=model))
                        )


def differences_table(result: xr.Dataset) -> Table:
    """Return a row for each budget, rule and pair of models."""
    rows: list[tuple[str, ...]] = []
    tones = {}
    for one in _pairs(result):
        if is_clear(one):
            tones[len(rows), "difference"] = "strong"
        names = str(one.model.item()), str(one.other.item())
        discordant = f"{int(one.discordant):,} : {int(one.reversed):,}"
        rows.append(
            (
                f"{float(one.k):g}",
                str(one.rule.item()),
                *names,
                points(one),
                discordant,
                p_value(float(one.mcnemar_p_adjusted)),
            )
        )
    header = ("k", "rule", "model", "other", "difference", "discordant", "p")
    return Table(header, rows, ("discordant", "p"), ("model", "other"), tones)


def points(one: xr.Dataset, name: str = "difference") -> str:
    """Return a difference in points with its standard error."""
    return with_error(float(one[name]), stderr_of(one, name), 2, "+").replace("%", "points")


def p_value(p: float) -> str:
    """Return a p-value in a few digits."""
    return f"< {_TINY:g}" if p < _TINY else f"{p:.4f}"


def against_table(result: xr.Dataset) -> Table | None:
    """Return where average-k of one model clearly beats top-k of another whose top-k is better than its own; or nothing."""
    rows: list[tuple[str, ...]] = []
    for k in result.k.values:
        for model in result.model.values:
            for other in result.model.values:
                one = result.sel(k=k, model=model, other=other)
                better = float(result.top_k_error.sel(k=k, model=other)) < float(
                    result.top_k_error.sel(k=k, model=model)
                )
                difference, reach = float(one.average_against_top), plot.CLEAR * float(one.average_against_top_stderr)
                if better and difference < -reach:
                    average, top = (
                        with_error(float(each[name]), stderr_of(each, name))
                        for each, name in (
                            (result.sel(k=k, model=model), "average_k_error"),
                            (result.sel(k=k, model=other), "top_k_error"),
                        )
                    )
                    told = points(one, "average_against_top")
                    rows.append((f"{k:g}", str(model), average, str(other), top, told))
    header = ("k", "average-k of", "avg-k error", "top-k of", "top-k error", "difference")
    least = ("top-k error", "avg-k error")
    return Table(header, rows, least, ("average-k of", "top-k of")) if rows else None
