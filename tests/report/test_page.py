"""The report as a person meets it: in a browser, light, dark and narrow, with hostile names; and as text."""

from __future__ import annotations

import base64
import hashlib
import re

import numpy as np
import pytest

import avgk_dask as avgk
from avgk_dask.report import render_report, write_report
from avgk_dask.results import datasets
from avgk_dask.results import datasets as json_text
from avgk_dask.testing import simulate

HOSTILE = (
    "s3://bucket/<script>document.title='hacked'</script>\"'><img src=x onerror=alert(1)>"
    "\u202egnp.exe\u202c&lt;{{ 7 * 7 }}" + "x" * 10_000
)
SECTIONS = [
    "Errors and gains", "At any k, from 1 to 5", "Results", "Set sizes", "When average-k helps, and why", "Effect of ties",
    "Numbers", "Provenance",
]  # fmt: skip


@pytest.fixture(scope="module")
def result():
    toy = simulate(2_000, 30, dtype="float16", levels=50)
    result = avgk.evaluate(toy.scores, toy.labels, k=[1, 2, 2.5, 5])
    result.attrs |= {"store": HOSTILE, "<b>model</b>": "<i>mine</i>"}
    return result


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        pytest.param("light", 1200, id="light"),
        pytest.param("dark", 1200, id="dark", marks=pytest.mark.slow),
        pytest.param("light", 360, id="narrow", marks=pytest.mark.slow),
    ],
)
def test_report__in_a_browser(result, browser, tmp_path, scheme, width):
    path = tmp_path / "report.html"
    write_report(result, path)
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    page = context.new_page()
    complaints, requests = [], []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    assert (complaints, requests) == ([], [path.as_uri()])
    assert page.title() == "Average-k evaluation"
    assert page.locator("img, iframe, link, object").count() == 0
    assert page.locator("script").count() == 2  # its own, and what that reads

    pictures = page.locator("figure svg")
    assert pictures.count() == 7
    for i in range(7):
        box = pictures.nth(i).bounding_box()
        assert box["width"] > 250
        assert box["height"] > 150
        assert box["x"] + box["width"] <= width  # nothing sticks out, and the page does not scroll sideways
        assert len(set(pictures.nth(i).screenshot())) > 50  # something is drawn
    assert page.evaluate("document.documentElement.scrollWidth") <= width

    assert page.locator(".store").inner_text().startswith("s3://bucket/<script>")
    assert r"\u202egnp.exe\u202c" in page.locator(".store").inner_text()  # nothing is reversed
    facts = page.locator(".facts").inner_text()
    assert HOSTILE[:80] in facts
    assert "{{ 7 * 7 }}" in facts
    assert "<i>mine</i>" in facts
    assert [page.locator("h2").nth(i).inner_text() for i in range(8)] == SECTIONS
    ink, paper = (
        page.evaluate(f"getComputedStyle(document.body).{name}.match(/\\d+/g).slice(0, 3).reduce((a, b) => +a + +b)")
        for name in ("color", "backgroundColor")
    )
    assert (ink > 500 > paper) if scheme == "dark" else (ink < 300 < paper)
    label = page.locator("figure svg text").first.evaluate("e => getComputedStyle(e).fill")
    assert label == page.evaluate("getComputedStyle(document.body).color")  # text of pictures follows the page
    context.close()


@pytest.mark.slow
def test_report__escapes_all_that_users_name(result):
    page = render_report(result)
    assert page.count("<script") == 2
    assert "<img" not in page
    assert "onerror=alert(1)&gt;" in page
    assert "&lt;i&gt;mine&lt;/i&gt;" in page


@pytest.mark.slow
def test_report__asks_for_nothing_outside_itself():
    toy = simulate(300, 20)
    page = render_report(avgk.evaluate(toy.scores, toy.labels, k=[1, 2]))
    assert "http:" not in page
    assert "https:" not in page
    assert not re.search(r"url\((?!#)", page)
    assert "default-src 'none'" in page


@pytest.mark.slow
def test_report__tells_where_the_result_is_from():
    toy = simulate(300, 20)
    result = avgk.evaluate(toy.scores, toy.labels, k=2)
    page = render_report(result, seconds=1.5, written="2026-01-02 03:04:05 UTC")
    for fact in (datasets.fingerprint(result), "1.50 s", "2026-01-02 03:04:05 UTC", result.attrs["versions"], "300"):
        assert fact in page
    again = avgk.evaluate(toy.scores, toy.labels, k=2)
    assert render_report(again, seconds=1.5, written="2026-01-02 03:04:05 UTC") == page


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("labels", "k", "straddle", "n_pictures"),
    [
        (True, [1, 2, 3], True, 7),
        (True, [1, 2, 3], False, 5),
        (False, [1, 2, 3], True, 4),
        (False, [1.5], False, 2),
        (True, [0.01], True, 3),
        (True, [2], True, 5),
        (True, range(1, 41), True, 7),
    ],
)
def test_report__shows_what_there_is(labels, k, straddle, n_pictures):
    toy = simulate(200, 40)
    result = avgk.evaluate(toy.scores, toy.labels if labels else None, k=k, straddle=straddle)
    page = render_report(result)
    assert page.count("<figure>") == n_pictures
    assert page.count("<svg") == n_pictures
    assert ("Errors need labels" in page) == (not labels)
    assert ("When average-k helps" in page) == straddle
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    contents = re.findall(r'<a href="#([^"]*)"', page)
    assert set(contents) <= set(ids)
    assert contents == re.findall(r'<section id="([^"]*)"', page)


def test_report__allows_its_own_script_by_its_hash_alone():
    page = render_report(avgk.evaluate(np.eye(3), np.arange(3), k=[1, 2]))
    script = re.search(r"<script>(.*?)</script>", page, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}'; style-src" in page
    assert not re.search(r"<[^<>]+\son\w+=", page.replace(script, ""))  # no handlers in elements
    for forbidden in ("eval(", "innerHTML", "fetch(", "XMLHttpRequest", "import("):
        assert forbidden not in script


@pytest.mark.slow
def test_report__of_infinite_tied_and_integer_scores():
    scores = np.zeros((6, 3), np.float32)
    scores[0, 0], scores[1, 1] = np.inf, -np.inf
    assert "Effect of ties" in render_report(avgk.evaluate(scores, [0, 1, 2, 0, 1, 2], k=[1, 2]))
    assert "Provenance" in render_report(avgk.evaluate(np.arange(12).reshape(4, 3), [0, 1, 2, 0], k=[1, 3]))
    assert "Provenance" in render_report(avgk.evaluate(np.ones((1, 1)), [0], k=1))


@pytest.mark.parametrize("path", ["https://host/report.html", 3])
def test_write_report__refuses_a_path_before_it_draws(monkeypatch, path):
    monkeypatch.setattr(
        "avgk_dask.report.page.render_report", lambda *args, **more: pytest.fail("the page was rendered")
    )
    with pytest.raises(avgk.AvgkError, match="path must be "):
        write_report(avgk.evaluate(np.eye(3), np.arange(3), k=[1, 2]), path)


def test_fingerprint__is_that_of_the_numbers_only():
    toy = simulate(300, 20)
    result = avgk.evaluate(toy.scores, toy.labels, k=[1, 2])
    other = result.copy(deep=True)
    other.attrs["store"] = "elsewhere"
    assert datasets.fingerprint(other) == datasets.fingerprint(result)
    assert datasets.fingerprint(json_text.from_json(json_text.to_json(result))) == datasets.fingerprint(result)
    other["n_above"][0] += 1
    assert datasets.fingerprint(other) != datasets.fingerprint(result)


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_fingerprint__tells_large_integers_apart(dtype):
    scores = np.array([[2**60 + 9, 2**60 + 1]], dtype)
    one, other = (avgk.evaluate(s, k=2, straddle=False) for s in (scores, scores + np.array([0, 1], dtype)))
    assert int(one.threshold[0]) + 1 == int(other.threshold[0])
    assert datasets.fingerprint(one) != datasets.fingerprint(other)
    assert str(2**60 + 1) in render_report(one)
