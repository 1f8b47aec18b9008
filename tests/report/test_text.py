"""What a result says in words."""

from __future__ import annotations

import numpy as np

import avgk_dask as avgk
from avgk_dask.report import text
from avgk_dask.testing import simulate


def test_ambiguity_sentence__names_the_budgets_and_the_bound():
    toy = simulate(900, example=2, dtype="float64")
    said = text.ambiguity_sentence(avgk.evaluate(toy.scores, toy.eta, k=[1, 2, 3]))
    assert said == (
        "Ranks k and k + 1 overlap at k = 1, 2, so that adapting can pay: for true probabilities the error would fall "
        "by at least 3.7 points at k = 2."
    )


def test_ambiguity_sentence__says_when_top_k_is_optimal():
    same = np.tile([0.5, 0.3, 0.2], (4, 1))
    said = text.ambiguity_sentence(avgk.evaluate(same, same, k=[1, 2]))
    assert said == "Ranks k and k + 1 do not overlap at these budgets: for true probabilities, top-k is then optimal."
    assert text.ambiguity_sentence(avgk.evaluate(same, same, k=1, straddle=False)) == ""
    assert text.ambiguity_sentence(avgk.evaluate(same, same, k=1.5)) == ""


def test_ambiguity_sentence__gives_no_bound_for_logits():
    scores = np.array([[5.0, -1, -2], [2, 1.9, 1.8]])
    said = text.ambiguity_sentence(avgk.evaluate(scores, None, k=[1, 2]))
    assert said == "Ranks k and k + 1 overlap at k = 2, so that adapting can pay."


def test_headline__knows_why_there_is_nothing_to_compare():
    scores, labels = np.array([[2.0, 1, 1], [2, 1, 1]]), np.array([1, 2])
    assert text.headline(avgk.evaluate(scores, None, k=1)).startswith("Without labels (or")
    assert "Top-k needs an integer k" in text.headline(avgk.evaluate(scores, labels, k=1.5))
    assert "none to avoid" in text.headline(avgk.evaluate(scores, [0, 0], k=1))
    worse = avgk.evaluate(np.array([[9.0, 8, 7], [1, 0, 0]]), np.array([0, 1]), k=1)
    assert text.headline(worse).endswith("Try a softmax of each row.")


def test_headline__is_about_the_largest_relative_gain():
    toy = simulate(900, example=2, dtype="float64")
    result = avgk.evaluate(toy.scores, toy.eta, k=[1, 2, 3])
    assert text.headline(result) == (
        "With 2 labels per sample on average, average-2 makes 100.0 % fewer errors than top-2: "
        "0.00 % instead of 11.11 % (0 instead of 100 of 900)."
    )
    assert text.size_sentence(result) == (
        "At k = 2, 33 % of the sets are smaller than 2 and 33 % larger; the largest has 3."
    )


def test_tie_sentence__tells_how_far_ties_matter():
    scores = np.array([[2, 1, 1], [2, 1, 1]])
    said = text.tie_sentence(avgk.evaluate(scores, np.array([1, 2]), k=2))
    assert said == (
        "Ties matter: at k = 2 the average-k error is 0.00 % to 100.00 %, depending on which 2 of the 4 ties are kept "
        "(50.00 % on average)."
    )
    assert text.tie_sentence(avgk.evaluate(scores, np.array([1, 2]), k=1)) == ""
    assert text.tie_sentence(avgk.evaluate(scores, None, k=2)) == ""
