"""Straddle strengths and supports: the paper's table, its theorems, and results beyond the budget."""

from __future__ import annotations

import math

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import avgk_dask as avgk
from avgk_dask.results import datasets as json_text
from avgk_dask.testing import Simulation, oracle_supports, simulate, simulate_store, strategies

# The paper's table: top-2 and average-2 error, weight, magnitude and d(2, 1), with epsilon = 0.01.
TABLE = {
    2: (1 / 9, 0.0, 1 / 9, 1 / 3, 1 / 27),
    3: (1 / 9, 1 / 9 - 0.01, 0.01, 1 / 3, 0.01 / 3),
    4: (1 / 9, 97 / 900, 1 / 9, 0.01, 0.01 / 9),
}


def row_of(result):
    first = result.sel(k=2, order=1)
    names = "top_k_error", "average_k_error", "straddle_weight", "straddle_magnitude", "straddle_strength"
    return [float(first[name]) for name in names]


@pytest.mark.parametrize("example", TABLE)
def test_straddle__is_the_papers_table_from_exact_eta(example):
    toy = simulate(900, example=example, dtype="float64", chunk_rows=70)
    result = avgk.evaluate(toy.scores, toy.eta, k=[1, 2, 3])
    assert row_of(result) == pytest.approx(TABLE[example], abs=1e-12)
    alone = avgk.straddle_strength(toy.scores, [1, 2, 3])
    for name in alone.data_vars:
        assert alone[name].identical(result[name])


@pytest.mark.slow
@pytest.mark.parametrize("example", TABLE)
def test_straddle__is_the_papers_table_from_a_large_sample_in_a_chunked_store(example, tmp_path):
    spec = Simulation(90_000, 6, example=example, dtype="float64")
    simulate_store(tmp_path / "toy.zarr", spec, chunks=(10_000, 4))
    top, average, *exact = row_of(avgk.evaluate(tmp_path / "toy.zarr", k=[1, 2]))
    assert [top, average] == pytest.approx(TABLE[example][:2], abs=0.005)  # drawn labels
    assert exact == pytest.approx(TABLE[example][2:], abs=1e-12)


def some_probabilities(rng, n_samples, n_classes):
    """Rows of small fractions, with ties between and within rows."""
    counts = rng.multinomial(int(rng.integers(1, 12)), rng.dirichlet(np.full(n_classes, 0.5)), n_samples)
    return counts / counts.sum(1, keepdims=True)


seeds = st.integers(0, 2**32)


@given(seeds)
def test_theorem__gain_is_at_least_the_bound_at_least_its_first_order(seed):
    rng = np.random.default_rng(seed)
    n_classes = int(rng.integers(2, 9))
    eta = some_probabilities(rng, int(rng.integers(1, 12)), n_classes)
    result = avgk.evaluate(eta, eta, range(1, n_classes))
    first = result.straddle_strength.sel(order=1)
    assert (first >= 0).all()
    assert (result.straddle_bound >= first).all()
    assert (result.adaptive_gain >= result.straddle_bound).all()


@given(seeds)
def test_theorem__the_gain_is_zero_if_and_only_if_the_supports_do_not_overlap(seed):
    rng = np.random.default_rng(seed)
    n_classes = int(rng.integers(2, 9))
    eta = some_probabilities(rng, int(rng.integers(1, 6)), n_classes)
    result = avgk.evaluate(eta, eta, range(1, n_classes + 1))
    assert ((result.adaptive_gain > 0) == (result.supports_overlap == 1)).all()
    assert ((result.straddle_weight.sel(order=1)[:-1] > 0) == (result.supports_overlap[:-1] == 1)).all()


def test_theorems__do_not_hold_for_estimated_scores(data):
    scores, labels = (np.load(data / "newsgroups20" / f"{name}.npy") for name in ("scores", "labels"))
    result = avgk.evaluate(scores, labels, range(1, 6))
    assert float(result.adaptive_gain[0]) < 0
    assert (result.adaptive_gain < result.straddle_bound).any()


def in_bins(n_kept):
    """Settings with which more ranked scores than these are counted in the smallest number of bins."""
    return dask.config.set({"avgk.ranked-bytes": n_kept, "avgk.ranked-bins": 0})


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("logits", [False, True])
def test_straddle__beyond_the_budget_is_within_its_certified_error(dtype, logits):
    scores = Simulation(20_000, 30, dtype=dtype).rows(0, 20_000)[0]
    scores = np.log(scores + np.finfo(dtype).tiny) if logits else scores
    exact = avgk.straddle_strength(scores, [1, 3, 8])
    with in_bins(0):
        binned = avgk.straddle_strength(scores, [1, 3, 8])
        again = avgk.straddle_strength(da.from_array(scores, chunks=(777, 7)), [1, 3, 8])
    assert json_text.to_json(binned) == json_text.to_json(again)
    for name in ("straddle_strength", "straddle_weight", "straddle_bound"):
        error = binned[f"{name}_error"]
        assert (exact[f"{name}_error"].fillna(0) == 0).all()
        assert (abs(binned[name] - exact[name]) <= error).where(error.notnull(), True).all()
    # The errors are small enough: strengths have six digits or more, weights three.
    assert (
        (binned.straddle_strength_error <= 1e-5 * exact.straddle_strength + 1e-9)
        .where(exact.straddle_weight > 0, True)
        .all()
    )
    assert 0 < binned.straddle_weight_error.max() < 1e-3


@pytest.mark.slow
def test_straddle__is_exact_beyond_the_budget_where_scores_tie():
    scores = Simulation(20_000, 30, dtype="uint8").rows(0, 20_000)[0]
    exact = avgk.straddle_strength(scores, [1, 5])
    with in_bins(0):
        assert avgk.straddle_strength(scores, [1, 5]).identical(exact)


@pytest.mark.sample(9)
@pytest.mark.parametrize("n_ranks", [20, 65, 400])
@pytest.mark.parametrize("chunks", [(500, 400), (130, 90)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int64"])
def test_ranked_supports__of_many_ranks(dtype, chunks, n_ranks):
    rng = np.random.default_rng(0)
    scores = (rng.standard_normal((500, 400)) * 50 + 100).astype(dtype)
    supports = avgk.ranked_supports(da.from_array(scores, chunks=chunks), range(1, n_ranks + 1), bins=4)
    ranked = np.sort(scores, axis=1)[:, ::-1][:, :n_ranks]
    assert np.array_equal(supports.support_low, ranked.min(0))
    assert np.array_equal(supports.support_high, ranked.max(0))
    for values, counts, edges in zip(ranked.T, supports.ranked_count.values, supports.bin_low.values, strict=True):
        bounds = [*edges[1:].tolist(), math.inf]
        below = [int((values.astype(float) < b).sum()) for b in bounds]
        assert np.cumsum(counts).tolist() == below


def test_ranked_supports__with_nan_among_many_ranks():
    scores = np.random.default_rng(1).random((40, 200)).astype(np.float32)
    scores[3, 5:] = np.nan
    supports = avgk.ranked_supports(scores, range(1, 101), nan_policy="lowest")
    expected = oracle_supports(scores)
    assert np.array_equal(supports.support_low, [low for low, _ in expected[:100]], equal_nan=True)
    assert np.array_equal(supports.support_high, [high for _, high in expected[:100]], equal_nan=True)


@pytest.mark.sample(1)
@pytest.mark.parametrize("max_ranked", [0, 1 << 28])
def test_ranked_supports__histogram_is_one_of_the_ranked_scores(max_ranked):
    scores = Simulation(20_000, 30, dtype="float32").rows(0, 20_000)[0]
    with in_bins(max_ranked):
        supports = avgk.ranked_supports(scores, [1, 2, 7], bins=20)
    assert (supports.ranked_count.sum("bin") == 20_000).all()
    for i, rank in enumerate((1, 2, 7)):
        values = np.sort(scores, axis=1)[:, -rank].astype(float)
        edges = [*supports.bin_low.values[i], math.inf]
        assert np.array_equal(np.histogram(values, [*edges[:-1], max(values) + 1])[0], supports.ranked_count.values[i])
        assert edges[0] == values.min()
        width = (values.max() - values.min()) / 20
        assert np.allclose(np.diff(edges[:-1]), width, rtol=0.15)


@pytest.mark.parametrize("dtype", [d for d in strategies.DTYPES if d != "bfloat16"])
def test_ranked_supports__bins_are_equally_wide_for_every_dtype(dtype):
    values = np.arange(17).astype(dtype)[:, None]
    supports = avgk.ranked_supports(values, 1, bins=8)
    counts, edges = np.histogram(values, 8)
    assert supports.ranked_count.values[0].tolist() == counts.tolist()
    assert supports.bin_low.values[0].tolist() == edges[:-1].tolist()


@given(data=st.data())
def test_supports_overlap__alone_equals_that_of_evaluate(data):
    scores = data.draw(strategies.score_matrices())
    ks = data.draw(strategies.budgets(scores.shape[1], scores))
    assert avgk.supports_overlap(scores, ks).identical(avgk.evaluate(scores, None, ks).supports_overlap)


@pytest.mark.parametrize("kept", [0, 1 << 28])
@pytest.mark.parametrize(
    "column, counts",
    [([1, 2, 3, np.inf], [1, 1, 2]), ([-np.inf, 1, 2, 3], [2, 1, 1]), ([np.inf] * 3, [0, 0, 3]), ([np.nan] * 2, [0, 0, 2]),
     ([np.nan, 0.0, 3.0], [2, 0, 1]), ([-1.7e308, 0.0, 1.7e308], [1, 1, 1])],
)  # fmt: skip
def test_ranked_supports__bins_span_the_finite_scores(column, counts, kept):
    with in_bins(kept):
        supports = avgk.ranked_supports(np.array(column)[:, None], 1, bins=3, nan_policy="lowest")
    assert supports.ranked_count.values[0].tolist() == counts


def test_straddle__of_the_largest_doubles_is_infinite():
    result = avgk.evaluate(np.array([[1.7e308] * 2, [-1.7e308] * 2]), k=1)
    assert result.straddle_magnitude.values.item() == np.inf
    assert result.straddle_strength.values.item() == pytest.approx(0.85e308)


@pytest.mark.parametrize("ranks", [0, [1, 9], 2.5, [], True, ["1"]])
def test_ranked_supports__refuses_bad_ranks(ranks):
    with pytest.raises(avgk.OptionError, match="ranks must"):
        avgk.ranked_supports(np.eye(4), ranks)


def test_ranked_supports__refuses_bad_bins():
    with pytest.raises(avgk.OptionError, match="bins must be a positive integer; got 0"):
        avgk.ranked_supports(np.eye(4), 1, bins=0)


def test_evaluate__leaves_the_ambiguity_out_where_not_asked_for():
    result = avgk.evaluate(np.eye(4), np.arange(4), k=1, straddle=False)
    assert not {"straddle_strength", "support_low", "supports_overlap"} & set(result.data_vars)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_evaluate__distributions_of_ranks_without_finite_scores(dtype):
    scores = np.full((6, 3), np.nan).astype(dtype)
    scores[:, 0], scores[:3, 1] = 0.5, -np.inf
    result = avgk.evaluate(scores, k=[1, 2], nan_policy="lowest")
    assert result.ranked_count.sum("bin").values.tolist() == [6, 6, 6]
    assert result.ranked_count.isel(bin=-1).values.tolist() == [6, 6, 6]
