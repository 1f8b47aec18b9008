"""Set sizes and risk as functions of the threshold, and the least risk of all."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import avgk_dask as avgk
from avgk_dask.statistics import label_ranks as least_risk
from avgk_dask.testing import Simulation, strategies


def lazily(data, scores):
    return da.from_array(scores, chunks=data.draw(strategies.chunkings(scores.shape)))


def exceeds(scores, threshold):
    """The sets {score > threshold}, compared exactly."""

    def value(x):
        x = float(x) if scores.dtype.kind not in "iu" else int(x)
        return x if isinstance(x, float) and math.isinf(x) else Fraction(x)

    bound = threshold if isinstance(threshold, float) and math.isinf(threshold) else Fraction(threshold)
    return np.array([value(x) > bound for x in scores.reshape(-1)]).reshape(scores.shape)


def risk_of(sets, labels, cost):
    """Error plus cost times average set size, as a fraction."""
    if labels.ndim == 2:
        inside = sum(map(Fraction, labels[sets].tolist()), Fraction(0))
        error = max(1 - inside / len(labels), Fraction(0))
    else:
        rows = np.flatnonzero(labels >= 0)
        error = 1 - Fraction(int(sets[rows, labels[rows]].sum()), rows.size)
    return error + cost * Fraction(int(sets.sum()), len(sets))


thresholds = st.lists(
    st.one_of(st.floats(allow_nan=False), st.sampled_from([0.0, 0.5, 1.0, -1.0, 2.0]), st.integers(-300, 2**64)),
    min_size=1,
    max_size=6,
)


@given(data=st.data())
def test_average_set_size_at__counts_the_scores_above(data):
    scores = data.draw(strategies.score_matrices())
    values = data.draw(thresholds)
    with dask.config.set(scheduler="synchronous"):
        sizes = avgk.average_set_size_at(lazily(data, scores), values)
    assert sizes.values.tolist() == [exceeds(scores, t).sum() / len(scores) for t in values]
    assert sizes.threshold.values.tolist() == [float(t) for t in values]


@given(data=st.data())
def test_threshold_at__is_the_generalised_inverse(data):
    scores = data.draw(strategies.score_matrices())
    size = data.draw(st.fractions(0, scores.shape[1], max_denominator=40).filter(lambda s: s < scores.shape[1]))
    t = avgk.threshold_at(scores, size).values.item()
    assert float(avgk.average_set_size_at(scores, t)) <= float(size)
    # It is the least such threshold: a score, and any lower threshold has larger sets.
    lower = math.nextafter(t, -math.inf) if isinstance(t, float) else t - 1
    if lower > -math.inf:
        assert Fraction(int(exceeds(scores, lower).sum()), len(scores)) > size or lower == t
    if size > 0:
        assert avgk.threshold(scores, size).value == t


def test_threshold_at__takes_no_and_all_labels():
    scores = np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]])
    assert avgk.threshold_at(scores, [0, 3, 7]).values.tolist() == [0.6, 0.1, 0.1]
    with pytest.raises(avgk.BudgetError, match="at least 0"):
        avgk.threshold_at(scores, [-1])


@pytest.mark.parametrize("kind", ["hard", "soft"])
@given(data=st.data())
def test_risk__equals_the_definition(kind, data):
    scores = data.draw(strategies.score_matrices())
    labels = data.draw(strategies.hard_labels(scores.shape) if kind == "hard" else strategies.soft_labels(scores.shape))
    if kind == "hard" and (labels < 0).all():
        labels[0] = 0
    values, cost = data.draw(thresholds), data.draw(st.fractions(0, 1, max_denominator=50))
    with dask.config.set(scheduler="synchronous"):
        risks = avgk.risk(lazily(data, scores), labels, values, cost=cost)
        own = avgk.risk(scores, labels, [0.25])
    assert risks.risk.values.tolist() == [float(risk_of(exceeds(scores, t), labels, cost)) for t in values]
    assert own.risk.values[0] == float(risk_of(exceeds(scores, 0.25), labels, Fraction(1, 4)))


@pytest.mark.sample(1)
@pytest.mark.parametrize("max_edges", [4, 1 << 10])
@pytest.mark.parametrize("kind", ["hard", "soft"])
@given(data=st.data())
def test_best_threshold__has_the_least_risk_of_all(kind, max_edges, data):
    scores = data.draw(strategies.score_matrices(("float16", "float32", "uint8", "int64")))
    labels = data.draw(strategies.hard_labels(scores.shape) if kind == "hard" else strategies.soft_labels(scores.shape))
    if kind == "hard" and (labels < 0).all():
        labels[0] = 0
    cost = data.draw(st.fractions(0, 2, max_denominator=50))
    with pytest.MonkeyPatch.context() as patch, dask.config.set(scheduler="synchronous"):
        patch.setattr(least_risk, "_HARD_EDGES", max_edges)
        patch.setattr(least_risk, "_SOFT_EDGES", max_edges)
        best = avgk.best_threshold(lazily(data, scores), labels, cost=cost)
    everything = [exceeds(scores, -math.inf), *(exceeds(scores, x.item()) for x in scores.astype(
        scores.dtype if scores.dtype.kind in "iu" else float).reshape(-1))]  # fmt: skip
    assert best.risk == float(min(risk_of(sets, labels, cost) for sets in everything))
    sets = avgk.predict_sets(scores, threshold=best.value).compute()
    assert best.risk == float(risk_of(sets, labels, cost))
    assert best.average_set_size == sets.sum() / len(scores)
    if not sets.all():  # the highest score outside the sets, which the other functions accept
        assert best.value == avgk.threshold_at(scores, Fraction(int(sets.sum()), len(scores))).item()
        assert float(avgk.average_set_size_at(scores, best)) == best.average_set_size
        assert np.array_equal(avgk.predict_sets(scores, threshold=best).compute(), sets)


@pytest.mark.sample(1)
@pytest.mark.parametrize("max_edges", [4, 1 << 10])
@pytest.mark.parametrize("kind", ["hard", "soft"])
@given(data=st.data())
def test_best_threshold__takes_the_smallest_sets_of_equal_risk(kind, max_edges, data):
    """Costs that are simple fractions of the samples, and label weights of 0, 1/2 and 1, make ties between risks."""
    scores = data.draw(strategies.score_matrices(("float16", "uint8", "int64"), max_samples=5))
    n = len(scores)
    labels = data.draw(strategies.hard_labels(scores.shape))
    labels[0] = max(labels[0], 0)
    cost = data.draw(st.sampled_from([Fraction(0), Fraction(1, 4), Fraction(1, 2), Fraction(1)]))
    if kind == "soft":
        both = data.draw(st.lists(st.integers(0, scores.shape[1] - 1), min_size=2 * n, max_size=2 * n))
        labels = np.eye(scores.shape[1])[np.reshape(both, (n, 2))].mean(1)
    with pytest.MonkeyPatch.context() as patch, dask.config.set(scheduler="synchronous"):
        patch.setattr(least_risk, "_HARD_EDGES", max_edges)
        patch.setattr(least_risk, "_SOFT_EDGES", max_edges)
        best = avgk.best_threshold(lazily(data, scores), labels, cost=cost)
    values = scores.astype(scores.dtype if scores.dtype.kind in "iu" else float).reshape(-1).tolist()
    everything = [exceeds(scores, t) for t in (-math.inf, *values)]
    least = min(risk_of(sets, labels, cost) for sets in everything)
    smallest = min(int(sets.sum()) for sets in everything if risk_of(sets, labels, cost) == least)
    assert best.average_set_size == smallest / n


@pytest.mark.slow
def test_best_threshold__of_equal_risks_is_the_highest():
    # Each threshold from 0.3 up has the risk 1: empty sets, 1 label with 1 hit, 2 labels with 2 hits.
    scores, labels = np.array([[0.9, 0.1], [0.2, 0.5]]), np.array([0, 1])
    best = avgk.best_threshold(scores, labels, cost=1)
    assert (best.value, best.risk, best.average_set_size) == (0.9, 1.0, 0.0)
    free = avgk.best_threshold(scores, labels, cost=0)  # all sets that contain both labels have risk 0
    assert (free.value, free.risk, free.average_set_size) == (0.2, 0.0, 1.0)


@pytest.mark.slow
def test_best_threshold__is_the_cost_where_scores_are_the_probabilities():
    _, _, eta = Simulation(2_000, 20, dtype="float64").rows(0, 2_000)
    for cost in (0.02, 0.1, 0.4):
        best = avgk.best_threshold(eta, eta, cost=cost)
        assert best.risk == float(avgk.risk(eta, eta, cost).risk)


def test_best_threshold__never_lets_minus_infinity_in():
    best = avgk.best_threshold(np.array([[-np.inf, 1.0]]), [0], cost=0.01)
    assert (best.risk, best.average_set_size) == (1.0, 0.0)


def test_best_threshold__needs_a_labelled_sample():
    with pytest.raises(avgk.LabelsError, match="at least one sample must be labelled"):
        avgk.best_threshold(np.eye(2), np.array([-1, -1]), cost=0.1)


@pytest.mark.parametrize(
    "cost", [-1, -1e-300, Fraction(-1, 3), math.inf, -math.inf, [0.1], np.array([0.1, 0.2]), "", b"1"]
)
def test_cost__must_be_a_number_of_at_least_0(cost):
    for run in (avgk.best_threshold, lambda *data, cost: avgk.risk(*data, 0.5, cost=cost)):
        with pytest.raises(
            avgk.OptionError, match=r"cost must be a finite number of at least 0; got .* relative to a missed label\."
        ):
            run(np.eye(3), np.arange(3), cost=cost)


@pytest.mark.slow
@pytest.mark.parametrize(
    "cost", [Decimal("0.1"), "0.1", np.float64(0.1), np.array(0.1), Fraction(1, 10), xr.DataArray(0.1)]
)
def test_cost__is_taken_as_budgets_are(cost):
    best = avgk.best_threshold(np.eye(3) / 2, np.arange(3), cost=cost)
    assert (best.cost, best.risk) == (0.1, 0.1)
    assert float(avgk.risk(np.eye(3) / 2, np.arange(3), 0.25, cost=cost).risk) == 0.1


def test_risk__of_a_negative_threshold_costs_that_much_unless_told():
    scores, labels = np.array([[1.0, -3.0]]), [0]
    assert float(avgk.risk(scores, labels, -2.0).risk) == -2.0  # by definition: error + threshold * size


@pytest.mark.parametrize("bad", [math.nan, 10**400, "a", None, True])
def test_thresholds__must_be_numbers(bad):
    with pytest.raises(avgk.OptionError, match="thresholds must"):
        avgk.risk(np.eye(3), np.arange(3), [0.5, bad] if bad is not None else None)
    with pytest.raises(avgk.OptionError, match="cost must"):
        avgk.best_threshold(np.eye(3), np.arange(3), cost=bad)
