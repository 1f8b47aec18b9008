"""Calibrators: the optimum that SciPy finds in memory, whatever the chunks, and honest ends where there is none."""

from __future__ import annotations

import json
import math
import pathlib

import dask
import dask.array as da
import numpy as np
import pytest
from scipy import optimize, special

import avgk_dask as avgk
from avgk_dask.calibration import TemperatureScaling, load

DATA = pathlib.Path(__file__).parents[3] / "shared" / "data"


def real_logits(name):
    if not (DATA / name).exists():
        pytest.skip(f"the data {name} are not there")
    return np.load(DATA / name / "logits.npy"), np.load(DATA / name / "labels.npy").astype(int)


def drawn(n=300, c=6, scale=2.0, seed=0, dtype="f4"):
    """Return logits that are too low by a factor, and labels that follow the true ones."""
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((n, c)).astype(dtype)
    return logits, (scale * logits + rng.gumbel(size=(n, c))).argmax(1)


def nll(logits, labels):
    wide = np.asarray(logits, "f8")
    return (special.logsumexp(wide, axis=1) - wide[np.arange(len(labels)), labels]).mean()


def best_temperature(logits, labels):
    """Return the temperature that SciPy finds in memory, and its NLL."""
    wide = logits.astype("f8")
    found = optimize.minimize_scalar(lambda u: nll(wide * math.exp(u), labels), bracket=(-1, 1), options={"xtol": 1e-9})
    return math.exp(-found.x), found.fun


@pytest.mark.parametrize("name", ["cifar100_wide_resnet", "imagenet5k"])
def test_temperature__of_real_logits_is_that_of_scipy_in_three_reads(name):
    logits, labels = real_logits(name)
    found, (temperature, loss) = TemperatureScaling().fit(logits, labels), best_temperature(logits, labels)
    assert found.temperature == pytest.approx(temperature, rel=1e-4)
    assert found.nll_after == pytest.approx(loss, abs=1e-6)
    assert found.nll_before == pytest.approx(nll(logits, labels), abs=1e-12)
    assert found.converged
    assert found.n_reads == 3


@pytest.mark.parametrize("factor", [1e-3, 0.05, 0.3, 1.0, 2.5, 40.0, 1e4])
def test_temperature__is_that_of_scipy_for_any_size_of_logits(factor):
    logits, labels = drawn(dtype="f8")
    found, (temperature, loss) = TemperatureScaling().fit(logits * factor, labels), best_temperature(logits, labels)
    assert found.temperature == pytest.approx(temperature * factor, rel=1e-4)
    assert found.nll_after == pytest.approx(loss, abs=1e-6)
    assert found.converged
    assert found.n_reads <= 6


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1"])
def test_temperature__has_the_losses_that_nll_gives(dtype):
    logits, labels = drawn()
    logits = (logits * 5).astype(dtype)
    found = TemperatureScaling().fit(logits, labels)
    assert found.nll_before == avgk.losses.nll(avgk.softmax(logits), labels)
    assert found.nll_after == avgk.losses.nll(found.transform(logits), labels) < found.nll_before
    assert found.nll_after == avgk.losses.nll(avgk.calibrated(logits, found), labels)


@pytest.mark.parametrize("chunks", [(300, 6), (1, 6), (70, 4), ((299, 1), (1, 5))])
@pytest.mark.parametrize("threads", [1, 2])
def test_temperature__is_the_same_to_the_last_bit_for_any_chunking(chunks, threads):
    logits, labels = drawn()
    with dask.config.set(scheduler="threads", num_workers=threads):
        found = TemperatureScaling().fit(da.from_array(logits, chunks=chunks), labels)
    assert vars(found) == vars(TemperatureScaling().fit(logits, labels))


def test_temperature__of_a_store_leaves_out_the_unlabelled(tmp_path):
    logits, labels = drawn()
    labels[::3] = -1
    with avgk.ScoreWriter(tmp_path / "a.zarr", n_classes=6, chunk_rows=37) as writer:
        writer.append(logits, labels)
    found = TemperatureScaling().fit(tmp_path / "a.zarr", checkpoint=tmp_path / "kept")
    other = TemperatureScaling().fit(logits[labels >= 0], labels[labels >= 0])
    assert vars(found) == vars(other)
    assert vars(TemperatureScaling().fit(tmp_path / "a.zarr", checkpoint=tmp_path / "kept")) == vars(found)


def test_temperature__changes_no_top_1():
    logits, labels = drawn()
    found = TemperatureScaling().fit(logits, labels)
    assert (np.asarray(found.transform(logits)).argmax(1) == logits.argmax(1)).all()


def test_temperature__of_separated_labels_ends_at_the_bound():
    labels = np.arange(50) % 5
    found = TemperatureScaling().fit(np.eye(5)[labels] * 3, labels)
    assert not found.converged
    assert found.temperature == 1 / 65536
    assert found.nll_after == 0
    assert "still falls" in found.message
    assert "still falls" in repr(found)
    found = TemperatureScaling().fit(-np.eye(5)[labels] * 3, labels)
    assert not found.converged
    assert found.temperature == 65536
    assert found.nll_after == pytest.approx(math.log(5), abs=1e-3)


def test_temperature__of_equal_logits_is_one():
    found = TemperatureScaling().fit(np.zeros((10, 3)), np.arange(10) % 3)
    assert (found.temperature, found.converged, found.n_reads) == (1.0, True, 1)


@pytest.mark.parametrize(
    "logits, labels, error, text",
    [
        (np.eye(3), [1, 1, 1], avgk.LabelsError, "two classes at least for a calibrator; got 1 alone"),
        (np.eye(3), [-1, -1, -1], avgk.LabelsError, "got none"),
        (np.eye(3), None, avgk.LabelsError, "labels must be given for a calibrator"),
        (np.eye(3), np.eye(3), avgk.LabelsError, "class numbers"),
        (np.eye(3), [0, 1, 3], avgk.LabelsError, "lie in 0..2"),
        (avgk.softmax(np.eye(3)), [0, 1, 2], avgk.ScoresError, "Pass its argument"),
        (np.where(np.eye(3), np.nan, 0), [0, 1, 2], avgk.ScoresError, "sample 0, class 0"),
        (np.diag([0, np.inf, 0]), [0, -1, 2], avgk.ScoresError, "NaN|sample 1 "),
        (np.where(np.eye(3), -np.inf, 0), [0, 1, 2], avgk.ScoresError, "got 3 of -inf"),
    ],
)
def test_fit__refuses_what_tells_nothing(logits, labels, error, text):
    with pytest.raises(error, match=text):
        TemperatureScaling().fit(logits, labels)


def test_calibrators__that_are_not_fitted_say_so(tmp_path):
    for call in (lambda c: c.transform(np.eye(3)), lambda c: c.save(tmp_path / "a.json")):
        with pytest.raises(avgk.OptionError, match="fitted first"):
            call(TemperatureScaling())
    assert "not fitted" in repr(TemperatureScaling())
    with pytest.raises(avgk.OptionError, match="calibrator must be"):
        avgk.calibrated(np.eye(3), 1.5)
    assert list(tmp_path.iterdir()) == []


def test_files__give_back_the_calibrator_to_the_last_bit(tmp_path):
    found = TemperatureScaling().fit(*drawn())
    found.save(tmp_path / "a.json")
    found.save(tmp_path / "a.json")
    back = load(tmp_path / "a.json")
    assert type(back) is TemperatureScaling
    assert vars(back) == vars(found)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    "damage, text",
    [
        (lambda content: content.update(version=2), "version 2"),
        (lambda content: content.update(format="other"), "no calibrator"),
        (lambda content: content.update(method="platt"), "hash"),
        (lambda content: content["fit"].update(nll_after=0.0), "hash"),
        (lambda content: content.pop("sha256"), "sha256"),
        (lambda content: content["arrays"].clear(), "hash"),
    ],
)
def test_files__that_are_damaged_are_refused(tmp_path, damage, text):
    TemperatureScaling().fit(*drawn()).save(tmp_path / "a.json")
    content = json.loads((tmp_path / "a.json").read_text())
    damage(content)
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(avgk.ReadError, match=text):
        load(tmp_path / "a.json")


def test_files__that_hold_something_else_are_refused(tmp_path):
    for name, text in (("none.json", None), ("empty.json", ""), ("list.json", "[1]"), ("cut.json", '{"format": ')):
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(avgk.ReadError):
            load(tmp_path / name)
    with pytest.raises(avgk.OptionError, match="local file"):
        load("s3://bucket/a.json")
    with pytest.raises(avgk.WriteError, match="Name another"):
        TemperatureScaling().fit(*drawn()).save(tmp_path / "nowhere" / "a.json")
