"""Pictures of tables of calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from .canvas import (
    AVERAGE_K,
    BUDGET,
    GAIN,
    TOP_K,
    fit_ticks,
    ink_of,
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


def reliability(tables: xr.Dataset | Mapping[str, xr.Dataset], ax: Axes | None = None) -> Axes:
    """Draw how often the highest scores are right against what they say, one line for each table.

    Parameters
    ----------
    tables
        What ``losses.expected_calibration_error`` gives; or several by name, such as before and after a calibration.
    ax
        Where to draw; by default a new figure.

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
        told = f"{plain(name)}, {error}" if name else error
        ax.plot(x, y, label=told, **next_series(ax), **scaled(0.67, "markersize"))
    ax.set(xlabel="confidence: mean highest score", ylabel="accuracy: share right")
    ax.set(xlim=(0, 1), ylim=(0, 1))
    return finish(ax, 1)


def near_threshold(table: xr.Dataset, ax: Axes | None = None) -> Axes:
    """Draw how often scores near the average-k threshold are the label against what they say.

    Parameters
    ----------
    table
        What ``losses.calibration_at_threshold`` gives.
    ax
        Where to draw; by default a new figure.

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
    'share right'

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
    ax.set(xlabel="mean score", ylabel="share right")
    return finish(ax, None)


def temperatures(curve: xr.Dataset, ax: Axes | None = None) -> Axes:
    """Draw both errors and the NLL against the temperature; the least NLL is marked.

    Parameters
    ----------
    curve
        What ``calibration.temperature_curve`` gives.
    ax
        Where to draw; by default a new figure. The NLL has an axis of its own at the right.

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
    add_legend(ax, beside=(right,))
    return ax


def _double_ticks(ax: Axes) -> None:
    """Let the x-axis be logarithmic, with a tick where it has doubled, or more where there is no space."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(LogLocator(base=2, numticks=max(2, int(size_in_ems(ax)[0] / 3))))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
