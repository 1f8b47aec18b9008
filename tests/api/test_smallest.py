"""The least budget for an error: exact over all budgets, ties included, in two reads."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import avgk_dask as avgk
from avgk_dask.exact.budgets import parse_budget
from avgk_dask.testing import CountingStore, Simulation, oracle_smallest_k, simulate_store, strategies


@pytest.mark.parametrize("nan", [False, True])
@given(data=st.data())
def test_smallest_k__equals_the_definition(nan, data):
    scores = data.draw(strategies.score_matrices(nan=nan))
    labels = data.draw(strategies.hard_labels(scores.shape))
    labels[0] = max(labels[0], 0)
    target = data.draw(st.one_of(st.sampled_from([0, 1, 0.5, 0.01]), st.fractions(0, 1, max_denominator=13)))
    expected = oracle_smallest_k(scores, labels, target)
    lazy = da.from_array(scores, chunks=data.draw(strategies.chunkings(scores.shape)))
    with dask.config.set(scheduler="synchronous"):
        if math.isinf(expected["budget"]):
            with pytest.raises(avgk.BudgetError, match="some budget reaches"):
                avgk.smallest_k(lazy, labels, max_error=target, nan_policy="lowest")
            return
        smallest = avgk.smallest_k(lazy, labels, max_error=target, nan_policy="lowest")
    assert (smallest.budget, smallest.error, smallest.top_k, smallest.top_k_error) == (
        expected["budget"], expected["error"], expected["top_k"], expected["top_k_error"]
    )  # fmt: skip
    assert smallest.k == pytest.approx(smallest.budget / len(scores), rel=1e-15)
    assert (
        math.floor(len(scores) * parse_budget(smallest.k)) == smallest.budget
    )  # passing it as k gives the same budget
    np.testing.assert_equal(float(smallest.threshold), float(expected["threshold"]))


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int8", "float16"])
def test_smallest_k__threshold_may_be_the_lowest_score_there_is(dtype):
    lowest = -math.inf if dtype == "float16" else int(np.iinfo(dtype).min)
    scores, labels = np.array([[lowest, 5], [lowest, 7]], dtype), np.array([1, 1])
    smallest = avgk.smallest_k(scores, labels, max_error=0)
    assert (smallest.budget, smallest.value) == (2, lowest)
    assert avgk.predict_sets(scores, threshold=smallest).compute().tolist() == [[False, True], [False, True]]
    assert avgk.smallest_k(scores, np.array([0, 0]), max_error=0).value == lowest
    assert avgk.smallest_k(scores[:, 1:], np.array([0, 0]), max_error=0).value == 5


def test_smallest_k__is_the_budget_of_evaluate_and_the_one_before_is_not_enough(tmp_path):
    simulate_store(tmp_path / "s.zarr", Simulation(2_000, 50, dtype="float16"), chunks=(300, 20))
    smallest = avgk.smallest_k(tmp_path / "s.zarr", max_error=0.1)
    result = avgk.evaluate(
        tmp_path / "s.zarr", k=[Fraction(smallest.budget, 2_000), Fraction(smallest.budget - 1, 2_000)]
    )
    assert result.average_k_error.values[0] == smallest.error <= 0.1 < result.average_k_error.values[1]
    assert result.threshold.values[0] == smallest.threshold
    curve = avgk.error_curve(tmp_path / "s.zarr")
    assert smallest.top_k == int(curve.k[curve.top_k_error <= 0.1][0])
    sets = np.asarray(avgk.predict_sets(tmp_path / "s.zarr", threshold=smallest))
    assert sets.sum() <= smallest.budget


def test_smallest_k__is_enough_where_it_is_asked_for():
    """2 / 3 is printed as a smaller decimal, which as a budget would mean one label fewer."""
    scores, labels = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]), np.array([0, 0, 1])
    smallest = avgk.smallest_k(scores, labels, max_error=0.4)
    assert smallest.budget == 2
    assert avgk.evaluate(scores, labels, k=smallest.k).average_k_error.item() == smallest.error
    assert np.asarray(avgk.average_k_sets(scores, smallest.k)).sum() == 2
    rng = np.random.default_rng(0)
    scores, labels = rng.random((301, 7)), rng.integers(0, 7, 301)
    for target in np.arange(1, 20) / 20:
        smallest = avgk.smallest_k(scores, labels, max_error=target)
        assert avgk.evaluate(scores, labels, k=smallest.k).average_k_error.item() == smallest.error <= target


def test_smallest_k__takes_two_reads():
    store = CountingStore(zarr.storage.MemoryStore())
    scores, labels, _ = Simulation(4_000, 100).rows(0, 4_000)
    zarr.create_array(store, data=scores, chunks=(200, 100))
    array = zarr.open_array(store, mode="r")
    store.reads.clear()
    smallest = avgk.smallest_k(array, labels, max_error=0.2)
    reads = list(store.chunk_reads().values())
    assert smallest.reads == 2
    assert sorted(set(reads)) in ([2], [2, 3])
    assert reads.count(3) <= 1


def test_smallest_k__of_softmax_masks_and_checkpoints(tmp_path):
    rng = np.random.default_rng(0)
    logits, where = rng.standard_normal((500, 30)).astype("f4"), rng.random(500) < 0.7
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    zarr.create_group(tmp_path / "s.zarr").create_array("scores", data=logits, chunks=(60, 30))
    lazy = avgk.softmax(tmp_path / "s.zarr")
    one = avgk.smallest_k(lazy, labels, max_error=0.1, where=where, checkpoint=tmp_path / "kept")
    other = avgk.smallest_k(np.asarray(lazy)[where], labels[where], max_error=0.1)
    assert one == other
    again = avgk.smallest_k(lazy, labels, max_error=0.1, where=where, checkpoint=tmp_path / "kept")
    assert again == dataclasses.replace(one, reads=0)
    with pytest.raises(avgk.OptionError, match="max_error"):
        avgk.smallest_k(lazy, labels, max_error=0.2, where=where, checkpoint=tmp_path / "kept")


def test_smallest_k__of_truncated_rows_is_that_of_whole_ones_or_refused(tmp_path):
    rng = np.random.default_rng(1)
    scores = rng.dirichlet(np.full(20, 0.2), 400).astype("f4").round(2)
    labels = np.array([rng.choice(20, p=p / p.sum()) for p in scores.astype("f8")])
    for top_m in (6, 19, 20):
        with avgk.ScoreWriter(tmp_path / f"{top_m}.zarr", n_classes=20, top_m=top_m, chunk_rows=70) as writer:
            writer.append(scores, labels)
    result = []
    for target in (0.6, 0.3, 0.05, 0):
        whole = avgk.smallest_k(scores, labels, max_error=target)
        for top_m in (6, 19, 20):
            path = tmp_path / f"{top_m}.zarr"
            if top_m < 20 and whole.threshold <= np.sort(scores, axis=1)[:, -top_m].max():
                with pytest.raises(avgk.BudgetError, match="an exact result"):
                    avgk.smallest_k(path, max_error=target)
                continue
            one = avgk.smallest_k(path, max_error=target)
            result.append(top_m)
            same = ("k", "value", "error", "budget", "top_k", "top_k_error")
            assert [getattr(one, name) for name in same] == [getattr(whole, name) for name in same]
    assert result.count(20) == 4
    assert result.count(6) >= 1
    assert len(result) < 12


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan, "many", None, True, math.inf])
def test_smallest_k__refuses_targets(bad):
    with pytest.raises(avgk.OptionError, match="max_error must be a number from 0 to 1"):
        avgk.smallest_k(np.eye(3), np.arange(3), max_error=bad)


@pytest.mark.parametrize(
    "labels, text",
    [([-1, -1, -1], "at least one sample must be labelled"), (np.eye(3), "class numbers"), (None, "required")],
)
def test_smallest_k__needs_hard_labels(labels, text):
    with pytest.raises(avgk.LabelsError, match=text):
        avgk.smallest_k(np.eye(3), labels, max_error=0.1)
