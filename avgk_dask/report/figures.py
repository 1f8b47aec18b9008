"""The pictures of the report: SVG that takes its colours and fonts from the page, light or dark."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from markupsafe import Markup

from .. import plot
from ..errors import OptionError
from ..plot.canvas import SERIES
from .frame import MOST_NAME, clipped, spaced

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: Stands for the colour of the page's text while a picture is drawn.
_INK = "#010101"
#: Stands for the colour of the page, on which legends are written, so that no line goes through them.
_PAPER = "#fefefe"
#: As little ink as needed: no frames, lines across only, colours that a page in black and white keeps apart.
_TIDY: dict[str, object] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "legend.facecolor": _PAPER,
    "legend.edgecolor": "none",
    "image.cmap": "cividis",
}
#: Names of models that are drawn: others might not fit, or have letters that a picture lacks.
_PLAIN_NAME = r"[A-Za-z0-9][A-Za-z0-9 ._/+-]{0,19}"
#: What the page calls the colours of the pictures.
_VARIABLES = {
    _INK: "currentColor",
    _PAPER: "var(--card)",
    SERIES[0]: "var(--first)",
    plot.AVERAGE_K: "var(--average)",
    plot.TOP_K: "var(--top)",
    plot.GAIN: "var(--gain)",
    plot.BUDGET: "var(--budget)",
}

#: Where a mark is in a picture: the budget, the ends of the axis, and the heights of both errors.
Points = list[tuple[float | None, ...]]


@dataclass(frozen=True)
class Picture:
    """A picture, what it shows and how to read it."""

    name: str
    title: str
    caption: str
    svg: Markup


_PICTURES: dict[str, tuple[Callable[..., Axes], str, str]] = {
    "errors": (
        plot.errors,
        "Errors of both rules",
        "Where the solid line is below the dashed one, average-k makes fewer errors with as many labels.",
    ),
    "gains": (
        plot.gains,
        "Errors saved",
        "Of the errors of top-k, the green part is what average-k saves; what it adds is hatched.",
    ),
    "set_sizes": (
        plot.set_sizes,
        "Set sizes",
        "The further the bars are spread around the line at k, the more average-k adapts to its samples.",
    ),
    "set_size_distribution": (
        plot.set_size_distribution,
        "Set sizes, cumulated",
        "A line's height is the share of samples with at most so many labels; its dot marks k.",
    ),
    "ranked_scores": (
        plot.ranked_scores,
        "Scores by rank",
        "Each line spans the r-th highest scores of all samples: where neighbours overlap, some sample's (k+1)-th score "
        "exceeds another's k-th, and adapting can pay.",
    ),
    "straddle": (
        plot.straddle,
        "Straddle strengths",
        "The lighter a field, the further the (k + order)-th score of one sample exceeds the (k + 1 - order)-th of another, "
        "on average over all pairs.",
    ),
}


#: What is to be read where there are standard errors.
_WITH_BARS = {
    "errors": "; bands hold the true error 95 times in 100.",
    "gains": ", and a gain is clear where the thin line does not reach the end of the green.",
}
#: Pictures that need numbers of a variable, and how many.
_OF_SEVERAL = {"errors": ("average_k_error", 2), "gains": ("relative_gain", 1), "straddle": ("straddle_strength", 2)}


def _picture(
    name: str, title: str, caption: str, draw: Callable[..., Axes], look: Callable[[Axes], None] | None = None
) -> dict[str, Picture]:
    """Return a picture by its name."""
    return {name: Picture(name, title, caption, _svg(name, draw, look))}


def pictures(result: xr.Dataset) -> dict[str, Picture]:
    """Return all pictures that a result has the numbers for, by name; one number alone is no picture."""
    found: dict[str, Picture] = {}
    shown = spaced(result, plot.best_budget(result))
    has_bars = "adaptive_gain_stderr" in result and np.isfinite(result.adaptive_gain_stderr.values).any()
    for name, (draw, title, caption) in _PICTURES.items():
        variable, least = _OF_SEVERAL.get(name, ("k", 1))
        if variable in shown and np.isfinite(shown[variable].values).sum() < least:
            continue
        if has_bars and name in _WITH_BARS:
            caption = caption.removesuffix(".") + _WITH_BARS[name]
        with suppress(OptionError):  # no labels, no integer k, or not analysed
            found |= _picture(name, title, caption, partial(draw, shown))
    return found


def calibration_pictures(tables: Mapping[str, xr.Dataset]) -> dict[str, Picture]:
    """Return the pictures of tables of calibration: of the highest scores by name, and of those near a threshold."""
    near = [table for table in tables.values() if "total_accuracy" in table]
    tops = {name: table for name, table in tables.items() if "expected_calibration_error" in table}
    found: dict[str, Picture] = {}
    if tops:
        caption = (
            "Each dot is a bin of samples by their highest score: on the dotted line it is right as often as it says."
        )
        title = "How often the highest scores are right"
        found |= _picture("reliability", title, caption, partial(plot.reliability, tops))
    if near:
        caption = "Scores near the threshold decide which labels are in: on the dotted line they are the label as often as they say."
        found |= _picture(
            "near_threshold", "Calibration at the threshold", caption, partial(plot.near_threshold, near[0])
        )
    return found


def comparison_pictures(result: xr.Dataset) -> dict[str, Picture]:
    """Return the pictures of a comparison. Models are numbered there, unless all have short and plain names."""
    if np.isnan(result.average_k_error.values).all():
        return {}
    names = [clipped(str(name), MOST_NAME) for name in result.model.values]
    called, told = names, ""
    if not all(re.fullmatch(_PLAIN_NAME, name) for name in names):
        called = [str(i + 1) for i in range(len(names))]
        told = " Model " + ", ".join(f"{number} is {name}" for number, name in zip(called, names, strict=True)) + "."
    shown = result.assign_coords(model=called, other=called)
    k = float(result.k.values.max())
    errors = (
        "The lower a line, the better; solid lines are average-k, with bands that hold the true error 95 times in 100, dashed "
        f"ones top-k.{told}"
    )
    differences = (
        f"At k = {k:g}, each dot is the average-k error of a model less that of the best one, with its 95 % interval, sample by "
        "sample: where the interval is right of 0, the best one is clearly better."
    )
    return _picture("model_errors", "Errors of the models", errors, partial(plot.model_errors, shown)) | _picture(
        "differences", "Differences from the best model", differences, partial(_differences, shown)
    )


def _differences(result: xr.Dataset, ax: Axes) -> Axes:
    """Draw the average-k error of each model less that of the best one, for the largest budget, with 95 % intervals."""
    one = result.sel(k=result.k.values.max(), rule="average")
    best = int(np.nanargmin(one.average_k_error.values))
    others = [i for i in range(one.sizes["model"]) if i != best]
    apart = one.isel(other=best, model=others)
    reach = 100 * plot.CLEAR * apart.difference_stderr.values
    ax.axvline(0, color=_INK, linewidth=1)
    ax.errorbar(
        100 * apart.difference.values, np.arange(len(others)), xerr=reach, fmt="o", color=plot.AVERAGE_K, capsize=3
    )
    ax.set_yticks(np.arange(len(others)), [_model(name) for name in apart.model.values])
    ax.set_ylim(len(others) - 0.5, -0.5)
    ax.set(xlabel=f"error less that of {_model(one.model.values[best])} (points)")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _model(name: str) -> str:
    """Return what a picture calls a model, by its name or number."""
    return f"model {name}" if name.isdigit() else name


def group_pictures(breakdown: xr.Dataset) -> dict[str, Picture]:
    """Return the pictures of a breakdown; none without labels."""
    caption = "The further to the left a curve rises, the fewer are served badly; where it has reached the top, none has a larger error."
    with suppress(OptionError):
        return _picture("group_errors", "Errors of all", caption, partial(plot.group_errors, breakdown))
    return {}


def coverage_pictures(result: xr.Dataset) -> dict[str, Picture]:
    """Return the pictures of what conformal sets are on new samples; none without labels."""
    caption = "Bars: the samples with a set of that size. Dots: how often these sets hold the label; nothing is promised of a size alone."
    with suppress(OptionError):
        return _picture("size_coverage", "Coverage by set size", caption, partial(plot.size_coverage, result))
    return {}


def curve_picture(curve: xr.Dataset) -> tuple[Picture | None, Points]:
    """Return the picture of the errors along a slider, and where its mark is at each budget; None without labels."""
    if np.isnan(curve.average_k_error.values).all():
        return None, []
    points: Points = []

    def look(ax: Axes) -> None:
        points.extend(_marks(ax, curve))

    has_bars = "average_k_error_stderr" in curve and np.isfinite(curve.average_k_error_stderr.values).any()
    caption = f"The line marks the budget of the slider{_WITH_BARS['errors'] if has_bars else '.'}"
    found = _picture("curve", "Errors of both rules, at every K", caption, partial(plot.errors, curve), look)
    return found["curve"], points


def _marks(ax: Axes, curve: xr.Dataset) -> Points:
    """Return where the budgets and their errors are in a drawn picture, from its upper left corner."""
    assert ax.figure is not None
    width, height = 72 * ax.figure.get_size_inches()  # type: ignore[union-attr]
    to_figure = ax.transData + ax.figure.transFigure.inverted()
    low, high = ax.get_ylim()

    def place(k: float, percent: float) -> tuple[float, float | None]:
        x, y = to_figure.transform((k, percent))
        return round(width * x, 1), None if np.isnan(percent) else round(height * (1 - y), 1)

    found: Points = []
    for k, top, average in zip(curve.k.values, curve.top_k_error.values, curve.average_k_error.values, strict=True):
        heights = [place(k, one)[1] for one in (high, low, 100 * top, 100 * average)]
        found.append((place(k, low)[0], *heights))
    return found


def _svg(name: str, draw: Callable[..., Axes], look: Callable[[Axes], None] | None = None) -> Markup:
    """Return a picture as an element of a page: no request, no colour of its own for what is text.

    What is left to see in the picture once its parts have their places is done by ``look``.
    """
    from matplotlib import style
    from matplotlib.figure import Figure

    ink = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color")
    mine = {"svg.fonttype": "none", "svg.hashsalt": name, **_TIDY, **dict.fromkeys(ink, _INK)}
    with style.context(["default", mine]):
        figure = Figure(figsize=(5.4, 3.6), layout="constrained")
        ax = draw(ax=figure.add_subplot())
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
        if look is not None:
            look(ax)
    return Markup(_cleaned(text.getvalue(), name))


def _cleaned(svg: str, name: str) -> str:
    """Return an SVG file as an element: without what only files need, with ids and colours of this page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r'width="[^"]*pt" height="[^"]*pt"', "", svg, count=1)
    # A hundredth of a point is less than anyone sees.
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), svg)
    for color, variable in _VARIABLES.items():
        svg = re.sub(color, variable, svg, flags=re.I)
    return svg
