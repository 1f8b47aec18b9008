"""Conformal thresholds and sets of real scores against TorchCP and MAPIE, where the definitions coincide.

Where they do not, the difference is named, and shown to be one of rounding on the other side.
"""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest

import avgk_dask as avgk

ALPHAS = (0.01, 0.05, 0.1, 0.2)
#: What MAPIE takes for equal.
MAPIE_TOLERANCE = 1e-8


@pytest.fixture(scope="module", params=["cifar100_wide_resnet", "imagenet5k"])
def halves(request, data):
    """Give scores and labels to calibrate with, and others."""
    folder = data / request.param
    scores, labels = np.load(folder / "scores.npy"), np.load(folder / "labels.npy")
    order = np.random.default_rng(0).permutation(len(scores))[:5_000]
    first, second = order[::2], order[1::2]
    return scores[first], labels[first], scores[second], labels[second]


@pytest.fixture(scope="module")
def torchcp():
    pytest.importorskip("torch", reason="torch is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("torchcp.classification", reason="TorchCP is not installed")
    from torchcp.classification import predictor, score

    return predictor, score


def torch_sets(torchcp, score, halves, alpha, dtype, kind="SplitPredictor"):
    """Give TorchCP's threshold and its sets."""
    import torch

    first, labels, second, _ = halves
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = getattr(torchcp[0], kind)(score, alpha=alpha)
        result.calculate_threshold(torch.tensor(first.astype(dtype)), torch.tensor(labels.astype(np.int64)))
        sets = result.predict_with_logits(torch.tensor(second.astype(dtype)))
    return result.q_hat, sets.numpy().astype(bool)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_lac__is_torchcps_in_double_precision(torchcp, halves, alpha):
    ours = avgk.conformal.calibrate(*halves[:2], alpha)
    q, sets = torch_sets(torchcp, torchcp[1].LAC(score_type="identity"), halves, alpha, "f8")
    assert float(q) == 1 - ours.threshold
    np.testing.assert_array_equal(ours.sets(halves[2]), sets)
    result = ours.evaluate(*halves[2:])
    assert float(result.average_set_size) == sets.sum() / len(sets)
    assert int(result.n_hits) == sets[np.arange(len(sets)), halves[3]].sum()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_lac__of_torchcp_in_single_precision_only_adds_scores_that_round_to_the_threshold(torchcp, halves, alpha):
    ours = avgk.conformal.calibrate(*halves[:2], alpha)
    q, sets = torch_sets(torchcp, torchcp[1].LAC(score_type="identity"), halves, alpha, "f4")
    part = ours.sets(halves[2]).compute()
    assert not (part & ~sets).any()
    extra = halves[2][sets & ~part]
    assert (extra < ours.threshold).all()
    assert (np.float32(1) - extra == np.float32(q)).all()  # 1 - p has lost the difference


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("method, options", [("aps", {}), ("raps", {"penalty": 0.01, "k_reg": 5})])
def test_sums__give_torchcps_sets_in_double_precision(torchcp, halves, alpha, method, options):
    ours = avgk.conformal.calibrate(*halves[:2], alpha, method, **options)
    theirs = {"aps": torchcp[1].APS, "raps": torchcp[1].RAPS}[method]
    named = {"penalty": options["penalty"], "kreg": options["k_reg"]} if options else {}
    score = theirs(score_type="identity", randomized=False, **named)
    q, sets = torch_sets(torchcp, score, halves, alpha, "f8")
    assert float(q) == pytest.approx(
        ours.threshold, abs=1e-7 if options else 1e-15
    )  # its penalties are single precision
    np.testing.assert_array_equal(ours.sets(halves[2]), sets)


@pytest.mark.parametrize("method", ["LAC", "TOPK"])
def test_thresholds_by_class__are_torchcps(torchcp, halves, method):
    ours = avgk.conformal.calibrate(*halves[:2], 0.3, {"LAC": "lac", "TOPK": "top_k"}[method], "class")
    score = torchcp[1].LAC(score_type="identity") if method == "LAC" else torchcp[1].TOPK(randomized=False)
    q, sets = torch_sets(torchcp, score, halves, 0.3, "f8", "ClassConditionalPredictor")
    q = q.numpy()
    enough = np.asarray(ours.rank) <= np.asarray(ours.n_calibration)
    np.testing.assert_array_equal(np.isinf(q), ~enough)
    if method == "LAC":
        np.testing.assert_array_equal(
            q[enough], (1 - ours.threshold[enough]).astype("f4")
        )  # its array is of single precision
    else:
        np.testing.assert_array_equal(q[enough], ours.threshold[enough])
        np.testing.assert_array_equal(ours.sets(halves[2]), sets)


def test_ranks__of_torchcp_are_one_too_high_if_floats_round_up(torchcp):
    import torch
    from torchcp.utils.common import calculate_conformal_value

    n, alpha = next(
        (n, a / 100) for n in range(9, 2_000) for a in range(1, 60)
        if math.ceil((n + 1) * (1 - a / 100)) > math.ceil((n + 1) * (1 - Fraction(a, 100))) and math.ceil((n + 1) * (1 - a / 100)) <= n
    )  # fmt: skip
    scores = np.linspace(0.9, 0.1, n)
    chances = np.stack([scores, 1 - scores], axis=1)
    ours = avgk.conformal.calibrate(chances, np.zeros(n, int), alpha)
    exact = math.ceil((n + 1) * (1 - Fraction(str(alpha))))
    assert ours.rank == exact
    theirs = float(calculate_conformal_value(torch.tensor(1 - scores), alpha))
    assert theirs == (1 - scores)[exact]  # the next one


class Known:
    """An estimator, for MAPIE, whose probabilities are known: samples are row numbers."""

    def __init__(self, chances):
        self.chances, self.classes_ = chances, np.arange(chances.shape[1])

    def fit(self, samples, labels):
        return self

    def predict_proba(self, samples):
        return self.chances[np.asarray(samples)[:, 0].astype(int)]

    def predict(self, samples):
        return self.predict_proba(samples).argmax(1)

    def __sklearn_is_fitted__(self):
        return True


def mapie_sets(halves, alpha, score):
    """Give MAPIE's sets of probabilities in double precision, and its quantile."""
    mapie = pytest.importorskip("mapie.classification", reason="MAPIE is not installed")
    from sklearn.base import BaseEstimator, ClassifierMixin

    kind = type("Estimator", (Known, ClassifierMixin, BaseEstimator), {})
    first, labels, second, _ = halves
    n = len(first)
    estimator = kind(np.concatenate([first, second]).astype("f8"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = mapie.SplitConformalClassifier(
            estimator, confidence_level=1 - alpha, conformity_score=score, prefit=True
        )
        result.conformalize(np.arange(n)[:, None], labels)
        _, sets = result.predict_set(np.arange(n, n + len(second))[:, None])
    return sets[:, :, 0]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_lac__is_mapies_but_for_its_tolerance(halves, alpha):
    sets = mapie_sets(halves, alpha, "lac")
    ours = avgk.conformal.calibrate(*halves[:2], alpha)
    part = ours.sets(halves[2]).compute()
    apart = halves[2][part != sets].astype("f8")
    assert not (part & ~sets).any()
    assert (np.abs(apart - ours.threshold) <= MAPIE_TOLERANCE).all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_top_k__is_mapies_but_for_ties(halves, alpha):
    sets = mapie_sets(halves, alpha, "top_k")
    ours = avgk.conformal.calibrate(*halves[:2], alpha, "top_k")
    part = ours.sets(halves[2]).compute()
    assert not (part & ~sets).any()
    rows, classes = np.nonzero(sets & ~part)
    last = np.sort(halves[2], axis=1)[rows, -ours.threshold]
    assert (np.abs(halves[2][rows, classes].astype("f8") - last) <= MAPIE_TOLERANCE).all()  # it keeps all that tie
