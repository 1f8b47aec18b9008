"""The slider of a page, driven with the keyboard, against ``evaluate``; the same page without script, and printed."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import avgk_dask as avgk
from avgk_dask.report import render_report, write_report
from avgk_dask.report.page import make_slider
from avgk_dask.report.tables import size_quartiles
from avgk_dask.testing import simulate


@pytest.fixture(scope="module")
def toy():
    return simulate(1_500, 120)


@pytest.fixture(scope="module")
def result(toy):
    return avgk.evaluate(toy.scores, toy.labels, k=[1, 2.5, 5])


@pytest.fixture(scope="module")
def curve(toy):
    return avgk.evaluate(toy.scores, toy.labels, k=range(1, 101), straddle=False)


def shown_numbers(page):
    """Return what the slider shows, by name."""
    names = page.locator("#any-budget dt").all_inner_texts()
    return dict(zip(names, page.locator("#any-budget dd").all_inner_texts(), strict=True))


def expected_numbers(one):
    """Return what ``evaluate`` gave for one budget, in words of the slider, formatted here and not by the package."""
    errors = {
        name: f"{100 * float(one[f'{rule}_k_error']):.2f} ±{100 * float(one[f'{rule}_k_error_stderr']):.2f} %"
        for name, rule in (("top-k error", "top"), ("average-k error", "average"))
    }
    gain = f"{100 * float(one.relative_gain):+.1f} ±{100 * float(one.relative_gain_stderr):.1f} %"
    sizes = "/".join(map(str, size_quartiles(one.set_size_count.values)))
    return {**errors, "gain": gain, "threshold": f"{float(one.threshold):.6g}", "sizes 25/50/75 %": sizes}


def test_slider__shows_with_the_keyboard_what_evaluate_gives(toy, result, curve, opened):
    page = opened(lambda path: write_report(result, path, curve=curve))
    slider = page.get_by_label("K, labels per sample (on average)")
    slider.focus()
    marks = []
    for keys, k in ((["Home"], 1), (["ArrowRight"] * 6, 7), (["End", "ArrowLeft"], 99)):
        for key in keys:
            page.keyboard.press(key)
        one = avgk.evaluate(toy.scores, toy.labels, k=[k], straddle=False).isel(k=0)
        assert shown_numbers(page) == expected_numbers(one)
        assert slider.get_attribute("aria-valuetext") == f"k = {k}"
        assert page.get_by_role("status").filter(has_text="misses").inner_text().startswith(f"k = {k}: top-{k} misses")
        marks.append(page.locator(".mark-average").bounding_box())
    left, middle, right = marks
    assert left["x"] < middle["x"] < right["x"]
    assert left["y"] < middle["y"] < right["y"]  # errors fall with K
    picture = page.locator("#any-budget figure svg").bounding_box()
    for mark in marks:
        assert picture["x"] < mark["x"] < picture["x"] + picture["width"]
        assert picture["y"] < mark["y"] < picture["y"] + picture["height"]


def test_slider__its_mark_lies_on_the_curve(result, curve, opened):
    """The mark of a budget is where matplotlib drew the point of the line."""
    page = opened(lambda path: write_report(result, path, curve=curve.isel(k=slice(0, 20))))
    slider = page.get_by_label("K, labels per sample (on average)")
    dots = page.locator("#any-budget figure svg use").evaluate_all(
        "all => all.map(e => [e.x.baseVal.value, e.y.baseVal.value])"
    )
    slider.focus()
    for key in ("Home", "End"):
        page.keyboard.press(key)
        for rule in ("top", "average"):
            x, y = (float(page.locator(f".mark-{rule}").get_attribute(name)) for name in ("cx", "cy"))
            assert min(np.hypot(x - a, y - b) for a, b in dots) < 0.1


def test_slider__is_not_there_without_script(result, curve, opened):
    page = opened(lambda path: write_report(result, path, curve=curve), java_script_enabled=False)
    assert not page.locator("#any-budget").is_visible()
    assert not page.get_by_role("link", name="At any k").is_visible()
    assert page.get_by_role("slider").count() == 0
    for part in ("#errors", "#results", "#sizes", "#why", "#numbers", "#provenance", ".headline", "nav"):
        assert page.locator(part).first.is_visible()
    assert page.locator("#results tbody tr").count() == 3  # the budgets asked for


def test_slider__moves_over_the_budgets_of_the_result_where_there_is_no_curve(toy, opened):
    result = avgk.evaluate(toy.scores, toy.labels, k=[50, 1, 2.5, 9], straddle=False)
    page = opened(lambda path: write_report(result, path))
    slider = page.get_by_label("K, labels per sample (on average)")
    slider.focus()
    page.keyboard.press("Home")
    seen = [page.locator("#any-budget output").inner_text()]
    for _ in range(3):
        page.keyboard.press("ArrowRight")
        seen.append(page.locator("#any-budget output").inner_text())
    assert seen == ["k = 1", "k = 9", "k = 50", "k = 50"]


@pytest.mark.slow
def test_slider__needs_two_integer_budgets(toy):
    for k in ([3], [1.5, 2.5], [2, 2.5]):
        result = avgk.evaluate(toy.scores, toy.labels, k=k, straddle=False)
        assert make_slider(result, 2) is None
        assert '<section id="any-budget"' not in render_report(result)


def test_slider__without_labels_shows_thresholds_and_sizes(toy, opened):
    result = avgk.evaluate(toy.scores, None, k=[1, 2], straddle=False)
    page = opened(lambda path: write_report(result, path))
    assert list(shown_numbers(page)) == ["threshold", "sizes 25/50/75 %"]
    assert page.locator("#results thead").inner_text().split() == ["k", "threshold", "quartiles", "ties", "kept"]


@pytest.mark.slow
def test_slider__its_data_cannot_end_the_script(result, curve):
    page = render_report(result, curve=curve)
    data = re.search(r'id="slider-data">(.*?)</script>', page, re.S)[1]
    assert not set("<>&\u2028") & set(data)
    assert len(json.loads(data)["sentences"]) == 100


def test_slider__refuses_the_curve_of_other_scores(result):
    other = avgk.evaluate(np.eye(3), np.arange(3), k=[1, 2])
    with pytest.raises(avgk.OptionError, match="curve must be of the same scores"):
        render_report(result, curve=other)
    with pytest.raises(avgk.DtypeError, match="must be a Dataset"):
        render_report(result, curve=5)


def test_report__prints_what_is_folded_and_no_slider(toy, opened):
    result = avgk.evaluate(toy.scores, toy.labels, k=range(1, 31), straddle=False)
    page = opened(lambda path: write_report(result, path))
    folded = page.locator("#results details tbody tr")
    assert folded.count() == 30
    assert not folded.last.is_visible()
    page.emulate_media(media="print")
    assert folded.last.is_visible()
    assert not page.locator("#any-budget").is_visible()
    assert not page.locator("#results .screen").is_visible()  # once is enough
