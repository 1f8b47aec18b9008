"""Comparisons of models: the best one and whether it is clearly best, as text, tables and a page."""

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
    clip,
    clip_cells,
    comparison_columns,
    difference_columns,
    downloads,
    fold,
    provenance,
    render,
    thin_budgets,
    write_page,
)
from .tables import Table, fixed, percent, share
from .text import listed, stderr_sentence

#: Level of p-values of clear differences, and the smallest p-value that is printed.
_ALPHA, _TINY = 0.05, 1e-4
#: Maximum number of models and rows of differences on a page.
_MOST_MODELS, _MOST_ROWS = 12, 200


def comparison_headline(result: xr.Dataset) -> str:
    """Name the best model at the largest budget with a clear difference, and the best ones at the other budgets."""
    if np.isnan(result.average_k_error.values).all():
        return "Errors need labels, so there is nothing to compare."
    pairs = {float(k): _best_two(result, k) for k in result.k.values}
    clear = {k: pair for k, pair in pairs.items() if is_clear(pair)}
    largest = max(clear or pairs)
    pair = pairs[largest]
    best, second = (clip(str(name.item()), MOST_NAME) for name in (pair.model, pair.other))
    error, other_error = (percent(float(value)) for value in (pair.average_k_error, pair.other_error))
    gap, stderr = (fixed(100 * float(value), 2) for value in (-pair.difference, pair.difference_stderr))
    points = f"{gap} \N{PLUS-MINUS SIGN}{stderr} points"
    if not clear:
        others = "" if len(pairs) == 1 else " The same holds at the other budgets."
        return (
            f"At k = {largest:g} there is no clear difference between the average-k errors of {best} ({error}) and {second} "
            f"({other_error}): {points}.{others}"
        )
    sentences = [
        f"At k = {largest:g}, average-k makes the fewest errors with {best}: {error}, {points} less than with {second} "
        f"({other_error})."
    ]
    budgets: dict[str, list[float]] = {}
    for k, pair in clear.items():
        if k != largest:
            budgets.setdefault(clip(str(pair.model.item()), MOST_NAME), []).append(k)
    sentences += [f"At k = {listed(ks)}, {name} is clearly best." for name, ks in budgets.items()]
    if unclear := [k for k in pairs if k not in clear]:
        sentences.append(f"At k = {listed(unclear)}, the best two do not clearly differ.")
    return " ".join(sentences)


def _best_two(result: xr.Dataset, k: float) -> xr.Dataset:
    """Return the comparison of the two models with the fewest average-k errors at a budget, with both errors."""
    one = result.sel(k=k, rule="average")
    best, second = (one.model.values[i] for i in np.argsort(one.average_k_error.values, kind="stable")[:2])
    return one.sel(model=best, other=second).assign(other_error=one.average_k_error.sel(model=second, drop=True))


def is_clear(pair: xr.Dataset) -> bool:
    """Return whether the difference of two models exceeds its 95 % interval and has a small adjusted p-value.

    McNemar's test does not hold for clusters and is left out with them.
    """
    beyond = abs(float(pair.difference)) > plot.CLEAR * float(pair.difference_stderr)
    return beyond and ("n_clusters" in pair.attrs or float(pair.mcnemar_p_adjusted) < _ALPHA)


def print_comparison(result: xr.Dataset, *, width: int | None = None, colour: bool = False) -> str:
    """Return a ``compare`` result as text: errors of the models, differences and a headline; options as for ``print_table``."""
    check_comparison(result)
    screen = Screen(width, colour)
    parts = [screen.table(models_table(result)), screen.table(differences_table(result))]
    against = against_table(result)
    if against is not None:
        parts.append([*screen.text("Average-k beats the top-k of a better model:"), *screen.table(against)])
    parts.append(screen.text(comparison_headline(result), "strong"))
    notes = [
        *_kind(result),
        "gain: share of the top-k errors that average-k avoids; difference: error of model minus error of other; discordant: "
        "samples that only model gets right, then samples that only other gets right; p: McNemar's exact p-value for independent "
        "samples, adjusted for all rows (Benjamini and Hochberg).",
        stderr_sentence(result),
        _clear_sentence(result),
    ]
    parts.append([line for note in notes if note for line in screen.text(note)])
    return "\n\n".join("\n".join(part) for part in parts)


def _clear_sentence(result: xr.Dataset) -> str:
    """Say which differences are clear."""
    return f"A difference is clear if it exceeds 1.96 standard errors{'' if 'n_clusters' in result.attrs else ' and p is below 0.05'}."


def _kind(result: xr.Dataset) -> list[str]:
    """Return a warning if the scores of some models are not probabilities."""
    kind = str(result.attrs.get(ATTRIBUTE, ""))
    mixed = f"Not all scores are probabilities, which average-k needs ({kind})." if ";" in kind else ""
    return [text] if (text := kind_sentence(result) or mixed) else []


def render_comparison(result: xr.Dataset, *, seconds: float | None = None, written: str | None = None) -> str:
    """Return the comparison of models as one self-contained HTML page.

    Parameters
    ----------
    result
        The result of ``compare``.
    seconds
        Duration of the computation, if known.
    written
        Date and time to show; by default now, in UTC.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> comparison = avgk.compare({"a": np.eye(3), "b": np.eye(3)[::-1]}, np.arange(3), k=[1, 2])
    >>> avgk.report.render_comparison(comparison).startswith("<!doctype html>")
    True
    """
    check_comparison(result)
    few = _few(result)
    (models, n), (differences, n_pairs) = comparison_columns(result), difference_columns(result)
    counts = f"{len(models['k']):,} of {n:,} rows of models and budgets and {len(differences['k']):,} of {n_pairs:,} rows of differences"
    largest = f"{few.k.values.max():g}"  # the budget of the headline is never folded away
    tables = {"models": models_table(few), "differences": differences_table(few), "against": against_table(few)}
    return render(
        "comparison.html",
        comparison_pictures(few),
        title="Comparison of models",
        store=", ".join(clip(str(name), MOST_NAME) for name in few.model.values),
        headline=comparison_headline(few),
        details=[*_kind(result), *filter(None, [stderr_sentence(result)])],
        left_out=_left_out(result, few),
        clear=_clear_sentence(result),
        **{
            name: fold(table and clip_cells(table), lambda rows: [row for row in rows if row[0] == largest][:MOST_OPEN])
            for name, table in tables.items()
        },
        facts=provenance(result, seconds, written),
        downloads=downloads({"models": models, "differences": differences}, result.attrs),
        downloads_summary=f"{counts}, in full precision and with standard errors.",
    )


def _few(result: xr.Dataset) -> xr.Dataset:
    """Return the part of a comparison that a page shows: the models with the fewest errors, and some budgets."""
    errors = result.average_k_error.sel(k=result.k.values.max()).values
    best = np.sort(np.argsort(errors, kind="stable")[:_MOST_MODELS])
    n_pairs = max(best.size * (best.size - 1) // 2, 1)
    largest = float(result.k.values.max())
    return thin_budgets(result.isel(model=best, other=best), largest, max(_MOST_ROWS // (2 * n_pairs), 2))


def _left_out(result: xr.Dataset, few: xr.Dataset) -> str:
    """Describe the part of a comparison that a page shows; empty if it shows all."""
    parts = [
        f"{few.sizes[name]} of {result.sizes[name]:,} {noun}"
        for name, noun in (("model", "models, those with the fewest errors"), ("k", "budgets"))
        if few.sizes[name] < result.sizes[name]
    ]
    return f"The page shows {' and '.join(parts)}." if parts else ""


def write_comparison(result: xr.Dataset, path: str | os.PathLike[str], *, seconds: float | None = None) -> None:
    """Write the page of ``render_comparison`` to a file, atomically.

    Raises
    ------
    DtypeError, OptionError
        If the result is not one of ``compare``, or path is not path-like.
    WriteError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile, numpy as np, avgk_dask as avgk
    >>> path = tempfile.mkdtemp() + "/comparison.html"
    >>> comparison = avgk.compare({"a": np.eye(3), "b": np.eye(3)[::-1]}, np.arange(3), k=[1, 2])
    >>> avgk.report.write_comparison(comparison, path)
    """
    check_comparison(result)
    write_page(path, lambda: render_comparison(result, seconds=seconds))


def check_comparison(result: xr.Dataset) -> None:
    """Check that a Dataset is the result of ``compare``."""
    names = ("difference", "difference_stderr", "discordant", "mcnemar_p_adjusted")
    check_source(result, "compare", names, ("k", "rule", "model", "other"))


def models_table(result: xr.Dataset) -> Table:
    """Return one row per budget and model."""
    rows: list[tuple[str, ...]] = []
    for k, name in itertools.product(result.k.values, result.model.values):
        one = result.sel(k=k, model=name)
        cells = share(one, "top_k_error"), share(one, "average_k_error"), share(one, "relative_gain", 1, "+")
        rows.append((f"{k:g}", str(name), *cells))
    return Table(("k", "model", "top-k error", "avg-k error", "gain"), rows, ("gain", "top-k error"), ("model",))


def differences_table(result: xr.Dataset) -> Table:
    """Return one row per budget, rule and pair of models with errors."""
    rows: list[tuple[str, ...]] = []
    tones = {}
    names = result.model.values
    cases = itertools.product(result.k.values, result.rule.values, itertools.combinations(names, 2))
    for k, rule, (model, other) in cases:
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
    """Format a difference in points with its standard error."""
    return share(one, name, 2, "+").replace("%", "points")


def against_table(result: xr.Dataset) -> Table | None:
    """Return the cases in which average-k of one model clearly beats top-k of another with a better top-k, or None."""
    rows: list[tuple[str, ...]] = []
    names = result.model.values
    for k, model, other in itertools.product(result.k.values, names, names):
        one = result.sel(k=k, model=model, other=other)
        first, second = result.sel(k=k, model=model), result.sel(k=k, model=other)
        is_better = float(second.top_k_error) < float(first.top_k_error)
        if is_better and float(one.average_against_top) < -plot.CLEAR * float(one.average_against_top_stderr):
            average, top = share(first, "average_k_error"), share(second, "top_k_error")
            rows.append((f"{k:g}", str(model), average, str(other), top, points(one, "average_against_top")))
    header = ("k", "average-k of", "avg-k error", "top-k of", "top-k error", "difference")
    return Table(header, rows, ("top-k error", "avg-k error"), ("average-k of", "top-k of")) if rows else None
