"""Gain and regret in both of the paper's forms, equal to the last bit, and the plug-in theorems."""

from __future__ import annotations

from fractions import Fraction

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st

import avgk_dask as avgk
from avgk_dask.testing import Simulation, oracle_average_k_sets, oracle_top_k_sets, simulate_store

seeds = st.integers(0, 2**32)


def probabilities(rng, shape):
    """Probabilities: tied fractions, or doubles with all their digits."""
    if rng.random() < 0.5:
        counts = rng.multinomial(int(rng.integers(1, 9)), rng.dirichlet(np.full(shape[1], 0.5)), shape[0])
        return counts / counts.sum(1, keepdims=True)
    return rng.dirichlet(np.full(shape[1], 0.3), shape[0])


def draw_shape(rng):
    return int(rng.integers(1, 12)), int(rng.integers(2, 8))


def weight(eta, sets):
    return sum(map(Fraction, eta[sets].tolist()), Fraction(0)) / len(eta)


@given(seeds)
def test_adaptive_gain__is_the_same_to_the_last_bit_in_both_forms(seed):
    rng = np.random.default_rng(seed)
    eta = probabilities(rng, draw_shape(rng))
    ks = list(range(1, eta.shape[1] + 1))
    with dask.config.set(scheduler="synchronous"):
        gain = avgk.adaptive_gain(da.from_array(eta, chunks=(5, 3)), ks)
    assert gain.adaptive_gain.values.tolist() == gain.adaptive_gain_symmetric.values.tolist()
    for i, k in enumerate(ks):
        exact = weight(eta, oracle_average_k_sets(eta, k)) - weight(eta, oracle_top_k_sets(eta, k))
        assert float(gain.adaptive_gain[i]) == float(exact)


@given(seeds)
def test_regret__of_any_sets_is_the_same_to_the_last_bit_in_both_forms(seed):
    rng = np.random.default_rng(seed)
    eta = probabilities(rng, draw_shape(rng))
    sets = rng.random(eta.shape) < rng.random()
    with dask.config.set(scheduler="synchronous"):
        regrets = avgk.regret(da.from_array(sets, chunks=(3, 4)), da.from_array(eta, chunks=(5, 3)))
    best = sorted(map(Fraction, eta.reshape(-1).tolist()), reverse=True)[: int(sets.sum())]
    exact = sum(best, Fraction(0)) / len(eta) - weight(eta, sets)
    assert float(regrets.regret) == float(regrets.regret_symmetric) == float(exact)
    assert float(regrets.set_error) == float(max(1 - weight(eta, sets), 0))
    assert float(regrets.regret) >= 0


@given(seeds)
def test_theorem__the_regret_of_both_plug_in_rules_is_at_most_the_distance(seed):
    rng = np.random.default_rng(seed)
    shape = draw_shape(rng)
    eta, estimate = probabilities(rng, shape), probabilities(rng, shape)
    if rng.random() < 0.5:
        estimate = (0.9 * eta + 0.1 * estimate).astype(rng.choice(["float32", "float64", "float16"]))
    with dask.config.set(scheduler="synchronous"):
        result = avgk.plug_in_regret(estimate, eta, [*range(1, shape[1] + 1), 0.5, "1.7"])
        scored = avgk.evaluate(estimate, eta, 1)
    distance = sum(abs(Fraction(float(a)) - Fraction(float(b))) for a, b in zip(eta.flat, estimate.flat, strict=True))
    assert float(result.plug_in_bound) == float(scored.plug_in_bound) == float(distance / len(eta))
    for name in ("top_k_regret", "average_k_regret"):
        regrets = result[name].values[~np.isnan(result[name].values)]
        assert (regrets >= 0).all()
        assert (regrets <= float(result.plug_in_bound)).all()


def test_plug_in_regret__is_zero_for_eta_itself_and_reads_stores(tmp_path):
    spec = Simulation(500, 9, dtype="float64")
    simulate_store(tmp_path / "s.zarr", spec, chunks=(90, 4))
    eta = spec.rows(0, 500)[2]
    regrets = avgk.plug_in_regret(tmp_path / "s.zarr", eta, [1, 2, 3])
    assert (regrets.top_k_regret == 0).all()
    assert (regrets.average_k_regret == 0).all()
    assert float(regrets.plug_in_bound) == 0
    stored = avgk.adaptive_gain(tmp_path / "s.zarr", [1, 2, 3])
    assert stored.drop_attrs().identical(avgk.adaptive_gain(eta, [1, 2, 3]).drop_attrs())


def test_plug_in_bound__is_nan_for_scores_that_are_no_probabilities():
    eta = np.full((4, 2), 0.5)
    assert np.isnan(avgk.evaluate(eta * 3, eta, 1).plug_in_bound)
    assert "plug_in_bound" not in avgk.evaluate(eta, np.zeros(4, int), 1)


def test_regret__follows_dimension_names_and_refuses_misaligned_samples():
    rng = np.random.default_rng(0)
    eta, sets = probabilities(rng, (4, 4)), rng.random((4, 4)) < 0.5
    frame = xr.DataArray(eta, {"sample": list("abcd")}, ("sample", "class"))
    expected = avgk.regret(sets, eta)
    assert avgk.regret(xr.DataArray(sets, dims=frame.dims).T, frame.T).identical(expected)
    assert avgk.regret(zarr.create_array({}, data=sets, chunks=(2, 2)), eta).identical(expected)
    with pytest.raises(avgk.ScoresError, match="eta must have the sample names of scores"):
        avgk.plug_in_regret(frame, frame[::-1], 1)
    with pytest.raises(avgk.OptionError, match="nan_policy"):
        avgk.plug_in_regret(eta, eta, 1, nan_policy="bogus")


def test_regret__refuses_what_are_no_sets_and_no_probabilities():
    eta = np.full((4, 2), 0.5)
    with pytest.raises(avgk.ScoresError, match="sets must be a boolean matrix"):
        avgk.regret(eta, eta)
    with pytest.raises(avgk.ScoresError, match="sets must be a boolean matrix"):
        avgk.regret(np.ones((4, 3), bool), eta)
    with pytest.raises(avgk.LabelsError, match="eta must be probabilities in \\[0, 1\\]"):
        avgk.regret(np.ones((4, 2), bool), eta * 3)
    with pytest.raises(avgk.BudgetError, match="must be an integer"):
        avgk.adaptive_gain(eta, 1.5)
