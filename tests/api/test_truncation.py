"""Truncated stores: every result is that of the whole matrix, or refused with the largest budget that is certain."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import avgk_dask as avgk
from avgk_dask.testing import Simulation


def write(path, scores, labels, top_m, **options):
    with avgk.ScoreWriter(path, scores.shape[1], top_m=top_m, **options) as writer:
        writer.append(scores, labels)
    return path


def check_advice(refusal, path, scores, labels, k, **options):
    """A refusal names budgets that are certain, if there are any."""
    found = re.search(r"k must be (at most|below) (\S+) to be certain", refusal)
    if found is None:
        assert "and none is from" in refusal
        with pytest.raises(avgk.BudgetError):
            avgk.evaluate(path, k=Fraction(1, 2 * len(scores)), **options)
        return
    most = int(found[2]) if found[1] == "at most" else Fraction(found[2]) * Fraction(999, 1000)
    assert 0 < most < k
    again = avgk.evaluate(path, k=most, **options)
    assert again.equals(avgk.evaluate(scores, labels, most, **options))


@settings(max_examples=40)
@given(data=st.data())
def test_evaluate__is_that_of_the_whole_matrix_or_refused(tmp_path_factory, data):
    n, c = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 9))
    m = data.draw(st.integers(1, c))
    dtype = data.draw(st.sampled_from(["f4", "f8", "u1", "i4"]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    levels = data.draw(st.sampled_from([3, 20, 10_000]))
    scores = rng.integers(0, levels, (n, c)).astype(dtype)
    labels = rng.integers(-1, c, n)
    path = write(tmp_path_factory.mktemp("t") / "a.zarr", scores, labels, m, chunk_rows=7)
    straddle = data.draw(st.booleans())
    for k in [*range(1, c + 1), 0.5, 1.5]:
        if k > c:
            continue
        expected = avgk.evaluate(scores, labels, k, straddle=straddle)
        try:
            result = avgk.evaluate(path, k=k, straddle=straddle)
        except avgk.BudgetError as error:
            check_advice(str(error), path, scores, labels, k, straddle=straddle)
            continue
        assert result.equals(expected)
        assert result.attrs["n_classes"] == c
        found = avgk.threshold(path, k)
        assert found == avgk.threshold(scores, k)


def test_evaluate__of_realistic_scores_needs_few_of_them(tmp_path):
    scores, labels, _ = Simulation(3000, 200).rows(0, 3000)
    path = write(tmp_path / "a.zarr", scores, labels, 60, chunk_rows=500)
    expected = avgk.evaluate(scores, labels, range(1, 6))
    for given_ in (path, avgk.open_scores(path)):
        result = avgk.evaluate(given_, k=range(1, 6))
        assert result.equals(expected)
        assert result.attrs["n_classes"] == 200
        assert result.attrs["store"] == str(path)
    assert avgk.threshold(path, [1, 2]).equals(avgk.threshold(scores, [1, 2]))
    with pytest.raises(avgk.BudgetError, match=r"k must be at most \d+ to be certain .* keeps 60 of 200"):
        avgk.evaluate(path, k=100)
    assert avgk.info(path)["truncated"] == "the 60 largest of 200 scores of each row"


def test_truncated__is_refused_where_whole_rows_are_needed(tmp_path):
    path = write(tmp_path / "a.zarr", np.random.default_rng(0).random((20, 6)), np.zeros(20, int), 3)
    for use in (avgk.error_curve, lambda p: avgk.average_k_sets(p, 1), lambda p: avgk.straddle_strength(p, 1)):
        with pytest.raises(avgk.ScoresError, match="truncated"):
            use(path)
    with pytest.raises(avgk.OptionError, match="ties"):
        avgk.evaluate(path, k=1, ties="spread")
    with pytest.raises(avgk.LabelsError, match="class numbers"):
        avgk.evaluate(path, np.full((20, 6), 1 / 6), 1)
    with pytest.raises(avgk.BudgetError, match="C = 6"):
        avgk.evaluate(path, k=7)
    with pytest.raises(avgk.LabelsError, match=r"0\.\.5"):
        avgk.evaluate(path, np.full(20, 9), 1)


@pytest.mark.parametrize("n_classes", [-5, 0, 2])
def test_truncated__with_an_impossible_number_of_classes_blames_that(tmp_path, n_classes):
    path = write(tmp_path / "a.zarr", np.random.default_rng(0).random((9, 6)), None, 3)
    group = zarr.open_group(path, mode="r+", use_consolidated=False)
    group.attrs["n_classes"] = n_classes
    zarr.consolidate_metadata(path)
    for run in (avgk.evaluate, avgk.threshold):
        with pytest.raises(avgk.AvgkError, match="classes") as refused:
            run(path, k=1)
        assert "Pass numbers above 0" not in str(refused.value)


@pytest.mark.parametrize("straddle", [True, False])
def test_truncated__of_equal_scores_says_that_no_budget_is_certain(tmp_path, straddle):
    path = write(tmp_path / "a.zarr", np.ones((9, 6)), None, 3)
    with pytest.raises(avgk.BudgetError, match=r"k must be certain; got 1, and none is from .* keeps 3 of 6"):
        avgk.evaluate(path, k=1, straddle=straddle)
