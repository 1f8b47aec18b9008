"""Pictures of the ranked scores: their distributions, and how far they straddle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..arrays import Floats, Ints
from .canvas import AVERAGE_K, name_ticks, need, new_axes, scaled, size_in_ems

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh


#: Ranks that are drawn.
_MOST_RANKS = 12
#: Share of the width that a colour bar leaves; letters in a cell, in ems of those at the ticks.
_BESIDE_A_BAR, _LETTER = 0.75, 0.55


def ranked_scores(result: xr.Dataset, ax: Axes | None = None) -> Axes:
    """Draw the distribution of the scores of each rank over its support; where neighbours overlap, adapting can pay.

    Parameters
    ----------
    result
        What ``evaluate`` or ``ranked_supports`` gives.
    ax
        Where to draw; by default a new figure.

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
        What ``evaluate`` or ``straddle_strength`` gives.
    ax
        Where to draw; by default a new figure.

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
    """Write each strength into its cell, in black or white, if there is space for all of them."""
    names = {at: _strength(value) for at, value in np.ndenumerate(strengths) if not np.isnan(value)}
    width, height = size_in_ems(ax)
    across, down = _BESIDE_A_BAR * width / strengths.shape[1], height / strengths.shape[0]
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
    """Return counts over the widths of their bins, the greatest as 1; empty bins of no width have none."""
    widths = np.diff(edges / 2)  # halves: the difference of two floats might overflow
    found = np.divide(counts, widths, out=np.zeros(counts.size), where=widths > 0)
    return np.asarray(found / max(found.max(), np.finfo(float).tiny))
