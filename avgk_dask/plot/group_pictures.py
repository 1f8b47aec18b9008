"""Pictures of classes, groups and set sizes: who is served badly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from .canvas import fit_ticks, new_axes, percent_ticks, scaled
from .legends import add_legend, plain
from .needs import known_budget, need_table, percent
from .palette import AVERAGE_K, BUDGET, GAIN, TOP_K
from .size_pictures import last_size
from .thinning import MOST_BINS, thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["group_errors", "size_coverage"]


def group_errors(breakdown: xr.Dataset, k: float | None = None, ax: Axes | None = None) -> Axes:
    """Draw how errors are spread over classes or groups: the share of them with at most so large an error, for both rules.

    Parameters
    ----------
    breakdown
        What ``breakdown`` gives.
    k
        One of its budgets; by default the largest.
    ax
        Where to draw; by default a new figure.

    Raises
    ------
    OptionError
        If the result has no groups with labels, or k is none of its budgets.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> found = avgk.breakdown(np.eye(3), np.array([0, 1, 1]), k=1)
    >>> avgk.plot.group_errors(found).get_xlabel()
    'error of the class (%)'

    """
    need_table(breakdown, "average_k_error")
    one = breakdown.sel(k=known_budget(breakdown, float(breakdown.k.values.max()) if k is None else k))
    ax = new_axes(ax)
    for rule, color, dashes in (("average", AVERAGE_K, "-"), ("top", TOP_K, "--")):
        values = percent(one[f"{rule}_k_error"])
        values = values[~np.isnan(values)]
        if values.size:
            found, counts = np.unique(values, return_counts=True)
            x, y = np.concatenate([[0.0], found, [100.0]]), np.cumsum([0, *counts, 0]) * 100 / values.size
            some = thinned(x, y)
            ax.step(x[some], y[some], where="post", color=color, linestyle=dashes, label=f"{rule}-k")
    what = plain(breakdown.attrs.get("by", "group"))
    many = "classes" if what == "class" else f"{what}s"
    ax.set(xlabel=f"error of the {what} (%)", ylabel=f"{many} up to it (%)", xlim=(0, 100), ylim=(0, 103))
    percent_ticks(ax)
    fit_ticks(ax)
    add_legend(ax)
    return ax


def size_coverage(result: xr.Dataset, ax: Axes | None = None) -> Axes:
    """Draw how often conformal sets of each size hold their label, over how many samples have sets of that size.

    Of more than 400 sizes those are drawn that have most samples.

    Parameters
    ----------
    result
        What ``evaluate`` of a conformal predictor gives, with labels.
    ax
        Where to draw; by default a new figure.

    Raises
    ------
    OptionError
        If the result has no coverage by size.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> found = avgk.conformal.calibrate(np.eye(3), np.arange(3), alpha=0.5).evaluate(np.eye(3), np.arange(3))
    >>> avgk.plot.size_coverage(found).get_xlabel()
    'set size'

    """
    need_table(result, "size_coverage")
    ax = new_axes(ax)
    counts = result.set_size_count.values[: last_size(result.set_size_count.values) + 1]
    some = np.sort(np.argsort(-counts, kind="stable")[:MOST_BINS])
    sizes = result["size"].values[some]
    shares = 100 * counts[some] / result.set_size_count.values.sum()
    ax.bar(sizes, shares, color=AVERAGE_K, alpha=0.5, label="samples")
    covered = percent(result.size_coverage.isel(size=some))
    ax.plot(sizes, covered, "o", color=GAIN, label="coverage", **scaled(0.67, "markersize"))
    promised = 100 * (1 - float(result.attrs["alpha"]))
    ends = [sizes[0] - 0.5, sizes[-1] + 0.5]
    ax.plot(ends, [promised, promised], color=BUDGET, linestyle="--", label=f"promised: {promised:g} %")
    ax.set(xlabel="set size", ylabel="samples, coverage (%)", ylim=(0, 105))
    percent_ticks(ax)
    fit_ticks(ax, integer=True)
    add_legend(ax)
    return ax
