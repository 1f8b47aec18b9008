"""Legends that cover nothing and fit into their axes, and names of users in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..arrays import Floats
from ..errors import visible
from .canvas import fit_ticks, ticks_up_to

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend
    from matplotlib.path import Path
    from matplotlib.text import Text
    from matplotlib.transforms import Transform


#: A handle of what is drawn, and its name.
Entry: TypeAlias = "tuple[Artist, str]"
#: Entries that a legend has at most, or less where these have no space, and from how many on they stand close.
_MOST_ENTRIES, _CLOSE = (12, 9, 6, 3, 1), 4
#: The share of the height that it may take, and the corners it may be in.
_HIGHEST_LEGEND = 0.75
_CORNERS = ("upper right", "lower left", "lower right", "upper left")
#: A letter of a name that is left out is as bad as an axis that is so much longer; ten times that where few are left.
_LETTER_COST, _FEW_LETTERS = 0.01, 12
#: Where the highest point is at most, as a share of the height; and how many points stand for a line between two others.
_HIGHEST, _BETWEEN = 0.97, 8
#: Too much of the names is left out if it is this, in letters.
_MOST_CUT = 200
#: Turns in which the space for texts of a fixed size is found.
_TURNS = 12


def plain(name: object) -> str:
    """Return a name of a user as matplotlib draws it letter by letter: on one line, and never as a formula."""
    text = visible(" ".join(str(name).split())).replace("$", r"\$") or "?"
    return f" {text}" if text.startswith("_") else text  # a legend leaves out what begins with _


def add_note(ax: Axes, text: str) -> None:
    """Say something in the legend that stands for nothing drawn."""
    ax.plot([], [], linestyle="", marker="", label=text)


def add_legend(ax: Axes, *, title: str | None = None, beside: tuple[Axes, ...] = ()) -> None:
    """Name all that is drawn in a corner where it covers nothing; the y-axes get the space that this takes.

    A style sheet may say where (``legend.loc``). Names are shortened in the middle until they fit. Of the corners and numbers of
    columns those are taken that leave most to the data and to the names.

    Parameters
    ----------
    ax
        Where to draw.
    title
        What stands over the names.
    beside
        Axes in the same place, such as those with another scale at the right, that are named and given space, too.

    """
    from matplotlib import rcParams

    entries = [pair for each in (ax, *beside) for pair in zip(*each.get_legend_handles_labels(), strict=True)]
    if not entries:
        return
    corners = _CORNERS if rcParams["legend.loc"] == "best" else (rcParams["legend.loc"],)
    points = [_drawn(each) for each in (ax, *beside)]
    for most in _MOST_ENTRIES:
        tries = sorted(one for one in _tries(ax, _first(entries, title, most), corners, points))
        if not tries[0][0]:
            break
    *_, number, columns = tries[0]
    legend, _ = _draw(ax, *_first(entries, title, most), columns, corners[number])
    for each in (ax, *beside):
        _make_room(each, corners[number], *_share(ax, legend))


def finish(ax: Axes, whole: float | None = 100, *, integer: bool = False) -> Axes:
    """Fit the ticks of drawn axes, with percentages or shares up to a whole on the y-axis, add the legend, and return the axes."""
    if whole is not None:
        ticks_up_to(ax, whole)
    fit_ticks(ax, integer=integer)
    add_legend(ax)
    return ax


def _first(entries: list[Entry], title: str | None, most: int) -> tuple[list[Entry], str | None]:
    """Return the first entries, and a title that says so if there are more."""
    if len(entries) <= most:
        return entries, title
    return entries[:most], f"{title or ''}\n(the first {most} of {len(entries)})".strip()


def _tries(
    ax: Axes, given: tuple[list[Entry], str | None], corners: tuple[Any, ...], points: list[Floats]
) -> Iterator[tuple[bool, float, int, int]]:
    """Give of each corner and number of columns whether the legend is too large, how bad it is, and which they are."""
    for columns in range(1, len(given[0]) + 1):
        legend, cut = _draw(ax, *given, columns, corners[0])
        wide, high = _share(ax, legend)
        for number, corner in enumerate(corners):
            growth = max(_growth(each, corner, wide, high) for each in points)
            yield wide > 1.01 or high > _HIGHEST_LEGEND or cut > _MOST_CUT, growth + cut * _LETTER_COST, number, columns


def _draw(ax: Axes, entries: list[Entry], title: str | None, columns: int, corner: Any) -> tuple[Legend, int]:
    """Draw a legend of so many columns, and return it and how much of the names was left out."""
    handles, names = zip(*entries, strict=True)
    close: dict[str, Any] = {"handlelength": 1, "columnspacing": 1} if len(entries) > _CLOSE else {}
    legend = ax.legend(handles, names, title=title, ncols=columns, loc=corner, **close)
    legend.set_in_layout(False)  # it is inside, and nothing should give way to it
    around = 2 * (legend.borderaxespad + legend.borderpad) + (columns - 1) * legend.columnspacing
    beside_names = around + columns * (legend.handlelength + legend.handletextpad) + 0.2
    each = (ax.get_window_extent().width - beside_names * _em(legend)) / columns
    return legend, sum(_shorten(text, each) for text in legend.get_texts())


def _em(legend: Legend) -> float:
    """Return the size of the letters of a legend in pixels."""
    assert legend.figure is not None
    return float(legend.get_texts()[0].get_fontsize()) * legend.figure.dpi / 72


def _shorten(text: Text, width: float) -> int:
    """Leave out the middle of a name until it is not wider than so many pixels, and return how bad that is, in letters."""
    name = text.get_text().replace(r"\$", "$")
    low, high = 1, len(name)
    if "\n" in name or text.get_window_extent().width <= width:  # names have one line
        return 0
    while low < high:  # the most letters that fit
        kept = (low + high + 1) // 2
        text.set_text(_ends(name, kept))
        low, high = (kept, high) if text.get_window_extent().width <= width else (low, kept - 1)
    text.set_text(_ends(name, low))
    return len(name) - low + 9 * max(0, min(_FEW_LETTERS, len(name)) - low)


def _ends(name: str, kept: int) -> str:
    last = (kept + 1) // 3
    return (name[: kept - last] + "\N{HORIZONTAL ELLIPSIS}" + name[len(name) - last :]).replace("$", r"\$")


def _share(ax: Axes, legend: Legend) -> tuple[float, float]:
    """Return the shares of the width and the height of axes that a legend takes with some space around it."""
    mine, whole = legend.get_window_extent(), ax.get_window_extent()
    space = 2 * legend.borderaxespad * _em(legend)
    return (mine.width + space) / whole.width, (mine.height + space) / whole.height


def _growth(points: Floats, corner: Any, wide: float, high: float) -> float:
    """Return by how much the y-axis must grow for all points to be in it, and none under a legend in a corner."""
    if not points.size:
        return 1.0
    across = points[:, 0] if "right" in str(corner) else 1 - points[:, 0]
    beneath = points[across > 1 - wide, 1]
    least = max(1.0, float(points[:, 1].max()) / _HIGHEST)
    if "upper" in str(corner):
        return max(least, float(beneath.max(initial=0)) / (1 - min(high, _HIGHEST_LEGEND)))
    free = (beneath > high * least).all()
    return least if free else np.inf


def _make_room(ax: Axes, corner: Any, wide: float, high: float) -> None:
    """Let the y-axis grow for a legend; texts keep their size meanwhile, so this may take some turns."""
    for _ in range(_TURNS):
        growth = _growth(_drawn(ax), corner, wide, high)
        if growth < 1.001 or not np.isfinite(growth):
            return
        below, above = ax.get_ylim()
        ax.set_ylim(below, below + growth * (above - below))


def _drawn(ax: Axes) -> Floats:
    """Return points of all that is drawn in the units of the data, as shares of the width and height of axes."""
    parts = [_along(line.get_path(), line.get_transform()) for line in ax.lines if line.get_transform() == ax.transData]
    parts += [
        _along(patch.get_path(), patch.get_transform())
        for patch in ax.patches
        if patch.get_data_transform() == ax.transData
    ]
    parts += [_along(path, each.get_transform()) for each in ax.collections for path in each.get_paths()]
    parts += [text.get_window_extent().corners() for text in ax.texts if text.get_text()]
    points = np.concatenate([np.empty((0, 2)), *parts])
    return np.asarray(ax.transAxes.inverted().transform(points[np.isfinite(points).all(1)]))


def _along(path: Path, transform: Transform) -> Floats:
    """Return the corners of a path in pixels and points between them."""
    corners = np.asarray(transform.transform(path.vertices))
    steps = np.linspace(0, 1, _BETWEEN, endpoint=False)[:, None, None]
    between = corners[:-1] + steps * (corners[1:] - corners[:-1])
    return np.concatenate([between.reshape(-1, 2), corners])
