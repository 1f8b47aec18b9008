"""Results in words."""

from __future__ import annotations

import re

import numpy as np
import pytest
import xarray as xr

import avgk_dask as avgk
from avgk_dask.report import print_coverage, print_info, print_table, render_report, text, write_report
from avgk_dask.results import datasets
from avgk_dask.results import datasets as json_text
from avgk_dask.testing import simulate


def test_ambiguity_sentence__names_the_budgets_and_the_bound():
    toy = simulate(900, example=2, dtype="float64")
    assert text.ambiguity_sentence(avgk.evaluate(toy.scores, toy.eta, k=[1, 2, 3])) == (
        "Why: some samples are harder than others. At k = 1 and 2, the next label of a hard sample (rank k + 1) can score higher "
        "than the last label of an easy one (rank k), so moving a label from the easy to the hard sample can avoid errors. If "
        "the scores were the true probabilities, this would lower the error by at least 3.7 points at k = 2."
    )


def test_ambiguity_sentence__says_when_top_k_is_optimal():
    same = np.tile([0.5, 0.3, 0.2], (4, 1))
    assert text.ambiguity_sentence(avgk.evaluate(same, same, k=[1, 2])) == (
        "At these budgets, no sample's score of rank k + 1 exceeds another sample's score of rank k. If the scores are the true "
        "probabilities, top-k is optimal."
    )
    assert text.ambiguity_sentence(avgk.evaluate(same, same, k=1, straddle=False)) == ""
    assert text.ambiguity_sentence(avgk.evaluate(same, same, k=1.5)) == ""


def test_ambiguity_sentence__gives_no_bound_for_logits():
    scores = np.array([[5.0, -1, -2], [2, 1.9, 1.8]])
    sentence = text.ambiguity_sentence(avgk.evaluate(scores, None, k=[1, 2]))
    assert sentence.startswith("Some samples are harder than others. At k = 2,")  # no "Why:", because no gain is known
    assert sentence.endswith("can avoid errors.")


def test_headline__says_why_there_is_nothing_to_compare():
    scores, labels = np.array([[2.0, 1, 1], [2, 1, 1]]), np.array([1, 2])
    assert text.headline(avgk.evaluate(scores, None, k=1)).startswith("Errors need labels")
    assert "Top-k needs an integer k" in text.headline(avgk.evaluate(scores, labels, k=1.5))
    assert "none to avoid" in text.headline(avgk.evaluate(scores, [0, 0], k=1))
    worse = avgk.evaluate(np.array([[9.0, 8, 7], [1, 0, 0]]), np.array([0, 1]), k=1)
    assert text.headline(worse) == "Average-k makes as many errors as top-k at this budget."
    assert "softmax" in text.sentences(worse)[1]


def test_headline__is_about_the_largest_relative_gain():
    toy = simulate(900, example=2, dtype="float64")
    result = avgk.evaluate(toy.scores, toy.eta, k=[1, 2, 3])
    assert text.headline(result) == (
        "Returning 2 labels per sample on average (average-2) makes 100.0 % fewer errors than returning exactly 2 (top-2): "
        "0 instead of 100 in 900 samples (0.00 % instead of 11.11 %)."
    )
    assert text.size_sentence(result) == (
        "At k = 2, 33 % of the sets have fewer than 2 labels and 33 % have more; the largest has 3."
    )


def test_headline__speaks_of_a_gain_that_is_clear():
    """Three errors against none are noise; a hundred against fifty are not."""
    toy = simulate(800, 20)
    result = avgk.evaluate(toy.scores, toy.labels, k=[1, 2, 18])
    assert result.relative_gain.values[2] == 1
    assert 0 < result.top_k_error.values[2] * 800 < 6
    pattern = r"Returning 2 labels .* \(average-2\) makes \d+\.\d \N{PLUS-MINUS SIGN}\d+\.\d % fewer errors than returning exactly 2"
    assert re.match(pattern, text.headline(result))
    few = text.headline(result.isel(k=[2]))
    assert re.search(
        r"no clear difference .* at this budget: at k = 18, average-k makes 0 errors instead of \d in 800 samples "
        r"\(.*\), 0\.\d+ \N{PLUS-MINUS SIGN}0\.\d+ points fewer\.",
        few,
    )
    assert text.stderr_sentence(result).endswith("to expect with other samples of the same kind.")
    clustered = avgk.evaluate(toy.scores, toy.labels, k=2, clusters=np.arange(800) // 8)
    assert "with another 100 clusters of samples" in text.stderr_sentence(clustered)
    easy, hard = np.tile([0.9, 0.8, 0.1], (200, 1)), np.tile([0.4, 0.3, 0.2], (200, 1))
    worse = avgk.evaluate(np.concatenate([easy, hard]), np.where(np.arange(400) % 10, 0, 2), k=1)
    more = "(average-1) makes 450.0 \N{PLUS-MINUS SIGN}78.7 % more errors than returning exactly 1 (top-1)"
    assert more in text.headline(worse)
    both = avgk.evaluate(np.concatenate([easy, hard]), np.where(np.arange(400) % 10, 0, 2), k=[1, 3])
    assert text.headline(both).endswith(" No budget has clearly fewer errors.")


def test_headline__is_about_the_surest_gain_and_lists_losses():
    """A surer gain precedes a larger one, a gain that depends on ties comes last, and losses are listed."""
    toy = simulate(2_000, 20)
    result = avgk.evaluate(toy.scores, toy.labels, k=[1, 2, 3, 4])
    changed = result.copy(deep=True)
    changed["relative_gain"][:], changed["relative_gain_stderr"][:] = [0.2, 0.5, 0.4, 0.3], [0.01, 0.2, 0.01, 0.01]
    changed["adaptive_gain"][:], changed["adaptive_gain_stderr"][:] = [-0.02, 0.05, 0.04, 0.03], [0.001] * 4
    assert avgk.plot.best_budget(changed) == 3
    assert text.headline(changed).endswith(" At k = 1, average-k makes clearly more errors.")
    changed["n_kept"][2], changed["n_ties"][2] = 3_000, 9_000
    assert avgk.plot.best_budget(changed) == 4


def test_tie_sentence__gives_the_range_of_the_error():
    scores = np.array([[2, 1, 1], [2, 1, 1]])
    assert text.tie_sentence(avgk.evaluate(scores, np.array([1, 2]), k=2)) == (
        "The error depends on ties: at k = 2, 4 scores equal the threshold and 2 of them are kept. Depending on which, the "
        "average-k error is between 0.00 % and 100.00 % (50.00 % on average)."
    )
    assert text.tie_sentence(avgk.evaluate(scores, np.array([1, 2]), k=1)) == ""
    assert text.tie_sentence(avgk.evaluate(scores, None, k=2)) == ""


def test_crowd_sentence__warns_of_thresholds_that_many_scores_share():
    """Of 16 votes of ten trees 11 are 0, and of the 8 labels in the sets for k = 2, three are an arbitrary choice among them."""
    votes = np.array([[10, 0, 0, 0], [7, 3, 0, 0], [10, 0, 0, 0], [10, 0, 0, 0]]) / 10
    labels = np.array([0, 1, 2, 3])
    result = avgk.evaluate(votes, labels, k=[1, 2, 3])
    assert (result.n_ties.values.tolist(), result.n_kept.values.tolist()) == ([1, 11, 11], [0, 3, 7])
    choice = "of the labels in the sets are an arbitrary choice among them"
    first = f'{choice} (the first ones in row-major order), so gains say little there. Use ties="spread" (--ties spread) or a smaller k.'
    assert text.crowd_sentence(result) == (
        f"At k = 2 and 3, many scores equal the threshold (at k = 2, 11 scores are 0): up to 38 % {first}"
    )
    assert text.crowd_sentence(result) in text.sentences(result)
    assert (
        text.crowd_sentence(result.isel(k=[1]))
        == f"At k = 2, many scores equal the threshold (11 scores are 0): 38 % {first}"
    )
    spread = avgk.evaluate(votes, labels, k=2, ties="spread")
    assert text.crowd_sentence(spread).endswith(
        f"38 % {choice} (spread over the samples), so gains say little there. Use a smaller k."
    )
    assert text.crowd_sentence(avgk.evaluate(np.eye(4)[[0, 0, 0, 0]], labels, k=1)) == ""
    for k in (1, 4):  # all ties fit, or none is needed
        assert text.crowd_sentence(avgk.evaluate(votes, labels, k=k)) == ""


def test_print_table__shows_what_matters_in_colour():
    votes = np.array([[10, 0, 0, 0], [7, 3, 0, 0]] * 200) / 10
    result = avgk.evaluate(votes, np.array([0, 1] * 200), k=[1, 1.5, 3])
    lines = print_table(result, colour=True).splitlines()
    assert "\x1b[1mgain\x1b[0m" in lines[0]
    plain = [re.sub(r"\x1b\[\d*m", "", line) for line in lines]
    assert plain == print_table(result).splitlines()
    assert all(line.count("\x1b[0m") == len(re.findall(r"\x1b\[[1-9]\d*m", line)) for line in lines)


def test_texts__never_show_a_negative_zero():
    scores = np.full((4, 10), 0.1)
    assert "-0" not in print_table(avgk.evaluate(scores, scores, k=[10, 5]))
    result = avgk.evaluate(scores, scores, k=[5])
    for name in ("relative_gain", "average_k_error", "top_k_error", "adaptive_gain"):
        result[name][:] = -1e-9
    result["support_low"][:] = -0.0
    page = re.sub(r"<(svg|style).*?</\1>|<[^>]*>", " ", render_report(result), flags=re.S)
    for shown in (print_table(result), page):
        assert "0.00 %" in shown
        assert not re.search(r"(?<!\w)[-\N{MINUS SIGN}]0(\.0+)?(?![\d.])", shown)


def test_print_info__never_shows_a_negative_zero(tmp_path):
    with avgk.ScoreWriter(tmp_path / "s.zarr", n_classes=2) as writer:
        writer.append(np.array([[-0.0, 0.5]]))
    assert "(0 to 0.5 in" in print_info(avgk.info(tmp_path / "s.zarr"))


@pytest.mark.parametrize("use", [print_table, render_report, lambda result: write_report(result, "never.html")])
def test_reports__of_what_is_no_single_result_say_what_to_do(use, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = avgk.evaluate(np.eye(3), np.arange(3), k=[1, 2])
    for other in (5, None, "report.html", result.threshold):
        with pytest.raises(avgk.DtypeError, match=r"result must be a Dataset .*; got .* as the first argument"):
            use(other)
    for other in (xr.Dataset(), avgk.error_curve(np.eye(3), np.arange(3)), avgk.threshold(np.eye(3), [1])):
        with pytest.raises(avgk.OptionError, match=r"result must have \w+; got .*\. Pass the result of evaluate"):
            use(other)
    with pytest.raises(avgk.OptionError, match="several along model"):
        use(xr.concat([result, result], "model"))
    with pytest.raises(avgk.OptionError, match=r"without k\. Select with a list"):
        use(result.isel(k=0))
    with pytest.raises(avgk.OptionError, match="attributes that evaluate gave it; got none called n_samples"):
        use(result.drop_attrs())
    assert not list(tmp_path.iterdir())


def test_write_report__with_swapped_arguments_or_nowhere_to_write(tmp_path):
    result = avgk.evaluate(np.eye(3), np.arange(3), k=1)
    with pytest.raises(avgk.DtypeError, match=r"got str\. Pass the result as the first argument"):
        write_report("x.html", result)
    for path in (None, 5, result):
        with pytest.raises(avgk.DtypeError, match=r"path must be .* Pass the result, then its path"):
            write_report(result, path)
    with pytest.raises(avgk.WriteError, match=r"could not write .*No such file"):
        write_report(result, tmp_path / "nowhere" / "x.html")


def test_json__of_what_is_no_result_says_what_to_do():
    result = avgk.evaluate(np.eye(3), k=1)
    for other in (5, None, "x", result.threshold):
        for use in (json_text.to_json, datasets.fingerprint):
            with pytest.raises(avgk.DtypeError, match="result must be a Dataset"):
                use(other)
    with pytest.raises(avgk.OptionError, match="only numbers and text"):
        json_text.to_json(result.assign_attrs(made=object()))
    for other in (5, None, "", "[1]", "{}", '{"variables": {"a": 1}, "coords": [], "attrs": {}}'):
        with pytest.raises(avgk.OptionError, match="text must be the output of to_json"):
            json_text.from_json(other)
    both = xr.concat([result, result], "model")
    assert json_text.from_json(json_text.to_json(both)).identical(both)


def test_coverage__fits_80_columns_and_has_the_expected_range():
    rng = np.random.default_rng(0)
    scores = rng.dirichlet(np.full(8, 0.3), 400)
    labels = (scores.cumsum(1) < rng.random((400, 1))).sum(1).clip(0, 7)
    predictor = avgk.conformal.calibrate(scores[:200], labels[:200])
    good = print_coverage(predictor.evaluate(scores[200:], labels[200:]), width=80)
    said = " ".join(good.split())
    assert re.search(
        r"of 200 labels are inside their sets, as expected \(1\d\d to 1\d\d with 95 % probability\)\.", said
    )
    assert max(map(len, good.splitlines())) <= 80
    bad = print_coverage(predictor.evaluate(scores[200:], np.roll(labels[200:], 1)))
    assert "fewer than expected" in bad
    assert "Coverage needs labels" in " ".join(print_coverage(predictor.evaluate(scores)).split())
    classes = avgk.conformal.calibrate(scores, labels, by="class").evaluate(scores, labels, levels=0.9)
    assert "each threshold should cover at least" in " ".join(print_coverage(classes).split())
