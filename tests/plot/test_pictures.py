"""The pictures hold the numbers of the result, and refuse a result that has none."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import xarray as xr

import avgk_dask as avgk
from avgk_dask import plot
from avgk_dask.testing import simulate

pyplot = pytest.importorskip("matplotlib.pyplot")

#: Pictures of results; those of tables of calibration have tests of their own.
OF_RESULTS = [
    name
    for name in plot.__all__
    if name not in ("group_errors", "model_errors", "near_threshold", "reliability", "size_coverage", "temperatures")
]


@pytest.fixture(autouse=True)
def no_figure_left():
    yield
    sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(scope="module")
def result():
    toy = simulate(2_000, 40)
    return avgk.evaluate(toy.scores, toy.labels, k=[1, 2, 2.5, 5, 20])


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_errors__draws_both_rules_and_leaves_out_top_k_of_a_fractional_k(result):
    ax = plot.errors(result)
    lines = dict(zip(labels(ax), ax.get_lines(), strict=True))
    assert lines["top-k"].get_xdata().tolist() == [1, 2, 5, 20]
    assert lines["average-k"].get_xdata().tolist() == [1, 2, 2.5, 5, 20]
    assert np.array_equal(lines["average-k"].get_ydata(), 100 * result.average_k_error)
    assert "%" in ax.get_ylabel()


def test_gains__bars_add_up_to_the_top_k_error(result):
    ax = plot.gains(result)
    both, saved = ax.containers[:2]
    whole = result.sel(k=[1, 2, 5, 20])
    heights = [a.get_height() + b.get_height() for a, b in zip(both, saved, strict=True)]
    assert np.allclose(heights, 100 * np.maximum(whole.top_k_error, whole.average_k_error))
    assert both[0].get_facecolor() != saved[0].get_facecolor()


def test_pictures__of_an_error_curve():
    toy = simulate(300, 8)
    curve = avgk.error_curve(toy.scores, toy.labels)
    result = avgk.evaluate(toy.scores, toy.labels, k=range(1, 9))
    said = [[text.get_text() for text in plot.gains(one).texts] for one in (curve, result)]
    assert said[0] == said[1] != []
    assert np.array_equal(plot.errors(curve).get_lines()[0].get_ydata(), 100 * result.average_k_error)


def test_gains__errors_that_average_k_adds_stand_out():
    scores = np.array([[9.0, 8.0, 0.0], [1.0, 0.5, 0.0]])  # logits of unlike size: the budget goes to one sample
    ax = plot.gains(avgk.evaluate(scores, [0, 0], k=1))
    assert "additional errors" in labels(ax)
    assert ax.containers[2][0].get_height() == 50


def test_set_sizes__bars_are_the_shares_and_k_is_marked(result):
    ax = plot.set_sizes(result, k=2.5)
    counts = result.set_size_count.sel(k=2.5).values
    heights = [bar.get_height() for bar in ax.containers[0]]
    assert np.allclose(heights, (100 * counts / 2_000)[: len(heights)])
    assert labels(ax) == ["k = 2.5"]


def test_set_sizes__a_long_tail_is_told_not_drawn():
    scores = np.zeros((2_000, 300)) + np.arange(2_000)[:, None] / 1e6
    scores[-1] = 1  # one set with all labels, and two thousand with hardly any
    ax = plot.set_sizes(avgk.evaluate(scores, k=1, straddle=False))
    assert "0.35 % have more,\nup to 300" in labels(ax)
    assert len(ax.containers[0]) < 300


def test_set_size_distribution__ends_at_all_samples(result):
    ax = plot.set_size_distribution(result, k=[1, 5])
    steps = [line for line in ax.get_lines() if line.get_drawstyle() == "steps-post"]
    assert [line.get_ydata()[-1] for line in steps] == [100, 100]
    assert labels(ax) == ["k = 1", "k = 5"]


def test_ranked_scores__draws_the_supports(result):
    ax = plot.ranked_scores(result)
    segments = ax.collections[0].get_segments()[0]
    assert segments[:, 1].tolist() == [float(result.support_low[0]), float(result.support_high[0])]


def test_straddle__is_a_map_of_the_integer_budgets(result):
    ax = plot.straddle(result)
    drawn = ax.collections[0].get_array()
    expected = result.straddle_strength.sel(k=[1, 2, 5, 20]).transpose("order", "k").values
    assert np.array_equal(np.ma.filled(drawn, np.nan), expected, equal_nan=True)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", OF_RESULTS)
@pytest.mark.parametrize("k", [[1], [0.5], range(1, 101)])
def test_pictures__draw_any_result_into_the_axes_given(name, k):
    toy = simulate(300, 120)
    result = avgk.evaluate(toy.scores, toy.labels, k=k)
    figure, ax = pyplot.subplots()
    if k == [0.5] and name in ("gains", "straddle"):
        with pytest.raises(avgk.OptionError, match="integer k"):
            getattr(plot, name)(result, ax=ax)
        return
    assert getattr(plot, name)(result, ax=ax) is ax
    figure.canvas.draw()


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", ["float16", "uint8", "int64", "float64"])
def test_pictures__draw_scores_of_one_value_infinite_and_tied(dtype):
    scores = np.zeros((5, 4)).astype(dtype)
    if dtype.startswith("float"):
        scores[0, 0], scores[1, 1] = np.inf, -np.inf
    result = avgk.evaluate(scores, [0, 1, 2, 3, 0], k=[1, 2])
    for name in OF_RESULTS:
        if name == "straddle" and dtype.startswith("float"):  # no strength without finite scores
            continue
        ax = getattr(plot, name)(result)
        ax.figure.canvas.draw()
        assert np.isfinite([*ax.get_xlim(), *ax.get_ylim()]).all()
        assert ax.get_xlabel()


@pytest.mark.parametrize(
    ("name", "needs"),
    [("errors", "labels"), ("gains", "labels"), ("ranked_scores", "straddle=True"), ("straddle", "straddle=True")],
)
def test_pictures__say_what_a_result_lacks(name, needs):
    result = avgk.evaluate(np.eye(4), k=1, straddle=False)
    with pytest.raises(avgk.OptionError, match=needs):
        getattr(plot, name)(result)


def test_set_sizes__of_a_budget_that_was_not_asked_for_are_refused(result):
    with pytest.raises(avgk.OptionError, match=r"one of the result's budgets.*got 3"):
        plot.set_sizes(result, k=3)


@pytest.mark.parametrize("lowest", [0.0, 1e-6])
def test_ranked_scores__draws_densities_on_either_axis(lowest):
    # Uniform on a linear or logarithmic axis: all bins with scores have the same width.
    first = np.exp(np.linspace(np.log(1e-4), 0, 20_000)) if lowest else np.linspace(0.02, 1, 20_000)
    ax = plot.ranked_scores(avgk.evaluate(np.stack([first, np.full(20_000, lowest)], 1), k=[1]))
    assert ax.get_yscale() == ("log" if lowest else "linear")
    (drawn,) = ax.collections[2].get_paths()
    halves = np.abs(drawn.vertices[:, 0])
    assert 0.38 < np.median(halves) <= halves.max() < 0.43


def test_ranked_scores__of_the_largest_integers_has_a_plain_axis():
    v = -(-(2**64) // 100)
    result = avgk.evaluate(np.array([[v + 5, v], [v + 3, v + 1]], np.uint64), k=1)
    assert plot.ranked_scores(result).get_yscale() == "linear"


def test_pictures__of_no_errors_and_of_all_labels_show_something():
    result = avgk.evaluate(np.eye(50) + np.eye(50, k=1) / 2, np.arange(50), k=[50])
    assert plot.gains(result).get_ylim()[0] == 0
    assert plot.errors(result).get_ylim()[0] == 0
    assert plot.set_sizes(result).get_xlim()[0] > 40  # the one bar is large enough to see


def test_errors__have_a_band_of_two_standard_errors(result):
    average, _ = plot.errors(result).collections
    (path,) = average.get_paths()
    errors = 100 * (result.average_k_error + 1.96 * result.average_k_error_stderr).values
    assert path.vertices[:, 1].max() == pytest.approx(errors.max())


def test_model_errors__have_a_line_for_each_model_and_rule():
    toy = simulate(300, 12)
    comparison = avgk.compare({"a $x$": toy.scores, "b": toy.scores**2}, toy.labels, k=[1, 2, 2.5], straddle=False)
    ax = plot.model_errors(comparison)
    ax.figure.canvas.draw()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [r"a \$x\$", "b"]
    solid, dashed = ax.lines[2], ax.lines[3]
    assert np.allclose(solid.get_ydata(), 100 * comparison.average_k_error.sel(model="b"))
    assert np.allclose(dashed.get_ydata(), 100 * comparison.top_k_error.sel(model="b", k=[1, 2]))
    for other in (avgk.evaluate(toy.scores, toy.labels, k=1), xr.Dataset()):
        with pytest.raises(avgk.OptionError, match="errors of several models"):
            plot.model_errors(other)


PICTURES = ["errors", "gains", "set_sizes", "set_size_distribution", "ranked_scores", "straddle"]


@pytest.mark.parametrize("name", PICTURES)
def test_pictures__of_what_is_no_single_result_say_what_to_do(name, result):
    draw = getattr(plot, name)
    for other in (None, 5, "report.html", np.eye(3), result.threshold):
        with pytest.raises(avgk.DtypeError, match=r"result must be a Dataset.*; got \w+\. Pass"):
            draw(other)
    both = xr.concat([result, result], "model")
    with pytest.raises(avgk.OptionError, match=r"a single one, .* several along model\. Select one of them"):
        draw(both)
    assert draw(both.isel(model=1)).get_xlabel()
    for other in (xr.Dataset(), xr.Dataset({"a": 1}), avgk.threshold(np.eye(3), [1])):
        with pytest.raises(avgk.OptionError, match=r"result (must have|has no)"):
            draw(other)


@pytest.mark.parametrize("name", ["errors", "gains", "set_sizes", "set_size_distribution", "straddle"])
def test_pictures__of_one_k_need_its_dimension(name, result):
    with pytest.raises(avgk.OptionError, match=r"without k\. Select with a list, .*isel\(k=\[0\]\)"):
        getattr(plot, name)(result.isel(k=0))
    assert getattr(plot, name)(result.isel(k=[0])).get_xlabel()


@pytest.mark.parametrize("k", ["much", None, [1, 2]])
def test_set_sizes__of_what_is_no_budget_are_refused(result, k):
    draw = plot.set_size_distribution if k is None else plot.set_sizes
    with pytest.raises(avgk.OptionError, match="one of the result's budgets"):
        draw(result, k=[None] if k is None else k)
