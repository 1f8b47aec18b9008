"""Axes to draw into, and ticks that have the space they need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "budget_scale",
    "fit_ticks",
    "name_ticks",
    "new_axes",
    "percent_ticks",
    "scaled",
    "share_ticks",
    "size_in_ems",
]

#: Width of a letter of a number, in ems: a generous mean over the fonts of style sheets; and space between two numbers.
_LETTER, _SPACE = 0.65, 0.8
#: Counts from here on are told as powers of ten.
_LARGE = 100_000
#: Budgets whose largest is so many times the smallest are drawn on a logarithmic axis.
_FAR = 1_000
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


def _count_text(value: float, highest: float) -> str:
    """Return an integer for a tick: 20000, or 2 times a power of ten on an axis that goes far."""
    if highest < _LARGE or value == 0:
        return f"{value:.0f}"
    power = int(np.floor(np.log10(abs(value))))
    return rf"${value / 10**power:g}{{\times}}10^{power}$"


def fit_ticks(ax: Axes, *, integer: bool = False) -> None:
    """Mark as many numbers on the x-axis as have space between them: up to nine, and integers only where asked for."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    if ax.get_xscale() != "linear":
        return
    low, high = ax.get_xlim()
    if integer:
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _count_text(value, ax.get_xlim()[1])))
    width = size_in_ems(ax)[0]
    for most in range(9, 0, -1):
        locator = MaxNLocator(nbins=most, integer=integer, min_n_ticks=1, steps=[1, 2, 5, 10])
        ax.xaxis.set_major_locator(locator)
        ticks = [tick for tick in locator.tick_values(low, high) if low <= tick <= high]
        names = ax.xaxis.get_major_formatter().format_ticks(ticks)
        longest = max((len(_letters(name)) for name in names), default=0)
        if len(ticks) < 2 or (ticks[1] - ticks[0]) / (high - low) * width > longest * _LETTER + _SPACE:
            return


def budget_scale(ax: Axes, k: Array) -> None:
    """Mark integers on the axis of budgets, which is logarithmic where they go far."""
    if k.max() < _FAR * k.min():
        fit_ticks(ax, integer=True)
    else:
        ax.set_xscale("log")


def _letters(name: str) -> str:
    """Return about as many letters as a number takes when it is drawn."""
    return name.replace("\\mathdefault", "").replace("\\times", "x").translate(str.maketrans("", "", "${}^\\"))


def name_ticks(ax: Axes, ticks: Array, names: list[str]) -> None:
    """Name the ticks of the x-axis: all of them, or some with the same number between them, round ones if possible."""
    low, high = ax.get_xlim()
    each = size_in_ems(ax)[0] / max(high - low, 1)
    least = (max(map(len, names)) * _LETTER + _SPACE) / each
    step = next(step for step in _STEPS if step >= least)
    first = next((i for i, name in enumerate(names[:step]) if float(name) % step == 0), 0)
    ax.set_xticks(ticks[first::step], names[first::step])


def percent_ticks(ax: Axes) -> None:
    """Mark percentages on the y-axis up to 100, whatever the space above is for."""
    _mark_up_to(ax, 100)


def share_ticks(ax: Axes) -> None:
    """Mark shares on the y-axis up to 1, whatever the space above is for."""
    _mark_up_to(ax, 1)


def _mark_up_to(ax: Axes, whole: float) -> None:
    from matplotlib.ticker import MaxNLocator

    class UpTo(MaxNLocator):
        def tick_values(self, vmin: float, vmax: float) -> Any:
            share = min(1, whole / vmax)  # of the height
            self.set_params(nbins=max(1, min(9, int(share * ax.yaxis.get_tick_space()))))
            ticks = np.asarray(super().tick_values(vmin, share * vmax))
            return ticks[ticks <= whole * (1 + 1e-9)]

    ax.yaxis.set_major_locator(UpTo(steps=[1, 2, 2.5, 5, 10]))
