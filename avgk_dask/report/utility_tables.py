"""What sets are worth, in words and as a table."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr

from ..errors import OptionError
from ..results.datasets import check_dimensions, check_result
from ..results.fitting import Screen
from .tables import Table

#: What utilities are called in a header.
_NAMES = {"f": "F", "discounted": "1/size"}


def print_utilities(result: xr.Dataset, *, width: int | None = None, colour: bool = False) -> str:
    """Return what ``set_utility`` gave as text, one or several along ``utility``: a table, and a sentence for each.

    The rest is as for ``print_table``.
    """
    screen = Screen(width, colour)
    told = [line for sentence in utility_sentences(result) for line in screen.text(sentence)]
    return "\n".join([*screen.table(utilities_table(result)), "", *told])


def _several(result: xr.Dataset) -> list[xr.Dataset]:
    """Return the utilities one by one; refuse what ``set_utility`` did not give."""
    check_result(result)
    if "average_k_utility" not in result:
        raise OptionError(
            "utilities must be what set_utility gives; got a result without average_k_utility. Pass its result."
        )
    check_dimensions(result, ("k",))
    if "utility" in result.dims:
        return [result.isel(utility=i) for i in range(result.sizes["utility"])]
    return [result]


def _name(one: xr.Dataset) -> str:
    told = str(one["utility"].item()) if "utility" in one.coords else str(one.attrs["utility"])
    beta = float(one.attrs.get("beta", 1.0))
    return f"F{beta:g}" if told == "f" else _NAMES.get(told, told)


def utilities_table(result: xr.Dataset) -> Table:
    """Return a row for each budget, and for each utility that of both rules."""
    several = _several(result)
    header = ("k", *(f"{rule} {_name(one)}" for one in several for rule in ("top-k", "avg-k")))
    rows = [
        (
            f"{k:g}",
            *(_worth(float(one[f"{r}_k_utility"].values[i])) for one in several for r in ("top", "average")),
        )
        for i, k in enumerate(result.k.values)
    ]
    return Table(header, rows)


def _worth(value: float) -> str:
    return "" if math.isnan(value) else f"{value + 0.0:.4f}"


def utility_sentences(result: xr.Dataset) -> list[str]:
    """Say for each utility where it is largest."""
    return [sentence for one in _several(result) if (sentence := _sentence(one))]


def _sentence(one: xr.Dataset) -> str:
    found = {
        rule: one[f"{rule}_k_utility"].values
        for rule in ("average", "top")
        if not np.isnan(one[f"{rule}_k_utility"].values).all()
    }
    if not found:
        return ""
    told = []
    for rule, values in found.items():
        i = int(np.nanargmax(values))
        told.append(f"{_worth(float(values[i]))} by {rule}-k at k = {float(one.k.values[i]):g}")
    cost = float(one.attrs.get("cost", 0.0))
    unit = "logarithm of a set's size" if one.attrs.get("cost_of") == "log" else "label"
    less = f" (less {cost:g} for each {'unit of the ' if unit != 'label' else ''}{unit})" if cost else ""
    return f"{_name(one)}{less} is highest, of these budgets, with {' and '.join(told)}."
