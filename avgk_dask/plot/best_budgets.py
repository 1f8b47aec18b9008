"""Which budget a picture or a sentence speaks of: the one that gains most, of those whose gain is clear."""

from __future__ import annotations

import numpy as np
import xarray as xr

from ..arrays import Bools

__all__ = ["CLEAR", "best_budget", "is_clear"]

#: Standard errors to either side that hold the true value 95 times in 100; and how many samples must fall on one side, and
#: none on the other, for a coin to do that less than 5 times in 100.
CLEAR, _LEAST_SAMPLES = 1.96, 6


def best_budget(result: xr.Dataset) -> float:
    """Return the budget with the largest relative gain, of those whose gain is clear; the largest one where there are no gains."""
    gain = result.relative_gain.values if "relative_gain" in result else np.full(result.sizes["k"], np.nan)
    if np.isnan(gain).all():
        return float(result.k.values.max())
    clear = is_clear(result)
    return float(result.k.values[np.nanargmax(np.where(clear, gain, np.nan) if clear.any() else gain)])


def is_clear(result: xr.Dataset) -> Bools:
    """Return at which budgets the gain is further from 0 than chance would take it; any but 0 where there are no standard errors.

    That is two standard errors, and so many samples that they could not all be on one side by chance.
    """
    gain = np.abs(result.adaptive_gain.values)
    if "adaptive_gain_stderr" not in result or "set_hit_count" not in result:  # expected errors, or both of every K
        return np.asarray(gain > 0)
    enough = gain * result.attrs.get("n_labelled", np.inf) > _LEAST_SAMPLES - 0.5
    return np.asarray((gain > CLEAR * result.adaptive_gain_stderr.values) & enough)  # NaN is not clear
