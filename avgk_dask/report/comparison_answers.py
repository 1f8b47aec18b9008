"""Which model is best, and how clearly, in words."""

from __future__ import annotations

import numpy as np
import xarray as xr

from .. import plot
from .shortening import MOST_NAME, clipped
from .tables import fixed, percent
from .text import listed

#: What p-values of clear differences are below.
_ALPHA = 0.05


def comparison_headline(result: xr.Dataset) -> str:
    """Say which model is best at the largest budget where that is clear, and how it is at the others."""
    if np.isnan(result.average_k_error.values).all():
        return "Without labelled samples there are no errors to compare."
    pairs = {float(k): _best_two(result, k) for k in result.k.values}
    clear = {k: pair for k, pair in pairs.items() if is_clear(pair)}
    if not clear:
        return _no_clear_best(pairs)
    largest = max(clear)
    (best, error), (second, other) = _told_of(clear[largest])
    first = f"At k = {largest:g}, average-k makes the fewest errors with {best}: {error}, {_gap(clear[largest])} less than with {second} ({other})."
    return "".join([first, *_at_other_budgets(pairs, clear, largest)])


def _at_other_budgets(pairs: dict[float, xr.Dataset], clear: dict[float, xr.Dataset], largest: float) -> list[str]:
    """Say which models are clearly best at the other budgets, and where none is."""
    budgets: dict[str, list[float]] = {}
    for k, pair in clear.items():
        if k != largest:
            budgets.setdefault(named(pair.model.item()), []).append(k)
    told = [f" At k = {listed(ks)} it is clearly {name}." for name, ks in budgets.items()]
    unclear = [k for k in pairs if k not in clear]
    return [*told, *([f" At k = {listed(unclear)} the best two do not clearly differ."] if unclear else [])]


def _no_clear_best(pairs: dict[float, xr.Dataset]) -> str:
    """Say that the best two models differ clearly at no budget, and by how much at the largest."""
    k = max(pairs)
    (best, error), (second, other) = _told_of(pairs[k])
    nowhere = "" if len(pairs) == 1 else " At the other budgets there is none either."
    return (
        f"At k = {k:g} there is no clear difference between the average-k errors of {best} ({error}) and {second} ({other}): "
        f"{_gap(pairs[k])}.{nowhere}"
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
