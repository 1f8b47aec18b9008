"""Colours that mean the same in all pictures, and differ on white and black paper, for colour-blind eyes too.

``tests/plot/test_palette.py`` holds them to it: contrasts with either paper, and distances as deuteranopes and protanopes see them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["AVERAGE_K", "BUDGET", "GAIN", "SERIES", "TOP_K", "ink_of", "next_series", "ordered_colors"]

#: What is of average-k, of top-k, of their difference, and of a budget. The report puts variables of its page in their place.
AVERAGE_K, TOP_K, GAIN, BUDGET = "#0072b2", "#d55e00", "#009e73", "#aa22ff"
#: Results and tables that stand side by side. None of them is a colour above: the report leaves them as they are.
SERIES = ("#2255ee", "#bb8800", "#bb11aa", "#00aa66", "#995577", "#0099ff", "#aa4422")
#: Their markers; there is one less, so that 42 series differ.
_MARKERS = ("o", "s", "^", "D", "v", "P")
#: Budgets are a stretch of this map: its ends would be lost on black and on white paper.
_MAP, _FIRST, _LAST = "plasma", 0.3, 0.75


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
