"""The pictures of the pages: SVG that takes its colours and fonts from the page, light or dark."""

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
from .frame import MOST_NAME, clip, thin_budgets

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: Placeholders for the colours of the text and of the page; legends are painted in the latter to hide lines behind them.
_INK, _PAPER = "#010101", "#fefefe"
#: No frames and only horizontal grid lines; colours that differ in black and white.
_STYLE: dict[str, object] = {
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
#: Names of models that fit into a picture and that its font has; others are replaced by numbers.
_PLAIN_NAME = r"[A-Za-z0-9][A-Za-z0-9 ._/+-]{0,19}"
#: Variables of the page that replace the colours of the pictures.
_VARIABLES = {
    _INK: "currentColor",
    _PAPER: "var(--card)",
    SERIES[0]: "var(--first)",
    plot.AVERAGE_K: "var(--average)",
    plot.TOP_K: "var(--top)",
    plot.GAIN: "var(--gain)",
    plot.BUDGET: "var(--budget)",
}

#: Positions of a slider's mark: the budget, the ends of the y-axis, and both errors.
Points = list[tuple[float | None, ...]]


@dataclass(frozen=True)
class Picture:
    """A picture with its title and caption."""

    name: str
    title: str
    caption: str
    svg: Markup


#: Pictures of an evaluation: how to draw them, their titles and captions.
_PICTURES: dict[str, tuple[Callable[..., Axes], str, str]] = {
    "errors": (plot.errors, "Errors of both rules", "Error against k of average-k (solid) and top-k (dashed)."),
    "gains": (
        plot.gains,
        "Errors avoided",
        "Blue and green together are the top-k error: average-k makes the blue part and avoids the green part.",
    ),
    "set_sizes": (
        plot.set_sizes,
        "Set sizes",
        "Share of the samples by the number of labels in their average-k set; the dashed line marks k.",
    ),
    "set_size_distribution": (
        plot.set_size_distribution,
        "Cumulative set sizes",
        "Share of the samples with at most this number of labels in their average-k set; the dot of each curve is at its k.",
    ),
    "ranked_scores": (
        plot.ranked_scores,
        "Scores by rank",
        "Range and distribution over all samples of the highest score, the second highest, and so on.",
    ),
    "straddle": (
        plot.straddle,
        "Straddle strengths",
        "Mean, over all pairs of samples, of the excess of the score of rank k + order of one sample over the score "
        "of rank k + 1 - order of the other (0 if there is none).",
    ),
}
#: Variables that a picture needs, with the least number of values.
_NEEDS = {"errors": ("average_k_error", 2), "gains": ("relative_gain", 1), "straddle": ("straddle_strength", 2)}
#: Bars of gains that have space for a number.
_MOST_NUMBERS = 25


def _picture(
    name: str, title: str, caption: str, draw: Callable[..., Axes], look: Callable[[Axes], None] | None = None
) -> dict[str, Picture]:
    """Return a picture by its name."""
    return {name: Picture(name, title, caption, _svg(name, draw, look))}


def pictures(result: xr.Dataset) -> dict[str, Picture]:
    """Return all pictures for which a result has enough values, by name."""
    drawn: dict[str, Picture] = {}
    shown = thin_budgets(result, plot.best_budget(result))
    for name, (draw, title, caption) in _PICTURES.items():
        variable, least = _NEEDS.get(name, ("k", 1))
        if variable in shown and np.isfinite(shown[variable].values).sum() < least:
            continue
        if name == "gains" and np.isfinite(shown.relative_gain.values).sum() <= _MOST_NUMBERS:
            caption += " Numbers are gains, the avoided share of the top-k error."
        if name == "gains" and (shown.adaptive_gain.values < 0).any():
            caption += " Hatched parts are errors of average-k beyond those of top-k."
        if name in ("errors", "gains") and _has_bars(shown, "adaptive_gain"):
            caption += f" {'Bands' if name == 'errors' else 'Thin lines'} are 95 % intervals{'' if name == 'errors' else ' of the difference between the rules'}."
        with suppress(OptionError):  # no labels, no integer k, or not analysed
            drawn |= _picture(name, title, caption, partial(draw, shown))
    return drawn


def _has_bars(result: xr.Dataset, name: str) -> bool:
    return f"{name}_stderr" in result and bool(np.isfinite(result[f"{name}_stderr"].values).any())


def calibration_pictures(tables: Mapping[str, xr.Dataset]) -> dict[str, Picture]:
    """Return the pictures of calibration tables: of the highest scores by name, and of those near a threshold."""
    near = [table for table in tables.values() if "total_accuracy" in table]
    tops = {name: table for name, table in tables.items() if "expected_calibration_error" in table}
    drawn: dict[str, Picture] = {}
    if tops:
        caption = (
            "Share of correct predictions in bins of the highest score; the dotted line is perfect calibration. ECE: expected "
            "calibration error."
        )
        drawn |= _picture("reliability", "Reliability of the highest scores", caption, partial(plot.reliability, tops))
    if near:
        caption = (
            "Share of the scores near the threshold whose class is the label, in bins of the score; the dotted line is perfect "
            "calibration, the dashed line the threshold."
        )
        title = "Calibration at the threshold"
        drawn |= _picture("near_threshold", title, caption, partial(plot.near_threshold, near[0]))
    return drawn


def comparison_pictures(result: xr.Dataset) -> dict[str, Picture]:
    """Return the pictures of a comparison; models are numbered unless all have short and plain names."""
    if np.isnan(result.average_k_error.values).all():
        return {}
    names = [clip(str(name), MOST_NAME) for name in result.model.values]
    labels, key = names, ""
    if not all(re.fullmatch(_PLAIN_NAME, name) for name in names):
        labels = [str(i + 1) for i in range(len(names))]
        key = f" Model {', '.join(f'{label} is {name}' for label, name in zip(labels, names, strict=True))}."
    shown = result.assign_coords(model=labels, other=labels)
    errors = f"Error against k of average-k (solid) and top-k (dashed); bands are 95 % intervals.{key}"
    differences = (
        f"Average-k error at k = {float(result.k.values.max()):g} of each model minus the error of the best model, with 95 % "
        "intervals."
    )
    return _picture("model_errors", "Errors of the models", errors, partial(plot.model_errors, shown)) | _picture(
        "differences", "Differences from the best model", differences, partial(_differences, shown)
    )


def _differences(result: xr.Dataset, ax: Axes) -> Axes:
    """Draw the average-k error of each model minus the error of the best one, for the largest budget, with 95 % intervals."""
    one = result.sel(k=result.k.values.max(), rule="average")
    best = int(np.nanargmin(one.average_k_error.values))
    others = one.isel(other=best, model=[i for i in range(one.sizes["model"]) if i != best])
    rows = np.arange(others.sizes["model"])
    reach = 100 * plot.CLEAR * others.difference_stderr.values
    ax.axvline(0, color=_INK, linewidth=1)
    ax.errorbar(100 * others.difference.values, rows, xerr=reach, fmt="o", color=plot.AVERAGE_K, capsize=3)
    ax.set_yticks(rows, [_model(name) for name in others.model.values])
    ax.set_ylim(rows.size - 0.5, -0.5)
    ax.set(xlabel=f"error minus that of {_model(one.model.values[best])} (points)")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _model(name: str) -> str:
    return f"model {name}" if name.isdigit() else name


def group_pictures(breakdown: xr.Dataset) -> dict[str, Picture]:
    """Return the picture of a breakdown; empty without labels."""
    groups = "classes" if breakdown.attrs.get("by") == "class" else "groups"
    caption = (
        f"Share of the {groups} with at most this error, at k = {float(breakdown.k.values.max()):g}, for both rules."
    )
    with suppress(OptionError):
        return _picture("group_errors", f"Errors of the {groups}", caption, partial(plot.group_errors, breakdown))
    return {}


def coverage_pictures(result: xr.Dataset) -> dict[str, Picture]:
    """Return the picture of conformal sets on new samples; empty without labels."""
    caption = (
        "Bars: share of the samples with a set of this size. Dots: share of these sets that hold the label. Dashed line: the "
        "target, guaranteed only on average over all sizes."
    )
    with suppress(OptionError):
        return _picture("size_coverage", "Coverage by set size", caption, partial(plot.size_coverage, result))
    return {}


def curve_picture(curve: xr.Dataset) -> tuple[Picture | None, Points]:
    """Return the picture of the errors along a slider, or None without labels, and the positions of its mark."""
    if np.isnan(curve.average_k_error.values).all():
        return None, []
    points: Points = []
    bars = ", with 95 % intervals" if _has_bars(curve, "average_k_error") else ""
    caption = (
        f"Error against k of average-k (solid) and top-k (dashed){bars}; the vertical line is the k of the slider."
    )
    drawn = _picture(
        "curve",
        "Errors of both rules, at every k",
        caption,
        partial(plot.errors, curve),
        lambda ax: points.extend(_marks(ax, curve)),
    )
    return drawn["curve"], points


def _marks(ax: Axes, curve: xr.Dataset) -> Points:
    """Return the positions of the budgets and their errors in a drawn picture, from its upper left corner."""
    assert ax.figure is not None
    width, height = 72 * ax.figure.get_size_inches()  # type: ignore[union-attr]
    to_figure = ax.transData + ax.figure.transFigure.inverted()
    low, high = ax.get_ylim()

    def position(k: float, percent: float) -> tuple[float, float | None]:
        x, y = to_figure.transform((k, percent))
        return round(width * x, 1), None if np.isnan(percent) else round(height * (1 - y), 1)

    points: Points = []
    for k, top, average in zip(curve.k.values, curve.top_k_error.values, curve.average_k_error.values, strict=True):
        heights = [position(k, one)[1] for one in (high, low, 100 * top, 100 * average)]
        points.append((position(k, low)[0], *heights))
    return points


def _svg(name: str, draw: Callable[..., Axes], look: Callable[[Axes], None] | None) -> Markup:
    """Draw a picture as an SVG element without external references or text colours; ``look`` sees the final axes."""
    from matplotlib import style
    from matplotlib.figure import Figure

    ink = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color")
    own = {"svg.fonttype": "none", "svg.hashsalt": name, **_STYLE, **dict.fromkeys(ink, _INK)}
    with style.context(["default", own]):
        figure = Figure(figsize=(5.4, 3.6), layout="constrained")
        ax = draw(ax=figure.add_subplot())
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
        if look is not None:
            look(ax)
    return Markup(_element(text.getvalue(), name))


def _element(svg: str, name: str) -> str:
    """Turn an SVG file into an element: drop headers, and use ids and colours of this page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r'width="[^"]*pt" height="[^"]*pt"', "", svg, count=1)
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), svg)  # hundredths of a point
    for color, variable in _VARIABLES.items():
        svg = re.sub(color, variable, svg, flags=re.I)
    return svg
