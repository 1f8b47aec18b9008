"""The registry: every variable that a function gives is in a table, also with a model or group before its own dimensions."""

from __future__ import annotations

import numpy as np
import pytest

import avgk_dask as avgk
from avgk_dask.results.datasets import build_result, fingerprint, from_json, to_json, validate
from avgk_dask.results.registry import AT_SIZES, AT_THRESHOLDS, COVERAGE, TRANSFERRED, VARIABLES

SCORES = np.random.default_rng(0).dirichlet(np.ones(5), 20)
LABELS = np.arange(20) % 5


@pytest.mark.parametrize(
    "found, table",
    [
        (lambda: avgk.evaluate(SCORES, LABELS), VARIABLES),
        (lambda: avgk.evaluate(SCORES, SCORES, [1, 2.5]), VARIABLES),
        (lambda: avgk.threshold(SCORES, [1, 2]), VARIABLES),
        (lambda: avgk.error_curve(SCORES, LABELS), VARIABLES),
        (lambda: avgk.straddle_strength(SCORES, [1, 2]), VARIABLES),
        (lambda: avgk.ranked_supports(SCORES, [1, 2]), VARIABLES),
        (lambda: avgk.supports_overlap(SCORES, [1]).to_dataset(), VARIABLES),
        (lambda: avgk.adaptive_gain(SCORES, [1]), VARIABLES),
        (lambda: avgk.regret(SCORES > 0.5, SCORES), VARIABLES),
        (lambda: avgk.plug_in_regret(SCORES, SCORES, [1, 2]), VARIABLES),
        (lambda: avgk.risk(SCORES, LABELS, [0.5, 0.7]), AT_THRESHOLDS),
        (lambda: avgk.average_set_size_at(SCORES, [0.5, 0.7]).to_dataset(), AT_THRESHOLDS),
        (lambda: avgk.threshold_at(SCORES, [1, 2.5]).to_dataset(), AT_SIZES),
        (lambda: avgk.transfer(SCORES, SCORES, LABELS, [1, 2.5]), TRANSFERRED),
        (lambda: avgk.conformal.calibrate(SCORES, LABELS).evaluate(SCORES, LABELS), COVERAGE),
    ],
)
def test_results__have_no_variable_outside_the_tables(found, table):
    validate(found(), table)


def test_build_result__takes_models_and_groups_before_the_own_dimensions():
    coords = {"k": [1.0, 2.0], "model": ["a", "bb", "c"], "group": ["x", "y"]}
    values = {"threshold": np.zeros((3, 2, 2)), "n_above": np.zeros((3, 2, 2), int), "plug_in_bound": np.zeros((3, 2))}
    result = build_result(values, coords, {})
    assert result.threshold.dims == ("model", "group", "k")
    assert result.plug_in_bound.dims == ("model", "group")
    assert from_json(to_json(result)).identical(result)
    assert fingerprint(result) == fingerprint(from_json(to_json(result)))


@pytest.mark.parametrize("dims", [("k", "model"), ("group", "model", "k"), ("other", "k")])
def test_validate__refuses_other_dimensions(dims):
    result = avgk.threshold(SCORES, [1, 2])
    wider = result.expand_dims([d for d in dims if d != "k"])
    wider["threshold"] = wider.threshold.transpose(*dims)
    with pytest.raises(ValueError, match="result variable threshold must match the schema"):
        validate(wider[["threshold"]])
