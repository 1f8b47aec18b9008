"""What a page asks and answers beside the sentences of a terminal: the question, one fractional budget, ties, soft labels."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr

from ..results.score_kinds import are_probabilities
from .tables import percent, stderr_of, with_error
from .text import headline, least_sentence


def question(result: xr.Dataset) -> str:
    """Return the question that a result answers."""
    if "max_error" in result.attrs:
        return f"How many labels per sample does an error of at most {percent(result.attrs['max_error'])} take?"
    if np.isnan(result.average_k_error.values).all():
        return "How many labels does each sample get, if one threshold decides for all?"
    budgets = result.k.values.tolist()
    labels = "the same number of labels" if len(budgets) > 1 else f"{budgets[0]:g} label{'s' * (budgets[0] != 1)}"
    return f"With {labels} per sample on average, does it pay to give some samples more and others fewer?"


def answer(result: xr.Dataset, curve: xr.Dataset | None = None) -> str:
    """Return the answer: the least budgets, the headline, or for fractional budgets the error beside those of the nearest top-k sets."""
    if "max_error" in result.attrs:
        return least_sentence(result)
    if np.isnan(result.average_k_error.values).all() or not np.isnan(result.top_k_error.values).all():
        return headline(result)
    one = result.isel(k=int(np.argmax(result.k.values)))
    k = float(one.k)
    error = with_error(float(one.average_k_error), stderr_of(one, "average_k_error"))
    told = f"With {k:g} labels per sample on average, average-{k:g} misses {error} of the labels."
    near = [_near(curve, whole) for whole in (math.floor(k), math.ceil(k))]
    between = " and ".join(part for part in near if part)
    return f"{told} Of top-k, {between}." if between else f"{told} Top-k has no sets of {k:g} labels to compare with."


def _near(curve: xr.Dataset | None, k: int) -> str:
    """Return the top-k error of an integer budget in words; nothing where it is not known."""
    if curve is None or k not in curve.k.values:
        return ""
    one = curve.sel(k=float(k))
    return f"top-{k} misses {with_error(float(one.top_k_error), stderr_of(one, 'top_k_error'))}"


def bound_sentence(result: xr.Dataset) -> str:
    """Say that nothing follows for the gain from scores that are no probabilities; nothing where they are."""
    if are_probabilities(result):
        return ""
    return "These scores are no probabilities: no bound on the gain follows from them, and the pictures only describe them."


def shared_out(quartiles: tuple[int, int, int]) -> str:
    """Return quartiles of set sizes in words.

    Examples
    --------
    >>> shared_out((0, 1, 3))
    'a quarter of the sets have at most 0 labels, half at most 1, three quarters at most 3'

    """
    first, second, third = (f"{size:,}" for size in quartiles)
    labels = "label" if first == "1" else "labels"
    return f"a quarter of the sets have at most {first} {labels}, half at most {second}, three quarters at most {third}"


def error_words(one: xr.Dataset, is_clear: bool) -> str:
    """Return both errors of an integer budget and the gain in words; nothing without labels."""
    k = f"{float(one.k):g}"
    average, top = (with_error(float(one[n]), stderr_of(one, n)) for n in ("average_k_error", "top_k_error"))
    if not average:
        return ""
    gain = with_error(float(one.relative_gain), stderr_of(one, "relative_gain"), 1, "+")
    clear = "" if is_clear else ", no clear difference"
    points = percent(float(one.adaptive_gain)).replace("%", "points")
    told = f"gain {gain}{clear}" if gain else f"gain {points}"
    return f"top-{k} misses {top}, average-{k} {average}: {told}"
