"""Legends that fit into their axes without covering data, with user-defined names."""

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


#: A drawn artist and its name.
Entry: TypeAlias = "tuple[Artist, str]"
#: Numbers of entries to try, the largest that fits being used, and the number above which spacing is tight.
_MOST_ENTRIES, _CLOSE = (12, 9, 6, 3, 1), 4
#: The largest share of the height for a legend, and its possible corners.
_HIGHEST_LEGEND = 0.75
_CORNERS = ("upper right", "lower left", "lower right", "upper left")
#: Cost of a letter left out of a name, in growth of the axis; ten times that once few are left.
_LETTER_COST, _FEW_LETTERS = 0.01, 12
#: The highest position of a point, as a share of the height; and the points that represent a line between two others.
_HIGHEST, _BETWEEN = 0.97, 8
#: Maximum number of letters left out of the names.
_MOST_CUT = 200
#: Maximum number of iterations of enlarging the y-axis.
_TURNS = 12


def plain(name: object) -> str:
    """Return a user-defined name as literal text for matplotlib: on one line, and never as a formula."""
    text = visible(" ".join(str(name).split())).replace("$", r"\$") or "?"
    return f" {text}" if text.startswith("_") else text  # matplotlib hides names that begin with _


def add_legend(ax: Axes, *, title: str | None = None, twins: tuple[Axes, ...] = ()) -> None:
    """Add a legend in a corner, and enlarge the y-axes of ``ax`` and its twins so that it covers no data.

    The style sheet may set the corner (``legend.loc``). Names are shortened in the middle until they fit. The corner and the
    number of columns are those that leave most space to data and names.
    """
    from matplotlib import rcParams

    entries = [pair for each in (ax, *twins) for pair in zip(*each.get_legend_handles_labels(), strict=True)]
    if not entries:
        return
    corners = _CORNERS if rcParams["legend.loc"] == "best" else (rcParams["legend.loc"],)
    points = [_drawn(each) for each in (ax, *twins)]
    for most in _MOST_ENTRIES:
        layouts = sorted(one for one in _layouts(ax, _first(entries, title, most), corners, points))
        if not layouts[0][0]:
            break
    *_, number, columns = layouts[0]
    legend, _ = _draw(ax, *_first(entries, title, most), columns, corners[number])
    for each in (ax, *twins):
        _make_room(each, corners[number], *_share(ax, legend))


def finish(ax: Axes, whole: float | None = 100, *, integer: bool = False) -> Axes:
    """Fit the ticks, with those of the y-axis up to ``whole``, add the legend, and return the axes."""
    if whole is not None:
        ticks_up_to(ax, whole)
    fit_ticks(ax, integer=integer)
    add_legend(ax)
    return ax


def _first(entries: list[Entry], title: str | None, most: int) -> tuple[list[Entry], str | None]:
    """Return the first entries, and a title that mentions the number of the others."""
    if len(entries) <= most:
        return entries, title
    return entries[:most], f"{title or ''}\n(the first {most} of {len(entries)})".strip()


def _layouts(
    ax: Axes, content: tuple[list[Entry], str | None], corners: tuple[Any, ...], points: list[Floats]
) -> Iterator[tuple[bool, float, int, int]]:
    """Yield for each corner and number of columns whether the legend is too large, its cost, the corner and the number."""
    for columns in range(1, len(content[0]) + 1):
        legend, cut = _draw(ax, *content, columns, corners[0])
        wide, high = _share(ax, legend)
        for number, corner in enumerate(corners):
            growth = max(_growth(each, corner, wide, high) for each in points)
            yield wide > 1.01 or high > _HIGHEST_LEGEND or cut > _MOST_CUT, growth + cut * _LETTER_COST, number, columns


def _draw(ax: Axes, entries: list[Entry], title: str | None, columns: int, corner: Any) -> tuple[Legend, int]:
    """Draw a legend, and return it with the number of letters left out of its names."""
    handles, names = zip(*entries, strict=True)
    close: dict[str, Any] = {"handlelength": 1, "columnspacing": 1} if len(entries) > _CLOSE else {}
    legend = ax.legend(handles, names, title=title, ncols=columns, loc=corner, **close)
    legend.set_in_layout(False)  # it is inside the axes and must not shrink them
    around = 2 * (legend.borderaxespad + legend.borderpad) + (columns - 1) * legend.columnspacing
    not_names = around + columns * (legend.handlelength + legend.handletextpad) + 0.2
    each = (ax.get_window_extent().width - not_names * _em(legend)) / columns
    return legend, sum(_shorten(text, each) for text in legend.get_texts())


def _em(legend: Legend) -> float:
    """Return the font size of a legend in pixels."""
    assert legend.figure is not None
    return float(legend.get_texts()[0].get_fontsize()) * legend.figure.dpi / 72


def _shorten(text: Text, width: float) -> int:
    """Shorten the middle of a name to a width in pixels, and return the cost in letters."""
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
    """Return the shares of the width and height of axes that a legend takes, with its margin."""
    box, whole = legend.get_window_extent(), ax.get_window_extent()
    space = 2 * legend.borderaxespad * _em(legend)
    return (box.width + space) / whole.width, (box.height + space) / whole.height


def _growth(points: Floats, corner: Any, wide: float, high: float) -> float:
    """Return the factor by which the y-axis must grow so that all points are inside and none is under the legend."""
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
    """Enlarge the y-axis for a legend, repeatedly because texts keep their size."""
    for _ in range(_TURNS):
        growth = _growth(_drawn(ax), corner, wide, high)
        if growth < 1.001 or not np.isfinite(growth):
            return
        below, above = ax.get_ylim()
        ax.set_ylim(below, below + growth * (above - below))


def _drawn(ax: Axes) -> Floats:
    """Return points of everything drawn in data coordinates, as shares of the width and height of axes."""
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
    """Return the vertices of a path in pixels, and points between them."""
    corners = np.asarray(transform.transform(path.vertices))
    steps = np.linspace(0, 1, _BETWEEN, endpoint=False)[:, None, None]
    between = corners[:-1] + steps * (corners[1:] - corners[:-1])
    return np.concatenate([between.reshape(-1, 2), corners])
