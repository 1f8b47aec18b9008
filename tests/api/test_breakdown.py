"""Breakdowns by class and by group, against their definition, for any chunking and engine."""

from __future__ import annotations

import math

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import avgk_dask as avgk
from avgk_dask.api.breakdowns import wilson
from avgk_dask.testing import Simulation, oracle_breakdown, strategies

ENGINES = {
    "rows": {"avgk.small-scores": 0},
    "events": {"avgk.small-scores": 0, "avgk.kept-bytes": 0},
    "counted ties": {"avgk.small-scores": 0, "avgk.kept-bytes": 0, "avgk.max-events": 0, "avgk.least-events": 0},
}


def check(result, expected, i):
    for group, values in expected.items():
        row = result.sel(group=group)
        for name, value in values.items():
            got = float(row[name] if row[name].ndim == 0 else row[name][i])
            assert got == value or (math.isnan(got) and math.isnan(value)), (group, name, got, value)


@pytest.mark.sample(1)
@pytest.mark.parametrize("engine", ENGINES)
@given(data=st.data())
def test_breakdown__equals_the_definition(engine, data):
    scores = data.draw(strategies.score_matrices())
    labels = data.draw(strategies.hard_labels(scores.shape))
    ks = data.draw(strategies.budgets(scores.shape[1], scores))
    n = len(scores)
    groups = np.array(data.draw(st.lists(st.sampled_from([-2, 0, 9]), min_size=n, max_size=n)))
    lazy = da.from_array(scores, chunks=data.draw(strategies.chunkings(scores.shape)))
    with dask.config.set(ENGINES[engine]), dask.config.set(scheduler="synchronous"):
        by_class = avgk.breakdown(lazy, labels, ks)
        by_group = avgk.breakdown(lazy, labels, ks, by=groups)
    assert by_class.group.values.tolist() == list(range(scores.shape[1]))
    assert by_group.group.values.tolist() == sorted(set(groups.tolist()))
    for i, k in enumerate(ks):
        expected = oracle_breakdown(scores, labels, k, np.maximum(labels, -1))
        expected.pop(-1, None)
        check(by_class, expected, i)
        check(by_group, oracle_breakdown(scores, labels, k, groups), i)
        present = [values["average_k_error"] for values in expected.values()]
        mean = np.mean(present) if present else math.nan
        assert float(by_class.macro_average_k_error[i]) == pytest.approx(mean, nan_ok=True)


def test_breakdown__adds_up_to_what_evaluate_gives():
    scores, labels, _ = Simulation(5_000, 40).rows(0, 5_000)
    whole = avgk.evaluate(scores, labels, [1, 3], straddle=False)
    result = avgk.breakdown(scores, labels, [1, 3])
    share = result.n_labelled / result.n_labelled.sum()
    for name in ("average_k_error", "top_k_error", "adaptive_gain", "average_set_size"):
        assert np.allclose((result[name] * share).sum("group"), whole[name])
    assert result.attrs["reads"] == whole.attrs["reads"] == 1


def test_breakdown__of_a_truncated_store_is_that_of_the_whole(tmp_path):
    scores, labels, _ = Simulation(400, 30).rows(0, 400)
    for path, top_m in (("whole.zarr", None), ("cut.zarr", 12)):
        with avgk.ScoreWriter(tmp_path / path, n_classes=30, top_m=top_m) as writer:
            writer.append(scores, labels)
    whole, cut = (avgk.breakdown(tmp_path / path, k=[1, 2]) for path in ("whole.zarr", "cut.zarr"))
    assert whole.drop_attrs().identical(cut.drop_attrs())


@pytest.mark.parametrize("by", ["class", "group"])
def test_breakdown__of_own_thresholds_evaluates_each_group_by_itself(by):
    scores, labels, _ = Simulation(400, 6).rows(0, 400)
    labels = np.where(np.arange(400) % 9, labels, -1)
    groups, kept = np.arange(400) % 3 * 7, np.arange(400) % 11 > 0
    made = avgk.softmax(np.log(scores + 1e-6), temperature=1.5)
    result = avgk.breakdown(made, labels, [1, 1.5], "class" if by == "class" else groups, thresholds="own", where=kept)
    for group in result.group.values:
        members = kept & ((labels if by == "class" else groups) == group)
        alone = avgk.evaluate(made, labels, [1, 1.5], where=members, straddle=False)
        one = result.sel(group=group)
        assert one.n_samples == members.sum()
        for name in ("average_k_error", "top_k_error", "average_set_size"):
            assert np.array_equal(one[name], alone[name], equal_nan=True)
        assert np.array_equal(one.group_threshold, alone.threshold)
    with pytest.raises(avgk.OptionError, match="thresholds must be"):
        avgk.breakdown(scores, labels, 1, thresholds="each")


def test_breakdown__leaves_out_samples_that_do_not_exist():
    scores, labels, _ = Simulation(300, 8).rows(0, 300)
    kept = np.arange(300) % 3 > 0
    groups = np.where(kept, np.arange(300) % 5, 77)
    masked = avgk.breakdown(scores, labels, 2, by=groups, where=kept)
    bare = avgk.breakdown(scores[kept], labels[kept], 2, by=groups[kept])
    assert masked.drop_attrs().identical(bare.drop_attrs())


def test_breakdown__names_classes(tmp_path):
    (tmp_path / "s.csv").write_text("cat,dog,label\n0.5,0.3,0\n0.1,0.8,1\n")
    avgk.ingest(tmp_path / "s.csv", out=tmp_path / "s.zarr")
    assert avgk.breakdown(tmp_path / "s.zarr", k=1).name.values.tolist() == ["cat", "dog"]
    opened = avgk.open_scores(tmp_path / "s.zarr")
    assert opened["class"].values.tolist() == ["cat", "dog"]
    assert avgk.breakdown(avgk.softmax(opened), k=1).name.values.tolist() == ["cat", "dog"]
    assert avgk.breakdown(np.eye(2), [0, 1], 1, names=["a", "b"]).name.values.tolist() == ["a", "b"]
    assert avgk.average_k_sets(opened["scores"], 1)["class"].values.tolist() == ["cat", "dog"]


def test_print_breakdown__speaks_of_the_groups_it_shows():
    result = avgk.breakdown(np.eye(4), [0, 1, 2, 2], k=[1, 2])
    mean = f"{100 * float(result.macro_average_k_error.sel(k=2)):.2f} %"
    assert f"the mean average-k error of 3 classes is {mean}" in avgk.report.print_breakdown(result, k=2)
    part = avgk.report.print_breakdown(result.isel(group=[2]), k=1)
    assert "the mean average-k error of 1 class is 50.00 %" in part
    with pytest.raises(avgk.OptionError, match=r"result must have the dimension k"):
        avgk.report.print_breakdown(result.isel(k=0))
    with pytest.raises(avgk.OptionError, match=r"k must be a budget of the result; got 7\. Choose one of 1, 2"):
        avgk.report.print_breakdown(result, k=7)


def test_wilson__is_the_formula():
    low, high = wilson(np.array([0, 5, 10, 0]), np.array([10, 10, 10, 0]))
    assert low == pytest.approx([0, 0.236593, 0.722467, math.nan], abs=1e-6, nan_ok=True)
    assert high == pytest.approx([0.277533, 0.763407, 1, math.nan], abs=1e-6, nan_ok=True)


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"by": "colour"}, avgk.StoreError, "colour"),
        ({"by": [0.5, 1.0]}, avgk.DtypeError, "by must be integers"),
        ({"by": [1, 2, 3]}, avgk.LabelsError, "by must have the samples' shape"),
        ({"names": ["one"]}, avgk.OptionError, "names must be a list of 3 names"),
        ({"labels": np.full((2, 3), 1 / 3)}, avgk.LabelsError, "labels must be class numbers"),
        ({"labels": None}, avgk.LabelsError, "labels are required"),
    ],
)
def test_breakdown__refuses(options, error, words):
    with pytest.raises(error, match=words):
        avgk.breakdown(np.ones((2, 3)) / 3, **{"labels": [0, 1], "k": 1} | options)


@pytest.mark.sample(5)
@pytest.mark.parametrize("unlabelled", [-2, -100, -(2**40)])
@pytest.mark.parametrize("engine", ENGINES)
def test_breakdown__takes_any_negative_label_for_none(engine, unlabelled):
    scores, labels, _ = Simulation(900, 5).rows(0, 900)
    labels = np.where(np.arange(900) % 3, labels, -1)
    with dask.config.set(ENGINES[engine]):
        expected = avgk.breakdown(scores, labels, [1, 2])
        result = avgk.breakdown(scores, np.where(labels < 0, unlabelled, labels), [1, 2])
    assert result.drop_attrs().identical(expected.drop_attrs())


def test_breakdown__refuses_groups_beyond_int64_and_another_order():
    scores = np.eye(3)
    with pytest.raises(avgk.DtypeError, match=r"integers below 2\*\*63; got 18446744073709551613"):
        avgk.breakdown(scores, [0, 1, 2], 1, np.array([1, 2, 2**64 - 3], np.uint64))
    frame = xr.DataArray(scores, dims=("sample", "class"), coords={"sample": [0, 1, 2]})
    groups = xr.DataArray([5, 5, 6], dims="sample", coords={"sample": [2, 1, 0]})
    for use in (
        lambda: avgk.breakdown(frame, [0, 1, 2], 1, groups),
        lambda: avgk.evaluate(frame, [0, 1, 2], 1, clusters=groups),
    ):
        with pytest.raises(avgk.LabelsError, match="must have the sample names of scores, in the same order"):
            use()


def test_breakdown__wants_names_of_the_groups_that_exist():
    groups = np.arange(6) // 3
    result = avgk.breakdown(np.eye(6), np.arange(6), 1, groups, names=["first"], where=groups == 0)
    assert result.name.values.tolist() == ["first"]
    clustered = avgk.evaluate(np.eye(6), np.arange(6), 1, clusters=np.arange(6), where=groups == 0)
    assert clustered.attrs["n_clusters"] == 3


def test_breakdown__by_class_reads_the_class_names_once(monkeypatch):
    from avgk_dask.api import breakdowns

    calls, read = [], breakdowns.class_names_of
    monkeypatch.setattr(breakdowns, "class_names_of", lambda scores: calls.append(1) or read(scores))
    scores = xr.DataArray(np.eye(3), dims=("sample", "class"), coords={"class": ["a", "b", "c"]})
    assert avgk.breakdown(scores, np.arange(3), 1).name.values.tolist() == ["a", "b", "c"]
    assert len(calls) == 1
