"""Examples of stores larger than memory and of next tokens (10, 11)."""

from __future__ import annotations

import numpy as np
import pytest

import avgk_dask as avgk

pytestmark = pytest.mark.slow


def test_out_of_core__gives_the_papers_thresholds_and_the_bits_of_threads(run):
    written = run("10_out_of_core")
    assert written.disagreeing == []
    assert written.claims["The cluster gives every bit that threads give: results that are identical"]["ours"] == 1
    numbers = written.numbers
    assert (numbers["n_workers"], numbers["bytes_of_all_workers"]) == (2, 1_200_000_000)
    assert numbers["reads"] <= 2
    assert numbers["peak_bytes_of_a_worker"] < 600_000_000
    data = avgk.testing.Simulation(3_000, 1_000, dtype="float64").rows(0, 3_000)
    for k in (1, 5, 10):
        assert numbers["threshold"][k - 1] == np.sort(data[0].ravel())[::-1][3_000 * k]


def test_out_of_core__runs_on_a_scheduler_that_is_there(run, tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, memory_limit="1GB", host="127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as cluster:
        there = run("10_out_of_core", "--scheduler", cluster.scheduler_address, "--folder", str(tmp_path)).numbers
    here = run("10_out_of_core").numbers
    assert (there["n_workers"], there["bytes_of_all_workers"]) == (1, 1_000_000_000)
    for name in ("threshold", "average_k_error", "top_k_error"):
        assert there[name] == here[name]
    assert not list(tmp_path.iterdir())  # the store is gone


def test_next_tokens__padding_does_not_exist_and_the_budget_is_kept(run):
    numbers = run("11_next_tokens").numbers
    assert numbers["n_samples_evaluated"] == numbers["n_positions"]
    assert numbers["n_positions"] + numbers["n_padding"] == 60 * 40
    at = numbers["k"].index(5)
    assert numbers["average_k_error_padding_left_in"][at] < 0.95 * numbers["average_k_error"][at]
    assert numbers["mean_size_at_5_repeated"]["expected"] < 5 < numbers["mean_size_at_5_repeated"]["plain"] + 0.3
    plain, expected = (np.array(numbers["transferred_size"][name]) for name in ("plain", "expected"))
    assert (expected < plain).all()
    assert plain == pytest.approx(np.array(numbers["k"]), rel=0.15)
    assert np.abs(plain - expected - 500 / 1_560).max() < 0.1  # the price, C / n labels, whatever K is


def test_next_tokens__calibration_finds_the_temperature_and_lowers_average_k_errors(run):
    numbers = run("11_next_tokens").numbers
    assert 1.9 < numbers["temperature"] < 2.4  # twice as sure as the truth, and noise
    assert numbers["nll"]["calibrated"] < 0.9 * numbers["nll"]["raw"]
    raw, calibrated, top = (
        np.array(numbers[name]) for name in ("average_k_error_raw", "average_k_error", "top_k_error")
    )
    assert (calibrated < raw - 0.005).all()
    assert (calibrated < top - 0.015).all()
    ratio = np.divide(numbers["average_k_error_stderr_clusters"], numbers["average_k_error_stderr"])
    assert ratio.min() > 1.2
    assert (np.array(numbers["adaptive_gain"]) > 3 * np.array(numbers["adaptive_gain_stderr_clusters"])).all()
