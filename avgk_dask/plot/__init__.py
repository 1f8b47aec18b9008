"""Pictures of results: functions that draw a result Dataset into matplotlib Axes and return them.

All take ``ax``, the Axes to draw into (by default new axes), and import matplotlib only when called. They neither show
figures nor change settings. Fonts, lines, spines and grids follow the style sheet; ``plt.style.use("avgk_dask.plot.paper")`` is one
for a column of 3.3 inches. Ticks and legends are fitted to the size of the Axes, so create the figure in its final size, with
``layout="constrained"``.

Colours have the same meaning everywhere (``AVERAGE_K``, ``TOP_K``, ``GAIN``, ``BUDGET``) and can be distinguished by colour-blind
readers and on dark backgrounds. Several results can share Axes, each with its ``label``. Curves with thousands of points are thinned
to keep files small. Bands and bars are 95 % intervals.

Examples
--------
>>> import numpy as np, avgk_dask as avgk
>>> a, b = (avgk.evaluate(np.eye(6) + np.eye(6, k=i) / 2, np.arange(6), k=[1, 2]) for i in (1, 2))
>>> ax = avgk.plot.errors(a, label="first model")
>>> [text.get_text() for text in avgk.plot.errors(b, ax=ax, label="second model").get_legend().get_texts()]
['first model', 'second model']
"""

from __future__ import annotations

from .canvas import AVERAGE_K as AVERAGE_K
from .canvas import BUDGET as BUDGET
from .canvas import GAIN as GAIN
from .canvas import TOP_K as TOP_K
from .error_plots import CLEAR as CLEAR
from .error_plots import best_budget as best_budget
from .error_plots import errors, gains, model_errors
from .error_plots import is_clear as is_clear
from .error_plots import is_crowded as is_crowded
from .error_plots import n_arbitrary as n_arbitrary
from .score_plots import near_threshold, ranked_scores, reliability, straddle, temperatures
from .size_plots import group_errors, set_size_distribution, set_sizes, size_coverage

__all__ = [
    "errors",
    "gains",
    "group_errors",
    "model_errors",
    "near_threshold",
    "ranked_scores",
    "reliability",
    "set_size_distribution",
    "set_sizes",
    "size_coverage",
    "straddle",
    "temperatures",
]
