"""What all pictures share: axes, ticks that have the space they need, colours, points to draw, and what a result must have.

Colours mean the same in all pictures, and differ on white and black paper, for colour-blind eyes too: tests/plot/test_palette.py
checks their contrasts, and their distances as deuteranopes and protanopes see them. Of very many points some are drawn, each
where it is, so that a picture stays small whatever N and C are.
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


#: What is of average-k, of top-k, of their difference, and of a budget. The report puts variables of its page in their place.
AVERAGE_K, TOP_K, GAIN, BUDGET = "#0072b2", "#d55e00", "#009e73", "#aa22ff"
#: Results and tables that stand side by side. None of them is a colour above: the report leaves them as they are.
SERIES = ("#2255ee", "#bb8800", "#bb11aa", "#00aa66", "#995577", "#0099ff", "#aa4422")
#: Their markers; there is one less, so that 42 series differ.
_MARKERS = ("o", "s", "^", "D", "v", "P")
#: Budgets are a stretch of this map: its ends would be lost on black and on white paper.
_MAP, _FIRST, _LAST = "plasma", 0.3, 0.75
#: Points of a curve are kept this many to the width and as many to the height.
_PER_SIDE = 400
#: Counts up to which each has a bar, and bars for those between a power of ten and the next where there are more.
MOST_BINS, _PER_DECADE = 400, 10
#: Width of a letter of a number, in ems: a generous mean over the fonts of style sheets; and space between two numbers.
_LETTER, _SPACE = 0.65, 0.8
#: Counts from here on are told as powers of ten.
_LARGE = 100_000
#: Budgets whose largest is so many times the smallest are drawn on a logarithmic axis.
_FAR = 1_000
#: What takes no space in the text of a tick.
_MARKUP = re.compile(r"\\mathdefault|[${}^\\]")
#: Of ticks with names, every so many-th may be named.
_STEPS = [factor * 10**power for power in range(9) for factor in (1, 2, 5)]


def new_axes(ax: Axes | None) -> Axes:
    """Return axes as they are, or those of a new figure."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


def scaled(factor: float, *names: str) -> dict[str, Any]:
    """Return properties of lines, such as linewidth, at a multiple of what the style sheet has."""
    from matplotlib import rcParams

    style: Any = rcParams
    return {name: factor * style[f"lines.{name}"] for name in names}


def size_in_ems(ax: Axes) -> tuple[float, float]:
    """Return width and height of axes, in units of the size of the letters at their ticks."""
    box = ax.get_window_extent()
    assert ax.figure is not None
    em = float(ax.xaxis.get_major_ticks(1)[0].label1.get_fontsize()) * ax.figure.dpi / 72
    return box.width / em, box.height / em


def fit_ticks(ax: Axes, *, integer: bool = False) -> None:
    """Mark as many numbers on the x-axis as have space between them: up to nine, and integers only where asked for."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    if ax.get_xscale() != "linear":
        return
    low, high = ax.get_xlim()

    def count_text(value: float, _: object) -> str:
        """Return an integer for a tick: 20000, or 2 times a power of ten on an axis that goes far."""
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
    """Mark integers on the axis of budgets, which is logarithmic where they go far."""
    if k.max() < _FAR * k.min():
        fit_ticks(ax, integer=True)
    else:
        ax.set_xscale("log")


def name_ticks(ax: Axes, ticks: Array, names: list[str]) -> None:
    """Name the ticks of the x-axis: all of them, or some with the same number between them, round ones if possible."""
    low, high = ax.get_xlim()
    each = size_in_ems(ax)[0] / max(high - low, 1)
    least = (max(map(len, names)) * _LETTER + _SPACE) / each
    step = next(step for step in _STEPS if step >= least)
    first = next((i for i, name in enumerate(names[:step]) if float(name) % step == 0), 0)
    ax.set_xticks(ticks[first::step], names[first::step])


def ticks_up_to(ax: Axes, whole: float) -> None:
    """Mark percentages on the y-axis up to 100, or shares up to 1, whatever the space above is for."""
    from matplotlib.ticker import MaxNLocator

    class UpTo(MaxNLocator):
        def tick_values(self, vmin: float, vmax: float) -> Any:
            share = min(1, whole / vmax)  # of the height
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
    """Return colour and marker of the next series: the first of those that the axes do not name yet."""
    from matplotlib.colors import to_hex

    handles, _ = ax.get_legend_handles_labels()
    found = [to_hex(_color_of(handle)) for handle in handles]
    number = sum(color in SERIES for color in found)
    return {"color": SERIES[number % len(SERIES)], "marker": _MARKERS[number % len(_MARKERS)]}


def _color_of(handle: Any) -> Any:
    """Return the colour of an entry of a legend; black for what has several."""
    color = handle.get_color() if hasattr(handle, "get_color") else getattr(handle, "get_edgecolor", lambda: "k")()
    return color if isinstance(color, str | tuple) else "k"


def ink_of(ax: Axes) -> str:
    """Return the colour of the text of axes, as the style sheet had it that they were made with."""
    return str(ax.xaxis.label.get_color())


def thinned(x: Array, *curves: Floats) -> Ints:
    """Return the places of the points to draw of curves over ascending x: all of them where they are few.

    Else so many that between two neighbours no rising or falling curve leaves a box of 1/400 of the width or of the
    height. Both ends are kept.
    """
    if x.size <= 2 * _PER_SIDE:
        return np.arange(x.size)
    kept = [np.searchsorted(x, np.linspace(x[0], x[-1], _PER_SIDE)), np.array([0, x.size - 1])]
    for curve in curves:
        # How far the curve has gone, up or down: one point for each 1/400 of that.
        gone = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(np.nan_to_num(curve))))])
        kept.append(np.searchsorted(gone, np.linspace(0, gone[-1], _PER_SIDE)))
    return np.unique(np.concatenate(kept).clip(0, x.size - 1))


def binned(counts: Ints) -> tuple[Ints, Ints]:
    """Return counts and the edges between them; where there are too many, sums over bins that grow with what they count."""
    if counts.size <= MOST_BINS:
        return counts, np.arange(counts.size + 1)
    edges = np.unique(np.append(0, np.geomspace(1, counts.size, _PER_DECADE * len(str(counts.size))).round()))
    return np.add.reduceat(counts, edges[:-1].astype(np.int64)), edges.astype(np.int64)


def need(result: xr.Dataset, name: str, what: str) -> None:
    """Refuse a result without a variable, or with nothing in it, and what is no single result."""
    check_result(result, [name] if isinstance(result, xr.Dataset) and name in result else [])
    if name not in result or np.isnan(np.asarray(result[name].values, float)).all():
        raise OptionError(f"result must have {name} to draw; got none of it. It needs {what}.")


def need_table(table: xr.Dataset, name: str) -> None:
    """Refuse what is no table with a variable, and one with nothing in it."""
    check_result(table)
    if name not in table or np.isnan(table[name].values).all():
        raise OptionError(f"table must have {name} to draw; got none of it. It needs labels.")


def known_budget(result: xr.Dataset, k: float) -> float:
    """Return a budget of the result as it is there."""
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
    """Return shares in percent."""
    return np.asarray(100 * values.values, np.float64)
