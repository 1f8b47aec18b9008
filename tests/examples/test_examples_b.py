"""Half of the examples that reproduce the paper: each is run, and the effects it tells of are there, in direction and size."""

from __future__ import annotations

import functools
import json
import pathlib
import runpy

import matplotlib
import numpy as np
import pytest

import avgk_dask as avgk

pytest.importorskip("sklearn", reason="the examples need scikit-learn: pip install 'avgk_dask[examples]'")
matplotlib.use("Agg")

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
NAMES = [
    "03_learning_curves",
    "06_scarce_data",
    "07_label_noise",
    "08_image_degradation",
    "10_out_of_core",
    "11_next_tokens",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Give a function that runs an example, once for all tests with the same arguments, and returns its JSON and its folder."""

    @functools.cache
    def run_once(name, *arguments):
        if name.startswith("10"):
            pytest.importorskip("distributed")
        out = tmp_path_factory.mktemp("out")
        runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](["--quick", "--out", str(out), *arguments])
        return json.loads((out / f"{name}.json").read_text()), out

    return run_once


@pytest.mark.parametrize("name", NAMES)
def test_examples__write_a_picture_and_claims(name, run):
    summary, out = run(name)
    assert summary["example"] == name
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in out.iterdir()) == [f"{name}.json", f"{name}.png"]
    assert len(summary["claims"]) >= 4
    for claim in summary["claims"]:
        assert set(claim) == {"claim", "paper", "ours", "agrees"}
        assert isinstance(claim["agrees"], bool)
        assert np.isfinite(claim["ours"])


def test_learning_curves__errors_do_not_rise_with_the_nll(run):
    numbers = run("03_learning_curves")[0]["numbers"]
    least, nll = numbers["epoch_of_least_nll"] - 1, numbers["nll"]
    assert nll[-1] > 1.01 * nll[least]
    assert nll[least] < nll[0] / 2
    for name in ("top_1_error", "mean_top_k_error", "mean_average_k_error"):
        assert numbers[name][-1] < 1.05 * numbers[name][least]
        assert numbers[name][-1] < numbers[name][0] / 2
    gaps = np.subtract(numbers["mean_top_k_error"], numbers["mean_average_k_error"])
    assert (gaps > 0.004).all()  # no single epoch is an accident
    paired = numbers["top_1_error"][-1] - numbers["top_1_error"][least]
    assert numbers["top_1_difference_last_to_least_nll"] == pytest.approx(paired, abs=1e-12)


def test_scarce_data__fewer_images_more_errors_and_a_wider_gap_on_digits(run):
    numbers = run("06_scarce_data")[0]["numbers"]
    assert numbers["n_images"] == [800, 200, 50]
    for name in ("mean_top_k_error", "mean_average_k_error", "gap"):
        assert numbers[name] == sorted(numbers[name])
    assert numbers["gap"][0] > 0
    assert numbers["gap"][-1] > 3 * numbers["gap"][0]
    assert all(0.15 < share < 0.55 for share in numbers["relative_gap"])
    gains = np.array(list(numbers["adaptive_gain"].values()))
    assert gains.mean(axis=1) == pytest.approx(numbers["gap"])
    assert (gains[:, -1] == 0).all()  # all classes are in all sets
    assert gains[-1, 1:4].min() > 0.008


def test_label_noise__gains_where_groups_differ_and_hardly_where_they_are_alike(run):
    summary = run("07_label_noise")[0]
    found = {name: np.array(one["adaptive_gain"]["found"]) for name, one in summary["numbers"].items()}
    ideal = {name: np.array(one["adaptive_gain"]["ideal"]) for name, one in summary["numbers"].items()}
    assert max(found["twos"].max(), found["threes"].max()) < 0.04
    assert found["different sizes"][2] > 0.06
    assert np.abs(found["different sizes"] - ideal["different sizes"])[:3].max() < 0.03
    assert min(one.min() for one in found.values()) > -0.02


def test_label_noise__true_probabilities_give_the_numbers_of_the_paper(run):
    """Groups of 1, 2, 3 and 4 classes, a tenth of the samples each: average-3 misses nothing, top-3 a quarter of four tenths."""
    numbers = run("07_label_noise")[0]["numbers"]
    ideal = {
        name: {variable: one[variable]["ideal"] for variable in ("top_k_error", "average_k_error", "adaptive_gain")}
        for name, one in numbers.items()
    }
    assert ideal["different sizes"]["top_k_error"][2] == pytest.approx(0.1, abs=0.01)  # classes are not quite balanced
    assert ideal["different sizes"]["average_k_error"][2] == pytest.approx(0, abs=0.005)
    assert ideal["twos"]["top_k_error"][:2] == pytest.approx([1 / 2, 0], abs=1e-9)
    assert ideal["threes"]["average_k_error"][:3] == pytest.approx([2 / 3, 1 / 3, 0], abs=1e-9)
    assert np.abs(ideal["twos"]["adaptive_gain"] + ideal["threes"]["adaptive_gain"]).max() < 1e-9


def test_image_degradation__worse_images_more_errors_and_a_larger_gain(run):
    numbers = run("08_image_degradation")[0]["numbers"]
    assert numbers["pixels"] == [8, 4, 2]
    assert numbers["top_1_error"][0] < 0.08
    assert numbers["top_1_error"][2] > 0.35
    assert numbers["top_1_error"] == sorted(numbers["top_1_error"])
    assert numbers["mean_gain"] == sorted(numbers["mean_gain"])
    assert numbers["largest_gain"][2] > max(0.03, 2 * numbers["largest_gain"][0])
    sizes = np.array(numbers["average_2_set_size_by_class"])
    assert sizes.max() > 1.3 * sizes.min()
    assert sizes.mean() == pytest.approx(2, abs=0.1)


def test_image_degradation__pixels_are_means_of_blocks():
    degrade = runpy.run_path(str(EXAMPLES / "08_image_degradation.py"))["degrade"]
    image = np.arange(16.0).reshape(1, 4, 4)
    assert degrade(image, 2).tolist() == [[[2.5, 4.5], [10.5, 12.5]]]
    assert degrade(image, 4).tolist() == image.tolist()


def test_out_of_core__gives_the_papers_thresholds_and_the_bits_of_threads(run):
    summary = run("10_out_of_core")[0]
    assert all(claim["agrees"] for claim in summary["claims"])
    numbers = summary["numbers"]
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
        there = run("10_out_of_core", "--scheduler", cluster.scheduler_address, "--folder", str(tmp_path))[0]["numbers"]
    here = run("10_out_of_core")[0]["numbers"]
    assert (there["n_workers"], there["bytes_of_all_workers"]) == (1, 1_000_000_000)
    for name in ("threshold", "average_k_error", "top_k_error"):
        assert there[name] == here[name]
    assert not list(tmp_path.iterdir())  # the store is gone


def test_next_tokens__padding_does_not_exist_and_the_budget_is_kept(run):
    numbers = run("11_next_tokens")[0]["numbers"]
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
    numbers = run("11_next_tokens")[0]["numbers"]
    assert 1.9 < numbers["temperature"] < 2.4  # twice as sure as the truth, and noise
    assert numbers["nll"]["calibrated"] < 0.9 * numbers["nll"]["raw"]
    raw, calibrated, top = (
        np.array(numbers[name]) for name in ("average_k_error_raw", "average_k_error", "top_k_error")
    )
    assert (calibrated < raw - 0.005).all()
    assert (calibrated < top - 0.015).all()
    ratio = np.divide(numbers["average_k_error_stderr_clusters"], numbers["average_k_error_stderr"])
    assert ratio.min() > 1.2


@pytest.mark.parametrize("name", ["03_learning_curves", "06_scarce_data", "07_label_noise", "08_image_degradation"])
def test_examples__read_fashion_mnist(name, data):
    file = data / "fashion_mnist" / "fashion_mnist.npz"
    if not file.is_file():
        pytest.skip("Fashion-MNIST (../shared/data/fashion_mnist) is not here")
    images, labels, test, truth = runpy.run_path(str(EXAMPLES / f"{name}.py"))["load_images"](data)
    assert len(images) == len(labels) >= 10_000
    assert (len(test), np.bincount(truth).tolist()) == (10_000, [1_000] * 10)
    assert (images.min(), images.max(), images[0].size) == (0, 1, 784)


def test_image_degradation__of_fashion_mnist_is_heterogeneous(run, data):
    if not (data / "fashion_mnist" / "fashion_mnist.npz").is_file():
        pytest.skip("Fashion-MNIST (../shared/data/fashion_mnist) is not here")
    numbers = run("08_image_degradation", "--data", str(data))[0]["numbers"]
    assert numbers["pixels"] == [28, 7, 4, 2]
    assert numbers["top_1_error"] == sorted(numbers["top_1_error"])
    assert numbers["top_1_error"][0] < 0.2
    assert numbers["mean_gain"][3] > 2 * numbers["mean_gain"][0] > 0.006
    assert numbers["relative_gain_where_largest"] > 0.4
