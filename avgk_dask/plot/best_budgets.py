"""Which budget a picture or a sentence speaks of: the one that surely gains most, of those whose gain is clear."""

from __future__ import annotations

import numpy as np
import xarray as xr

from ..arrays import Bools, Ints

__all__ = ["CLEAR", "best_budget", "is_clear", "is_crowded", "n_arbitrary"]

#: Standard errors to either side that hold the true value 95 times in 100; and how many samples must fall on one side, and
#: none on the other, for a coin to do that less than 5 times in 100.
CLEAR, _LEAST_SAMPLES = 1.96, 6


def best_budget(result: xr.Dataset) -> float:
    """Return the budget whose relative gain is surely the largest: the lower end of its interval is the highest.

    Where some gains are clear it is one of those, if it can be one above 0 whose sets do not hang on ties. Where there are no
    gains it is the largest budget.
    """
    gain = result.relative_gain.values if "relative_gain" in result else np.full(result.sizes["k"], np.nan)
    if np.isnan(gain).all():
        return float(result.k.values.max())
    stderr = result.relative_gain_stderr.values if "relative_gain_stderr" in result else np.zeros(gain.size)
    surely = gain - CLEAR * np.nan_to_num(stderr)
    clear = is_clear(result) & ~np.isnan(gain)
    better = clear & (gain > 0)
    for candidates in (better & ~is_crowded(result), better, clear):
        if candidates.any():
            surely = np.where(candidates, surely, np.nan)
            break
    return float(result.k.values[np.nanargmax(surely)])


def is_clear(result: xr.Dataset) -> Bools:
    """Return at which budgets the gain is further from 0 than chance would take it; any but 0 where there are no standard errors.

    That is two standard errors, and so many samples that they could not all be on one side by chance.
    """
    gain = np.abs(result.adaptive_gain.values)
    if "adaptive_gain_stderr" not in result or "set_hit_count" not in result:  # expected errors, or both of every K
        return np.asarray(gain > 0)
    enough = gain * result.attrs.get("n_labelled", np.inf) > _LEAST_SAMPLES - 0.5
    return np.asarray((gain > CLEAR * result.adaptive_gain_stderr.values) & enough)  # NaN is not clear


def is_crowded(result: xr.Dataset) -> Bools:
    """Return at which budgets a tenth of the labels in the sets or more are ties that others could stand for as well."""
    if "n_kept" not in result:  # both errors of every K
        return np.zeros(result.sizes["k"], bool)
    above, kept = result.n_above.values, result.n_kept.values
    return np.asarray((10 * n_arbitrary(result) >= above + kept) & (kept > 0))


def n_arbitrary(result: xr.Dataset) -> Ints:
    """Return how many labels in the sets of each budget could be others: ties that are kept while as many are left out."""
    kept = result.n_kept.values
    return np.asarray(np.minimum(kept, result.n_ties.values - kept))
