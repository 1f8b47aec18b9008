"""Examples that train networks (03 to 08): their effects have the documented direction and size."""

from __future__ import annotations

import pathlib
import runpy

import numpy as np
import pytest

pytestmark = pytest.mark.slow

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


def test_ensembles__reduce_the_nll_and_both_errors(run):
    written = run("04_ensembles")
    for name, most in {"nll": 0.98, "mean_top_k_error": 0.98, "mean_average_k_error": 0.95}.items():
        assert written.numbers[name][-1] < most * written.numbers[name][0], name
    assert np.all(np.diff(written.numbers["nll"]) < 0)
    assert np.all(
        np.less(written.numbers["mean_average_k_error"], 0.85 * np.array(written.numbers["mean_top_k_error"]))
    )


def test_calibration__reduces_the_nll_and_leaves_top_k_to_the_temperature(run):
    written = run("05_calibration")
    before = written.numbers["no calibration"]
    assert written.numbers["temperature"] > 1.3
    for name in ("temperature scaling", "vector scaling", "full matrix"):
        assert written.numbers[name]["nll"] < 0.92 * before["nll"], name
        assert written.numbers[name]["mean_average_k_error"] < 0.9 * written.numbers[name]["mean_top_k_error"], name
    assert written.numbers["temperature scaling"]["mean_top_k_error"] == before["mean_top_k_error"]
    assert written.numbers["temperature scaling"]["mean_average_k_error"] == pytest.approx(
        before["mean_average_k_error"], rel=0.05
    )
    assert written.numbers["temperature scaling"]["mean_average_k_error"] != before["mean_average_k_error"]
    drawn = [claim for text, claim in written.claims.items() if "over top-2 error, largest" in text]
    assert drawn[0]["ours"] < 0.9
    assert any("range of the top-2 error" in text and claim["ours"] == 0 for text, claim in written.claims.items())


def test_learning_curves__errors_do_not_rise_with_the_nll(run):
    numbers = run("03_learning_curves").numbers
    least, nll = numbers["epoch_of_least_nll"] - 1, numbers["nll"]
    assert nll[-1] > 1.01 * nll[least]
    assert nll[least] < nll[0] / 2
    for name in ("top_1_error", "mean_top_k_error", "mean_average_k_error"):
        assert numbers[name][-1] <= numbers[name][least]
        assert numbers[name][-1] < numbers[name][0] / 2
    gaps = np.subtract(numbers["mean_top_k_error"], numbers["mean_average_k_error"])
    assert (gaps > 0.004).all()  # no single epoch is an accident
    paired = numbers["top_1_error"][-1] - numbers["top_1_error"][least]
    assert numbers["top_1_difference_last_to_least_nll"] == pytest.approx(paired, abs=1e-12)


def test_scarce_data__fewer_images_more_errors_and_a_wider_gap_on_digits(run):
    numbers = run("06_scarce_data").numbers
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
    written = run("07_label_noise")
    gains = {name: np.array(one["adaptive_gain"]["network"]) for name, one in written.numbers.items()}
    ideal = {name: np.array(one["adaptive_gain"]["ideal"]) for name, one in written.numbers.items()}
    assert max(gains["twos"].max(), gains["threes"].max()) < 0.04
    assert gains["different sizes"][2] > 0.06
    assert np.abs(gains["different sizes"] - ideal["different sizes"])[:3].max() < 0.03
    assert min(one.min() for one in gains.values()) > -0.02


def test_label_noise__true_probabilities_give_the_numbers_of_the_paper(run):
    """Groups of 1, 2, 3 and 4 classes, a tenth of the samples each: average-3 misses nothing, top-3 a quarter of four tenths."""
    numbers = run("07_label_noise").numbers
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
    numbers = run("08_image_degradation").numbers
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


@pytest.mark.parametrize("name", ["03_learning_curves", "06_scarce_data", "07_label_noise", "08_image_degradation"])
def test_examples__read_fashion_mnist(name, fashion):
    images, labels, test, truth = runpy.run_path(str(EXAMPLES / f"{name}.py"))["load_images"](fashion)
    assert len(images) == len(labels) >= 10_000
    assert (len(test), np.bincount(truth).tolist()) == (10_000, [1_000] * 10)
    assert (images.min(), images.max(), images[0].size) == (0, 1, 784)


def test_image_degradation__of_fashion_mnist_is_heterogeneous(run, fashion):
    numbers = run("08_image_degradation", "--data", fashion).numbers
    assert numbers["pixels"] == [28, 7, 4, 2]
    assert numbers["top_1_error"] == sorted(numbers["top_1_error"])
    assert numbers["top_1_error"][0] < 0.2
    assert numbers["mean_gain"][3] > 2 * numbers["mean_gain"][0] > 0.006
    assert numbers["relative_gain_where_largest"] > 0.4
