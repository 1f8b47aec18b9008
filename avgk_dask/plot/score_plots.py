"""Pictures of scores: distributions by rank, straddle strengths, and calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..arrays import Floats, Ints
from .canvas import (
    AVERAGE_K,
    BUDGET,
    GAIN,
    TOP_K,
    fit_ticks,
    ink_of,
    name_ticks,
    need,
    need_table,
    new_axes,
    next_series,
    percent,
    scaled,
    size_in_ems,
)
from .legends import add_legend, finish, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh


#: Maximum number of ranks drawn.
_MOST_RANKS = 12
#: Share of the width left by the colour bar; width of a letter in a cell, in ems of the tick labels.
_WITHOUT_BAR, _LETTER = 0.75, 0.55


def ranked_scores(result: xr.Dataset, ax: Axes | None = None) -> Axes:
    """Draw the range and distribution of the scores of each rank.

    If neighbouring ranks overlap, average-k can make fewer errors than top-k.

    Parameters
    ----------
    result
        The result of ``evaluate`` or ``ranked_supports``.
    ax
        Axes to draw into; by default new axes.

    Raises
    ------
    OptionError
        If the result has no supports.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.plot.ranked_scores(avgk.ranked_supports(np.eye(4) + 0.1, [1, 2])).get_xlabel()
    'rank of the score in its sample'
    """
    need(result, "support_low", "supports: evaluate it with straddle=True")
    ax = new_axes(ax)
    ranks = result["rank"].values[:_MOST_RANKS]
    shown = result.isel(rank=slice(0, _MOST_RANKS))
    lowest, highest = float(shown.support_low.min()), float(shown.support_high.max())
    on_log = lowest > 0 and highest / 100 > lowest and np.isfinite(highest)
    for tick, rank in enumerate(ranks):
        one = result.sel(rank=rank)
        low, high = float(one.support_low), float(one.support_high)
        if not np.isfinite([low, high]).all():
            continue
        thin = {"color": AVERAGE_K, **scaled(0.8, "linewidth")}
        ax.vlines(tick, low, high, **thin)
        ax.hlines([low, high], tick - 0.12, tick + 0.12, **thin)
        if "ranked_count" in one and high > low:
            edges = np.append(one.bin_low.values.astype(float), high)
            half = 0.42 * _density(one.ranked_count.values, np.log(edges) if on_log else edges)
            ax.fill_betweenx(
                np.repeat(edges, 2)[1:-1], tick - np.repeat(half, 2), tick + np.repeat(half, 2),
                color=AVERAGE_K, alpha=0.6, linewidth=0,
            )  # fmt: skip
    name_ticks(ax, np.arange(ranks.size), [str(rank) for rank in ranks])
    ax.set(xlabel="rank of the score in its sample", ylabel="score (logarithmic)" if on_log else "score")
    if on_log:
        ax.set_yscale("log")
    return ax


def straddle(result: xr.Dataset, ax: Axes | None = None) -> Axes:
    """Draw the straddle strengths as a heat map over k and order.

    Parameters
    ----------
    result
        The result of ``evaluate`` or ``straddle_strength``.
    ax
        Axes to draw into; by default new axes.

    Raises
    ------
    OptionError
        If the result has no straddle strengths.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.plot.straddle(avgk.straddle_strength(np.eye(6), [1, 2, 3])).get_ylabel()
    'order'
    """
    from matplotlib.colors import PowerNorm
    from matplotlib.ticker import MaxNLocator

    need(result, "straddle_strength", "straddle strengths: evaluate it with straddle=True and an integer k")
    ax = new_axes(ax)
    whole = result.isel(k=np.flatnonzero(~np.isnan(result.straddle_strength.values).all(1))).sortby("k")
    strengths = whole.straddle_strength.transpose("order", "k").values
    ticks, orders = np.arange(whole.sizes["k"]), whole["order"].values
    corners = np.arange(ticks.size + 1) - 0.5, np.append(orders - 0.5, orders[-1] + 0.5)
    top = float(np.nanmax(strengths)) or 1.0
    drawn = ax.pcolormesh(*corners, strengths, norm=PowerNorm(0.5, 0, top), rasterized=strengths.size > 4_000)
    assert ax.figure is not None
    ax.figure.colorbar(drawn, ax=ax, label="strength (score units)")
    ax.grid(False)
    name_ticks(ax, ticks, [f"{k:g}" for k in whole.k.values])
    ax.set(xlabel="k, labels per sample", ylabel="order")
    ax.yaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True, min_n_ticks=1))
    _name_cells(ax, drawn, strengths, orders)
    return ax


def _name_cells(ax: Axes, drawn: QuadMesh, strengths: Floats, orders: Ints) -> None:
    """Write each strength into its cell, in black or white, if there is space."""
    names = {at: _strength(value) for at, value in np.ndenumerate(strengths) if not np.isnan(value)}
    width, height = size_in_ems(ax)
    across, down = _WITHOUT_BAR * width / strengths.shape[1], height / strengths.shape[0]
    if down < 1.2 or across < 0.5 + _LETTER * max(map(len, names.values())):
        return
    for (row, tick), name in names.items():
        red, green, blue, _ = drawn.to_rgba(strengths[row, tick])
        color = "black" if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.18 else "white"
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": "x-small", "color": color}
        ax.text(tick, float(orders[row]), name, **style)


def _strength(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}" if value < 1e-3 else f"{value:.3f}"


def _density(counts: Ints, edges: Floats) -> Floats:
    """Return the density of counts, scaled to a maximum of 1; bins of width 0 have density 0."""
    widths = np.diff(edges / 2)  # halves: the difference of two floats might overflow
    density = np.divide(counts, widths, out=np.zeros(counts.size), where=widths > 0)
    return np.asarray(density / max(density.max(), np.finfo(float).tiny))


def reliability(tables: xr.Dataset | Mapping[str, xr.Dataset], ax: Axes | None = None) -> Axes:
    """Draw a reliability diagram: accuracy against the highest score, one line per table.

    Parameters
    ----------
    tables
        The result of ``losses.expected_calibration_error``, or several by name, such as before and after a calibration.
    ax
        Axes to draw into; by default new axes.

    Raises
    ------
    OptionError
        If a table has no labelled sample.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> table = avgk.losses.expected_calibration_error(np.array([[0.75, 0.25], [0.25, 0.75]]), np.array([0, 0]))
    >>> avgk.plot.reliability({"before": table}).get_xlabel()
    'confidence: mean highest score'
    """
    named = {"": tables} if isinstance(tables, xr.Dataset) else dict(tables)
    ax = new_axes(ax)
    ax.plot([0, 1], [0, 1], color=ink_of(ax), linestyle=":", **scaled(0.7, "linewidth"))
    for name, table in named.items():
        need_table(table, "accuracy")
        some = table["count"].values > 0
        error = f"ECE {100 * float(table.expected_calibration_error):.2g} %"
        x, y = table.confidence.values[some], table.accuracy.values[some]
        label = f"{plain(name)}, {error}" if name else error
        ax.plot(x, y, label=label, **next_series(ax), **scaled(0.67, "markersize"))
    ax.set(xlabel="confidence: mean highest score", ylabel="accuracy: share correct")
    ax.set(xlim=(0, 1), ylim=(0, 1))
    return finish(ax, 1)


def near_threshold(table: xr.Dataset, ax: Axes | None = None) -> Axes:
    """Draw a reliability diagram of the scores near the average-k threshold.

    Parameters
    ----------
    table
        The result of ``losses.calibration_at_threshold``.
    ax
        Axes to draw into; by default new axes.

    Raises
    ------
    OptionError
        If the table has no labelled sample.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> scores = np.array([[0.6, 0.3, 0.1], [0.4, 0.35, 0.25]])
    >>> table = avgk.losses.calibration_at_threshold(scores, np.array([0, 1]), 1, window=1)
    >>> avgk.plot.near_threshold(table).get_ylabel()
    'share correct'
    """
    need_table(table, "total_accuracy")
    ax = new_axes(ax)
    some = table["count"].values > 0
    x, y, threshold = table.confidence.values[some], table.accuracy.values[some], float(table.threshold)
    ends = [min(float(x.min()), threshold), max(float(x.max()), threshold)]
    heights = [min(float(y.min()), ends[0]), max(float(y.max()), ends[1])]
    ax.plot(ends, ends, color=ink_of(ax), linestyle=":", label="calibrated", **scaled(0.7, "linewidth"))
    ax.plot(x, y, color=AVERAGE_K, marker="o", label="near the threshold", **scaled(0.67, "markersize"))
    ax.plot([threshold, threshold], heights, color=BUDGET, linestyle="--", label="threshold")
    ax.set(xlabel="mean score", ylabel="share correct")
    return finish(ax, None)


def temperatures(curve: xr.Dataset, ax: Axes | None = None) -> Axes:
    """Draw both errors and the NLL against the temperature, with the minimum of the NLL marked.

    Parameters
    ----------
    curve
        The result of ``calibration.temperature_curve``.
    ax
        Axes to draw into; by default new axes. The NLL has its own axis at the right.

    Raises
    ------
    OptionError
        If the curve has no errors.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> curve = avgk.calibration.temperature_curve(np.tile([2.0, 0.0], (4, 1)), np.array([0, 0, 0, 1]))
    >>> avgk.plot.temperatures(curve).get_xlabel()
    'temperature'
    """
    need_table(curve, "nll")
    ax = new_axes(ax)
    ordered = curve.sortby("temperature")
    x, nll = ordered.temperature.values, ordered.nll.values
    for rule, color, dashes in (("top", TOP_K, "--"), ("average", AVERAGE_K, "-")):
        values = percent(ordered[f"{rule}_k_error"])
        if not np.isnan(values).all():
            style = {"color": color, "linestyle": dashes, "marker": "o", **scaled(0.5, "markersize")}
            ax.plot(x, values, label=f"{rule}-k error", **style)
    right = ax.twinx()
    right.plot(x, nll, color=GAIN, linestyle=":", marker="s", label="NLL (right)", **scaled(0.5, "markersize"))
    right.set_ylabel("NLL")
    ax.plot([x[nll.argmin()]] * 2, ax.get_ylim(), color=BUDGET, linestyle="-.", label="least NLL")
    ax.set(xlabel="temperature", ylabel="error (%)")
    if x.size > 1 and x[-1] / x[0] > 4:
        _double_ticks(ax)
    else:
        fit_ticks(ax)
    add_legend(ax, twins=(right,))
    return ax


def _double_ticks(ax: Axes) -> None:
    """Make the x-axis logarithmic with ticks at powers of 2."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(LogLocator(base=2, numticks=max(2, int(size_in_ems(ax)[0] / 3))))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
