"""Sets against the definitions, and their laziness."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

import avgk_dask as avgk
from avgk_dask.testing import CountingStore, oracle_average_k_sets, oracle_top_k_sets, strategies

FLOATS = ("float16", "float32", "float64", "bfloat16")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "engine",
    [
        {},
        {"avgk.small-scores": 0, "avgk.kept-bytes": 0},
        {"avgk.small-scores": 0, "avgk.kept-bytes": 0, "avgk.max-events": 0, "avgk.least-events": 0},
    ],
)
@given(data=st.data())
def test_average_k_sets__equal_the_definition(engine, data):
    scores = data.draw(strategies.score_matrices(nan=data.draw(st.booleans())))
    (k, *_) = data.draw(strategies.budgets(scores.shape[1], scores))
    lazy = da.from_array(scores, chunks=data.draw(strategies.chunkings(scores.shape)))
    with dask.config.set(engine), dask.config.set(scheduler="synchronous"):
        sets = avgk.average_k_sets(lazy, k, nan_policy="lowest")
        assert sets.chunks == lazy.chunks
        assert np.array_equal(sets.compute(), oracle_average_k_sets(scores, k))


@given(data=st.data())
def test_top_k_sets__equal_the_definition(data):
    scores = data.draw(strategies.score_matrices(nan=data.draw(st.booleans())))
    k = data.draw(st.integers(1, scores.shape[1]))
    lazy = da.from_array(scores, chunks=data.draw(strategies.chunkings(scores.shape)))
    with dask.config.set(scheduler="synchronous"):
        sets = avgk.top_k_sets(lazy, k, nan_policy="lowest")
        assert sets.chunks == lazy.chunks
        assert np.array_equal(sets.compute(), oracle_top_k_sets(scores, k))


def test_sets__hold_exactly_the_budget_and_agree_with_the_threshold():
    scores = np.round(np.random.default_rng(0).random((60, 7)), 1)
    for k in (0.4, 1, 2.5, 7):
        sets = avgk.average_k_sets(scores, k).compute()
        result = avgk.threshold(scores, k)
        assert sets.sum() == result.budget == int(60 * k)
        assert result.n_above + result.n_kept == result.budget
        assert sets[scores > result.value].all()
        assert not sets[scores < result.value].any()


def test_sets__read_nothing_until_computed():
    store = CountingStore(MemoryStore())
    group = zarr.create_group(store)
    scores = np.random.default_rng(1).random((40, 6)).astype("f4")
    group.create_array("scores", data=scores, chunks=(8, 3), config={"write_empty_chunks": True})
    stored = zarr.open_group(store, mode="r")["scores"]
    lazy = [avgk.average_k_sets(stored, 2), avgk.top_k_sets(stored, 2), avgk.predict_sets(stored, threshold=0.5)]
    assert not store.chunk_reads()
    assert np.array_equal(lazy[0].compute(), oracle_average_k_sets(scores, 2))
    assert set(store.chunk_reads().values()) == {2}  # once for the threshold, once for the sets
    assert np.array_equal(lazy[1].compute(), oracle_top_k_sets(scores, 2))
    assert np.array_equal(lazy[2].compute(), scores > 0.5)


def test_sets__keep_a_dataarray_a_dataarray():
    frame = xr.DataArray(np.eye(3), dims=("sample", "class"), coords={"class": ["a", "b", "c"]})
    for sets in (avgk.average_k_sets(frame, 1), avgk.top_k_sets(frame, 1), avgk.predict_sets(frame, threshold=0)):
        assert isinstance(sets, xr.DataArray)
        assert sets.dims == ("sample", "class")
        assert sets["class"].values.tolist() == ["a", "b", "c"]
        assert np.array_equal(sets.values, np.eye(3, dtype=bool))
    turned = avgk.average_k_sets(frame.transpose(), 1)
    assert turned.dims == ("sample", "class")


def test_predict_sets__does_not_round_the_threshold_to_the_scores():
    tenth = np.float32(0.1)  # a little more than 0.1
    assert avgk.predict_sets(np.array([[tenth]]), threshold=0.1).compute().item()
    assert not avgk.predict_sets(np.array([[tenth]]), threshold=float(tenth)).compute().item()
    assert avgk.predict_sets(np.array([[3, 2]], np.uint8), threshold=2.5).compute().tolist() == [[True, False]]
    assert avgk.predict_sets(np.array([[-128]], np.int8), threshold=-1e9).compute().item()
    assert not avgk.predict_sets(np.array([[2**64 - 1]], np.uint64), threshold=float("inf")).compute().item()


def test_predict_sets__takes_a_threshold_found_elsewhere():
    calibration = np.random.default_rng(2).random((50, 4))
    result = avgk.threshold(calibration, 1.5)
    assert np.array_equal(avgk.predict_sets(calibration, threshold=result).compute(), calibration > result.value)


def test_predict_sets__takes_whatever_is_one_number():
    scores = np.random.default_rng(0).random((20, 5))
    one, result = avgk.evaluate(scores, k=2), avgk.threshold(scores, 2)
    expected = scores > result.value
    lists = [result.value], np.array([result.value]), da.from_array([result.value])
    for threshold in (result, one, one.threshold, one.threshold[0], one.threshold.chunk(), one.isel(k=0),
                      avgk.threshold(scores, [2]), np.float64(result.value), np.array(result.value), *lists):  # fmt: skip
        assert np.array_equal(avgk.predict_sets(scores, threshold=threshold).compute(), expected)
        assert float(avgk.average_set_size_at(scores, threshold).squeeze()) == expected.sum() / 20


@pytest.mark.parametrize("several", [avgk.evaluate(np.eye(3), k=[1, 2]), [0.1, 0.2], np.array([0.1, 0.2])])
def test_predict_sets__refuses_several_thresholds(several):
    for threshold in (several, several.threshold) if isinstance(several, xr.Dataset) else (several,):
        with pytest.raises(
            avgk.OptionError, match=r"a single number; got 2 numbers\. Pass one, .*threshold\.sel\(k=5\)"
        ):
            avgk.predict_sets(np.eye(3), threshold=threshold)


def test_thresholds__of_a_dataset_without_any_are_refused():
    curve = avgk.error_curve(np.eye(3), np.arange(3))
    with pytest.raises(avgk.OptionError, match=r"threshold must be a number.* got Dataset"):
        avgk.predict_sets(np.eye(3), threshold=curve)
    for run in (avgk.average_set_size_at, lambda scores, t: avgk.risk(scores, np.arange(3), t)):
        with pytest.raises(avgk.OptionError, match="a Dataset without the variable threshold"):
            run(np.eye(3), curve)


@pytest.mark.parametrize("bad", [float("nan"), True, "0.5", None, np.array([True]), [], [None], np.zeros((1, 1))])
def test_predict_sets__refuses_what_is_no_threshold(bad):
    with pytest.raises(avgk.OptionError, match="threshold must be a number"):
        avgk.predict_sets(np.eye(2), threshold=bad)


def test_top_k_sets__refuse_a_fractional_k():
    with pytest.raises(avgk.BudgetError, match="integer"):
        avgk.top_k_sets(np.eye(2), 1.5)


@pytest.mark.parametrize("make", [lambda s: avgk.top_k_sets(s, 1), lambda s: avgk.predict_sets(s, threshold=0),
                                  lambda s: avgk.average_k_sets(s, 1)])  # fmt: skip
@pytest.mark.parametrize("dtype", FLOATS)
def test_sets__refuse_nan_by_its_place(make, dtype):
    scores = np.zeros((6, 4)).astype(strategies.as_dtype(dtype))
    scores[4, 2] = np.nan
    with pytest.raises(avgk.ScoresError, match="sample 4, class 2"):
        make(da.from_array(scores, chunks=(3, 2))).compute()


def _blocks(scores):
    return [
        da.from_delayed(dask.delayed(scores[rows]), scores[rows].shape, scores.dtype)
        for rows in (slice(9), slice(9, 20))
    ]


@pytest.mark.parametrize(
    "make",
    [
        lambda scores: da.concatenate(_blocks(scores)),
        lambda scores: da.concatenate([2 * block for block in _blocks(scores)]).rechunk(7),
        lambda scores: da.from_array(scores, chunks=6).persist(),
        lambda scores: da.from_array(scores, chunks=6)[::-1] + 1,
    ],
    ids=["delayed", "delayed and rechunked", "persisted", "computed"],
)
def test_average_k_sets__of_any_dask_array(make):
    scores = np.random.default_rng(5).random((20, 8))
    lazy = make(scores)
    sets = avgk.average_k_sets(lazy, 2)
    assert np.array_equal(sets.compute(), avgk.average_k_sets(lazy.compute(), 2).compute())
    assert (sets & (lazy > 0)).sum().compute() == 40  # in one graph with the array itself
