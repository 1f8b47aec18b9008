"""Real score sets against results computed independently of this package, and the paper's listing."""

from __future__ import annotations

import json

import dask
import numpy as np
import pytest
from sklearn import metrics

import avgk_dask as avgk

SETS = ("cifar10h", "imagenet5k", "imagenet5k_uint8", "cifar100_wide_resnet", "cifar10_train_float16", "newsgroups20")
NAMES = {
    "threshold": "lam",
    "n_ties": "ties",
    "n_kept": "ties_taken",
    "average_k_error": "avg_error",
    "top_k_error": "top_error",
}


def load(data, name):
    folder = data / name
    expected = json.loads((folder / "oracle.json").read_text())
    scores = np.load(folder / ("eta.npy" if name == "cifar10h" else "scores.npy"))
    labels = np.load(folder / "labels.npy")
    return scores, scores if expected["error_kind"] == "expected" else labels, expected


@pytest.mark.sample(2)
@pytest.mark.parametrize("engine", [{}, {"avgk.small-scores": 0}])
@pytest.mark.parametrize("name", SETS)
def test_evaluate__equals_independent_results(data, name, engine):
    scores, labels, expected = load(data, name)
    # For k = C the independent results define no threshold; the contract does.
    by_k = {**{k: v for k, v in expected["by_k"].items() if v["lam"] is not None}, **expected["fractional"]}
    with dask.config.set(engine):
        result = avgk.evaluate(scores, labels, list(by_k))
    tolerance = 1e-12 if expected["error_kind"] == "expected" else 0
    for i, (k, values) in enumerate(by_k.items()):
        for ours, theirs in NAMES.items():
            if theirs in values:
                limit = tolerance if ours.endswith("error") else 0
                assert abs(float(result[ours][i]) - values[theirs]) <= limit, (k, ours)
        assert int(result.n_above[i]) + int(result.n_kept[i]) == int(len(scores) * float(k))
    for k, sizes in expected["set_size"].items():
        actual = np.trim_zeros(result.set_size_count.sel(k=float(k)).values, "b").tolist()
        assert actual == np.trim_zeros(np.array(sizes), "b").tolist(), k


@pytest.mark.parametrize("name", SETS)
def test_straddle__equals_independent_results(data, name):
    scores, labels, expected = load(data, name)
    ks = sorted(map(int, expected["lower_bound"]))
    result = avgk.evaluate(scores, labels, ks)
    for pair, value in expected["straddle"].items():
        k, order = map(int, pair.split(","))
        assert float(result.straddle_strength.sel(k=k, order=order)) == pytest.approx(value, rel=1e-12, abs=0)
    for k, value in expected["lower_bound"].items():
        assert float(result.straddle_bound.sel(k=int(k))) == pytest.approx(value, rel=1e-12, abs=0)
    assert (result.straddle_strength_error.fillna(0) == 0).all()


def test_straddle__of_cifar10h_is_the_papers_figure(data):
    scores, labels, _ = load(data, "cifar10h")
    result = avgk.evaluate(scores, labels, 2)
    assert float(result.straddle_strength.sel(k=2, order=1)) == pytest.approx(0.0049066, abs=5e-8)
    assert float(result.adaptive_gain[0]) >= float(result.straddle_bound[0])


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", SETS)
def test_error_curve__equals_independent_results(data, name):
    scores, labels, expected = load(data, name)
    curve = avgk.error_curve(scores, labels)
    for k, values in expected["by_k"].items():
        for ours, theirs in (("average_k_error", "avg_error"), ("top_k_error", "top_error")):
            assert float(curve[ours].sel(k=int(k))) == pytest.approx(values[theirs], abs=1e-12), (k, ours)


@pytest.mark.parametrize("name", ["cifar10h", "imagenet5k_uint8"])
def test_evaluate__hard_labels_of_tied_data(data, name):
    scores, _, expected = load(data, name)
    labels = np.load(data / name / "labels.npy")
    result = avgk.evaluate(scores, labels, [1, 2, 3])
    for i, k in enumerate("123"):
        values = expected["by_k"][k]
        assert float(result.top_k_error[i]) == values.get("top_error_label", values["top_error"])
        assert float(result.average_k_error[i]) == values.get("avg_error_label", values["avg_error"])


def papers_listing(y_score, avg_set_size):
    """The listing of the paper's appendix, with today's name of numpy's option."""
    threshold = np.quantile(y_score, q=1 - (avg_set_size / y_score.shape[-1]), method="lower")
    sets = y_score > threshold
    missing = y_score.shape[0] * avg_set_size - np.sum(sets)
    i, j = np.where(y_score == threshold)
    sets[i[:missing], j[:missing]] = True
    return sets


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", SETS)
def test_average_k_sets__equal_the_papers_listing_where_that_is_well_defined(data, name):
    scores = load(data, name)[0].astype(np.float64)
    checked = 0
    for k in (1, 2, 3, 5, 8):
        ours = avgk.average_k_sets(scores, k).compute()
        # The listing's quantile falls on the (B+1)-th largest only where its floating-point product
        # (N C - 1) q, rounded down, gives that place; elsewhere it returns another number of labels.
        theirs = papers_listing(scores, k)
        if theirs.sum() == len(scores) * k:
            assert np.array_equal(ours, theirs), k
            checked += 1
    assert checked >= 3


@pytest.mark.parametrize("levels", [None, 7])
def test_average_k_sets__equal_the_papers_listing_on_simulated_data(levels):
    scores = np.random.default_rng(3).random((300, 12))
    scores = scores if levels is None else np.round(scores * levels) / levels
    for k in range(1, 12):
        assert np.array_equal(avgk.average_k_sets(scores, k).compute(), papers_listing(scores, k))


def test_top_k_error__equals_scikit_learn_without_ties():
    rng = np.random.default_rng(4)
    scores, labels = rng.random((200, 9)), rng.integers(0, 9, 200)
    result = avgk.evaluate(scores, labels, range(1, 9))
    for i, k in enumerate(range(1, 9)):
        accuracy = metrics.top_k_accuracy_score(labels, scores, k=k, labels=np.arange(9))
        assert float(result.top_k_error[i]) == pytest.approx(1 - accuracy, abs=1e-15)
