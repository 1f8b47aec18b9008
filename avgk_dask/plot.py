"""Pictures of results: each a function of a result Dataset that draws into Axes and returns them.

All take ``ax``, the Axes to draw into (by default those of a new figure), and need matplotlib only when
called. Colours are told apart by colour-blind eyes too, and mean the same everywhere: ``AVERAGE_K``,
``TOP_K``, ``GAIN``, ``BUDGET``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from .arrays import Array, Bools, Floats, Ints
from .errors import OptionError
from .results.datasets import check_result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "errors",
    "gains",
    "model_errors",
    "near_threshold",
    "ranked_scores",
    "reliability",
    "set_size_distribution",
    "set_sizes",
    "straddle",
    "temperatures",
]

#: Colours of Okabe and Ito.
AVERAGE_K, TOP_K, GAIN, BUDGET = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
#: Colours of several budgets in one picture, dark to light.
_SEVERAL = ("#0072b2", "#009e73", "#e69f00", "#d55e00", "#cc79a7", "#56b4e9")
#: Budgets and ranks up to which each is told by name.
_FEW, _MOST_RANKS = 6, 12
#: A histogram of sizes ends where no more than this share of the samples is left, if it would be wider than this.
_TAIL, _WIDE = 0.005, 40
#: Standard errors to either side that hold the true value 95 times in 100; and how many samples must fall on one side, and
#: none on the other, for a coin to do that less than 5 times in 100.
CLEAR, _LEAST_SAMPLES = 1.96, 6
#: Errors are drawn on an axis up to at least this.
_LEAST_PERCENT = 0.1


def errors(result: xr.Dataset, ax: Axes | None = None) -> Axes:
    """Draw the error of both rules against k.

    Parameters
    ----------
    result
        What ``evaluate`` or ``error_curve`` gives, with labels.
    ax
        Where to draw; by default a new figure.

    Raises
    ------
    OptionError
        If the result has no errors: it was computed without labels.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> result = avgk.evaluate(np.eye(6) + np.eye(6, k=1) / 2, np.arange(6), k=[1, 2])
    >>> avgk.plot.errors(result).get_xlabel()
    'k, labels per sample (on average)'

    """
    _need(result, "average_k_error", "labels")
    ax = _axes(ax)
    marker: dict[str, Any] = {"marker": "o", "markersize": 4} if result.sizes["k"] <= 50 else {}
    k, average, top = result.k.values, _percent(result.average_k_error), _percent(result.top_k_error)
    order = np.argsort(k)
    whole = order[~np.isnan(top[order])]
    if whole.size:
        ax.plot(k[whole], top[whole], color=TOP_K, label="top-k", linestyle="--", **marker)
        _band(ax, k[whole], top[whole], result, "top_k_error_stderr", whole, TOP_K)
    ax.plot(k[order], average[order], color=AVERAGE_K, label="average-k", **marker)
    _band(ax, k[order], average[order], result, "average_k_error_stderr", order, AVERAGE_K)
    ax.set(xlabel="k, labels per sample (on average)", ylabel="error (% of labelled samples)")
    ax.set_ylim(0, max(1.1 * float(np.nanmax([average, top])), _LEAST_PERCENT))
    _whole_ticks(ax, k)
    ax.legend(frameon=False)
    return _tidy(ax)


def model_errors(result: xr.Dataset, ax: Axes | None = None) -> Axes:
    """Draw the errors of several models against k: average-k solid, top-k dashed, a colour for each model.

    Parameters
    ----------
    result
        What ``compare`` gives.
    ax
        Where to draw; by default a new figure.

    Raises
    ------
    OptionError
        If the result is of one model, or has no errors: it was computed without labels.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> found = avgk.compare({"a": np.eye(6), "b": np.eye(6, k=1)}, np.arange(6), k=[1, 2])
    >>> avgk.plot.model_errors(found).get_xlabel()
    'k, labels per sample (on average)'

    """
    check_result(result)
    if "model" not in result.dims or np.isnan(result.average_k_error.values).all():
        raise OptionError(
            "result must have the errors of several models; got none of them. It needs labels, and compare."
        )
    ax = _axes(ax)
    order = np.argsort(result.k.values)
    k = result.k.values[order]
    for i, name in enumerate(result.model.values):
        one, color = result.isel(model=i), _SEVERAL[i % len(_SEVERAL)]
        average, top = (_percent(one[f"{rule}_k_error"])[order] for rule in ("average", "top"))
        whole = ~np.isnan(top)
        ax.plot(k, average, color=color, marker="o", markersize=4, label=str(name).replace("$", r"\$"))
        _band(ax, k, average, one, "average_k_error_stderr", order, color)
        ax.plot(k[whole], top[whole], color=color, linestyle="--", marker="o", markersize=3, linewidth=1)
    ax.set(xlabel="k, labels per sample (on average)", ylabel="error (% of labelled samples)")
    ax.set_ylim(bottom=0)
    _whole_ticks(ax, k)
    ax.legend(frameon=False, title="average-k (dashed: top-k)")
    return _tidy(ax)


def gains(result: xr.Dataset, ax: Axes | None = None) -> Axes:
    """Draw for each integer k the top-k error as a bar: the errors that average-k makes, too, and those it saves.

    Where average-k makes more errors, the bar is its error, and what it adds stands out hatched.

    Parameters
    ----------
    result
        What ``evaluate`` or ``error_curve`` gives, with labels.
    ax
        Where to draw; by default a new figure.

    Raises
    ------
    OptionError
        If the result has no errors of both rules: no labels, or no integer k.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> result = avgk.evaluate(np.eye(6) + np.eye(6, k=1) / 2, np.arange(6), k=[1, 2])
    >>> avgk.plot.gains(result).get_ylabel()
    'error (% of labelled samples)'

    """
    _need(result, "top_k_error", "labels and an integer k")
    ax = _axes(ax)
    whole = result.isel(k=np.flatnonzero(~np.isnan(result.top_k_error.values))).sortby("k")
    average, top = _percent(whole.average_k_error), _percent(whole.top_k_error)
    both = np.minimum(average, top)
    ticks, higher = np.arange(whole.sizes["k"]), np.maximum(average, top)
    ax.bar(ticks, both, color=AVERAGE_K, label="errors of average-k")
    ax.bar(ticks, np.maximum(top - average, 0), bottom=both, color=GAIN, label="errors of top-k that it saves")
    if (average > top).any():
        more: dict[str, Any] = {"color": "none", "edgecolor": TOP_K, "hatch": "////"}
        ax.bar(ticks, np.maximum(average - top, 0), bottom=both, label="errors that it adds", **more)
    if "adaptive_gain_stderr" in whole and not np.isnan(whole.adaptive_gain_stderr.values).all():
        reach = CLEAR * _percent(whole.adaptive_gain_stderr)
        higher = np.fmax(higher, average + reach)
        bars: dict[str, Any] = {"fmt": "none", "ecolor": _ink(), "capsize": 2, "linewidth": 1}
        ax.errorbar(ticks, average, reach, label="95 % interval of the difference", **bars)
    if ticks.size <= _MOST_RANKS:
        for tick in np.flatnonzero(top):
            change = round(100 * (average[tick] - top[tick]) / top[tick])
            label = f"{change:+d} %".replace("-", "\N{MINUS SIGN}") if change else "0 %"
            above = tick, higher[tick]
            ax.annotate(label, above, (0, 2), textcoords="offset points", ha="center", fontsize="small")
    ax.margins(x=0.05 if ticks.size > 2 else 0.7)
    ax.set_ylim(0, max(1.3 * float(np.nanmax(higher)), _LEAST_PERCENT))  # with space for the legend
    _name_ticks(ax, ticks, [f"{k:g}" for k in whole.k.values])
    ax.set(xlabel="k, labels per sample (on average)", ylabel="error (% of labelled samples)")
    ax.legend(frameon=False)
    return _tidy(ax)


def set_sizes(result: xr.Dataset, k: float | None = None, ax: Axes | None = None) -> Axes:
    """Draw how many samples have an average-k set of each size, with k marked.

    Parameters
    ----------
    result
        What ``evaluate`` gives.
    k
        The budget; by default the one with the largest relative gain, or the largest one.
    ax
        Where to draw; by default a new figure.

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
    _need(result, "set_size_count", "set sizes, as evaluate gives them")
    ax = _axes(ax)
    budget = best_budget(result) if k is None else _known_budget(result, k)
    counts = result.set_size_count.sel(k=budget).values
    share = 100 * counts / counts.sum()
    last = _last_size(counts)
    first = int(np.flatnonzero(counts)[0])
    ax.bar(np.arange(last + 1), share[: last + 1], color=AVERAGE_K, width=0.85 if last < _WIDE else 1)
    if 2 * first > last:  # nothing on the left: look closer
        ax.set_xlim(first - 3, last + 3)
    ax.axvline(budget, color=BUDGET, linewidth=2, label=f"k = {budget:g}")
    if counts[last + 1 :].any():
        beyond, largest = int(counts[last + 1 :].sum()), int(np.flatnonzero(counts)[-1])
        text = f"{beyond:,} more samples up to size {largest:,}"
        ax.annotate(text, (0.98, 0.84), xycoords="axes fraction", ha="right", fontsize="small")
    ax.set(xlabel="labels in the set", ylabel="samples (%)")
    ax.margins(y=0.2)
    _whole_ticks(ax)
    ax.legend(frameon=False, loc="upper right")
    return _tidy(ax)


def set_size_distribution(result: xr.Dataset, k: Sequence[float] | None = None, ax: Axes | None = None) -> Axes:
    """Draw the share of samples whose average-k set has at most so many labels, with each k marked by a dot.

    Parameters
    ----------
    result
        What ``evaluate`` gives.
    k
        The budgets; by default up to six of the result's.
    ax
        Where to draw; by default a new figure.

    Raises
    ------
    OptionError
        If the result has no set sizes, or not of these budgets.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> result = avgk.evaluate(np.eye(6) + np.eye(6, k=1) / 2, np.arange(6), k=[1, 2])
    >>> avgk.plot.set_size_distribution(result).get_ylabel()
    'samples with at most so many labels (%)'

    """
    _need(result, "set_size_count", "set sizes, as evaluate gives them")
    ax = _axes(ax)
    ks = _spaced(result.k.values, _FEW) if k is None else [_known_budget(result, one) for one in np.atleast_1d(k)]
    last = 0
    for i, budget in enumerate(ks):
        counts = result.set_size_count.sel(k=budget).values
        share = 100 * np.cumsum(counts) / counts.sum()
        color = _SEVERAL[i % len(_SEVERAL)]
        ax.step(np.arange(share.size), share, where="post", color=color, label=f"k = {budget:g}")
        ax.plot(budget, share[min(int(budget), share.size - 1)], "o", color=color, markersize=5)
        last = max(last, _last_size(counts))
    ax.set(xlabel="labels in the set", ylabel="samples with at most so many labels (%)", ylim=(0, 102))
    ax.set_xlim(-0.02 * last, last * 1.02 + 1)
    _whole_ticks(ax)
    ax.legend(frameon=False, loc="lower right")
    return _tidy(ax)


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
    _need(result, "support_low", "supports: evaluate it with straddle=True")
    ax = _axes(ax)
    ranks = result["rank"].values[:_MOST_RANKS]
    shown = result.isel(rank=slice(0, _MOST_RANKS))
    lowest, highest = float(shown.support_low.min()), float(shown.support_high.max())
    on_log = lowest > 0 and highest / 100 > lowest and np.isfinite(highest)
    for tick, rank in enumerate(ranks):
        one = result.sel(rank=rank)
        low, high = float(one.support_low), float(one.support_high)
        if not np.isfinite([low, high]).all():
            continue
        ax.vlines(tick, low, high, color=AVERAGE_K, linewidth=1.2)
        ax.hlines([low, high], tick - 0.12, tick + 0.12, color=AVERAGE_K, linewidth=1.2)
        if "ranked_count" in one and high > low:
            edges = np.append(one.bin_low.values.astype(float), high)
            half = 0.42 * _density(one.ranked_count.values, np.log(edges) if on_log else edges)
            ax.fill_betweenx(
                np.repeat(edges, 2)[1:-1], tick - np.repeat(half, 2), tick + np.repeat(half, 2),
                color=AVERAGE_K, alpha=0.45, linewidth=0,
            )  # fmt: skip
    _name_ticks(ax, np.arange(ranks.size), [str(rank) for rank in ranks])
    ax.set(xlabel="rank of the score in its sample", ylabel="score (logarithmic)" if on_log else "score")
    if on_log:
        ax.set_yscale("log")
    return _tidy(ax)


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

    _need(result, "straddle_strength", "straddle strengths: evaluate it with straddle=True and an integer k")
    ax = _axes(ax)
    whole = result.isel(k=np.flatnonzero(~np.isnan(result.straddle_strength.values).all(1))).sortby("k")
    strengths = whole.straddle_strength.transpose("order", "k").values
    ticks, orders = np.arange(whole.sizes["k"]), whole["order"].values
    corners = np.arange(ticks.size + 1) - 0.5, np.append(orders - 0.5, orders[-1] + 0.5)
    top = float(np.nanmax(strengths)) or 1.0
    drawn = ax.pcolormesh(
        *corners, strengths, cmap="cividis", norm=PowerNorm(0.5, 0, top), rasterized=strengths.size > 4_000
    )
    assert ax.figure is not None
    ax.figure.colorbar(drawn, ax=ax, label="straddle strength (units of the score)")
    if strengths.size <= 60:
        for (row, tick), value in np.ndenumerate(strengths):
            if not np.isnan(value):
                color = "black" if value > top / 4 else "white"
                text = "0" if value == 0 else f"{value:.1e}" if value < 1e-3 else f"{value:.3f}"
                ax.text(tick, float(orders[row]), text, ha="center", va="center", fontsize="x-small", color=color)
    _name_ticks(ax, ticks, [f"{k:g}" for k in whole.k.values])
    ax.set(xlabel="k, labels per sample (on average)", ylabel="order")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    return _tidy(ax, grid=False)


def _density(counts: Ints, edges: Floats) -> Floats:
    """Return counts over the widths of their bins, the greatest as 1; empty bins of no width have none."""
    widths = np.diff(edges / 2)  # halves: the difference of two floats might overflow
    found = np.divide(counts, widths, out=np.zeros(counts.size), where=widths > 0)
    return np.asarray(found / max(found.max(), np.finfo(float).tiny))


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
    'confidence: mean of the highest scores'

    """
    named = {"": tables} if isinstance(tables, xr.Dataset) else dict(tables)
    ax = _axes(ax)
    ax.plot([0, 1], [0, 1], color="gray", linewidth=1, linestyle=":")
    for number, (name, table) in enumerate(named.items()):
        _need_table(table, "accuracy")
        some = table["count"].values > 0
        error = f"ECE {100 * float(table.expected_calibration_error):.2g} %"
        x, y = table.confidence.values[some], table.accuracy.values[some]
        color = _SEVERAL[number % len(_SEVERAL)]
        ax.plot(x, y, color=color, marker="o", markersize=4, label=f"{name}, {error}" if name else error)
    ax.set(xlabel="confidence: mean of the highest scores", ylabel="accuracy: share that are right")
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.legend(frameon=False)
    return _tidy(ax)


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
    'share that are the label'

    """
    _need_table(table, "total_accuracy")
    ax = _axes(ax)
    some = table["count"].values > 0
    x, y = table.confidence.values[some], table.accuracy.values[some]
    ends = [float(min(x.min(), y.min())), float(max(x.max(), y.max()))]
    ax.plot(ends, ends, color="gray", linewidth=1, linestyle=":", label="calibrated")
    ax.plot(x, y, color=AVERAGE_K, marker="o", markersize=4, label="scores near the threshold")
    ax.axvline(float(table.threshold), color=BUDGET, linestyle="--", label="threshold")
    ax.set(xlabel="mean score", ylabel="share that are the label")
    ax.legend(frameon=False)
    return _tidy(ax)


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
    _need_table(curve, "nll")
    ax = _axes(ax)
    ordered = curve.sortby("temperature")
    x = ordered.temperature.values
    if not np.isnan(ordered.top_k_error.values).all():
        ax.plot(x, _percent(ordered.top_k_error), color=TOP_K, linestyle="--", label="top-k error")
    ax.plot(x, _percent(ordered.average_k_error), color=AVERAGE_K, label="average-k error")
    right = ax.twinx()
    right.plot(x, ordered.nll.values, color=GAIN, linestyle=":", label="NLL (right)")
    right.set_ylabel("NLL")
    right.spines["top"].set_visible(False)
    ax.axvline(float(x[ordered.nll.values.argmin()]), color=BUDGET, linewidth=1, label="least NLL here")
    if x.size > 1 and x[-1] / x[0] > 4:
        ax.set_xscale("log", base=2)
    ax.set(xlabel="temperature", ylabel="error (% of labelled samples)")
    for each in (ax, right):  # with space for the legend
        low, high = each.get_ylim()
        each.set_ylim(low, high + 0.35 * (high - low))
    lines = [*ax.get_lines(), *right.get_lines()]
    ax.legend(lines, [str(line.get_label()) for line in lines], frameon=False, loc="upper center", ncols=2)
    return _tidy(ax)


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


def _ink() -> str:
    """Return the colour of text, as style sheets have it."""
    from matplotlib import rcParams

    return str(rcParams["text.color"])


def _band(ax: Axes, k: Array, values: Floats, result: xr.Dataset, name: str, order: Ints, color: str) -> None:
    """Draw 95 % intervals around values in percent: a band, or a bar where there is one budget."""
    if name not in result or np.isnan(result[name].values).all():
        return
    reach = CLEAR * _percent(result[name])[order]
    if k.size == 1:
        ax.errorbar(k, values, reach, color=color, capsize=3, linewidth=1)
    else:
        ax.fill_between(k, np.maximum(values - reach, 0), values + reach, color=color, alpha=0.15, linewidth=0)


def _need(result: xr.Dataset, name: str, what: str) -> None:
    """Refuse a result without a variable, or with nothing in it, and what is no single result."""
    check_result(result, [name] if isinstance(result, xr.Dataset) and name in result else [])
    if name not in result or np.isnan(np.asarray(result[name].values, float)).all():
        raise OptionError(f"result must have {name} to draw; got none of it. It needs {what}.")


def _need_table(table: xr.Dataset, name: str) -> None:
    """Refuse what is no table with a variable, and one with nothing in it."""
    check_result(table)
    if name not in table or np.isnan(table[name].values).all():
        raise OptionError(f"table must have {name} to draw; got none of it. It needs labels.")


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(6.4, 4), layout="constrained")[1]


def _tidy(ax: Axes, grid: bool = True) -> Axes:
    """Leave only what is needed to read the picture."""
    ax.spines[["top", "right"]].set_visible(False)
    if grid:
        ax.set_axisbelow(True)
        ax.grid(axis="y", alpha=0.25)
    return ax


def _percent(values: xr.DataArray) -> Floats:
    return np.asarray(100 * values.values, np.float64)


def _known_budget(result: xr.Dataset, k: float) -> float:
    try:
        budget = float(k)
    except (TypeError, ValueError):
        budget = np.nan
    if budget not in result.k.values:
        raise OptionError(
            f"k must be one of the result's budgets, {result.k.values.tolist()}; got {k!r}. Pass one of them."
        )
    return budget


def _last_size(counts: Ints) -> int:
    """Return the last size to draw: the largest there is, or where few samples are left if that is far out."""
    largest = int(np.flatnonzero(counts)[-1])
    if largest <= _WIDE:
        return largest
    return max(_WIDE, int(np.searchsorted(np.cumsum(counts), (1 - _TAIL) * counts.sum())))


def _spaced(values: Array, n: int) -> list[float]:
    """Return up to n of some values, evenly spaced among them, ascending."""
    ordered = np.unique(values)
    return [float(v) for v in ordered[np.unique(np.linspace(0, ordered.size - 1, n).round().astype(int))]]


def _name_ticks(ax: Axes, ticks: Array, names: list[str]) -> None:
    """Name the ticks of the x-axis, at most a dozen of them."""
    step = max(1, -(-len(names) // 12))
    ax.set_xticks(ticks[::step], names[::step])


def _whole_ticks(ax: Axes, values: Array | None = None) -> None:
    """Mark integers; where there is one value only, leave space at its sides."""
    from matplotlib.ticker import MaxNLocator

    if values is not None and values.size == 1:
        ax.set_xlim(max(0.0, float(values[0]) - 1), float(values[0]) + 1)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
