"""Options with bad values: every public function refuses them with one clear error, whatever their type."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import avgk_dask as avgk
from avgk_dask import calibration, conformal, losses

SCORES = np.array([[0.5, 0.3, 0.2], [0.25, 0.5, 0.25], [0.2, 0.2, 0.6], [0.4, 0.35, 0.25]])
LABELS = np.array([0, 1, 2, 1])
LOGITS = np.log(SCORES)
PREDICTOR = conformal.calibrate(SCORES, LABELS, 0.5, progress=False)

#: A call of every public function that has options; tests add the option under test.
CALLS = {
    avgk.adaptive_gain: (SCORES, 1),
    avgk.average_k_sets: (SCORES, 1),
    avgk.average_set_size_at: (SCORES, 0.3),
    avgk.best_threshold: (SCORES, LABELS),
    avgk.breakdown: (SCORES, LABELS, 1),
    avgk.compare: ({"a": SCORES, "b": SCORES}, LABELS, 1),
    avgk.compile_kernels: (),
    avgk.ensemble: ([SCORES, SCORES],),
    avgk.error_curve: (SCORES, LABELS),
    avgk.evaluate: (SCORES, LABELS, 1),
    avgk.ingest: ("scores.npy", LABELS),
    avgk.open_scores: ("scores.zarr",),
    avgk.plug_in_regret: (SCORES, SCORES, 1),
    avgk.predict_sets: (SCORES,),
    avgk.ranked_supports: (SCORES, 1),
    avgk.regret: (SCORES > 0.3, SCORES),
    avgk.risk: (SCORES, LABELS, 0.3),
    avgk.set_pairs: (SCORES, 1),
    avgk.smallest_k: (SCORES, LABELS),
    avgk.straddle_strength: (SCORES, 1),
    avgk.supports_overlap: (SCORES, 1),
    avgk.threshold: (SCORES, 1),
    avgk.threshold_at: (SCORES, 1),
    avgk.top_k_sets: (SCORES, 1),
    avgk.transfer: (SCORES, SCORES, LABELS, 1),
    avgk.verify: ("scores.zarr",),
    avgk.Evaluator: (3,),
    calibration.TemperatureScaling().fit: (LOGITS, LABELS),
    calibration.VectorScaling().fit: (LOGITS, LABELS),
    calibration.temperature_curve: (LOGITS, LABELS),
    conformal.calibrate: (SCORES, LABELS, 0.5),
    PREDICTOR.evaluate: (SCORES, LABELS),
    PREDICTOR.sets: (SCORES,),
    losses.brier: (SCORES, LABELS),
    losses.calibration_at_threshold: (SCORES, LABELS, 1),
    losses.evaluate_losses: (SCORES, LABELS),
    losses.expected_calibration_error: (SCORES, LABELS),
    losses.nll: (SCORES, LABELS),
    losses.one_versus_all: (SCORES, LABELS),
}
#: Required keyword arguments of a call.
NEEDED = {
    avgk.best_threshold: {"cost": 0.1},
    avgk.compile_kernels: {"dtypes": []},
    avgk.ingest: {"out": "out.zarr"},
    avgk.predict_sets: {"threshold": 0.3},
    avgk.smallest_k: {"max_error": 0.5},
}

SEVERAL = np.array([True, False])
FLAGS = [SEVERAL, "yes", 2, 0.5]
WORDS = [np.array(["raise", "first"]), "never", 1, ["raise"]]
COUNTS = [0, -1, 1.5, True, "3", SEVERAL]
#: Values that no function accepts for an option of that name.
BAD = {
    "append": [*FLAGS, None],
    "bins": COUNTS,
    "checkpoint": [3, "", SEVERAL],
    "clusters": [1.5, np.array([0.5, 1.5, 0.5, 1.5]), "nowhere.npy", [0, 1]],
    "guarantee": WORDS,
    "ignore_index": [1.5, "0", SEVERAL, True],
    "log": [*FLAGS, None],
    "missing": WORDS,
    "n_pairs": COUNTS,
    "nan_policy": [*WORDS, None],
    "of": [*WORDS, None],
    "overwrite": [*FLAGS, None],
    "progress": FLAGS,
    "straddle": [*FLAGS, None],
    "ties": [*WORDS, None],
    "where": [1.5, np.array([1, 0, 1, 0]), "nowhere.npy", [True]],
}
#: The public functions, including those of the submodules.
PUBLIC = [
    getattr(home, name)
    for home in (avgk, calibration, conformal, losses)
    for name in home.__all__
    if inspect.isfunction(getattr(home, name))
]
CASES = [
    pytest.param(function, name, id=f"{function.__qualname__}-{name}")
    for function in CALLS
    for name in inspect.signature(function).parameters
    if name in BAD
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with a store and a file of the scores."""
    folder = tmp_path_factory.mktemp("scores")
    np.save(folder / "scores.npy", SCORES)
    with avgk.ScoreWriter(folder / "scores.zarr", n_classes=3) as writer:
        writer.append(SCORES, LABELS)
    return folder


@pytest.mark.parametrize(("function", "name"), CASES)
def test_bad_options__are_refused_by_name(files, monkeypatch, function, name):
    monkeypatch.chdir(files)
    for value in BAD[name]:
        with pytest.raises(avgk.AvgkError, match=rf"\b{name}\b|nowhere\.npy"):
            function(*CALLS[function], **{**NEEDED.get(function, {}), name: value})


def test_bad_options__are_tried_of_every_public_function():
    with_options = [f for f in PUBLIC if {*BAD} & {*inspect.signature(f).parameters}]
    assert [f.__name__ for f in with_options if f not in CALLS] == []


@pytest.mark.parametrize("flag", [True, False, np.True_, np.False_])
def test_flags__may_be_those_of_numpy(flag):
    expected = avgk.evaluate(SCORES, LABELS, 1, straddle=bool(flag), progress=False)
    assert avgk.evaluate(SCORES, LABELS, 1, straddle=flag, progress=False).identical(expected)
