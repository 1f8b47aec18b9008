"""Sentences that only pages have."""

from __future__ import annotations

import re

import numpy as np
import pytest

import avgk_dask as avgk
from avgk_dask.report import render_report, text
from avgk_dask.report import text as answers
from avgk_dask.testing import simulate


@pytest.fixture(scope="module")
def toy():
    return simulate(1_000, 40)


def test_answer__of_a_fractional_budget_stands_beside_the_nearest_top_k_sets(toy):
    result, curve = (avgk.evaluate(toy.scores, toy.labels, k=k, straddle=False) for k in ([2.5], range(1, 6)))
    said = answers.answer(result, curve)
    average = f"{100 * result.average_k_error.item():.2f}"
    two, three = (f"{100 * error:.2f}" for error in curve.top_k_error.values[1:3])
    assert re.fullmatch(
        rf"With 2\.5 labels per sample on average, average-2\.5 misses {average} ±\d\.\d\d % of the labels\. "
        rf"For comparison, top-2 misses {two} ±\d\.\d\d % and top-3 misses {three} ±\d\.\d\d %\.",
        said,
    )
    assert answers.answer(result).endswith("Top-k sets cannot have 2.5 labels.")


def test_question__is_that_of_the_budgets_and_labels(toy):
    one, more, none = (
        avgk.evaluate(toy.scores, labels, k=k, straddle=False)
        for labels, k in ((toy.labels, [1]), (toy.labels, [1, 2]), (None, [1]))
    )
    assert answers.question(one).startswith("With 1 label per sample")
    assert answers.question(more).startswith("With the same number of labels per sample")
    assert answers.question(none).startswith("How many labels does each sample get")


def test_zero_sentence__bounds_the_error():
    """If the true error is 14 %, 20 samples show no error one time in 20: 0.86 to the power of 20 is 0.05."""
    result = avgk.evaluate(np.eye(20) * 0.9 + 0.005, np.arange(20), k=[1, 2])
    assert "With 0 errors in 20 samples, the true error may be up to 14 % (95 % confidence)" in text.zero_sentence(
        result
    )
    assert text.zero_sentence(avgk.evaluate(np.eye(3), [1, 2, 0], k=[1])) == ""
    assert text.zero_sentence(avgk.evaluate(np.eye(3), [1, 2, 0], k=[3])) == ""  # all classes


def test_soft_sentence__says_that_errors_are_expected_ones():
    toy = simulate(90, example=2, dtype="float64")
    result = avgk.evaluate(toy.scores, toy.eta, k=[1, 2])
    assert "no standard errors" in text.soft_sentence(result)
    page = render_report(result)
    assert "bands hold" not in page
    assert text.soft_sentence(avgk.evaluate(toy.scores, toy.labels, k=1)) == ""


def test_report__shows_results_whose_attributes_are_no_numbers():
    result = avgk.evaluate(np.eye(3), np.arange(3), k=[1, 2])
    assert "<!doctype html>" in render_report(result.assign_attrs(note=float("nan"), other=float("inf")))
