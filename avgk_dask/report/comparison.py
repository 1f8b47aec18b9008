"""Comparisons of models: which is best and how clearly in words, as tables, and as a page."""

from __future__ import annotations

import itertools
import os

import numpy as np
import xarray as xr

from .. import plot
from ..results.datasets import ATTRIBUTE, check_source, kind_sentence
from ..results.text import Screen
from .figures import comparison_pictures
from .frame import (
    MOST_NAME,
    MOST_OPEN,
    clipped,
    clipped_cells,
    comparison_columns,
    difference_columns,
    downloads,
    fold,
    provenance,
    render,
    spaced,
    write_page,
)
from .tables import Table, fixed, percent, share
from .text import listed, stderr_sentence

#: What p-values of clear differences are below, and below what they are not told exactly.
_ALPHA, _TINY = 0.05, 1e-4
#: Models and rows of differences that a page shows at most.
_MOST_MODELS, _MOST_ROWS = 12, 200
_SECTIONS = (
    ("errors", "Errors", ("pictures:model_errors",)),
    ("models", "Models", ("models",)),
    ("differences", "Differences", ("differences",)),
    ("against", "Where adapting beats a better model", ("against",)),
    ("numbers", "Numbers", ("downloads",)),
    ("provenance", "Provenance", ("facts",)),
)


def comparison_headline(result: xr.Dataset) -> str:
    """Say which model is best at the largest budget where that is clear, and how it is at the others."""
    if np.isnan(result.average_k_error.values).all():
        return "Without labelled samples there are no errors to compare."
    pairs = {float(k): _best_two(result, k) for k in result.k.values}
    clear = {k: pair for k, pair in pairs.items() if is_clear(pair)}
    largest = max(clear or pairs)
    (best, error), (second, other) = _told_of(pairs[largest])
    if not clear:
        nowhere = "" if len(pairs) == 1 else " At the other budgets there is none either."
        return (
            f"At k = {largest:g} there is no clear difference between the average-k errors of {best} ({error}) and {second} "
            f"({other}): {_gap(pairs[largest])}.{nowhere}"
        )
    first = f"At k = {largest:g}, average-k makes the fewest errors with {best}: {error}, {_gap(clear[largest])} less than with {second} ({other})."
    others: dict[str, list[float]] = {}
    for k, pair in clear.items():
        if k != largest:
            others.setdefault(named(pair.model.item()), []).append(k)
    told = [f" At k = {listed(ks)} it is clearly {name}." for name, ks in others.items()]
    unclear = [k for k in pairs if k not in clear]
    return "".join(
        [first, *told, *([f" At k = {listed(unclear)} the best two do not clearly differ."] if unclear else [])]
    )


def _best_two(result: xr.Dataset, k: float) -> xr.Dataset:
    """Return the comparison of the two models with the fewest average-k errors at a budget, the best first, with both errors."""
    one = result.sel(k=k, rule="average")
    best, second = (one.model.values[i] for i in np.argsort(one.average_k_error.values, kind="stable")[:2])
    return one.sel(model=best, other=second).assign(other_error=one.average_k_error.sel(model=second, drop=True))


def _told_of(pair: xr.Dataset) -> list[tuple[str, str]]:
    """Return the names of two models with their errors."""
    errors = pair.average_k_error, pair.other_error
    return [(named(name.item()), percent(float(e))) for name, e in zip((pair.model, pair.other), errors, strict=True)]


def _gap(pair: xr.Dataset) -> str:
    """Return by how much the first model is better."""
    gap, stderr = (fixed(100 * value, 2) for value in (-float(pair.difference), float(pair.difference_stderr)))
    return f"{gap} \N{PLUS-MINUS SIGN}{stderr} points"


def is_clear(pair: xr.Dataset) -> bool:
    """Return whether the difference of two models is further from 0 than chance would take it.

    McNemar's test, adjusted for all pairs and budgets, must say so, too; with clusters it says nothing.
    """
    beyond = abs(float(pair.difference)) > plot.CLEAR * float(pair.difference_stderr)
    return beyond and ("n_clusters" in pair.attrs or float(pair.mcnemar_p_adjusted) < _ALPHA)


def named(name: object) -> str:
    """Return the name of a model as a page shows it."""
    return clipped(str(name), MOST_NAME)


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
    (models, n), (differences, n_pairs) = comparison_columns(result), difference_columns(result)
    counts = f"{len(models['k']):,} of {n:,} rows of models and budgets and {len(differences['k']):,} of {n_pairs:,} rows of differences"
    largest = f"{few.k.values.max():g}"  # what the headline speaks of stays in sight
    tables = {"models": models_table(few), "differences": differences_table(few), "against": against_table(few)}
    return render(
        "comparison.html",
        _SECTIONS,
        comparison_pictures(few),
        title="Comparison of models",
        store=", ".join(named(name) for name in few.model.values),
        headline=comparison_headline(few),
        details=[*_kind(result), *filter(None, [stderr_sentence(result)])],
        left_out=_left_out(result, few),
        **{
            name: fold(
                table and clipped_cells(table), lambda rows: [row for row in rows if row[0] == largest][:MOST_OPEN]
            )
            for name, table in tables.items()
        },
        facts=provenance(result, seconds, written),
        downloads=downloads({"models": models, "differences": differences}, result.attrs),
        downloads_told=f"{counts}, in full precision and with standard errors.",
    )


def _few(result: xr.Dataset) -> xr.Dataset:
    """Return what a page shows of a comparison: the models with the fewest errors where there are many, and some budgets."""
    errors = result.average_k_error.sel(k=result.k.values.max()).values
    best = np.sort(np.argsort(errors, kind="stable")[:_MOST_MODELS])
    n_pairs = max(best.size * (best.size - 1) // 2, 1)
    largest = float(result.k.values.max())
    return spaced(result.isel(model=best, other=best), largest, max(_MOST_ROWS // (2 * n_pairs), 2))


def _left_out(result: xr.Dataset, few: xr.Dataset) -> str:
    """Say what a page does not show of a comparison; nothing where it shows all."""
    left = [
        f"{few.sizes[name]} of {result.sizes[name]:,} {what}"
        for name, what in (("model", "models, those with the fewest errors"), ("k", "budgets"))
        if few.sizes[name] < result.sizes[name]
    ]
    return f"Shown are {' and '.join(left)}." if left else ""


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
    names = ("difference", "difference_stderr", "discordant", "mcnemar_p_adjusted")
    check_source(result, "compare", names, ("k", "rule", "model", "other"))


def models_table(result: xr.Dataset) -> Table:
    """Return a row for each budget and model."""
    rows: list[tuple[str, ...]] = []
    for k in result.k.values:
        for name in result.model.values:
            one = result.sel(k=k, model=name)
            cells = share(one, "top_k_error"), share(one, "average_k_error"), share(one, "relative_gain", 1, "+")
            rows.append((f"{k:g}", str(name), *cells))
    return Table(("k", "model", "top-k error", "avg-k error", "gain"), rows, ("gain", "top-k error"), ("model",))


def differences_table(result: xr.Dataset) -> Table:
    """Return a row for each budget, rule and pair of models that has errors."""
    rows: list[tuple[str, ...]] = []
    tones = {}
    names = result.model.values
    places = itertools.product(result.k.values, result.rule.values, itertools.combinations(names, 2))
    for k, rule, (model, other) in places:
        one = result.sel(k=k, rule=rule, model=model, other=other)
        if np.isnan(one.difference):
            continue
        if is_clear(one):
            tones[len(rows), "difference"] = "strong"
        reverse = int(result.discordant.sel(k=k, rule=rule, model=other, other=model))
        p = float(one.mcnemar_p_adjusted)
        rows.append((
            f"{k:g}", str(rule), str(model), str(other), points(one), f"{int(one.discordant):,} : {reverse:,}",
            f"< {_TINY:g}" if p < _TINY else f"{p:.4f}",
        ))  # fmt: skip
    header = ("k", "rule", "model", "other", "difference", "discordant", "p")
    return Table(header, rows, ("discordant", "p"), ("model", "other"), tones)


def points(one: xr.Dataset, name: str = "difference") -> str:
    """Return a difference in points with its standard error."""
    return share(one, name, 2, "+").replace("%", "points")


def against_table(result: xr.Dataset) -> Table | None:
    """Return where average-k of one model clearly beats top-k of another whose top-k is better than its own; or nothing."""
    rows: list[tuple[str, ...]] = []
    names = result.model.values
    for k, model, other in itertools.product(result.k.values, names, names):
        one = result.sel(k=k, model=model, other=other)
        its, others = result.sel(k=k, model=model), result.sel(k=k, model=other)
        is_better = float(others.top_k_error) < float(its.top_k_error)
        if is_better and float(one.average_against_top) < -plot.CLEAR * float(one.average_against_top_stderr):
            average, top = share(its, "average_k_error"), share(others, "top_k_error")
            rows.append((f"{k:g}", str(model), average, str(other), top, points(one, "average_against_top")))
    header = ("k", "average-k of", "avg-k error", "top-k of", "top-k error", "difference")
    least = ("top-k error", "avg-k error")
    return Table(header, rows, least, ("average-k of", "top-k of")) if rows else None
