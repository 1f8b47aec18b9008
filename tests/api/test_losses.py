"""Losses and calibration errors: their definitions, the paper's inequalities, and the same bits however they are read."""

from __future__ import annotations

import math
from fractions import Fraction

import dask
import dask.array as da
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

import avgk_dask as avgk
from avgk_dask import losses
from avgk_dask.bands.probabilities import LINKS

NAMES = ("nll", "brier", "logistic", "squared", "exponential")


def chances(n=200, c=7, seed=0, dtype="f8"):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(c, 0.5), n).astype(dtype), rng.integers(-1, c, n)


def by_definition(name, p, weights, q=None):
    """Return the loss of each row, straight from the paper, weights being those of its labels."""
    p = p.astype("f8")
    q = 1 - p if q is None else q
    with np.errstate(divide="ignore", invalid="ignore"):
        on, off = {
            "nll": (-np.log(p), 0 * p),
            "brier": (q**2 / 2, p**2 / 2),
            "logistic": (-np.log(p), -np.log(q)),
            "squared": (q**2, p**2),
            "exponential": (np.sqrt(q / p), np.sqrt(p / q)),
        }[name]
        return (np.where(weights > 0, weights * on, 0) + np.where(weights < 1, (1 - weights) * off, 0)).sum(1)


def mean_loss(name, scores, labels=None, **options):
    if name in ("nll", "brier"):
        return getattr(losses, name)(scores, labels, **options)
    return losses.one_versus_all(scores, labels, name, **options)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_losses__are_the_means_of_the_definitions(name, dtype):
    p, labels = chances(dtype=dtype)
    p = np.clip(p.astype("f8"), 1e-3, 1 - 1e-2).astype(dtype)
    used = labels >= 0
    expected = by_definition(name, p[used], np.eye(p.shape[1])[labels[used]]).mean()
    assert math.isclose(mean_loss(name, p, labels), expected, rel_tol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_losses__of_soft_labels_are_expected_ones(name):
    p, eta = chances()[0], chances(seed=1)[0]
    assert math.isclose(mean_loss(name, p, eta), by_definition(name, p, eta).mean(), rel_tol=1e-12)
    hard = chances()[1] % 7
    assert math.isclose(mean_loss(name, p, np.eye(7)[hard]), mean_loss(name, p, hard), rel_tol=1e-13)


def test_brier__is_half_of_the_squared_loss_over_all_classes():
    p, labels = chances()
    assert losses.brier(p, labels) == losses.one_versus_all(p, labels, "squared") / 2


def test_nll__of_a_softmax_comes_from_the_logits():
    logits = np.array([[0.0, -5000.0, 3.0], [1e9, 0.0, 0.0]])
    assert losses.nll(avgk.softmax(logits), np.array([1, 1])) == (5003.0 + math.log1p(math.exp(-3)) + 1e9) / 2
    assert losses.nll(avgk.softmax(logits, temperature=2), [1, 1]) < losses.nll(avgk.softmax(logits), [1, 1])


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
@pytest.mark.parametrize("temperature", [1.0, 0.4, 3.0])
def test_losses__of_a_softmax_are_those_of_its_probabilities(dtype, temperature):
    rng = np.random.default_rng(3)
    logits, labels = (rng.standard_normal((80, 9)) * 4).astype(dtype), rng.integers(0, 9, 80)
    p = special.softmax(logits.astype("f8") / temperature, axis=1)
    q = np.array([[np.delete(row, c).sum() for c in range(9)] for row in p])  # 1 - p is not exact enough
    for name in NAMES:
        for given_labels, weights in ((labels, np.eye(9)[labels]), (p[::-1], p[::-1])):
            expected = by_definition(name, p, weights, q).mean()
            result = mean_loss(name, avgk.softmax(logits, temperature=temperature), given_labels)
            assert math.isclose(result, expected, rel_tol=1e-9), name


def test_one_versus_all__of_sigmoids_are_losses_of_margins():
    logits, labels = np.array([[800.0, -900.0, 2.0], [-30.0, 40.0, 0.5]]), np.array([1, 0])
    margins = np.where(np.eye(3)[labels] == 1, logits, -logits)
    result = losses.one_versus_all(avgk.sigmoid(logits), labels)
    assert math.isclose(result, np.logaddexp(0, -margins).sum(1).mean(), rel_tol=1e-14)
    small = logits / 100
    result = losses.one_versus_all(avgk.sigmoid(small), labels, "exponential")
    assert math.isclose(result, np.exp(-margins / 200).sum(1).mean(), rel_tol=1e-13)


def test_one_versus_all__of_a_sure_softmax_is_finite():
    result = losses.one_versus_all(avgk.softmax(np.array([[60.0, 0.0]])), np.array([1]))
    assert math.isclose(result, 120, rel_tol=1e-12)
    assert losses.one_versus_all(avgk.softmax(np.array([[2000.0, 0.0, 0.0]])), np.array([1])) == 4000 - math.log(2)
    assert losses.one_versus_all(avgk.softmax(np.array([[2000.0, 0.0]])), np.array([0])) == 0
    assert losses.one_versus_all(avgk.softmax(np.array([[5.0, -np.inf], [0.0, 0.0]])), np.array([1, 0])) == math.inf
    assert losses.one_versus_all(np.array([[1.0, 0.0]]), np.array([1])) == math.inf


def test_losses__are_infinite_if_a_label_has_probability_zero():
    p = np.array([[1.0, 0.0], [0.5, 0.5]])
    assert losses.nll(p, [1, 0]) == losses.one_versus_all(p, [1, 0], "exponential") == math.inf
    assert losses.nll(p, [0, 0]) == math.log(2) / 2
    assert losses.nll(p, p) == math.log(2) / 2  # what never happens costs nothing
    assert losses.nll(np.array([[5e-324, 1.0]]), [0]) == pytest.approx(1074 * math.log(2), rel=1e-15)
    assert losses.one_versus_all(np.array([[1e-300, 0.5]]), [0], "exponential") == pytest.approx(1e150, rel=1e-12)


def test_losses__without_a_labelled_sample_are_nan():
    assert math.isnan(losses.nll(np.array([[0.5, 0.5]]), np.array([-1])))


@pytest.mark.sample(1)
@pytest.mark.parametrize("chunks", [(200, 7), (1, 7), (33, 3), ((150, 50), (1, 6)), (64, 1)])
@pytest.mark.parametrize("threads", [1, 2])
def test_losses__have_the_same_bits_for_any_chunking(chunks, threads):
    p, labels = chances(dtype="f4")
    logits = np.log(p + np.float32(1e-6))
    blocks = [da.from_array(array, chunks=chunks) for array in (p, logits)]
    with dask.config.set(scheduler="threads", num_workers=threads):
        for whole, parts in ((p, blocks[0]), (avgk.softmax(logits, 1.5), avgk.softmax(blocks[1], 1.5))):
            for given_labels in (labels, chances(seed=5)[0]):
                one = losses.evaluate_losses(whole, given_labels, NAMES)
                assert one.identical(losses.evaluate_losses(parts, given_labels, NAMES))
            near = [losses.calibration_at_threshold(s, labels, 1.5, window=0.5) for s in (whole, parts)]
            errors = [losses.expected_calibration_error(s, labels) for s in (whole, parts)]
            for left, right in (near, errors):
                assert left.drop_attrs().identical(right.drop_attrs())


def test_losses__of_a_store_are_those_of_the_array_in_one_read(tmp_path):
    p, labels = chances(dtype="f4")
    with avgk.ScoreWriter(tmp_path / "a.zarr", n_classes=7, chunk_rows=30) as writer:
        writer.append(p, labels)
    result = losses.evaluate_losses(tmp_path / "a.zarr", losses=NAMES, checkpoint=tmp_path / "kept")
    assert result.mean_loss.values.tolist() == [mean_loss(name, p, labels) for name in NAMES]
    assert result.attrs["reads"] == 1
    assert result.attrs["n_labelled"] == (labels >= 0).sum()
    again = losses.evaluate_losses(tmp_path / "a.zarr", losses=NAMES, checkpoint=tmp_path / "kept")
    assert again.identical(result.assign_attrs(reads=0))


def simplex(n):
    return st.lists(st.integers(1, 1000), min_size=n, max_size=n).map(lambda v: np.array([v]) / sum(v))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=settings().max_examples // 3)
@given(data=st.data(), n=st.integers(2, 6))
def test_losses__are_as_strongly_proper_as_mu_says(name, data, n):
    """The regret is at least mu/2 times the squared 1-norm, so that eta itself has the least expected loss."""
    eta, other = data.draw(simplex(n)), data.draw(simplex(n))
    regret = mean_loss(name, other, eta) - mean_loss(name, eta, eta)
    distance = np.abs(eta - other).sum()
    assert regret >= losses.mu(name, n) / 2 * distance**2 - 1e-12
    assert distance <= losses.regret_bound(name, max(regret, 0) + 1e-12, n)


def test_mu__is_tight_for_binary_losses():
    eta, other = np.array([[0.5, 0.5]]), np.array([[0.501, 0.499]])
    for name in NAMES:
        regret = mean_loss(name, other, eta) - mean_loss(name, eta, eta)
        assert regret == pytest.approx(losses.mu(name, 2) / 2 * 0.002**2, rel=1e-4)


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda p, y: losses.nll(p * 2 - 0.5, y), avgk.ScoresError, r"first is sample \d+. Pass softmax"),
        (lambda p, y: losses.expected_calibration_error(np.log(p), y), avgk.ScoresError, "Pass softmax"),
        (lambda p, y: losses.nll(p), avgk.LabelsError, "labels are required"),
        (lambda p, y: losses.nll(p, y + 1), avgk.LabelsError, "lie in 0..6"),
        (lambda p, y: losses.nll(np.where(p == p[0, 0], np.nan, p), y), avgk.ScoresError, "sample 0, class 0"),
        (lambda p, y: losses.nll(p, y, nan_policy="lowest"), avgk.OptionError, "must be 'raise'"),
        (lambda p, y: losses.one_versus_all(p, y, "hinge"), avgk.OptionError, "logistic, squared"),
        (lambda p, y: losses.evaluate_losses(p, y, []), avgk.OptionError, "some of nll"),
        (lambda p, y: losses.mu("brier"), avgk.OptionError, "Pass C"),
        (lambda p, y: losses.mu("hinge", 3), avgk.OptionError, "one of nll"),
        (lambda p, y: losses.regret_bound("nll", -1), avgk.OptionError, "at least 0"),
        (lambda p, y: losses.expected_calibration_error(p, y, 0), avgk.OptionError, "n_bins"),
        (lambda p, y: losses.calibration_at_threshold(p, y), avgk.BudgetError, "k must be"),
        (lambda p, y: losses.calibration_at_threshold(p, y, 1, window=2), avgk.OptionError, "window"),
        (lambda p, y: losses.nll(avgk.softmax(np.where(p == p[3, 0], np.inf, p)), y), avgk.ScoresError, "sample 3 "),
    ],
)
def test_losses__refuse_invalid_arguments(call, error, text):
    p, _ = chances()
    with pytest.raises(error, match=text):
        call(p, np.arange(len(p)) % 7)


def bins_by_definition(conf, hits, n_bins):
    bins = [min(math.floor(Fraction(c) * n_bins), n_bins - 1) for c in conf.tolist()]
    table = [(len(m := [i for i, b in enumerate(bins) if b == number]), m) for number in range(n_bins)]
    gaps = [abs(sum(Fraction(conf[i]) for i in m) - sum(int(hits[i]) for i in m)) for _, m in table]
    return [n for n, _ in table], float(sum(gaps) / len(conf))


@settings(max_examples=settings().max_examples // 3)
@given(
    rows=st.lists(st.lists(st.integers(0, 60), min_size=3, max_size=3), min_size=1, max_size=20),
    n_bins=st.integers(1, 30),
    data=st.data(),
)
def test_expected_calibration_error__is_the_definition_also_at_edges(rows, n_bins, data):
    p = np.array(rows) / 60
    labels = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(p), max_size=len(p))))
    result = losses.expected_calibration_error(p, labels, n_bins)
    counts, error = bins_by_definition(p.max(1), p.argmax(1) == labels, n_bins)
    assert result["count"].values.tolist() == counts
    assert float(result.expected_calibration_error) == error
    assert result.bin_low.values.tolist() == [i / n_bins for i in range(n_bins)]


def test_expected_calibration_error__of_soft_labels_equal_to_the_scores_is_zero():
    eta = chances()[0]
    assert float(losses.expected_calibration_error(eta, eta).expected_calibration_error) == 0
    assert float(losses.expected_calibration_error(eta, eta[::-1]).expected_calibration_error) > 0


def test_expected_calibration_error__is_that_of_torchmetrics():
    torch = pytest.importorskip("torch", reason="torchmetrics is not installed")
    metrics = pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    p, labels = chances(n=5000, dtype="f4")
    labels = np.abs(labels)
    other = metrics.classification.MulticlassCalibrationError(num_classes=7, n_bins=15, norm="l1")
    expected = float(other(torch.from_numpy(p), torch.from_numpy(labels)))
    assert float(losses.expected_calibration_error(p, labels).expected_calibration_error) == pytest.approx(
        expected, rel=1e-5
    )


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("k, window, n_bins", [(1, 0.5, 4), (2.5, "0.1", 1), ("0.3", 1, 3), (6, 1, 2)])
def test_calibration_at_threshold__counts_the_scores_of_these_ranks(k, window, n_bins, soft):
    p, labels = chances(n=150)
    weights = chances(n=150, seed=9)[0] if soft else np.where(labels[:, None] >= 0, np.eye(7)[labels], 0)
    result = losses.calibration_at_threshold(p, weights if soft else labels, k, window=window, n_bins=n_bins)
    used = np.ones(150, bool) if soft else labels >= 0
    ranked = np.sort(p.reshape(-1))[::-1]
    exact, part = Fraction(str(k)), Fraction(str(window))
    shares = [1 + part - 2 * part * i / n_bins for i in range(n_bins + 1)]
    lasts = [math.floor(150 * min(exact * share, 7)) for share in shares]
    assert result.threshold == avgk.threshold(p, k).value
    for b in range(n_bins):
        values = ranked[lasts[b + 1] : lasts[b]]
        own = np.isin(p, values) & used[:, None]
        assert result["count"][b] == own.sum()
        assert result.confidence[b] == pytest.approx(p[own].mean(), rel=1e-14)
        assert result.accuracy[b] == pytest.approx(weights[own].mean(), rel=1e-14)
    assert result.total_count == result["count"].sum()
    assert result.attrs["reads"] == 2


def test_calibration_at_threshold__keeps_ties_together():
    p = np.full((10, 4), 0.25)
    result = losses.calibration_at_threshold(p, np.zeros(10, int), 2, window=0.5, n_bins=2)
    assert result["count"].values.tolist() == [0, 40]
    assert (result.total_confidence, result.total_accuracy, result.threshold) == (0.25, 0.25, 0.25)


def test_calibration_at_threshold__has_all_ties_with_the_threshold():
    rng = np.random.default_rng(0)
    p, labels = rng.integers(0, 4, (200, 6)) / 4, rng.integers(0, 6, 200)
    for k in (0.001, 0.5, 1, 2, 3, 5.9, 6):
        result = losses.calibration_at_threshold(p, labels, k)
        at = p == float(result.threshold)
        low, high = float(result.bin_low[0]), float(result.bin_high[-1])
        assert low <= float(result.threshold) <= high
        inside = (p >= low) & (p <= high)
        assert int(result.total_count) == inside.sum() >= at.sum() > 0
        assert float(result.total_accuracy) == (inside & (np.arange(6) == labels[:, None])).sum() / inside.sum()


@pytest.mark.parametrize("window", [1e-9, 0.01, 0.05, 0.1, 0.2])
@pytest.mark.parametrize("k", [0.01, 1, 1.07, 3.05])
def test_calibration_at_threshold__bins_ascend_in_windows_of_few_ranks(k, window):
    p, labels = chances(n=10)
    result = losses.calibration_at_threshold(p, labels, k, window=window, n_bins=4)
    edges = [*result.bin_low.values, result.bin_high.values[-1]]
    assert edges == sorted(edges)
    assert edges[1:] == result.bin_high.values.tolist()
    exact, part = Fraction(str(k)), Fraction(str(window))
    last, first = (math.floor(10 * exact * share) for share in (1 + part, 1 - part))
    values = np.sort(p.reshape(-1))[::-1][first : max(last, first + 1)]
    assert (edges[0], edges[-1]) == (values[-1], values[0])
    assert int(result.total_count) == (np.isin(p, values) & (labels >= 0)[:, None]).sum()


def test_exponential_loss__of_logits_is_finite_if_probabilities_underflow():
    far = losses.one_versus_all(avgk.sigmoid(np.array([[-1000.0]])), np.array([0]), loss="exponential")
    assert far == pytest.approx(math.exp(500), rel=1e-12)
    near = losses.one_versus_all(avgk.sigmoid(np.array([[1000.0]])), np.array([0]), loss="exponential")
    assert near == pytest.approx(math.exp(-500), rel=1e-12)
    assert losses.one_versus_all(np.array([[0.0, 1.0]]), np.array([0]), loss="exponential") == math.inf


def test_losses__of_an_activation_without_logit_losses_come_from_its_probabilities(monkeypatch):
    logits = np.random.default_rng(2).normal(size=(20, 4))
    labels = np.arange(20) % 4
    probabilities = np.asarray(avgk.sigmoid(logits))
    monkeypatch.delitem(LINKS, "sigmoid")
    assert avgk.losses.nll(avgk.sigmoid(logits), labels) == avgk.losses.nll(probabilities, labels)
