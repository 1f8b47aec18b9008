"""The common parts of all pictures: axes, ticks, colours, thinning, and checks of results.

``tests/plot/test_palette.py`` checks the contrasts of the colours on white and black, and their distances for deuteranopes and
protanopes. Curves are thinned so that the size of a picture does not depend on N and C.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..arrays import Array, Floats, Ints
from ..errors import OptionError
from ..results.datasets import check_result

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: Colours of average-k, top-k, their difference, and budgets; the report replaces them by variables of its page.
AVERAGE_K, TOP_K, GAIN, BUDGET = "#0072b2", "#d55e00", "#009e73", "#aa22ff"
#: Colours of several results or tables; they differ from those above, so that the report keeps them.
SERIES = ("#2255ee", "#bb8800", "#bb11aa", "#00aa66", "#995577", "#0099ff", "#aa4422")
#: Markers of several results: one fewer than colours, so that 42 combinations differ.
_MARKERS = ("o", "s", "^", "D", "v", "P")
#: Colour map of budgets, and the part of it that is visible on black and on white.
_MAP, _FIRST, _LAST = "plasma", 0.3, 0.75
#: Points of a thinned curve along the width, and along the height.
_PER_SIDE = 400
#: Maximum number of bars with one count each, and the bars per power of ten if there are more.
MOST_BINS, _PER_DECADE = 400, 10
#: Upper estimate of the width of a digit over fonts, and space between two numbers, both in ems.
_LETTER, _SPACE = 0.65, 0.8
#: Counts from here on are shown as powers of ten.
_LARGE = 100_000
#: Ratio of the largest to the smallest budget from which the axis is logarithmic.
_FAR = 1_000
#: Markup in the text of a tick.
_MARKUP = re.compile(r"\\mathdefault|[${}^\\]")
#: Steps between named ticks.
_STEPS = [factor * 10**power for power in range(9) for factor in (1, 2, 5)]


def new_axes(ax: Axes | None) -> Axes:
    """Return the given axes, or the axes of a new figure."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


def scaled(factor: float, *names: str) -> dict[str, Any]:
    """Return properties of lines, such as linewidth, as multiples of the style sheet's values."""
    from matplotlib import rcParams

    style: Any = rcParams
    return {name: factor * style[f"lines.{name}"] for name in names}


def size_in_ems(ax: Axes) -> tuple[float, float]:
    """Return width and height of axes in ems of their tick labels."""
    box = ax.get_window_extent()
    assert ax.figure is not None
    em = float(ax.xaxis.get_major_ticks(1)[0].label1.get_fontsize()) * ax.figure.dpi / 72
    return box.width / em, box.height / em


def fit_ticks(ax: Axes, *, integer: bool = False) -> None:
    """Set as many ticks on the x-axis as have space, up to nine."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    if ax.get_xscale() != "linear":
        return
    low, high = ax.get_xlim()

    def count_text(value: float, _: object) -> str:
        """Return the text of an integer tick, as a multiple of a power of ten on a long axis."""
        if ax.get_xlim()[1] < _LARGE or value == 0:
            return f"{value:.0f}"
        power = int(np.floor(np.log10(abs(value))))
        return rf"${value / 10**power:g}{{\times}}10^{power}$"

    if integer:
        ax.xaxis.set_major_formatter(FuncFormatter(count_text))
    width = size_in_ems(ax)[0]
    for most in range(9, 0, -1):
        locator = MaxNLocator(nbins=most, integer=integer, min_n_ticks=1, steps=[1, 2, 5, 10])
        ax.xaxis.set_major_locator(locator)
        ticks = [tick for tick in locator.tick_values(low, high) if low <= tick <= high]
        names = ax.xaxis.get_major_formatter().format_ticks(ticks)
        longest = max((len(_MARKUP.sub("", name.replace("\\times", "x"))) for name in names), default=0)
        if len(ticks) < 2 or (ticks[1] - ticks[0]) / (high - low) * width > longest * _LETTER + _SPACE:
            return


def budget_scale(ax: Axes, k: Array) -> None:
    """Set integer ticks on the axis of budgets, or make it logarithmic if they span a wide range."""
    if k.max() < _FAR * k.min():
        fit_ticks(ax, integer=True)
    else:
        ax.set_xscale("log")


def name_ticks(ax: Axes, ticks: Array, names: list[str]) -> None:
    """Name all ticks of the x-axis, or evenly spaced and round ones if space is short."""
    low, high = ax.get_xlim()
    each = size_in_ems(ax)[0] / max(high - low, 1)
    least = (max(map(len, names)) * _LETTER + _SPACE) / each
    step = next(step for step in _STEPS if step >= least)
    first = next((i for i, name in enumerate(names[:step]) if float(name) % step == 0), 0)
    ax.set_xticks(ticks[first::step], names[first::step])


def ticks_up_to(ax: Axes, whole: float) -> None:
    """Set ticks on the y-axis up to 100 %, or a share of 1, even if the axis extends further."""
    from matplotlib.ticker import MaxNLocator

    class UpTo(MaxNLocator):
        def tick_values(self, vmin: float, vmax: float) -> Any:
            share = min(1, whole / vmax)  # share of the height
            self.set_params(nbins=max(1, min(9, int(share * ax.yaxis.get_tick_space()))))
            ticks = np.asarray(super().tick_values(vmin, share * vmax))
            return ticks[ticks <= whole * (1 + 1e-9)]

    ax.yaxis.set_major_locator(UpTo(steps=[1, 2, 2.5, 5, 10]))


def ordered_colors(n: int) -> list[str]:
    """Return the colours of n values in ascending order."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    places = np.linspace(_FIRST, _LAST, n) if n > 1 else np.array([(_FIRST + _LAST) / 2])
    return [to_hex(colormaps[_MAP](place)) for place in places]


def next_series(ax: Axes) -> dict[str, Any]:
    """Return the first colour and marker that the axes do not use yet."""
    from matplotlib.colors import to_hex

    handles, _ = ax.get_legend_handles_labels()
    number = sum(to_hex(_color_of(handle)) in SERIES for handle in handles)
    return {"color": SERIES[number % len(SERIES)], "marker": _MARKERS[number % len(_MARKERS)]}


def _color_of(handle: Any) -> Any:
    """Return the colour of an entry of a legend, or black if it has several."""
    color = handle.get_color() if hasattr(handle, "get_color") else getattr(handle, "get_edgecolor", lambda: "k")()
    return color if isinstance(color, str | tuple) else "k"


def ink_of(ax: Axes) -> str:
    """Return the text colour of axes."""
    return str(ax.xaxis.label.get_color())


def space_evenly(n: int, most: int, keep: int | None = None) -> list[int]:
    """Return at most ``most`` evenly spaced indices below n, with both ends, and one to keep.

    Examples
    --------
    >>> space_evenly(3, 5), space_evenly(100, 4), space_evenly(100, 4, keep=5)
    ([0, 1, 2], [0, 33, 66, 99], [0, 5, 33, 66, 99])
    """
    if n <= most:
        return list(range(n))
    spaced = np.linspace(0, n - 1, most).round().astype(int).tolist()
    return sorted({*spaced, *([] if keep is None else [keep])})


def thinned(x: Array, *curves: Floats) -> Ints:
    """Return the indices of the points to draw of curves over ascending x.

    A curve with many points keeps both ends and one point for each 1/400 of the width and of its way up or down.
    """
    if x.size <= 2 * _PER_SIDE:
        return np.arange(x.size)
    kept = [np.searchsorted(x, np.linspace(x[0], x[-1], _PER_SIDE)), np.array([0, x.size - 1])]
    for curve in curves:
        distance = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(np.nan_to_num(curve))))])
        kept.append(np.searchsorted(distance, np.linspace(0, distance[-1], _PER_SIDE)))
    return np.unique(np.concatenate(kept).clip(0, x.size - 1))


def binned(counts: Ints) -> tuple[Ints, Ints]:
    """Return counts and the edges of their bins; many counts are summed over bins of increasing width."""
    if counts.size <= MOST_BINS:
        return counts, np.arange(counts.size + 1)
    edges = np.unique(np.append(0, np.geomspace(1, counts.size, _PER_DECADE * len(str(counts.size))).round()))
    return np.add.reduceat(counts, edges[:-1].astype(np.int64)), edges.astype(np.int64)


def need(result: xr.Dataset, name: str, requirement: str) -> None:
    """Check that a single result has a variable with values."""
    check_result(result, [name] if isinstance(result, xr.Dataset) and name in result else [])
    if name not in result or np.isnan(np.asarray(result[name].values, float)).all():
        raise OptionError(f"result has no {name} to draw. Pass a result with {requirement}.")


def need_table(table: xr.Dataset, name: str) -> None:
    """Check that a table has a variable with values."""
    check_result(table)
    if name not in table or np.isnan(table[name].values).all():
        raise OptionError(f"table has no {name} to draw. Compute it with labels.")


def known_budget(result: xr.Dataset, k: float) -> float:
    """Return a budget as a float, after checking that the result has it."""
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
    """Return fractions in percent."""
    return np.asarray(100 * values.values, np.float64)
