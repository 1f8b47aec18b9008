"""Pages of breakdowns and of conformal sets, and the tables of pairs and utilities."""

from __future__ import annotations

import numpy as np
import pytest

import avgk_dask as avgk
from avgk_dask.testing import simulate

TOY = simulate(600, 8)
HOSTILE = ["<script>alert(1)</script>", "a" * 400, "$\\frac{", "line\nbreak", '"&amp;', "猫", "\u202eevil", ""]


def plain(page: str) -> str:
    """Return a page without what keeps words together."""
    return page.replace("\u00a0", " ").replace('<span class="whole">', "").replace("</span>", "")


@pytest.fixture(scope="module")
def broken():
    return avgk.breakdown(TOY.scores, TOY.labels, k=[1, 2], names=HOSTILE)


def test_breakdown_page__escapes_names_and_has_the_numbers(broken):
    pairs = avgk.set_pairs(TOY.scores, 2, names=HOSTILE)
    page = avgk.report.render_breakdown(broken, pairs=pairs, written="now")
    assert page.count("<script>") == 1  # its own
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert f"{100 * float(broken.macro_average_k_error[1]):.2f} %" in page
    assert page.count("<svg") == 1
    assert page == avgk.report.render_breakdown(broken, pairs=pairs, written="now")


def test_breakdown_page__shows_fifty_of_many():
    groups = np.arange(600) // 6
    page = avgk.report.render_breakdown(avgk.breakdown(TOY.scores, TOY.labels, 2, groups))
    assert "Errors by group" in page
    assert "The table has 50 of 100 with labels." in page


def test_breakdown_page__of_unlabelled_samples_says_so():
    by_group = avgk.breakdown(TOY.scores, np.full(600, -1), 2)
    page = avgk.report.render_breakdown(by_group)
    assert "No sample is labelled" in page
    assert "<svg" not in page


def test_pages__refuse_other_results(broken, tmp_path):
    other = avgk.evaluate(np.eye(3), np.arange(3), k=1)
    report = avgk.report
    for call in (report.write_breakdown, report.write_coverage):
        with pytest.raises(avgk.OptionError, match="must be the result of"):
            call(other, tmp_path / "page.html")
        with pytest.raises(avgk.DtypeError):
            call(3, tmp_path / "page.html")
    for call in (report.print_pairs, report.print_utilities):
        with pytest.raises(avgk.OptionError, match="must be the result of set_"):
            call(other)
    assert not list(tmp_path.iterdir())


@pytest.mark.sample(3)
@pytest.mark.parametrize("by", [None, "class", "group"])
@pytest.mark.parametrize("method", ["lac", "aps", "raps", "top_k"])
def test_coverage_page__has_target_and_coverage(by, method, tmp_path):
    groups = np.arange(300) % 3
    predictor = avgk.conformal.calibrate(
        TOY.scores[:300], TOY.labels[:300], 0.25, method, groups if by == "group" else by
    )
    result = predictor.evaluate(TOY.scores[300:], TOY.labels[300:], groups=groups if by == "group" else None)
    avgk.report.write_coverage(result, tmp_path / "page.html", seconds=1.5)
    page = plain((tmp_path / "page.html").read_text())
    assert f"{100 * float(result.coverage):.2f} % of the sets hold the label of their sample (target: 75.00 %)" in page
    assert ("By group" in page) == (by == "group")
    assert "By class" in page
    assert "1.50 s" in page
    for size in np.flatnonzero(result.set_size_count.values):
        assert f"<td>{size}</td><td>{int(result.set_size_count[size])}</td>" in page


def test_coverage_page__of_unlabelled_samples_has_sizes_only():
    result = avgk.conformal.calibrate(TOY.scores[:300], TOY.labels[:300], 0.25).evaluate(TOY.scores[300:])
    page = plain(avgk.report.render_coverage(result))
    assert "Sets for a coverage of 75.00 % have" in page
    assert "<h2>Coverage</h2>" not in page
    assert "By set size" in page


def test_print_utilities__says_where_each_is_highest():
    result = avgk.evaluate(TOY.scores, TOY.labels, k=[1, 2, 2.5])
    lines = avgk.report.print_utilities(avgk.set_utility(result, ["f", "accuracy"])).splitlines()
    assert lines[0].split() == ["k", "top-k", "F1", "avg-k", "F1", "top-k", "accuracy", "avg-k", "accuracy"]
    best = avgk.set_utility(result, "accuracy").average_k_utility
    assert f": {float(best.max()):.4f} for average-k at k = {float(best.k[int(best.values.argmax())]):g}" in lines[-1]
