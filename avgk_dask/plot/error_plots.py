"""Pictures of errors and gains, and the budget of the headline: the one with the surest gain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..arrays import Array, Bools, Floats, Ints
from ..errors import OptionError
from ..results.datasets import check_result
from .canvas import (
    AVERAGE_K,
    GAIN,
    TOP_K,
    budget_scale,
    ink_of,
    name_ticks,
    need,
    new_axes,
    next_series,
    percent,
    scaled,
    size_in_ems,
    thinned,
    ticks_up_to,
)
from .legends import add_legend, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: Half the width of a 95 % interval in standard errors; and the least number of samples whose outcome changes, all in the
#: same direction, that a sign test at 5 % finds significant.
CLEAR, _LEAST_SAMPLES = 1.96, 6


def best_budget(result: xr.Dataset) -> float:
    """Return the budget whose relative gain has the highest lower end of its 95 % interval.

    Clear gains come first, preferably positive ones whose sets do not depend on ties. If no gain is clear, budgets whose sets do
    not depend on ties come first. Without gains it is the largest budget.
    """
    gain = result.relative_gain.values if "relative_gain" in result else np.full(result.sizes["k"], np.nan)
    if np.isnan(gain).all():
        return float(result.k.values.max())
    stderr = result.relative_gain_stderr.values if "relative_gain_stderr" in result else np.zeros(gain.size)
    lower = gain - CLEAR * np.nan_to_num(stderr)
    clear = is_clear(result) & ~np.isnan(gain)
    better = clear & (gain > 0)
    free = ~is_crowded(result)
    for candidates in (better & free, better, clear, free & ~np.isnan(gain)):
        if candidates.any():
            lower = np.where(candidates, lower, np.nan)
            break
    return float(result.k.values[np.nanargmax(lower)])


def is_clear(result: xr.Dataset) -> Bools:
    """Return at which budgets the gain is significant: beyond its 95 % interval, and of at least six samples.

    Without standard errors every gain other than 0 counts.
    """
    gain = np.abs(result.adaptive_gain.values)
    if "adaptive_gain_stderr" not in result or "set_hit_count" not in result:  # soft labels, or an error curve
        return np.asarray(gain > 0)
    enough = gain * result.attrs.get("n_labelled", np.inf) > _LEAST_SAMPLES - 0.5
    return np.asarray((gain > CLEAR * result.adaptive_gain_stderr.values) & enough)  # NaN is not clear


def is_crowded(result: xr.Dataset) -> Bools:
    """Return at which budgets at least a tenth of the labels in the sets are an arbitrary choice among ties."""
    if "n_kept" not in result:  # an error curve
        return np.zeros(result.sizes["k"], bool)
    above, kept = result.n_above.values, result.n_kept.values
    return np.asarray((10 * n_arbitrary(result) >= above + kept) & (kept > 0))


def n_arbitrary(result: xr.Dataset) -> Ints:
    """Return for each budget how many labels in the sets could be exchanged for ties outside."""
    kept = result.n_kept.values
    return np.asarray(np.minimum(kept, result.n_ties.values - kept))


#: Maximum number of budgets with a marker, with a bar, and with a tick if fractional; and the end of the y-axis if all
#: errors are 0.
_MARKED, _BARS, _NAMED, _NO_ERRORS = 50, 30, 2, 0.1
#: Width of a letter above a bar, in ems of the tick labels.
_LETTER = 0.6
_K, _ERROR = "k, labels per sample", "error (%)"


def errors(result: xr.Dataset, ax: Axes | None = None, *, label: str | None = None) -> Axes:
    """Draw the error of both rules against k, in percent of the labelled samples, with 95 % intervals.

    Parameters
    ----------
    result
        The result of ``evaluate`` or ``error_curve`` with labels.
    ax
        Axes to draw into; by default new axes.
    label
        Name of the result if several share the Axes: each then has its own colour, and top-k is dashed.

    Raises
    ------
    OptionError
        If the result has no errors: it was computed without labels.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> result = avgk.evaluate(np.eye(6) + np.eye(6, k=1) / 2, np.arange(6), k=[1, 2])
    >>> avgk.plot.errors(result).get_xlabel()
    'k, labels per sample'
    """
    need(result, "average_k_error", "labels")
    ax = new_axes(ax)
    _draw_errors(result, ax, label)
    _finish_errors(ax, result.k.values, "average-k (dashed: top-k)" if label is not None else None)
    return ax


def model_errors(result: xr.Dataset, ax: Axes | None = None) -> Axes:
    """Draw the errors of several models against k: average-k solid, top-k dashed, a colour for each model.

    Parameters
    ----------
    result
        The result of ``compare``.
    ax
        Axes to draw into; by default new axes.

    Raises
    ------
    OptionError
        If the result is of one model, or has no errors: it was computed without labels.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> comparison = avgk.compare({"a": np.eye(6), "b": np.eye(6, k=1)}, np.arange(6), k=[1, 2])
    >>> avgk.plot.model_errors(comparison).get_xlabel()
    'k, labels per sample'
    """
    check_result(result)
    if "model" not in result.dims or np.isnan(result.average_k_error.values).all():
        raise OptionError("result has no errors of several models. Pass a result of compare, computed with labels.")
    ax = new_axes(ax)
    for i, name in enumerate(result.model.values):
        _draw_errors(result.isel(model=i), ax, str(name))
    _finish_errors(ax, result.k.values, "average-k (dashed: top-k)")
    return ax


def _draw_errors(result: xr.Dataset, ax: Axes, label: str | None) -> None:
    """Draw one curve per rule, in the colours of the rules, or in one colour if the result has a label."""
    series = {} if label is None else next_series(ax)
    for rule, color, dashes in (("average", AVERAGE_K, "-"), ("top", TOP_K, "--")):
        named = f"{rule}-k" if label is None else plain(label) if rule == "average" else "_"
        style = {"color": color, "marker": "o", **series, "linestyle": dashes, "label": named}
        _curve(ax, result, f"{rule}_k_error", f"{rule}_k_error_stderr", style)


def _curve(ax: Axes, result: xr.Dataset, name: str, stderr: str, style: dict[str, Any]) -> None:
    """Draw a variable against k with its 95 % interval, as a band or, with one budget, as a bar."""
    ordered = result.isel(k=np.flatnonzero(~np.isnan(result[name].values))).sortby("k")
    k, values = ordered.k.values, percent(ordered[name])
    if not k.size:
        return
    drawn = thinned(k, values)
    marked = {**style, **scaled(0.67, "markersize")} if k.size <= _MARKED else {**style, "marker": ""}
    ax.plot(k[drawn], values[drawn], **marked)
    if stderr not in ordered or np.isnan(ordered[stderr].values).all():
        return
    reach = CLEAR * percent(ordered[stderr])
    if k.size == 1:
        ax.errorbar(k, values, reach, fmt="none", ecolor=style["color"])
    else:
        low = np.maximum(values - reach, 0) if "error" in name else values - reach
        alpha = 0.28 if style["color"] in (AVERAGE_K, TOP_K) else 0.18  # many bands may overlap
        ax.fill_between(k[drawn], low[drawn], (values + reach)[drawn], color=style["color"], alpha=alpha, linewidth=0)


def _finish_errors(ax: Axes, k: Array, title: str | None) -> None:
    """Label the axes of errors, start the y-axis at 0, and add the legend."""
    ax.set(xlabel=_K, ylabel=_ERROR)
    highest = max((float(np.asarray(line.get_ydata(), float).max(initial=0)) for line in ax.lines), default=0)
    ax.set_ylim(0, ax.get_ylim()[1] if highest else _NO_ERRORS)
    ticks_up_to(ax, 100)
    _budget_ticks(ax, k)
    add_legend(ax, title=title)


def _budget_ticks(ax: Axes, k: Array) -> None:
    """Set integer ticks on the axis of k, or one tick for a single budget, with space on both sides."""
    drawn = np.unique(np.concatenate([np.asarray(line.get_xdata(), float) for line in ax.lines]))
    if k.size == 1 and drawn.size == 1:
        ax.set_xlim(max(0.0, float(k[0]) - 1), float(k[0]) + 1)
        ax.set_xticks(k, [f"{one:g}" for one in k])
    else:
        ax.set_xlim(auto=True)
        ax.autoscale_view(scaley=False)
        budget_scale(ax, drawn)
        if drawn.size <= _NAMED and (drawn % 1).any():  # integer ticks would not show these
            ax.set_xticks(drawn, [f"{one:.4g}" for one in drawn])


def gains(result: xr.Dataset, ax: Axes | None = None, *, label: str | None = None) -> Axes:
    """Draw the top-k error of each integer k as a bar, divided into the errors that average-k makes and those it avoids.

    The number above a bar is the relative gain. If average-k makes more errors, the additional ones are hatched. With a label
    only the gain in points is drawn, as a curve, so that several results can share Axes.

    Parameters
    ----------
    result
        The result of ``evaluate`` or ``error_curve`` with labels.
    ax
        Axes to draw into; by default new axes.
    label
        Name of the result if several share the Axes.

    Raises
    ------
    OptionError
        If the result has no errors of both rules: no labels, or no integer k.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> result = avgk.evaluate(np.eye(6) + np.eye(6, k=1) / 2, np.arange(6), k=[1, 2])
    >>> avgk.plot.gains(result).get_ylabel()
    'error (%)'
    >>> avgk.plot.gains(result, label="a model").get_ylabel()
    'gain (points)'
    """
    need(result, "top_k_error", "labels and an integer k")
    ax = new_axes(ax)
    whole = result.isel(k=np.flatnonzero(~np.isnan(result.top_k_error.values))).sortby("k")
    if label is not None:
        _draw_gain_curve(whole, ax, label)
        return ax
    average, top = percent(whole.average_k_error), percent(whole.top_k_error)
    has_bars = "adaptive_gain_stderr" in whole and not np.isnan(whole.adaptive_gain_stderr.values).all()
    reach = CLEAR * percent(whole.adaptive_gain_stderr) if has_bars else None
    draw = _draw_bars if whole.sizes["k"] <= _BARS else _draw_areas
    draw(ax, whole.k.values, average, top, reach)
    add_legend(ax)
    return ax


def _draw_gain_curve(whole: xr.Dataset, ax: Axes, label: str) -> None:
    """Draw the gain of one of several results as a curve."""
    ax.plot(whole.k.values[[0, -1]], [0, 0], color=ink_of(ax), label="_", **scaled(0.5, "linewidth"))
    style = {**next_series(ax), "label": plain(label)}
    gain = whole.assign(gain=whole.top_k_error - whole.average_k_error)
    _curve(ax, gain, "gain", "adaptive_gain_stderr", style)
    ax.set(xlabel=_K, ylabel="gain (points)")
    ax.autoscale_view()
    _budget_ticks(ax, whole.k.values)
    add_legend(ax)


def _draw_bars(ax: Axes, k: Array, average: Floats, top: Floats, reach: Floats | None) -> None:
    """Draw a bar for each budget, with the gain in percent above it if there is space."""
    both, ticks, higher = np.minimum(average, top), np.arange(k.size), np.maximum(average, top)
    ax.bar(ticks, both, color=AVERAGE_K, label="average-k errors")
    ax.bar(ticks, np.maximum(top - average, 0), bottom=both, color=GAIN, label="avoided top-k errors")
    worse = average > top
    if worse.any():
        hatched: dict[str, Any] = {"color": "none", "edgecolor": TOP_K, "hatch": "////"}
        ax.bar(ticks[worse], (average - top)[worse], bottom=both[worse], label="additional errors", **hatched)
    if reach is not None:
        higher = np.fmax(higher, average + reach)
        ax.errorbar(ticks, average, reach, fmt="none", ecolor=ink_of(ax), label="95 % interval")
    ax.margins(x=0.05 if ticks.size > 2 else 0.7)
    _finish_gains(ax, float(higher.max()))
    name_ticks(ax, ticks, [f"{one:g}" for one in k])
    _write_gains(ax, average, top, higher)


def _write_gains(ax: Axes, average: Floats, top: Floats, higher: Floats) -> None:
    """Write the gain above each bar, rotated above narrow bars, unless bars are very narrow."""
    relative = {i: round(100 * (top[i] - average[i]) / top[i]) for i in np.flatnonzero(top)}
    names = {i: f"{gain:+d} %".replace("-", "\N{MINUS SIGN}") if gain else "0 %" for i, gain in relative.items()}
    low, high = ax.get_xlim()
    each = size_in_ems(ax)[0] / (high - low)
    if not names or each < 1.2:
        return
    upright = each < 0.5 + _LETTER * max(map(len, names.values()))
    style: dict[str, Any] = {"rotation": 90 if upright else 0, "fontsize": "small", "ha": "center", "va": "bottom"}
    for i, name in names.items():
        ax.annotate(name, (i, higher[i]), (0, 2), textcoords="offset points", **style)


def _draw_areas(ax: Axes, k: Array, average: Floats, top: Floats, reach: Floats | None) -> None:
    """Draw areas instead of too many bars."""
    drawn = thinned(k, average, top)
    k, average, top = k[drawn], average[drawn], top[drawn]
    both, higher = np.minimum(average, top), np.maximum(average, top)
    ax.fill_between(k, both, color=AVERAGE_K, linewidth=0, label="average-k errors")
    ax.fill_between(k, both, top, color=GAIN, linewidth=0, label="avoided top-k errors")
    if (average > top).any():
        hatched: dict[str, Any] = {"facecolor": "none", "edgecolor": TOP_K, "hatch": "////", "linewidth": 0}
        ax.fill_between(k, both, average, label="additional errors", **hatched)
    if reach is not None:
        low, high = average - reach[drawn], average + reach[drawn]
        higher = np.fmax(higher, high)
        ax.fill_between(k, low, high, color=ink_of(ax), alpha=0.4, linewidth=0, label="95 % interval")
    _finish_gains(ax, float(higher.max()))
    budget_scale(ax, k)


def _finish_gains(ax: Axes, highest: float) -> None:
    """Label the axes of bars of errors, and start the y-axis at 0."""
    ax.set_ylim(0, 1.05 * highest or _NO_ERRORS)
    ticks_up_to(ax, 100)
    ax.set(xlabel=_K, ylabel=_ERROR)
