"""The pictures of the report: SVG that takes its colours and fonts from the page, light or dark."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import xarray as xr
from markupsafe import Markup

from .. import plot
from ..errors import OptionError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Stands for the colour of the page's text while a picture is drawn.
_INK = "#010101"
#: What the page calls the colours of the pictures.
_VARIABLES = {
    _INK: "currentColor",
    plot.AVERAGE_K: "var(--average)",
    plot.TOP_K: "var(--top)",
    plot.GAIN: "var(--gain)",
    plot.BUDGET: "var(--budget)",
}


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
        "With the same number of labels in all, top-k gives each sample k of them, average-k as many as it needs.",
    ),
    "gains": (
        plot.gains,
        "Errors saved",
        "Each bar is the top-k error; the green part is what average-k saves, with the change in percent above it.",
    ),
    "set_sizes": (plot.set_sizes, "Set sizes", "How many labels average-k gives to a sample; k is the mean."),
    "set_size_distribution": (
        plot.set_size_distribution,
        "Set sizes, cumulated",
        "The share of samples with at most so many labels; the dots mark k.",
    ),
    "ranked_scores": (
        plot.ranked_scores,
        "Scores by rank",
        "The r-th highest score of each sample: the line is its support, from the lowest to the highest. Where the "
        "lines of neighbours overlap, some sample's (k+1)-th score exceeds another's k-th, and adapting can pay.",
    ),
    "straddle": (
        plot.straddle,
        "Straddle strengths",
        "How far the (k + order)-th score of one sample exceeds the (k + 1 - order)-th of another, on average over "
        "all pairs: the more, the more there is to gain.",
    ),
}


#: Pictures of tables of calibration.
_CALIBRATION: dict[str, tuple[Callable[..., Axes], str, str]] = {
    "reliability": (
        plot.reliability,
        "How often the highest scores are right",
        "Each dot is a bin of samples by their highest score: on the dotted line it is right as often as it says.",
    ),
    "near_threshold": (
        plot.near_threshold,
        "Calibration at the threshold",
        "Scores near the threshold decide which labels are in: on the dotted line they are the label as often as they say.",
    ),
}


def calibration_pictures(tables: Mapping[str, xr.Dataset]) -> dict[str, Picture]:
    """Return the pictures of tables of calibration: of the highest scores by name, and of those near a threshold."""
    near = [table for table in tables.values() if "total_accuracy" in table]
    tops = {name: table for name, table in tables.items() if "expected_calibration_error" in table}
    given: dict[str, object] = {"reliability": tops, "near_threshold": near[0] if near else None}
    return {
        name: Picture(name, title, caption, _svg(name, draw, given[name]))
        for name, (draw, title, caption) in _CALIBRATION.items()
        if given[name] is not None and (name != "reliability" or tops)
    }


def comparison_pictures(result: xr.Dataset) -> dict[str, Picture]:
    """Return the pictures of a comparison. Models are numbered there: names of users are written, never drawn."""
    numbered = [str(i + 1) for i in range(result.sizes["model"])]
    told = ", ".join(f"{number} is {name}" for number, name in zip(numbered, result.model.values, strict=True))
    caption = f"Solid: average-k; dashed: top-k, with 95 % intervals. Model {told}."
    try:
        drawn = _svg("model_errors", plot.model_errors, result.assign_coords(model=numbered, other=numbered))
    except OptionError:  # no labels
        return {}
    return {"model_errors": Picture("model_errors", "Errors of the models", caption, drawn)}


def pictures(result: xr.Dataset) -> dict[str, Picture]:
    """Return all pictures that a result has the numbers for, by name."""
    found = {}
    for name, (draw, title, caption) in _PICTURES.items():
        try:
            found[name] = Picture(name, title, caption, _svg(name, draw, result))
        except OptionError:  # no labels, no integer k, or not analysed
            continue
    return found


def _svg(name: str, draw: Callable[..., Axes], result: object) -> Markup:
    """Return a picture as an element of a page: no request, no colour of its own for what is text."""
    from matplotlib import style
    from matplotlib.figure import Figure

    ink = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color")
    mine: dict[str, str] = {"svg.fonttype": "none", "svg.hashsalt": name, **dict.fromkeys(ink, _INK)}
    with style.context(["default", mine]):
        figure = Figure(figsize=(5.4, 3.6), layout="constrained")
        draw(result, ax=figure.add_subplot())
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r'width="[^"]*pt" height="[^"]*pt"', "", svg, count=1)
    for color, variable in _VARIABLES.items():
        svg = re.sub(color, variable, svg, flags=re.I)
    return Markup(svg)
