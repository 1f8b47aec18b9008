"""Pictures of set sizes, of the errors of groups, and of the coverage by set size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..arrays import Floats, Ints
from .canvas import (
    AVERAGE_K,
    BUDGET,
    GAIN,
    MOST_BINS,
    TOP_K,
    binned,
    ink_of,
    known_budget,
    need,
    need_table,
    new_axes,
    next_series,
    ordered_colors,
    percent,
    scaled,
    space_evenly,
    thinned,
)
from .error_plots import best_budget
from .legends import finish, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: Maximum number of budgets drawn by default, and named in a legend.
_FEW = 6
#: A histogram of more sizes than _WIDE ends when at most this share of the samples is left.
_TAIL, _WIDE = 0.005, 40


def set_sizes(result: xr.Dataset, k: float | None = None, ax: Axes | None = None, *, label: str | None = None) -> Axes:
    """Draw a histogram of the sizes of the average-k sets, with k marked.

    More than 400 sizes are combined into bins of increasing width, on a logarithmic axis.

    Parameters
    ----------
    result
        The result of ``evaluate``.
    k
        The budget; by default the budget of the headline, which has the most significant gain.
    ax
        Axes to draw into; by default new axes.
    label
        Name of the result if several share the Axes: each is then an outline with its own colour.

    Raises
    ------
    OptionError
        If the result has no set sizes, or not of this budget.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> result = avgk.evaluate(np.eye(6) + np.eye(6, k=1) / 2, np.arange(6), k=[1, 2])
    >>> avgk.plot.set_sizes(result, k=2).get_xlabel()
    'labels in the set'
    """
    need(result, "set_size_count", "the set sizes of evaluate")
    ax = new_axes(ax)
    budget = best_budget(result) if k is None else known_budget(result, k)
    counts = result.set_size_count.sel(k=budget).values
    last, n_samples = last_size(counts), int(counts.sum())
    bars, edges = binned(counts[: last + 1])
    _draw_sizes(ax, 100 * bars / n_samples, edges, label)
    if beyond := int(counts[last + 1 :].sum()):
        note = f"{100 * beyond / n_samples:.2g} % have more,\nup to {np.flatnonzero(counts)[-1]:,}"
        ax.plot([], [], linestyle="", marker="", label=note)  # an entry of the legend
    ax.set(xlabel="labels in the set", ylabel="samples (%)" if bars.size > last else "samples (% per bar)")
    _set_range(ax, counts, last, budget, result.attrs.get("n_classes", last))
    _mark_budget(ax, budget, BUDGET if label is None else ink_of(ax))
    return finish(ax, integer=True)


def _draw_sizes(ax: Axes, shares: Floats, edges: Ints, label: str | None) -> None:
    """Draw a histogram as bars, as an area if they are many, or as an outline if the result has a label."""
    if edges[-1] > shares.size:
        ax.set_xscale("symlog", linthresh=1)
    if label is not None:
        color = next_series(ax)["color"]
        ax.stairs(shares, edges - 0.5, color=color, label=plain(label), **scaled(1, "linewidth"))
    elif edges[-1] <= _WIDE + 1:
        ax.bar(np.arange(shares.size), shares, color=AVERAGE_K, width=0.85)
    else:
        ax.stairs(shares, edges - 0.5, fill=True, color=AVERAGE_K)


def _set_range(ax: Axes, counts: Ints, last: int, budget: float, n_classes: int) -> None:
    """Set the x-axis to the range of sizes, from 0 if that is near, and of other results in these Axes."""
    first = int(np.flatnonzero(counts)[0])
    near = 2 * first > last  # far from 0
    low, high = (max(first - 3, 0), min(last + 3, max(n_classes, last))) if near else (0, last)
    side = 0.6 if last <= _WIDE or ax.get_xscale() != "linear" else 0.02 * last
    bounds = low - side, max(high, budget) + side
    if len(ax.patches) > counts.size or ax.get_legend() is not None:
        bounds = min(bounds[0], ax.get_xlim()[0]), max(bounds[1], ax.get_xlim()[1])
    ax.set_xlim(*bounds)


def _mark_budget(ax: Axes, budget: float, color: str) -> None:
    """Draw a line at k up to the highest bar, unless another result drew it already."""
    name = f"k = {budget:g}"
    if name not in ax.get_legend_handles_labels()[1]:
        high = max(patch.get_window_extent().y1 for patch in ax.patches)
        top = float(ax.transData.inverted().transform((0, high))[1])
        ax.plot([budget, budget], [0, top], color=color, linestyle="--", label=name)
    ax.set_ylim(bottom=0)


def set_size_distribution(
    result: xr.Dataset, k: Sequence[float] | None = None, ax: Axes | None = None, *, label: str | None = None
) -> Axes:
    """Draw the cumulative distribution of the set sizes, with each k marked by a dot.

    Parameters
    ----------
    result
        The result of ``evaluate``.
    k
        The budgets; by default up to six of the result. The legend names at most six.
    ax
        Axes to draw into; by default new axes.
    label
        Name of the result if several share the Axes: each then has one colour for all budgets.

    Raises
    ------
    OptionError
        If the result has no set sizes, or not of these budgets.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> result = avgk.evaluate(np.eye(6) + np.eye(6, k=1) / 2, np.arange(6), k=[1, 2])
    >>> avgk.plot.set_size_distribution(result).get_ylabel()
    'cumulative share (%)'
    """
    need(result, "set_size_count", "the set sizes of evaluate")
    ax = new_axes(ax)
    ks = sorted(result.k.values.tolist() if k is None else (known_budget(result, one) for one in np.atleast_1d(k)))
    named_ks = [ks[i] for i in space_evenly(len(ks), _FEW)]
    ks = named_ks if k is None else ks
    colors = ordered_colors(len(ks)) if label is None else [next_series(ax)["color"]] * len(ks)
    named = {budget: f"k = {budget:g}" for budget in named_ks}
    if label is not None:
        named = {ks[0]: plain(label) if len(ks) > 1 else f"{plain(label)}, k = {ks[0]:g}"}
    last = max(ax.get_xlim()[1] if ax.lines else 0, *(last_size(result.set_size_count.sel(k=one).values) for one in ks))
    for budget, color in zip(ks, colors, strict=True):
        counts = result.set_size_count.sel(k=budget).values
        _draw_share(ax, counts, int(last) + 1, budget, {"color": color, "label": named.get(budget, "_")})
    ax.set(xlabel="labels in the set", ylabel="cumulative share (%)")
    ax.set_ylim(0, max(102, ax.get_ylim()[1]))
    if last > MOST_BINS:
        ax.set_xscale("symlog", linthresh=1)
    ax.set_xlim(-0.02 * last if ax.get_xscale() == "linear" else -0.2, last * 1.02)
    return finish(ax, integer=True)


def _draw_share(ax: Axes, counts: Ints, end: int, budget: float, style: dict[str, Any]) -> None:
    """Draw the cumulative distribution of the sizes of one budget up to a size, and a dot at k."""
    share = 100 * np.cumsum(counts) / counts.sum()
    sizes = np.arange(share.size)[: end + 1]
    drawn = thinned(sizes, share[: sizes.size])
    ax.step(np.append(sizes[drawn], end), np.append(share[drawn], share[sizes[-1]]), where="post", **style)
    at_budget = share[min(int(budget), share.size - 1)]
    ax.plot(budget, at_budget, "o", color=style["color"], label="_", **scaled(0.8, "markersize"))


def last_size(counts: Ints) -> int:
    """Return the last size to draw: the largest one, or an earlier one if few samples have larger sets."""
    largest = int(np.flatnonzero(counts)[-1])
    if largest <= _WIDE:
        return largest
    return max(_WIDE, int(np.searchsorted(np.cumsum(counts), (1 - _TAIL) * counts.sum())))


def group_errors(breakdown: xr.Dataset, k: float | None = None, ax: Axes | None = None) -> Axes:
    """Draw the cumulative distribution of the errors of classes or groups, for both rules.

    Parameters
    ----------
    breakdown
        The result of ``breakdown``.
    k
        One of its budgets; by default the largest.
    ax
        Axes to draw into; by default new axes.

    Raises
    ------
    OptionError
        If the result has no groups with labels, or k is not one of its budgets.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> by_class = avgk.breakdown(np.eye(3), np.array([0, 1, 1]), k=1)
    >>> avgk.plot.group_errors(by_class).get_xlabel()
    'error of the class (%)'
    """
    need_table(breakdown, "average_k_error")
    one = breakdown.sel(k=known_budget(breakdown, float(breakdown.k.values.max()) if k is None else k))
    ax = new_axes(ax)
    for rule, color, dashes in (("average", AVERAGE_K, "-"), ("top", TOP_K, "--")):
        values = percent(one[f"{rule}_k_error"])
        values = values[~np.isnan(values)]
        if values.size:
            errors, counts = np.unique(values, return_counts=True)
            x, y = np.concatenate([[0.0], errors, [100.0]]), np.cumsum([0, *counts, 0]) * 100 / values.size
            some = thinned(x, y)
            ax.step(x[some], y[some], where="post", color=color, linestyle=dashes, label=f"{rule}-k")
    noun = plain(breakdown.attrs.get("by", "group"))
    ax.set(xlabel=f"error of the {noun} (%)", ylabel="cumulative share (%)", xlim=(0, 100), ylim=(0, 103))
    return finish(ax)


def size_coverage(result: xr.Dataset, ax: Axes | None = None) -> Axes:
    """Draw the coverage of conformal sets by size, over the share of the samples with sets of that size.

    At most the 400 most frequent sizes are drawn.

    Parameters
    ----------
    result
        The ``evaluate`` result of a conformal predictor, with labels.
    ax
        Axes to draw into; by default new axes.

    Raises
    ------
    OptionError
        If the result has no coverage by size.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> coverage = avgk.conformal.calibrate(np.eye(3), np.arange(3), alpha=0.5).evaluate(np.eye(3), np.arange(3))
    >>> avgk.plot.size_coverage(coverage).get_xlabel()
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
    target = 100 * (1 - float(result.attrs["alpha"]))
    ends = [sizes[0] - 0.5, sizes[-1] + 0.5]
    ax.plot(ends, [target, target], color=BUDGET, linestyle="--", label=f"target: {target:g} %")
    ax.set(xlabel="set size", ylabel="samples, coverage (%)", ylim=(0, 105))
    return finish(ax, integer=True)
