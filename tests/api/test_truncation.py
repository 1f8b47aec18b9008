"""Truncated stores: every result is that of the whole matrix, or refused with the largest budget that is certain."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from fractions import Fraction

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import avgk_dask as avgk
from avgk_dask.testing import CountingStore, Simulation


def write(path, scores, labels, top_m, **options):
    with avgk.ScoreWriter(path, scores.shape[1], top_m=top_m, **options) as writer:
        writer.append(scores, labels)
    return path


def check_advice(refusal, path, scores, labels, k, **options):
    """A refusal names budgets that are certain, if there are any."""
    advice = re.search(r"k must be (at most|below) (\S+) for an exact result", refusal)
    if advice is None:
        assert "no k has an exact result from" in refusal
        with pytest.raises(avgk.BudgetError):
            avgk.evaluate(path, k=Fraction(1, 2 * len(scores)), **options)
        return
    most = int(advice[2]) if advice[1] == "at most" else Fraction(advice[2]) * Fraction(999, 1000)
    assert 0 < most < k
    again = avgk.evaluate(path, k=most, **options)
    assert again.equals(avgk.evaluate(scores, labels, most, **options))


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 3)
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
        threshold = avgk.threshold(path, k)
        assert threshold == avgk.threshold(scores, k)


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
    with pytest.raises(avgk.BudgetError, match=r"k must be at most \d+ for an exact result .* keeps 60 of 200"):
        avgk.evaluate(path, k=100)
    assert avgk.info(path)["truncated"] == "the 60 largest of 200 scores of each row"


#: What each function gives of a matrix or of the store of its largest scores; k is some budget, t some threshold.
FUNCTIONS = {
    "threshold": lambda s, labels, k, t: avgk.threshold(s, [k]),
    "threshold_at": lambda s, labels, k, t: avgk.threshold_at(s, [k, k / 2]),
    "average_set_size_at": lambda s, labels, k, t: avgk.average_set_size_at(s, [t]),
    "risk": lambda s, labels, k, t: avgk.risk(s, labels, [t, t + 1], cost=0.125),
    "best_threshold": lambda s, labels, k, t: avgk.best_threshold(s, labels, cost=k / 16),
    "straddle_strength": lambda s, labels, k, t: avgk.straddle_strength(s, [k, 0.5]),
    "ranked_supports": lambda s, labels, k, t: avgk.ranked_supports(s, [1, k]),
    "supports_overlap": lambda s, labels, k, t: avgk.supports_overlap(s, [k]),
    "average_k_sets": lambda s, labels, k, t: avgk.average_k_sets(s, k).compute(),
    "top_k_sets": lambda s, labels, k, t: avgk.top_k_sets(s, k).compute(),
    "predict_sets": lambda s, labels, k, t: avgk.predict_sets(s, threshold=t).compute(),
}


def same(a, b):
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, avgk.BestThreshold):
        return dataclasses.replace(a, reads=0) == dataclasses.replace(b, reads=0)
    return a.equals(b)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=settings().max_examples // 3)
@given(data=st.data())
def test_functions__equal_those_of_the_whole_matrix_or_refuse(tmp_path_factory, name, data):
    n, c = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 8))
    m, k = data.draw(st.integers(1, c)), data.draw(st.integers(1, c))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    scores = rng.integers(0, data.draw(st.sampled_from([3, 20, 10_000])), (n, c)).astype("f4")
    labels, t = rng.integers(0, c, n), float(data.draw(st.sampled_from(scores.reshape(-1).tolist())))
    path = write(tmp_path_factory.mktemp("t") / "a.zarr", scores, labels, m, chunk_rows=7)
    with contextlib.suppress(() if m == c else avgk.AvgkError):  # where nothing was discarded all is certain
        result = FUNCTIONS[name](path, None, k, t)
        assert same(result, FUNCTIONS[name](scores, labels, k, t))


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions__are_certain_far_from_the_discarded_scores(tmp_path, name):
    scores, labels, _ = Simulation(600, 50).rows(0, 600)
    path = write(tmp_path / "a.zarr", scores, labels, 40, chunk_rows=100)
    t = float(np.sort(scores.reshape(-1))[-1200])
    for given_ in (path, avgk.open_scores(path)):
        assert same(FUNCTIONS[name](given_, None, 2, t), FUNCTIONS[name](scores, labels, 2, t))


def test_written_sets__of_a_truncated_store_are_those_of_the_whole(tmp_path):
    from avgk_dask.api.written_sets import SetChoice, write_sets

    scores, labels, _ = Simulation(600, 50).rows(0, 600)
    path = write(tmp_path / "a.zarr", scores, labels, 40, chunk_rows=100)
    for number, choice in enumerate((SetChoice(k=2), SetChoice("top", k=3))):
        out = tmp_path / f"{number}.zarr"
        written = write_sets(path, out, choice)
        assert (written.n_classes, written.n_labels) == (50, 600 * (2 + number))
        expected = (avgk.average_k_sets(scores, 2), avgk.top_k_sets(scores, 3))[number].compute()
        assert np.array_equal(zarr.open_group(out, mode="r")["sets"][:], expected)


def test_truncated_stores__are_refused_if_whole_rows_are_needed(tmp_path):
    path = write(tmp_path / "a.zarr", np.random.default_rng(0).random((20, 6)), np.zeros(20, int), 3)
    for use in (avgk.error_curve, lambda p: avgk.adaptive_gain(p, 1), lambda p: avgk.regret(np.ones((20, 6), bool), p)):
        with pytest.raises(avgk.ScoresError, match=r"scores must be whole rows .* keeps 3 of 6 scores"):
            use(path)
    for use in (
        lambda: avgk.evaluate(path, k=1, ties="spread"),
        lambda: avgk.average_k_sets(path, 1, ties="spread"),
    ):
        with pytest.raises(avgk.OptionError, match="ties"):
            use()
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
    with pytest.raises(avgk.BudgetError, match=r"no k has an exact result from .* keeps 3 of 6"):
        avgk.evaluate(path, k=1, straddle=straddle)


def test_truncated__of_which_nothing_was_discarded_has_its_classes_in_another_order(tmp_path):
    eta = np.random.default_rng(0).dirichlet(np.ones(4), 15)
    path = write(tmp_path / "a.zarr", eta, None, 4)
    for use in (lambda: avgk.regret(eta > 0.3, path), lambda: avgk.plug_in_regret(eta, path, 1)):
        with pytest.raises(avgk.ScoresError, match="whole rows"):
            use()
    assert avgk.adaptive_gain(path, [1, 2]).equals(avgk.adaptive_gain(eta, [1, 2]))
    labels = np.arange(15) % 4
    assert avgk.error_curve(path, labels).equals(avgk.error_curve(eta, labels))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int64", "uint64", "int8"])
def test_truncated__of_the_highest_scores_there_are_is_refused(tmp_path, dtype):
    most = np.iinfo(dtype).max
    path = write(tmp_path / "a.zarr", np.array([[most, most, 0], [most, most, 1]], dtype), np.zeros(2, int), 2)
    for use in (
        lambda: avgk.evaluate(path, k=1),
        lambda: avgk.threshold(path, 1),
        lambda: avgk.best_threshold(path, cost=0.1),
    ):
        with pytest.raises(avgk.AvgkError, match=r"an exact result|cannot be computed from|keeps .* scores per row"):
            use()


def test_truncated__rows_with_nan_are_refused():
    rows = np.array([[0.9, np.nan, np.nan, np.nan], *[[0.8, 0.7, 0.6, 0.1]] * 9])
    index = np.tile(np.arange(4), (10, 1))
    data = {"scores": (("sample", "slot"), rows), "class_index": (("sample", "slot"), index)}
    with pytest.raises(avgk.ScoresError, match="must not contain NaN; sample 0 does"):
        avgk.evaluate(xr.Dataset(data, attrs={"n_classes": 6}), np.full(10, 5), 2, straddle=False, nan_policy="lowest")


def test_truncated__reads_labels_no_more_often_than_scans(tmp_path):
    scores, labels, _ = Simulation(600, 50).rows(0, 600)
    path = write(tmp_path / "a.zarr", scores, labels, 40, chunk_rows=100)
    store = CountingStore(zarr.storage.LocalStore(path))
    avgk.evaluate(store, k=2)
    assert {name: set(store.chunk_reads(name).values()) for name in ("scores", "class_index", "labels")} == {
        "scores": {2}, "class_index": {1}, "labels": {1},
    }  # fmt: skip


def test_sets__with_spread_ties_are_refused_at_once(tmp_path):
    path = write(tmp_path / "a.zarr", np.random.default_rng(0).random((20, 6)), np.zeros(20, int), 3)
    with pytest.raises(avgk.OptionError, match="ties must be 'first'"):
        avgk.average_k_sets(path, 1, ties="spread")


def test_truncated__ties_that_must_be_spread_are_refused_before_a_checkpoint_is_made(tmp_path):
    with avgk.ScoreWriter(tmp_path / "s.zarr", 8, top_m=4) as writer:
        writer.append(np.random.default_rng(0).random((50, 8)), np.arange(50) % 8)
    with pytest.raises(avgk.OptionError, match="ties must be 'first' for a truncated store"):
        avgk.evaluate(tmp_path / "s.zarr", k=1, ties="spread", checkpoint=tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint").exists()
