"""Breakdowns with a threshold for each group: against the definition, in as many reads as for one group; and errors."""

from __future__ import annotations

import math

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.storage import MemoryStore

import avgk_dask as avgk
from avgk_dask.statistics import group_scan
from avgk_dask.testing import CountingStore, Simulation, oracle_breakdown, oracle_threshold, strategies

#: Settings that retain all keys, a few, or none, so that cells are counted: the default number or very few.
ENGINES = {
    "keys": ({"avgk.small-scores": 0}, 1 << 20),
    "few keys": ({"avgk.small-scores": 0, "avgk.kept-bytes": 64}, 1 << 20),
    "cells": ({"avgk.small-scores": 0, "avgk.kept-bytes": 0}, 1 << 20),
    "few cells": ({"avgk.small-scores": 1 << 18, "avgk.kept-bytes": 0}, 8),
}


def check(result, scores, labels, groups, ks, kept):
    """Compare each group with the definition applied to its samples alone."""
    for group in result.group.values.tolist():
        members, one = kept & (groups == group), result.sel(group=group)
        assert one.n_samples == members.sum()
        for i, k in enumerate(ks if members.any() else ()):
            expected = oracle_breakdown(scores[members], labels[members], k, groups[members])[group]
            for name in ("n_labelled", "average_k_error", "top_k_error", "average_set_size"):
                got = float(one[name] if one[name].ndim == 0 else one[name][i])
                assert got == expected[name] or (math.isnan(got) and math.isnan(expected[name])), (group, k, name)
            assert float(one.group_threshold[i]) == float(oracle_threshold(scores[members], k)[0])


@pytest.mark.sample(2)
@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=settings().max_examples // 3)
@given(data=st.data())
def test_own_thresholds__equal_the_definition(engine, data, monkeypatch):
    scores = data.draw(strategies.score_matrices())
    labels = data.draw(strategies.hard_labels(scores.shape))
    ks = data.draw(strategies.budgets(scores.shape[1], scores))
    n = len(scores)
    groups = np.array(data.draw(st.lists(st.sampled_from([-2, 0, 9]), min_size=n, max_size=n)))
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n).filter(any)))
    lazy = da.from_array(scores, chunks=data.draw(strategies.chunkings(scores.shape)))
    config, n_cells = ENGINES[engine]
    monkeypatch.setattr(group_scan, "_ALL_CELLS", n_cells)
    monkeypatch.setattr(group_scan, "_LEAST_CELLS", min(n_cells // 4, 256))
    options = {"thresholds": "own", "where": kept}
    with dask.config.set(config), dask.config.set(scheduler="synchronous"):
        by_class = avgk.breakdown(lazy, labels, ks, **options)
        by_group = avgk.breakdown(lazy, labels, ks, by=groups, **options)
    assert by_class.group.values.tolist() == list(range(scores.shape[1]))
    assert by_group.group.values.tolist() == sorted(set(groups[kept].tolist()))
    check(by_class, scores, labels, labels, ks, kept)
    check(by_group, scores, labels, groups, ks, kept)


@pytest.mark.parametrize("engine", ENGINES)
def test_own_thresholds__that_keep_all_ties_count_their_labels(engine, monkeypatch):
    """With k = C the sets contain all scores, so also the labels among the ties at the lowest one."""
    rng = np.random.default_rng(0)
    scores, labels, groups = rng.integers(0, 4, (60, 7)), rng.integers(0, 7, 60), np.arange(60) % 3
    scores[groups == 2] = 1
    config, n_cells = ENGINES[engine]
    monkeypatch.setattr(group_scan, "_ALL_CELLS", n_cells)
    monkeypatch.setattr(group_scan, "_LEAST_CELLS", min(n_cells // 4, 256))
    with dask.config.set(config), dask.config.set(scheduler="synchronous"):
        result = avgk.breakdown(da.from_array(scores, chunks=(13, 7)), labels, [3, 7], by=groups, thresholds="own")
    assert (result.average_k_error.sel(k=7) == 0).all()
    check(result, scores, labels, groups, [3, 7], np.ones(60, bool))


def stored(scores, labels, chunks):
    """Store scores and labels in a store that counts reads; return the counter and the group opened through it."""
    store = CountingStore(MemoryStore())
    group = zarr.create_group(store)
    group.create_array("scores", data=scores, chunks=chunks, config={"write_empty_chunks": True})
    group.create_array("labels", data=labels, chunks=labels.shape, config={"write_empty_chunks": True})
    store.reads.clear()
    return store, zarr.open_group(store, mode="r")


def by_hand(scores, labels, k, n):
    """Return the thresholds of classes, by sorting."""
    columns = [np.sort(scores[labels == g], axis=None)[::-1].astype(float) for g in range(n)]
    return [
        one[min(int((labels == g).sum() * k), one.size - 1)] if one.size else np.nan for g, one in enumerate(columns)
    ]


@pytest.mark.sample(1)
@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("dtype, levels", [("float32", None), ("uint8", None), ("float16", None), ("float32", 30)])
def test_own_thresholds__of_many_classes_read_each_chunk_once_and_a_small_pilot(dtype, levels, in_order):
    scores, labels, _ = Simulation(6_000, 200, dtype=dtype, levels=levels).rows(0, 6_000)
    if in_order:  # each band contains few classes
        order = np.argsort(labels, kind="stable")
        scores, labels = scores[order], labels[order]
    store, group = stored(scores, labels, (100, 100))
    result = avgk.breakdown(group, k=[1, 3], thresholds="own")
    reads = store.chunk_reads()
    assert result.attrs["reads"] == 1
    assert len(reads) == 120
    assert sum(reads.values()) - 120 <= 12
    assert np.array_equal(result.group_threshold[1], by_hand(scores, labels, 3, 200), equal_nan=True)


@pytest.mark.parametrize("kept_bytes", [0, 1_000])
def test_own_thresholds__that_end_inside_a_row_of_ties_are_settled_together(kept_bytes):
    rng = np.random.default_rng(0)
    scores, labels = rng.integers(0, 2, (460, 230)).astype("f4"), np.arange(460) % 230
    for tied in (scores, np.ones_like(scores)):
        expected = avgk.breakdown(tied, labels, [0.6, 1, 150.5], thresholds="own")
        with dask.config.set({"avgk.kept-bytes": kept_bytes, "avgk.max-events": 0, "avgk.least-events": 0}):
            result = avgk.breakdown(tied, labels, [0.6, 1, 150.5], thresholds="own")
        assert result.drop_attrs().identical(expected.drop_attrs())
        assert result.attrs["reads"] <= 4  # keys, samples, rows


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype, levels", [("float32", None), ("uint8", None), ("float16", None), ("float32", 30)])
def test_own_thresholds__that_do_not_fit_are_read_at_most_twice_more(dtype, levels):
    scores, labels, _ = Simulation(6_000, 100, dtype=dtype, levels=levels).rows(0, 6_000)
    store, group = stored(scores, labels, (100, 100))
    expected = avgk.breakdown(scores, labels, [1, 3], thresholds="own")
    with dask.config.set({"avgk.kept-bytes": 160_000}):  # ten thousand keys at 16 bytes
        result = avgk.breakdown(group, k=[1, 3], thresholds="own")
    assert 2 <= result.attrs["reads"] <= 3
    assert max(store.chunk_reads().values()) <= 4
    assert result.drop_attrs().identical(expected.drop_attrs())


def test_own_thresholds__far_below_all_others_take_one_more_read():
    scores, labels, _ = Simulation(6_000, 100).rows(0, 6_000)
    scores[labels % 10 == 0] *= 1e-6
    store, group = stored(scores, labels, (100, 100))
    result = avgk.breakdown(group, k=3, thresholds="own")
    assert result.attrs["reads"] == 2
    assert max(store.chunk_reads().values()) <= 3
    assert np.array_equal(result.group_threshold[0], by_hand(scores, labels, 3, 100), equal_nan=True)


def test_own_thresholds__of_more_groups_than_fit_come_some_at_a_time(monkeypatch):
    scores, labels, _ = Simulation(3_000, 100).rows(0, 3_000)
    expected = avgk.breakdown(scores, labels, [1, 2.5], thresholds="own")
    monkeypatch.setattr("avgk_dask.statistics.thresholds.MOST_GROUPS", 40)
    with dask.config.set({"avgk.kept-bytes": 20_000, "avgk.small-scores": 0}):
        result = avgk.breakdown(da.from_array(scores, chunks=(500, 30)), labels, [1, 2.5], thresholds="own")
    assert 3 <= result.attrs["reads"] <= 9  # 40 + 40 + 20 groups
    assert result.drop_attrs().identical(expected.drop_attrs())


def test_own_thresholds__of_a_truncated_store_are_those_of_the_whole(tmp_path):
    scores, labels, _ = Simulation(400, 30).rows(0, 400)
    for path, top_m in (("whole.zarr", None), ("cut.zarr", 12)):
        with avgk.ScoreWriter(tmp_path / path, n_classes=30, top_m=top_m) as writer:
            writer.append(scores, labels)
    groups = np.arange(400) % 7
    for by in ("class", groups):
        whole, cut = (
            avgk.breakdown(tmp_path / p, None, [1, 2], by, thresholds="own") for p in ("whole.zarr", "cut.zarr")
        )
        assert whole.drop_attrs().identical(cut.drop_attrs())


def test_own_thresholds__that_discarded_scores_could_change_are_refused(tmp_path):
    scores = np.array([[0.5, 0.3, 0.1, 0.1], [0.4, 0.3, 0.2, 0.1], [0.7, 0.2, 0.1, 0.0]])
    with avgk.ScoreWriter(tmp_path / "cut.zarr", n_classes=4, top_m=2) as writer:
        writer.append(scores, np.array([0, 1, 0]))
    # In the first group, two scores are above 0.3, the highest score that may have been discarded.
    groups = np.array([4, 4, 8])
    certain = avgk.breakdown(tmp_path / "cut.zarr", None, 0.5, groups, thresholds="own")
    assert certain.group_threshold.values.tolist() == [[0.4, 0.7]]
    with pytest.raises(avgk.BudgetError, match=r"k must be below 1 for an exact result from .*; got 1\."):
        avgk.breakdown(tmp_path / "cut.zarr", None, [0.5, 1], groups, thresholds="own")
    with pytest.raises(avgk.BudgetError, match="for an exact result"):
        avgk.breakdown(tmp_path / "cut.zarr", None, 3, groups, thresholds="own")


def test_own_thresholds__are_kept_in_a_checkpoint(tmp_path):
    scores, labels, _ = Simulation(6_000, 100).rows(0, 6_000)
    store, group = stored(scores, labels, (100, 100))
    result = [
        avgk.breakdown(group, k=[1, 3], thresholds="own", checkpoint=tmp_path / "kept")
        for _ in range(2)
        if not store.reads.clear()
    ]
    assert not store.chunk_reads()
    assert result[1].identical(result[0].assign_attrs(reads=0))
    with pytest.raises(avgk.OptionError, match="belongs to another request"):
        avgk.breakdown(group, k=[1, 3], checkpoint=tmp_path / "kept")


def test_own_thresholds__leave_nan_below_all_numbers():
    scores = np.array([[0.5, np.nan, 0.1], [np.nan, np.nan, 0.2], [0.7, 0.2, np.nan]])
    result = avgk.breakdown(scores, [0, 0, 0], [1, 2], np.array([1, 1, 2]), thresholds="own", nan_policy="lowest")
    assert result.group_threshold.values[0].tolist() == [0.1, 0.2]
    assert np.isnan(result.group_threshold.values[1]).all()
    assert result.average_set_size.values.tolist() == [[1, 1], [1.5, 2]]
    assert result.average_k_error.values.tolist() == [[0.5, 0], [0.5, 0]]
    with pytest.raises(avgk.ScoresError, match="scores must not contain NaN; got 4, the first at sample 0, class 1"):
        avgk.breakdown(scores, [0, 0, 0], 1, np.array([1, 1, 2]), thresholds="own")


def test_own_thresholds__of_scores_that_change_between_reads_are_refused():
    reads = iter(range(10**6))

    def other(block):
        return block + next(reads) * 1e-4

    scores, labels, _ = Simulation(2_000, 50).rows(0, 2_000)
    lazy = da.from_array(scores, chunks=(2_000, 50)).map_blocks(
        other, dtype=scores.dtype, meta=np.empty((0, 0), scores.dtype)
    )
    with (
        dask.config.set({"avgk.kept-bytes": 10_000, "avgk.small-scores": 0}),
        pytest.raises(avgk.ScoresError, match=r"scores changed"),
    ):
        avgk.breakdown(lazy, labels, [1, 3], thresholds="own")


def test_own_thresholds__of_64_bit_integers_are_not_rounded():
    scores = np.array([[2**53 + 1, 2**53 + 3, 5], [2**53 + 5, 7, 1]], np.int64)
    result = avgk.breakdown(scores, [0, 1], k=1, by=[0, 1], thresholds="own").group_threshold
    assert result.dtype == np.int64
    assert result.values.tolist() == [[2**53 + 1, 7]]
