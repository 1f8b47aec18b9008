"""Calibrators: the optimum that SciPy finds in memory, for any chunks, and a message if there is no optimum."""

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
from avgk_dask.calibration import MatrixScaling, TemperatureScaling, VectorScaling, load
from avgk_dask.statistics.scaling import AffinePlan, gradient_of, tally_gradient

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
    result = optimize.minimize_scalar(
        lambda u: nll(wide * math.exp(u), labels), bracket=(-1, 1), options={"xtol": 1e-9}
    )
    return math.exp(-result.x), result.fun


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cifar100_wide_resnet", "imagenet5k"])
def test_temperature__of_real_logits_is_that_of_scipy_in_three_reads(name):
    logits, labels = real_logits(name)
    calibrator, (temperature, loss) = TemperatureScaling().fit(logits, labels), best_temperature(logits, labels)
    assert calibrator.temperature == pytest.approx(temperature, rel=1e-4)
    assert calibrator.nll_after == pytest.approx(loss, abs=1e-6)
    assert calibrator.nll_before == pytest.approx(nll(logits, labels), abs=1e-12)
    assert calibrator.converged
    assert calibrator.n_reads == 3


@pytest.mark.parametrize("factor", [1e-3, 0.05, 0.3, 1.0, 2.5, 40.0, 1e4])
def test_temperature__is_that_of_scipy_for_any_size_of_logits(factor):
    logits, labels = drawn(dtype="f8")
    calibrator, (temperature, loss) = (
        TemperatureScaling().fit(logits * factor, labels),
        best_temperature(logits, labels),
    )
    assert calibrator.temperature == pytest.approx(temperature * factor, rel=1e-4)
    assert calibrator.nll_after == pytest.approx(loss, abs=1e-6)
    assert calibrator.converged
    assert calibrator.n_reads <= 6


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1"])
def test_temperature__has_the_losses_that_nll_gives(dtype):
    logits, labels = drawn()
    logits = (logits * 5).astype(dtype)
    calibrator = TemperatureScaling().fit(logits, labels)
    assert calibrator.nll_before == avgk.losses.nll(avgk.softmax(logits), labels)
    assert calibrator.nll_after == avgk.losses.nll(calibrator.transform(logits), labels) < calibrator.nll_before
    assert calibrator.nll_after == avgk.losses.nll(avgk.calibrated(logits, calibrator), labels)


@pytest.mark.sample(1)
@pytest.mark.parametrize("chunks", [(300, 6), (1, 6), (70, 4), ((299, 1), (1, 5))])
@pytest.mark.parametrize("threads", [1, 2])
def test_temperature__is_the_same_to_the_last_bit_for_any_chunking(chunks, threads):
    logits, labels = drawn()
    with dask.config.set(scheduler="threads", num_workers=threads):
        calibrator = TemperatureScaling().fit(da.from_array(logits, chunks=chunks), labels)
    assert vars(calibrator) == vars(TemperatureScaling().fit(logits, labels))


def test_temperature__of_a_store_leaves_out_the_unlabelled(tmp_path):
    logits, labels = drawn()
    labels[::3] = -1
    with avgk.ScoreWriter(tmp_path / "a.zarr", n_classes=6, chunk_rows=37) as writer:
        writer.append(logits, labels)
    calibrator = TemperatureScaling().fit(tmp_path / "a.zarr", checkpoint=tmp_path / "kept")
    other = TemperatureScaling().fit(logits[labels >= 0], labels[labels >= 0])
    assert vars(calibrator) == vars(other)
    again = TemperatureScaling().fit(tmp_path / "a.zarr", checkpoint=tmp_path / "kept")
    assert vars(again) == {**vars(calibrator), "n_reads": 0}


def affine_objective(logits, labels, penalty=None):
    """Return the (penalised) NLL of softmax(W z + b) and its gradient in memory, W a diagonal one without a penalty."""
    wide, (n, c) = logits.astype("f8"), logits.shape

    def loss(x):
        weights, bias = x[:-c].reshape(-1, c), x[-c:]
        scaled = (wide * weights[0] if penalty is None else wide @ weights.T) + bias
        total = special.logsumexp(scaled, axis=1, keepdims=True)
        p, mean = np.exp(scaled - total), nll(scaled, labels)
        p[np.arange(n), labels] -= 1
        if penalty is None:
            return mean, np.concatenate([(p * wide).mean(0), p.mean(0)])
        off, each = weights * (1 - np.eye(c)), penalty / (c * (c - 1))
        more = each * (off**2).sum() + penalty / c * (bias**2).sum()
        gradient = p.T @ wide / n + 2 * each * off
        return mean + more, np.concatenate([gradient.reshape(-1), p.mean(0) + 2 * penalty / c * bias])

    return loss


def in_memory(loss, start, n_steps=5000):
    options = {"maxiter": n_steps, "maxfun": 2 * n_steps, "ftol": 1e-15, "gtol": 1e-9}
    return optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options=options)


def few_classes(name, n_classes):
    logits, labels = real_logits(name)
    keep = labels < n_classes
    return logits[keep][:, :n_classes].copy(), labels[keep]


@pytest.mark.slow
def test_vector__of_a_whole_set_is_that_of_scipy():
    logits, labels = real_logits("cifar100_wide_resnet")
    calibrator = VectorScaling().fit(logits, labels)
    loss, x = affine_objective(logits, labels), np.concatenate([calibrator.weights, calibrator.bias])
    assert calibrator.converged
    assert calibrator.nll_after == pytest.approx(loss(x)[0], abs=1e-12)
    # The loss is convex: where SciPy, from there on, finds nothing better, nothing is.
    assert calibrator.nll_after == pytest.approx(in_memory(loss, x, 200).fun, abs=1e-6)


@pytest.mark.slow
def test_matrix__of_a_whole_set_is_that_of_scipy():
    logits, labels = real_logits("cifar100_wide_resnet")
    calibrator, loss = MatrixScaling().fit(logits, labels), affine_objective(logits, labels, 1.0)
    x = np.concatenate([calibrator.weights.reshape(-1), calibrator.bias])
    assert calibrator.converged
    assert loss(x)[0] == pytest.approx(in_memory(loss, x, 200).fun, abs=1e-6)


@pytest.mark.slow
def test_vector__of_real_logits_is_that_of_scipy():
    logits, labels = few_classes("cifar100_wide_resnet", 12)
    calibrator = VectorScaling().fit(logits, labels)
    expected = in_memory(affine_objective(logits, labels), np.repeat([1.0, 0.0], 12))
    assert calibrator.converged
    assert calibrator.nll_after == pytest.approx(expected.fun, abs=1e-6)
    assert calibrator.nll_after == avgk.losses.nll(calibrator.transform(logits), labels) < calibrator.nll_before
    assert calibrator.nll_after < TemperatureScaling().fit(logits, labels).nll_after
    assert calibrator.n_reads > calibrator.n_iterations > 1


def test_matrix__of_real_logits_is_that_of_scipy():
    logits, labels = few_classes("cifar100_wide_resnet", 8)
    calibrator = MatrixScaling().fit(logits, labels)
    loss = affine_objective(logits, labels, 1.0)
    expected = in_memory(loss, np.concatenate([np.eye(8).reshape(-1), np.zeros(8)]))
    assert calibrator.converged
    assert loss(np.concatenate([calibrator.weights.reshape(-1), calibrator.bias]))[0] == pytest.approx(
        expected.fun, abs=1e-6
    )
    assert calibrator.nll_after == avgk.losses.nll(avgk.calibrated(logits, calibrator), labels)
    assert calibrator.nll_after < expected.fun  # the penalties are not in it


@pytest.mark.parametrize("matrix", [False, True])
@pytest.mark.parametrize("size", [1.0, 1e-3, 1e5])
def test_gradients__are_those_of_the_definition(matrix, size):
    logits, labels = drawn(dtype="f8")
    logits, labels = logits * size, np.where(np.arange(300) % 7 == 0, -1, labels)
    rng = np.random.default_rng(5)
    weights, bias = (np.eye(6) + rng.standard_normal((6, 6)) * 0.1) / size, rng.standard_normal(6)
    weights = weights if matrix else np.diag(weights).copy()
    plan = AffinePlan(logits.dtype, 6, weights, bias, int(np.frexp(np.abs(logits).max())[1]))
    tally = tally_gradient([logits], labels, 0, plan)
    used = labels >= 0
    loss = affine_objective(logits[used], labels[used], 0.0 if matrix else None)
    value, gradient = loss(np.concatenate([weights.reshape(-1), bias]))
    assert tally.losses.mean(0, int(used.sum())) == pytest.approx(value, rel=1e-12)
    result = np.concatenate([part.reshape(-1) for part in gradient_of(tally, plan)])
    np.testing.assert_allclose(result[:-6] / size, gradient[:-6] / size, atol=2e-6 if matrix else 1e-9)
    np.testing.assert_allclose(result[-6:], gradient[-6:], atol=1e-9)


def test_gradients__of_weights_that_overflow_are_of_an_infinite_loss():
    plan = AffinePlan(np.dtype("f8"), 2, np.array([1e308, 1.0]), np.zeros(2), 8)
    tally = tally_gradient([np.array([[100.0, 1.0], [1.0, 2.0]])], np.array([0, 1]), 0, plan)
    assert tally.losses.mean(0, 2) == math.inf
    assert not tally.weight_sums.any()


@pytest.mark.parametrize("size", [1e-310, 1e290])
def test_vector__takes_logits_of_any_size(size):
    logits, labels = drawn(dtype="f8")
    calibrator = VectorScaling(max_iterations=2).fit(logits * size, labels)
    assert calibrator.nll_after <= calibrator.nll_before


def test_gradients__are_those_of_finite_differences():
    logits, labels = drawn(dtype="f8")
    x = np.concatenate([np.eye(6).reshape(-1), np.zeros(6)])

    def tally_at(x):
        plan = AffinePlan(logits.dtype, 6, x[:36].reshape(6, 6), x[36:], int(np.frexp(np.abs(logits).max())[1]))
        tally = tally_gradient([logits], labels, 0, plan)
        return tally.losses.mean(0, 300), np.concatenate([part.reshape(-1) for part in gradient_of(tally, plan)])

    result = tally_at(x)[1]
    for i in (0, 1, 8, 35, 36, 41):
        step = np.eye(42)[i] * 1e-5
        assert result[i] == pytest.approx((tally_at(x + step)[0] - tally_at(x - step)[0]) / 2e-5, abs=1e-6)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", [VectorScaling, MatrixScaling])
def test_fits__are_the_same_to_the_last_bit_for_any_chunking(kind):
    logits, labels = drawn(n=100, c=4)
    logits[:, 0] += 1
    one = kind(max_iterations=15).fit(logits, labels)
    for chunks, threads in (((100, 4), 1), ((7, 4), 2), ((64, 3), 2)):
        with dask.config.set(scheduler="threads", num_workers=threads):
            other = kind(max_iterations=15).fit(da.from_array(logits, chunks=chunks), labels)
            blocks = np.asarray(other.transform(da.from_array(logits, chunks=chunks)))
        assert other.weights.tobytes() == one.weights.tobytes()
        assert other.bias.tobytes() == one.bias.tobytes()
        assert other.nll_after == one.nll_after
        assert blocks.tobytes() == np.asarray(one.transform(logits)).tobytes()


@pytest.mark.parametrize("kind", [VectorScaling, MatrixScaling])
def test_fits__that_are_cut_short_say_so(kind):
    with pytest.warns(avgk.ResultWarning, match="stopped early") as result:
        calibrator = kind(max_iterations=np.int64(1)).fit(*drawn())
    assert result[0].filename == __file__
    assert not calibrator.converged
    assert "stopped early" in calibrator.message
    assert calibrator.nll_after <= calibrator.nll_before


def test_calibrated__scores_are_taken_by_every_function():
    logits, labels = drawn()
    calibrator = VectorScaling(max_iterations=5).fit(logits, labels)
    p = special.softmax(logits.astype("f8") * calibrator.weights + calibrator.bias, axis=1)
    lazy = avgk.calibrated(logits, calibrator)
    assert "not computed yet" in repr(lazy)
    np.testing.assert_allclose(np.asarray(lazy), p, rtol=1e-12)
    one, other = avgk.evaluate(lazy, labels, k=[1, 2]), avgk.evaluate(np.asarray(lazy), labels, k=[1, 2])
    assert one.drop_attrs().identical(other.drop_attrs())
    with pytest.raises(avgk.ScoresError, match="6 classes"):
        avgk.evaluate(avgk.calibrated(logits[:, :4], calibrator), labels % 4)


@pytest.mark.parametrize(
    "options, text",
    [
        ({"penalty": -1}, "penalty"),
        ({"bias_penalty": math.nan}, "bias_penalty"),
        ({"max_iterations": 0}, "max_iterations"),
    ],
)
def test_matrix__refuses_options(options, text):
    with pytest.raises(avgk.OptionError, match=text):
        MatrixScaling(**options)


def test_temperature__changes_no_top_1():
    logits, labels = drawn()
    calibrator = TemperatureScaling().fit(logits, labels)
    assert (np.asarray(calibrator.transform(logits)).argmax(1) == logits.argmax(1)).all()


def test_temperature__of_separated_labels_ends_at_the_bound():
    labels = np.arange(50) % 5
    with pytest.warns(avgk.ResultWarning, match="still falls"):
        calibrator = TemperatureScaling().fit(np.eye(5)[labels] * 3, labels)
    assert not calibrator.converged
    assert calibrator.temperature == 1 / 65536
    assert calibrator.nll_after == 0
    assert "still falls" in calibrator.message
    assert "still falls" in repr(calibrator)
    calibrator = TemperatureScaling().fit(-np.eye(5)[labels] * 3, labels)
    assert not calibrator.converged
    assert calibrator.temperature == 65536
    assert calibrator.nll_after == pytest.approx(math.log(5), abs=1e-3)


def test_temperature__of_equal_logits_is_one():
    calibrator = TemperatureScaling().fit(np.zeros((10, 3)), np.arange(10) % 3)
    assert (calibrator.temperature, calibrator.converged, calibrator.n_reads) == (1.0, True, 1)


@pytest.mark.parametrize(
    "logits, labels, error, text",
    [
        (np.eye(3), [1, 1, 1], avgk.LabelsError, "at least two classes for a calibrator; got only 1"),
        (np.eye(3), [-1, -1, -1], avgk.LabelsError, "got none"),
        (np.eye(3), None, avgk.LabelsError, "labels are required for a calibrator"),
        (np.eye(3), np.eye(3), avgk.LabelsError, "class numbers"),
        (np.eye(3), [0, 1, 3], avgk.LabelsError, "lie in 0..2"),
        (avgk.softmax(np.eye(3)), [0, 1, 2], avgk.ScoresError, "Pass the logits themselves"),
        (np.where(np.eye(3), np.nan, 0), [0, 1, 2], avgk.ScoresError, "sample 0, class 0"),
        (np.diag([0, np.inf, 0]), [0, -1, 2], avgk.ScoresError, "NaN|sample 1 "),
        (np.where(np.eye(3), -np.inf, 0), [0, 1, 2], avgk.ScoresError, "3 are -inf"),
    ],
)
def test_fit__refuses_unusable_calibration_sets(logits, labels, error, text):
    with pytest.raises(error, match=text):
        TemperatureScaling().fit(logits, labels)
    if not isinstance(logits, avgk.LazyScores):
        with pytest.raises((avgk.LabelsError, avgk.ScoresError)):
            VectorScaling().fit(logits, labels)


def test_fit__of_vectors_needs_finite_logits():
    logits, labels = drawn()
    logits[17, (labels[17] + 1) % 6] = -np.inf
    assert TemperatureScaling().fit(logits, labels).converged
    with pytest.raises(avgk.ScoresError, match="sample 17 "):
        VectorScaling().fit(logits, labels)


def test_calibrators__that_are_not_fitted_say_so(tmp_path):
    for call in (lambda c: c.transform(np.eye(3)), lambda c: c.save(tmp_path / "a.json")):
        with pytest.raises(avgk.OptionError, match="is not fitted"):
            call(TemperatureScaling())
    assert "not fitted" in repr(TemperatureScaling())
    with pytest.raises(avgk.OptionError, match="calibrator must be"):
        avgk.calibrated(np.eye(3), 1.5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [VectorScaling, MatrixScaling])
def test_files__give_back_weights_to_the_last_bit(tmp_path, kind):
    options = {"penalty": 0.5, "bias_penalty": 2} if kind is MatrixScaling else {}
    calibrator = kind(max_iterations=3, **options).fit(*drawn())
    calibrator.save(tmp_path / "a.json")
    back = load(tmp_path / "a.json")
    assert type(back) is kind
    assert vars(back).keys() == vars(calibrator).keys()
    assert all(np.array_equal(value, vars(back)[name]) for name, value in vars(calibrator).items())
    assert back.weights.tobytes() == calibrator.weights.tobytes()
    assert back.bias.tobytes() == calibrator.bias.tobytes()
    assert repr(back) == repr(calibrator)
    assert np.asarray(back.transform(drawn()[0])).tobytes() == np.asarray(calibrator.transform(drawn()[0])).tobytes()


def test_files__give_back_the_calibrator_to_the_last_bit(tmp_path):
    calibrator = TemperatureScaling().fit(*drawn())
    calibrator.save(tmp_path / "a.json")
    calibrator.save(tmp_path / "a.json")
    back = load(tmp_path / "a.json")
    assert type(back) is TemperatureScaling
    assert vars(back) == vars(calibrator)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    "damage, text",
    [
        (lambda content: content.update(version=1), "version 1"),
        (lambda content: content.update(format="other"), "not a calibrator"),
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
    with pytest.raises(avgk.StoreError, match=text):
        load(tmp_path / "a.json")


def test_files__that_hold_something_else_are_refused(tmp_path):
    for name, text in (("none.json", None), ("empty.json", ""), ("list.json", "[1]"), ("cut.json", '{"format": ')):
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(avgk.StoreError):
            load(tmp_path / name)
    with pytest.raises(avgk.OptionError, match="local file"):
        load("s3://bucket/a.json")
    with pytest.raises(avgk.WriteError, match="Choose another path"):
        TemperatureScaling().fit(*drawn()).save(tmp_path / "nowhere" / "a.json")
