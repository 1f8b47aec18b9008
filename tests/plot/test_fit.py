"""Pictures fit a column of a paper: no text over another or outside, no legend over data, in any style, for any result."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

import avgk_dask as avgk
from avgk_dask import plot
from avgk_dask.plot.legends import plain
from avgk_dask.testing import simulate

pyplot = pytest.importorskip("matplotlib.pyplot")

COLUMN, PAGE = (3.3, 2.4), (7.0, 4.2)
MILLION = 10**6
LONG = "a very long name of a model that was trained for much longer than all the others, version 2"
HOSTILE = ["ResNet-50", LONG, "$\\frac{", "two\nlines $x^$ \x00 _end", "_hidden", r"\$5 & <b>"]


@pytest.fixture(autouse=True)
def no_figure_left():
    yield
    sys.modules["matplotlib.pyplot"].close("all")


def make_results():
    toy, two, wide = simulate(500, 40), simulate(300, 2), simulate(300, 200)
    scores = np.asarray(toy.scores)
    rng = np.random.default_rng(0)
    result = {
        "ten budgets": avgk.evaluate(scores, toy.labels, k=range(1, 11)),
        "spread budgets": avgk.evaluate(scores, toy.labels, k=[1, 2, 2.5, 5, 20]),
        "two classes": avgk.evaluate(two.scores, two.labels, k=[1, 2]),
        "one budget": avgk.evaluate(scores, toy.labels, k=[5]),
        "a fraction": avgk.evaluate(scores, toy.labels, k=[0.5]),
        "hundred budgets": avgk.evaluate(wide.scores, wide.labels, k=range(1, 101)),
        "no labels": avgk.evaluate(scores, k=[1, 5]),
        "soft labels": avgk.evaluate(scores, np.asarray(avgk.softmax(scores * 8), float), k=[1, 2, 3]),
        "all labels": avgk.evaluate(scores, scores.argmax(1), k=[38, 40]),
    }
    with pytest.warns(avgk.ResultWarning):
        result["ties"] = avgk.evaluate(scores.round(1), toy.labels, k=[1, 2, 5])
    noisy = {name: scores + i * rng.random(scores.shape) / 9 for i, name in enumerate(HOSTILE)}
    with pytest.warns(avgk.ResultWarning):
        result["models"] = avgk.compare(noisy, toy.labels, k=range(1, 11), straddle=False)
    return {**result, **large(result["ten budgets"])}


def large(result):
    """Give results of a billion samples and a million classes, made by hand."""
    sizes = np.minimum(np.random.default_rng(0).pareto(0.6, 50_000) * 50, MILLION).astype(int)
    counts = np.bincount(sizes, minlength=MILLION + 1) * 20_000
    most = result.isel(k=[0, 4]).drop_dims("size").assign_attrs(n_samples=10**9, n_classes=MILLION)
    k = np.arange(1.0, MILLION + 1)
    curve = result[["top_k_error", "average_k_error"]].isel(k=[0]).drop_dims("k").assign_coords(k=k)
    rare = result.copy()
    for name in ("average_k_error", "top_k_error", "average_k_error_stderr", "top_k_error_stderr"):
        rare[name] = 1e-7 * rare[name]
    return {
        "million classes": most.assign(set_size_count=(("k", "size"), np.stack([counts, np.roll(counts, 9)]))),
        "million budgets": curve.assign(top_k_error=("k", 0.9 * k**-0.3), average_k_error=("k", 0.9 * k**-0.4)),
        "billion samples": rare.assign_attrs(n_samples=10**9),
    }


def make_tables():
    rng = np.random.default_rng(3)
    logits = rng.standard_normal((800, 12)) * 3
    labels = np.array([rng.choice(12, p=p) for p in np.asarray(avgk.softmax(logits, temperature=2))])
    scores = avgk.softmax(logits)
    error = avgk.losses.expected_calibration_error
    predictor = avgk.conformal.calibrate(scores, labels, alpha=0.1)
    return {
        "classes": avgk.breakdown(scores, labels, k=[1, 2]),
        "groups": avgk.breakdown(scores, labels, k=[2], by=labels % 3),
        "sets": predictor.evaluate(scores, labels),
        "before and after": {"before": error(scores, labels), LONG: error(scores, labels)},
        "near": avgk.losses.calibration_at_threshold(scores, labels, 2),
        "warm": avgk.calibration.temperature_curve(logits, labels, k=2),
        "three": avgk.calibration.temperature_curve(logits, labels, k=2, temperatures=[1, 1.5, 2]),
    }


@pytest.fixture(scope="module")
def given():
    return {**make_results(), **make_tables()}


BUDGETS = ["ten budgets", "spread budgets", "two classes", "one budget", "hundred budgets", "ties", "soft labels"]
SIZES = [*BUDGETS, "a fraction", "no labels", "million classes", "all labels"]
CASES = [
    *(("errors", name) for name in (*BUDGETS, "a fraction", "billion samples", "million budgets", "all labels")),
    *(("gains", name) for name in (*BUDGETS, "billion samples", "million budgets", "all labels")),
    *(("set_sizes", name) for name in SIZES),
    *(("set_size_distribution", name) for name in SIZES),
    *(("ranked_scores", name) for name in ("ten budgets", "two classes", "ties")),
    *(("straddle", name) for name in BUDGETS),
    ("model_errors", "models"),
    ("group_errors", "classes"),
    ("group_errors", "groups"),
    ("size_coverage", "sets"),
    ("reliability", "before and after"),
    ("near_threshold", "near"),
    ("temperatures", "warm"),
    ("temperatures", "three"),
    *((name, "overlaid") for name in ("errors", "gains", "set_sizes", "set_size_distribution")),
]


def draw(given, function, name, size, dpi=100):
    ax = pyplot.subplots(figsize=size, layout="constrained", dpi=dpi)[1]
    drawn = getattr(plot, function)
    if name != "overlaid":
        assert drawn(given[name], ax=ax) is ax
        return ax
    several = given["models"]
    k = {"set_sizes": {"k": 5}, "set_size_distribution": {"k": [5]}}.get(function, {})
    for i, model in enumerate(several.model.values):
        assert drawn(several.isel(model=i), ax=ax, label=str(model), **k) is ax
    return ax


def drawn_texts(figure, monkeypatch):
    """Give all texts that are drawn, with their boxes in pixels."""
    from matplotlib.text import Text

    items, plain_draw = [], Text.draw

    def note(self, renderer):
        if self.get_visible() and self.get_text().strip():
            items.append((self.get_text(), self.get_window_extent(renderer)))
        plain_draw(self, renderer)

    with monkeypatch.context() as patched:
        patched.setattr(Text, "draw", note)
        figure.canvas.draw()
    return items


def collisions(texts, figure):
    """Give what overlaps by more than a pixel, and what leaves the figure."""
    bad = [text for text, b in texts if min(b.x0, b.y0) < -1 or b.x1 > figure.bbox.x1 + 1 or b.y1 > figure.bbox.y1 + 1]
    for i, (text, a) in enumerate(texts):
        for other, b in texts[:i]:
            if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1:
                bad.append(f"{text} / {other}")
    return bad


def covered(ax):
    """Give how many points of lines, bars, bands and error bars lie under the legend."""
    if ax.get_legend() is None:
        return 0
    box = ax.get_legend().get_window_extent()
    points = [line.get_transform().transform(line.get_xydata()) for line in ax.lines]
    points += [patch.get_transform().transform(patch.get_path().vertices) for patch in ax.patches]
    points += [each.get_transform().transform(path.vertices) for each in ax.collections for path in each.get_paths()]
    points_drawn = np.concatenate(points)
    points_drawn = points_drawn[np.isfinite(points_drawn).all(1)]
    inside = (
        (points_drawn[:, 0] > box.x0)
        & (points_drawn[:, 0] < box.x1)
        & (points_drawn[:, 1] > box.y0)
        & (points_drawn[:, 1] < box.y1)
    )
    assert box.x0 >= ax.bbox.x0 - 1
    assert box.x1 <= ax.bbox.x1 + 1
    return int(inside.sum())


def check(ax, monkeypatch):
    texts = drawn_texts(ax.figure, monkeypatch)
    assert collisions(texts, ax.figure) == []
    assert covered(ax) == 0
    return texts


@pytest.mark.sample(2)
@pytest.mark.parametrize("size", [COLUMN, PAGE], ids=["column", "page"])
@pytest.mark.parametrize(("function", "name"), CASES)
def test_pictures__fit(given, function, name, size, monkeypatch):
    check(draw(given, function, name, size), monkeypatch)


@pytest.mark.sample(2)
@pytest.mark.parametrize("style", ["dark_background", "ggplot", "avgk_dask.plot.paper"])
@pytest.mark.parametrize("function", plot.__all__)
def test_pictures__fit_in_other_styles(given, function, style, monkeypatch):
    name = next(name for one, name in CASES if one == function)
    with pyplot.style.context(style):
        check(draw(given, function, name, COLUMN), monkeypatch)


def test_collisions__are_found(monkeypatch):
    figure, ax = pyplot.subplots(figsize=COLUMN)
    ax.set_axis_off()
    for x in (0.5, 0.52, 1.3):
        ax.text(x, 0.5, "text", transform=ax.transAxes)
    assert collisions(drawn_texts(figure, monkeypatch), figure) == ["text", "text / text"]
    ax.plot([0, 1], [0, 1], label="a line")
    ax.legend(loc="upper right")
    assert covered(ax) == 0
    ax.plot(np.linspace(0, 1, 100), np.linspace(0, 1, 100))
    assert covered(ax) > 0


@pytest.mark.sample(4)
@pytest.mark.parametrize(("function", "name"), [case for case in CASES if "million" in case[1] or "hundred" in case[1]])
def test_pictures__are_small_files(given, function, name):
    text = io.StringIO()
    draw(given, function, name, COLUMN).figure.savefig(text, format="svg")
    assert len(text.getvalue()) < 200_000


@pytest.mark.sample(5)
@pytest.mark.parametrize("function", plot.__all__)
def test_pictures__leave_all_settings_and_other_axes_alone(given, function):
    from matplotlib import rcParams

    name = next(name for one, name in CASES if one == function)
    other = pyplot.subplots()[1]
    before, figures = dict(rcParams), len(pyplot.get_fignums()) + 1
    draw(given, function, name, COLUMN)
    assert dict(rcParams) == before
    assert len(pyplot.get_fignums()) == figures
    assert not other.has_data()
    ax = getattr(plot, function)(given[name])
    assert ax.figure.get_size_inches().tolist() == rcParams["figure.figsize"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("function", ["errors", "gains", "set_sizes", "ranked_scores", "reliability", "temperatures"])
def test_pictures__have_sizes_and_frames_of_the_style_sheet(given, function):
    name = next(name for one, name in CASES if one == function)
    items = []
    for factor in (1, 2):
        style = {
            "lines.linewidth": 1.1 * factor,
            "lines.markersize": 3 * factor,
            "font.size": 5 * factor,
            "axes.spines.top": factor == 1,
            "axes.grid": factor == 1,
            "legend.frameon": factor == 1,
        }
        with pyplot.style.context([style]):
            ax = draw(given, function, name, PAGE)
        items.append(ax)
        assert ax.spines["top"].get_visible() == (factor == 1)
        assert ax.xaxis.get_gridlines()[0].get_visible() == (factor == 1)
        assert ax.get_legend() is None or ax.get_legend().get_frame_on() == (factor == 1)
    one, two = items
    for a, b in zip(one.lines, two.lines, strict=True):
        assert b.get_linewidth() == pytest.approx(2 * a.get_linewidth())
        assert b.get_markersize() == pytest.approx(2 * a.get_markersize())
    for a, b in zip(one.texts, two.texts, strict=False):
        assert b.get_fontsize() == pytest.approx(2 * a.get_fontsize())
    assert two.xaxis.label.get_fontsize() == 2 * one.xaxis.label.get_fontsize() == 10


@pytest.mark.sample(3)
@pytest.mark.parametrize("function", ["errors", "gains", "set_sizes", "set_size_distribution"])
def test_overlays__have_a_colour_and_a_name_for_each(given, function):
    ax = draw(given, function, "overlaid", PAGE)
    handles, names = ax.get_legend_handles_labels()
    models = [(handle, name) for handle, name in zip(handles, names, strict=True) if not name.startswith("k = ")]
    assert [name.removesuffix(", k = 5") for _, name in models] == [plain(name) for name in HOSTILE]
    colors = [h.get_color() if hasattr(h, "get_color") else h.get_edgecolor() for h, _ in models]
    assert len(set(colors)) == len(HOSTILE)


def test_gains__of_a_named_result_are_the_differences(given):
    result = given["ten budgets"]
    ax = plot.gains(result, label="a")
    (line,) = [line for line in ax.lines if line.get_label() == "a"]
    assert np.allclose(line.get_ydata(), 100 * result.adaptive_gain)
    high = ax.collections[0].get_paths()[0].vertices[:, 1].max()
    assert high == pytest.approx(float((100 * (result.adaptive_gain + 1.96 * result.adaptive_gain_stderr)).max()))


def test_plain__is_drawn_letter_by_letter():
    for name in HOSTILE:
        text = pyplot.figure().text(0, 0, plain(name))
        text.get_window_extent()  # would fail on half a formula
        shown, math = text._preprocess_math(text.get_text())
        assert not math
        assert shown.strip() == " ".join(name.split()).replace("\x00", r"\x00")
    assert plain("") == "?"


def test_legends__show_as_much_of_a_name_as_fits(given, monkeypatch):
    shown = []
    for size in (COLUMN, PAGE):
        ax = draw(given, "reliability", "before and after", size)
        shown.append(ax.get_legend().get_texts()[1].get_text())
    assert "\N{HORIZONTAL ELLIPSIS}" in shown[0]
    assert shown[0].startswith("a very")
    assert len(shown[0]) < len(shown[1])
    assert ax.get_legend_handles_labels()[1][1].startswith(LONG)  # nothing is lost


@pytest.mark.slow
def test_legends__of_very_many_say_how_many_they_name(given, monkeypatch):
    ax = pyplot.subplots(figsize=COLUMN, layout="constrained")[1]
    for i in range(20):
        plot.errors(given["ten budgets"], ax=ax, label=f"model {i}")
    assert "of 20" in ax.get_legend().get_title().get_text()
    check(ax, monkeypatch)
    pairs = {(line.get_color(), line.get_marker()) for line in ax.lines}
    assert len(pairs) == 20


def test_legends__are_where_the_style_sheet_says(given):
    with pyplot.style.context([{"legend.loc": "lower left"}]):
        ax = draw(given, "errors", "ten budgets", COLUMN)
    assert ax.get_legend()._loc == 3


def test_set_sizes__of_two_classes_show_no_other_sizes_and_no_more_than_all(given):
    ax = draw(given, "set_sizes", "two classes", COLUMN)
    ax.figure.canvas.draw()
    low, high = ax.get_xlim()
    assert -1 < low < high < 3
    assert ax.get_yticks().max() == 100


def test_set_sizes__of_a_million_classes_count_all_samples(given):
    ax = draw(given, "set_sizes", "million classes", COLUMN)
    (stairs,) = ax.patches
    values, edges, _ = stairs.get_data()
    counts = given["million classes"].set_size_count.sel(k=1).values
    counts = given["million classes"].set_size_count.values[1] if ax.lines[-1].get_xdata()[0] == 5 else counts
    for value, low, high in zip(values, edges[:-1] + 0.5, edges[1:] + 0.5, strict=True):
        assert value == pytest.approx(100 * counts[int(low) : int(high)].sum() / counts.sum())


def test_set_size_distribution__points_lie_on_the_curve(given):
    ax = draw(given, "set_size_distribution", "million classes", COLUMN)
    line = ax.lines[0]
    counts = given["million classes"].set_size_count.values[0]
    x, y = line.get_xdata()[:-1].astype(int), line.get_ydata()[:-1]
    assert np.allclose(y, 100 * np.cumsum(counts)[x] / counts.sum())
    assert x.size < 1_000


def test_errors__of_one_fraction_mark_it(given, monkeypatch):
    ax = draw(given, "errors", "a fraction", COLUMN)
    assert "0.5" in [text for text, _ in check(ax, monkeypatch)]
    assert ax.collections  # its standard error


def test_pictures__of_many_budgets_name_a_few(given, monkeypatch):
    ax = pyplot.subplots(figsize=COLUMN, layout="constrained")[1]
    plot.set_size_distribution(given["hundred budgets"], k=range(1, 101), ax=ax)
    check(ax, monkeypatch)
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names[0] == "k = 1"
    assert names[-1] == "k = 100"
    assert len(names) == 6
    colors = [line.get_color() for line in ax.lines if line.get_drawstyle() == "steps-post"]
    assert len(set(colors)) == 100
