"""What a picture needs of a result or a table, and refusals of what has none of it."""

from __future__ import annotations

import numpy as np
import xarray as xr

from ..arrays import Floats
from ..errors import OptionError
from ..results.datasets import check_result

__all__ = ["known_budget", "need", "need_table", "percent"]


def need(result: xr.Dataset, name: str, what: str) -> None:
    """Refuse a result without a variable, or with nothing in it, and what is no single result."""
    check_result(result, [name] if isinstance(result, xr.Dataset) and name in result else [])
    if name not in result or np.isnan(np.asarray(result[name].values, float)).all():
        raise OptionError(f"result must have {name} to draw; got none of it. It needs {what}.")


def need_table(table: xr.Dataset, name: str) -> None:
    """Refuse what is no table with a variable, and one with nothing in it."""
    check_result(table)
    if name not in table or np.isnan(table[name].values).all():
        raise OptionError(f"table must have {name} to draw; got none of it. It needs labels.")


def known_budget(result: xr.Dataset, k: float) -> float:
    """Return a budget of the result as it is there."""
    try:
        budget = float(k)
    except (TypeError, ValueError):
        budget = np.nan
    if budget not in result.k.values:
        raise OptionError(
            f"k must be one of the result's budgets, {result.k.values.tolist()}; got {k!r}. Pass one of them."
        )
    return budget


def percent(values: xr.DataArray) -> Floats:
    """Return shares in percent."""
    return np.asarray(100 * values.values, np.float64)
