"""Utilities of sets, pairs of classes in them, and scores divided by class frequencies."""

from __future__ import annotations

import math
from itertools import combinations

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import avgk_dask as avgk
from avgk_dask.testing import Simulation, oracle_average_k_sets, strategies

WORTH = {
    "f": lambda z, b: (1 + b * b) / (z + b * b),
    "discounted": lambda z, b: 1 / z,
    "u65": lambda z, b: 1.6 / z - 0.6 / z**2,
    "u80": lambda z, b: 2.2 / z - 1.2 / z**2,
    "accuracy": lambda z, b: 1.0,
}


@pytest.mark.parametrize("name", WORTH)
@settings(max_examples=settings().max_examples // 3)
@given(data=st.data())
def test_set_utility__is_the_mean_over_sets(name, data):
    scores = data.draw(strategies.score_matrices())
    labels = data.draw(strategies.hard_labels(scores.shape))
    ks = data.draw(strategies.budgets(scores.shape[1], scores))
    beta, cost, cost_of = (
        data.draw(st.sampled_from([0.5, 1.0, 2.0])),
        0.125,
        data.draw(st.sampled_from(["size", "log"])),
    )
    result = avgk.evaluate(scores, labels, ks, straddle=False)
    utilities = avgk.set_utility(result, name, beta=beta, cost=cost, cost_of=cost_of)
    n_labelled = int((labels >= 0).sum())
    for i, k in enumerate(ks):
        sets = oracle_average_k_sets(scores, k)
        sizes = sets.sum(1).tolist()
        hit = [label >= 0 and sets[row, label] for row, label in enumerate(labels.tolist())]
        worth = sum(WORTH[name](z, beta) for z, h in zip(sizes, hit, strict=True) if h)
        price = sum(z if cost_of == "size" else math.log(max(z, 1)) for z in sizes)
        expected = worth / n_labelled - cost * price / len(sizes) if n_labelled else math.nan
        assert float(utilities.average_k_utility[i]) == pytest.approx(expected, nan_ok=True)
        if k == int(k) and n_labelled:
            c = k if cost_of == "size" else math.log(k)
            top = (1 - float(result.top_k_error[i])) * WORTH[name](k, beta) - cost * c
            assert float(utilities.top_k_utility[i]) == pytest.approx(top)


def test_set_utility__of_several_is_each_of_them():
    result = avgk.evaluate(np.eye(3) + 0.25, [0, 1, 1], [1, 1.5, 2], straddle=False)
    utilities = avgk.set_utility(result, ["u80", "f", "u80"], cost=0.5)
    assert utilities.utility.values.tolist() == ["u80", "f"]
    for name in ("u80", "f"):
        one = avgk.set_utility(result, name, cost=0.5)
        for variable in ("average_k_utility", "top_k_utility"):
            assert np.array_equal(utilities[variable].sel(utility=name), one[variable], equal_nan=True)


@pytest.mark.parametrize(
    "options",
    [
        {"utility": "x"},
        {"utility": []},
        {"utility": ["f", 3]},
        {"beta": -1},
        {"cost": math.nan},
        {"cost_of": "k"},
        {"beta": True},
    ],
)
def test_set_utility__refuses(options):
    result = avgk.evaluate(np.eye(3), [0, 1, 2], 1, straddle=False)
    with pytest.raises(avgk.OptionError, match=f"{next(iter(options))} must be"):
        avgk.set_utility(result, **options)
    with pytest.raises(avgk.OptionError, match="set_hit_count"):
        avgk.set_utility(avgk.evaluate(np.eye(3), k=1, straddle=False))


@given(data=st.data())
def test_set_pairs__counts_the_sets_that_hold_both(data):
    scores = data.draw(strategies.score_matrices())
    k = data.draw(strategies.budgets(scores.shape[1], scores))[0]
    lazy = da.from_array(scores, chunks=data.draw(strategies.chunkings(scores.shape)))
    with dask.config.set(scheduler="synchronous"):
        pairs = avgk.set_pairs(lazy, k)
    sets = oracle_average_k_sets(scores, k)
    expected = {}
    for row in sets:
        for pair in combinations(np.flatnonzero(row).tolist(), 2):
            expected[pair] = expected.get(pair, 0) + 1
    got = list(
        zip(pairs.class_a.values.tolist(), pairs.class_b.values.tolist(), pairs["count"].values.tolist(), strict=True)
    )
    assert got == [(*pair, n) for pair, n in sorted(expected.items(), key=lambda item: (-item[1], item[0]))][:100]
    assert pairs.attrs["n_pairs"] == len(expected)
    assert pairs.n_sets_a.values.tolist() == [int(sets[:, a].sum()) for a, _, _ in got]


def test_set_pairs__names_classes_and_refuses():
    scores = np.array([[0.5, 0.5, 0.0], [0.4, 0.6, 0.0]])
    assert avgk.set_pairs(scores, 2, names=["cat", "dog", "owl"]).name_b.values.tolist() == ["dog"]
    with pytest.raises(avgk.OptionError, match="n_pairs must be"):
        avgk.set_pairs(scores, 2, n_pairs=0)
    with pytest.raises(avgk.OptionError, match="names must be a list of 3 names"):
        avgk.set_pairs(scores, 2, names=["cat"])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8"])
def test_balanced__divides_by_the_frequencies_for_any_chunks(dtype):
    rng = np.random.default_rng(0)
    scores = (rng.random((50, 7)) * 200).astype(dtype)
    counts = np.array([5, 1, 0, 2, 9, 3, 4])
    expected = np.where(counts, scores.astype("f8") / np.where(counts, counts / counts.sum(), 1), 0)
    wide = dtype == "float64"
    for chunks in ((50, 7), (13, 3)):
        result = np.asarray(avgk.balanced(da.from_array(scores, chunks=chunks), counts))
        assert result.dtype == ("float64" if wide else "float32")
        assert np.array_equal(result, expected.astype(result.dtype))


def test_balanced__lowers_the_macro_error_on_long_tails():
    rng = np.random.default_rng(1)
    n, c = 20_000, 30
    prior = 1 / np.arange(1, c + 1) ** 1.5
    prior /= prior.sum()
    classes = rng.choice(c, n, p=prior)
    logits = rng.normal(size=(n, c)) + 2.0 * (np.arange(c) == classes[:, None])
    posterior = np.exp(2.0 * logits) * prior
    posterior /= posterior.sum(1, keepdims=True)
    plain = avgk.breakdown(posterior, classes, k=2)
    macro = avgk.breakdown(avgk.balanced(posterior, prior), classes, k=2)
    errors = [float((b.average_k_error[0] * b.n_labelled).sum() / n) for b in (plain, macro)]
    assert errors[0] < errors[1]  # the cost of balanced classes
    assert float(macro.macro_average_k_error[0]) < 0.7 * float(plain.macro_average_k_error[0])


@pytest.mark.parametrize("frequencies", [[1, -1], [0, 0], [[1, 2]], ["a", "b"], [math.nan, 1], []])
def test_balanced__refuses_what_is_no_frequency(frequencies):
    with pytest.raises(avgk.OptionError, match="frequencies must be"):
        avgk.balanced(np.ones((3, 2)), frequencies)
    with pytest.raises(avgk.OptionError, match="frequencies must have 2 numbers, one per class; got 3"):
        avgk.evaluate(avgk.balanced(np.ones((3, 2)), [1, 2, 3]), k=1)


def test_set_pairs__of_a_simulation_reads_twice():
    scores, _, _ = Simulation(2_000, 50).rows(0, 2_000)
    assert avgk.set_pairs(scores, 3).attrs["reads"] == 2


def test_balanced__does_not_hide_nan():
    scores = np.array([[0.5, np.nan], [0.5, 0.5]])
    with pytest.raises(avgk.ScoresError, match="must not contain NaN"):
        avgk.evaluate(avgk.balanced(scores, [1, 0]), k=1)


def test_count_codes__counts_large_sets_a_part_at_a_time(monkeypatch):
    from avgk_dask.statistics import pairs as pair_counts

    sets = np.random.default_rng(0).random((7, 40)) < [[0.9], [0.1], [1], [0], [0.5], [0.5], [0.9]]
    whole = pair_counts.count_codes(sets)
    monkeypatch.setattr(pair_counts, "_AT_ONCE", 10)
    assert all(np.array_equal(a, b) for a, b in zip(pair_counts.count_codes(sets), whole, strict=True))
    both = np.einsum("ia,ib->ab", sets.astype(int), sets.astype(int))
    assert whole[1].tolist() == both[np.triu_indices(40, 1)][both[np.triu_indices(40, 1)] > 0].tolist()
