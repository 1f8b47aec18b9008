"""The curve from the same scan as a result: both equal the results of ``evaluate``."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import avgk_dask as avgk
from avgk_dask.api.evaluate import evaluate_with_curve
from avgk_dask.api.options import ScanOptions
from avgk_dask.testing import simulate
from avgk_dask.testing.strategies import budgets, hard_labels, score_matrices


def same_budgets(curve, expected):
    """Return whether a curve equals an evaluation, except for sizes that none of its sets has."""
    return (
        curve.isel(size=slice(0, expected.sizes["size"])).identical(expected)
        and not curve.set_size_count.values[:, expected.sizes["size"] :].any()
    )


@pytest.mark.filterwarnings("ignore::avgk_dask.ResultWarning")
@settings(max_examples=settings().max_examples // 3)
@given(data=st.data(), scores=score_matrices(), straddle=st.booleans())
def test_curve__and_result_are_what_evaluate_gives(data, scores, straddle):
    labels = data.draw(hard_labels(scores.shape))
    ks = data.draw(budgets(scores.shape[1]))
    result, curve = evaluate_with_curve(scores, labels, ks, ScanOptions(straddle=straddle), most=4)
    assert result.identical(avgk.evaluate(scores, labels, ks, straddle=straddle))
    whole = range(1, min(4, scores.shape[1]) + 1)
    assert same_budgets(curve, avgk.evaluate(scores, labels, whole, straddle=False))


def test_curve__takes_no_further_read():
    toy = simulate(4_000, 150)
    result, curve = evaluate_with_curve(toy.scores, toy.labels, [1, 2.5], ScanOptions())
    assert result.attrs["reads"] == curve.attrs["reads"] == 1
    assert curve.k.values.tolist() == list(range(1, 101))
    assert "straddle_bound" in result
    assert "straddle_bound" not in curve


@pytest.mark.slow
def test_curve__ends_where_rows_are_no_longer_held():
    """5,000 samples of 4 bytes, and a quarter more: 25,000 bytes per budget; a million fits 40 and 12 bytes per row."""
    toy = simulate(5_000, 60)
    with dask.config.set({"avgk.kept-bytes": 1_060_000}):
        curve = evaluate_with_curve(toy.scores, toy.labels, [1, 2.5], ScanOptions())[1]
        assert curve.k.values.tolist() == list(range(1, 41))
        assert evaluate_with_curve(toy.scores, toy.labels, [1, 50], ScanOptions(straddle=False))[1] is None
        assert evaluate_with_curve(toy.scores, toy.eta, [1, 2], ScanOptions(straddle=False))[1] is None  # soft labels


def test_curve__is_not_there_where_larger_budgets_are_uncertain(tmp_path):
    toy = simulate(500, 60)
    with avgk.ScoreWriter(tmp_path / "s.zarr", n_classes=60, top_m=8) as writer:
        writer.append(np.asarray(toy.scores), np.asarray(toy.labels))
    result, curve = evaluate_with_curve(tmp_path / "s.zarr", None, [1, 2], ScanOptions())
    assert curve is None
    assert result.k.values.tolist() == [1, 2]


def test_curve__gives_way_where_memory_has_no_space_for_it(monkeypatch):
    """With a limit that fits only the requested budgets, there is no curve."""
    from avgk_dask.api import evaluate as evaluation

    real = evaluation.find_outcome

    def find(run, budgets, *arguments, more=(), **options):
        if more:
            raise avgk.MemoryLimitError("no space")
        return real(run, budgets, *arguments, **options)

    monkeypatch.setattr(evaluation, "find_outcome", find)
    toy = simulate(200, 20)
    result, curve = evaluate_with_curve(toy.scores, toy.labels, [1, 2], ScanOptions())
    assert curve is None
    assert result.identical(avgk.evaluate(toy.scores, toy.labels, [1, 2]))


@pytest.mark.parametrize("chunks", [(7, 5), (200, 20)])
def test_curve__is_the_same_for_any_chunks(chunks):
    toy = simulate(200, 20)
    scores, labels = np.asarray(toy.scores), np.asarray(toy.labels)
    one, other = (
        evaluate_with_curve(s, labels, [2.5], ScanOptions())[1] for s in (scores, da.from_array(scores, chunks))
    )
    assert one.drop_attrs(deep=False).identical(other.drop_attrs(deep=False))
