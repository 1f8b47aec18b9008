"""Scores that are not probabilities are noticed, in the result, its table and its report; rounding is not."""

from __future__ import annotations

import dask.array as da
import ml_dtypes
import numpy as np
import pytest
from scipy import special

import avgk_dask as avgk
from avgk_dask.report import print_table
from avgk_dask.report.tables import ambiguity_table
from avgk_dask.results.datasets import kind_sentence

RNG = np.random.default_rng(2)
LOGITS = (RNG.standard_normal((3_000, 40)) * 3).astype("f4")
PROBABILITIES = special.softmax(LOGITS.astype("f8"), axis=1)
LABELS = LOGITS.argmax(1)


def kind_of(scores, **options):
    return avgk.evaluate(scores, k=[1, 2], straddle=False, **options).attrs.get("score_kind")


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", ml_dtypes.bfloat16])
def test_probabilities__of_any_dtype_are_taken_for_such(dtype):
    assert kind_of(PROBABILITIES.astype(dtype)) == "probabilities"
    assert kind_of((PROBABILITIES * 1.00002).astype(dtype)) == "probabilities"
    wide = special.softmax(RNG.standard_normal((50, 50_000)), axis=1).astype(dtype)
    assert kind_of(wide) == "probabilities"
    assert kind_of(np.eye(40, dtype="u1")) == "probabilities"


@pytest.mark.filterwarnings("error::avgk_dask.errors.ResultWarning")
def test_evaluate__warns_of_scores_that_are_no_probabilities():
    with pytest.warns(avgk.ResultWarning, match=r"not probabilities.*pass softmax\(scores\)") as caught:
        avgk.evaluate(LOGITS, k=1)
    assert caught[0].filename == __file__
    avgk.evaluate(PROBABILITIES, k=1)
    avgk.evaluate(avgk.softmax(LOGITS), k=1)


@pytest.mark.sample(1)
@pytest.mark.parametrize("chunks", [(3_000, 40), (7, 40), (500, 9), (3_000, 1)])
def test_other_scores__are_noticed_for_any_chunking(chunks):
    for scores, kind in (
        (LOGITS, "outside [0, 1]"),
        (LOGITS - 100, "outside [0, 1]"),
        (special.expit(LOGITS), "rows do not sum to 1"),
        (PROBABILITIES / 2, "rows do not sum to 1"),
        ((PROBABILITIES * 255).astype("u1"), "outside [0, 1]"),
        (np.where(np.sort(LOGITS, 1)[:, -10:-9] > LOGITS, -np.inf, LOGITS), "mostly absent"),
        (PROBABILITIES, "probabilities"),
    ):
        assert kind_of(da.from_array(scores, chunks=chunks)) == kind


def test_softmax__of_rows_that_a_server_cut_is_told_from_whole_ones():
    cut = np.where(np.sort(LOGITS, 1)[:, -10:-9] > LOGITS, -np.inf, LOGITS)
    assert kind_of(avgk.softmax(cut)) == "mostly absent"
    assert kind_of(avgk.softmax(LOGITS)) == "probabilities"
    assert kind_of(avgk.sigmoid(LOGITS)) == "rows do not sum to 1"
    assert kind_of(np.asarray(avgk.softmax(cut))) == "probabilities"  # as from a random forest


def test_rows_with_nan__do_not_count():
    scores = PROBABILITIES.copy()
    scores[:, 3] = np.nan
    assert kind_of(scores, nan_policy="lowest") is None
    scores[::2, 3] = PROBABILITIES[::2, 3]
    assert kind_of(scores, nan_policy="lowest") == "probabilities"


def test_truncated_stores__are_left_out(tmp_path):
    with avgk.ScoreWriter(tmp_path / "a.zarr", n_classes=40, top_m=9) as writer:
        writer.append(LOGITS, LABELS)
    assert kind_of(tmp_path / "a.zarr") is None


@pytest.mark.slow
def test_tables_and_reports__say_so_in_one_line_and_show_no_bound():
    for scores, kind in ((LOGITS, "outside [0, 1]"), (special.expit(LOGITS), "do not sum to 1")):
        result = avgk.evaluate(scores, LABELS, k=[1, 2])
        line = kind_sentence(result)
        assert kind in line
        assert "softmax(scores)" in line
        assert line in print_table(result).splitlines()
        assert "softmax(scores)" in avgk.report.render_report(result)
        assert "lower bound on the errors avoided (points)" not in ambiguity_table(result).header
        assert "at least" not in print_table(result)
    result = avgk.evaluate(avgk.softmax(LOGITS), LABELS, k=[1, 2])
    assert kind_sentence(result) == ""
    assert "lower bound on the errors avoided (points)" in ambiguity_table(result).header


def test_score_kind__is_the_same_for_any_chunking_of_mixed_rows():
    mixed = PROBABILITIES[:320].copy()
    mixed[::11] *= 3
    kinds = {kind_of(da.from_array(mixed, chunks=(n, 40))) for n in (320, 16, 40, 7, 100, 1)}
    assert len(kinds) == 1
