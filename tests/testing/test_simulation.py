"""Simulated data do not depend on chunks, and the paper's examples have the published errors."""

from __future__ import annotations

import numpy as np
import pytest
import zarr

import avgk_dask as avgk
from avgk_dask.testing import Simulation, simulate, simulate_store


@pytest.mark.parametrize(
    "spec", [Simulation(1000, 37), Simulation(900, 6, example=4), Simulation(500, 8, dtype="uint8", levels=9)]
)
def test_simulation__does_not_depend_on_the_chunks(spec):
    columns = spec.rows(0, spec.n_samples)
    for step in (1, 7, 64, 333):
        parts = [spec.rows(a, min(a + step, spec.n_samples)) for a in range(0, spec.n_samples, step)]
        for column, expected in enumerate(columns):
            assert np.array_equal(np.concatenate([p[column] for p in parts]), expected)


def test_simulation__differs_by_seed_and_repeats():
    a, b, c = (Simulation(50, 9, seed=s).rows(0, 50)[0] for s in (1, 2, 1))
    assert not np.array_equal(a, b)
    assert np.array_equal(a, c)


def test_simulation__draws_labels_from_eta():
    _, labels, eta = Simulation(40_000, 5, ambiguity=0).rows(0, 40_000)
    assert np.allclose(eta.sum(1), 1)
    drawn = np.eye(5)[labels].mean(0)
    assert np.allclose(drawn, eta.mean(0), atol=0.01)


def test_simulation__gain_grows_with_ambiguity():
    gains = []
    for ambiguity in (0.0, 0.2, 0.5, 1.0):
        toy = simulate(2000, 50, ambiguity=ambiguity, dtype="float64")
        gains.append(float(avgk.evaluate(toy.scores, toy.eta, k=3).adaptive_gain[0]))
    assert gains[0] == pytest.approx(0, abs=1e-15)
    assert gains == sorted(gains)
    assert gains[-1] > 0.01


# Figures 3 to 6 and table 1 of the paper: errors with exact eta, and the set sizes of average-2.
EXAMPLES = {
    1: (0.0, 0.0, [0, 0, 1]),
    2: (1 / 9, 0.0, [0, 1 / 3, 1 / 3, 1 / 3]),
    3: (1 / 9, 1 / 9 - 1 / 100, None),
    4: (1 / 9, 97 / 900, [0, 1 / 3, 1 / 3, 1 / 3]),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("n", [300, 3000])
def test_examples__have_the_papers_errors_and_set_sizes(example, n):
    toy = simulate(n, example=example, dtype="float64", chunk_rows=70)
    result = avgk.evaluate(toy.scores, toy.eta, k=[1, 2, 3])
    top, average, sizes = EXAMPLES[example]
    assert float(result.top_k_error[1]) == pytest.approx(top, abs=1e-12)
    assert float(result.average_k_error[1]) == pytest.approx(average, abs=1e-12)
    if sizes is not None:
        counts = result.set_size_count.values[1] / n
        assert counts[: len(sizes)].tolist() == pytest.approx(sizes)


def test_examples__three_is_top_2_for_most_inputs():
    toy = simulate(3000, example=3, dtype="float64")
    counts = avgk.evaluate(toy.scores, toy.eta, k=2).set_size_count.values[0]
    assert counts[2] > 0.6 * 3000


@pytest.mark.parametrize("example", [2, 3, 4])
def test_examples__large_samples_with_drawn_labels_through_a_store(example, tmp_path):
    spec = Simulation(90_000, 6, example=example, dtype="float64")
    simulate_store(tmp_path / "toy.zarr", spec, chunks=(10_000, 4))
    result = avgk.evaluate(tmp_path / "toy.zarr", k=2)
    top, average, _ = EXAMPLES[example]
    assert float(result.top_k_error[0]) == pytest.approx(top, abs=0.005)
    assert float(result.average_k_error[0]) == pytest.approx(average, abs=0.005)


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "uint8"])
def test_simulate_store__keeps_the_dtype(dtype, tmp_path):
    spec = Simulation(200, 11, dtype=dtype)
    simulate_store(tmp_path / "s.zarr", spec, chunks=(30, 11))
    scores, labels, _ = spec.rows(0, 200)
    expected = avgk.evaluate(scores, labels, [1, 2.5]).drop_attrs()
    assert avgk.evaluate(tmp_path / "s.zarr", k=[1, 2.5]).drop_attrs().identical(expected)
    assert np.array_equal(
        avgk.average_k_sets(tmp_path / "s.zarr", 2).compute(), avgk.average_k_sets(scores, 2).compute()
    )


def test_simulate_store__refuses_to_overwrite(tmp_path):
    spec = Simulation(20, 4)
    simulate_store(tmp_path / "s.zarr", spec)
    with pytest.raises(avgk.StoreError, match="exists already"):
        simulate_store(tmp_path / "s.zarr", spec)
    simulate_store(tmp_path / "s.zarr", Simulation(30, 4), overwrite=True, soft=True)
    assert zarr.open_group(tmp_path / "s.zarr")["labels"].shape == (30, 4)


@pytest.mark.parametrize("bad", [{"example": 5}, {"example": 2, "n_classes": 7}, {"n_samples": 0}, {"n_classes": 0}])
def test_simulation__refuses_bad_sizes(bad):
    with pytest.raises(avgk.ScoresError, match="must"):
        Simulation(**{"n_samples": 10, **bad})
