"""The slider of a page: what it shows at each integer budget, as text, and where its mark is in the picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from .. import plot
from ..results.fitting import filled
from .answers import error_words, shared_out
from .figures import Picture, Points, curve_picture
from .shortening import columns, places
from .tables import results_table, size_quartiles

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
