"""Lazy scores are as safe as those they are made of."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

import avgk_dask as avgk
from avgk_dask.api.written_sets import SetChoice, write_sets

RNG = np.random.default_rng(1)
SCORES = RNG.random((60, 8)).astype("f4")


@pytest.fixture
def store(tmp_path):
    group = zarr.open_group(tmp_path / "s.zarr", mode="w")
    group.create_array("scores", data=SCORES, chunks=(20, 8))
    group.create_array("kept", data=np.ones(60, bool), chunks=(60,))
    return tmp_path / "s.zarr"


@pytest.mark.parametrize(
    "made",
    [
        avgk.softmax,
        lambda p: avgk.ensemble([np.ones((60, 8)), avgk.softmax(p)]),
        avgk.open_scores,
        lambda p: avgk.softmax(avgk.open_scores(p)),
        lambda p: avgk.open_scores(p).scores,
    ],
)
def test_sets__are_never_written_over_their_scores(store, made):
    with pytest.raises(avgk.OptionError, match="must not overlap with the scores"):
        write_sets(made(store), store, SetChoice(k=1), overwrite=True)
    np.testing.assert_array_equal(zarr.open_group(store, mode="r")["scores"][:], SCORES)


def test_sets__are_never_written_over_their_mask(store):
    for where in (store / "kept", zarr.open_group(store, mode="r")["kept"]):
        with pytest.raises(avgk.OptionError, match="must not overlap with the scores"):
            write_sets(SCORES, store, SetChoice(k=1), overwrite=True, where=where)
    assert zarr.open_group(store, mode="r")["kept"][:].all()


def test_checkpoint__of_spread_ties_is_of_its_own_mask(tmp_path):
    ties = RNG.integers(0, 3, (3_000, 10)).astype("u1")
    zarr.open_group(tmp_path / "t.zarr", mode="w").create_array("scores", data=ties, chunks=(100, 10))
    labels = RNG.integers(0, 10, 3_000)
    first = np.ones(3_000, bool)
    second = first.copy()
    second[0] = False
    for mask in (first, second):
        kept = avgk.evaluate(
            tmp_path / "t.zarr", labels, [1, 2.5], where=mask, ties="spread", checkpoint=tmp_path / "found"
        )
        fresh = avgk.evaluate(tmp_path / "t.zarr", labels, [1, 2.5], where=mask, ties="spread")
        xr.testing.assert_equal(kept, fresh)


@pytest.mark.parametrize("activation", [avgk.softmax, avgk.sigmoid])
def test_activations__refuse_truncated_rows_even_if_none_was_left_out(tmp_path, activation):
    with avgk.ScoreWriter(tmp_path / "t.zarr", n_classes=8, top_m=8) as writer:
        writer.append(SCORES)
    with pytest.raises(avgk.ScoresError, match="whole rows"):
        avgk.average_k_sets(activation(tmp_path / "t.zarr"), 1)


def test_ensembles__refuse_members_of_other_shapes_and_orders():
    with pytest.raises(avgk.ScoresError, match="same shape"):
        avgk.ensemble([np.zeros((2, 3, 4)), np.zeros((3, 2, 4))])
    with pytest.raises(avgk.ScoresError, match="same shape"):
        avgk.ensemble([np.zeros((2, 3, 4)), np.zeros((6, 4))])
    ours = xr.DataArray(SCORES, dims=("sample", "class"), coords={"sample": np.arange(60)})
    for other in (ours[::-1], avgk.softmax(ours[::-1])):
        with pytest.raises(avgk.ScoresError, match=r"members\[1\] must have the sample names"):
            avgk.ensemble([avgk.softmax(ours), other])
    cube = xr.DataArray(RNG.random((3, 3, 5)), dims=("y", "x", "class"))
    with pytest.raises(avgk.ScoresError, match="must have the dimensions of"):
        avgk.ensemble([cube, cube.transpose("x", "y", "class")])


def test_ensembles__align_masks_and_labels_with_any_member():
    cube = xr.DataArray(RNG.random((3, 3, 5)), dims=("y", "x", "class"))
    mask = xr.DataArray(RNG.random((3, 3)) < 0.5, dims=("x", "y"))
    for members in ([cube, cube.values], [cube.values, cube]):
        threshold = avgk.threshold(avgk.ensemble(members), 1, where=mask)
        assert threshold == avgk.threshold(cube, 1, where=mask)


def test_ensembles__of_softmaxes_do_not_look_at_samples_that_do_not_exist():
    logits = RNG.standard_normal((60, 8))
    kept = np.arange(60) % 4 > 0
    for bad in (-np.inf, np.inf, np.nan):
        padded = np.where(kept[:, None], logits, bad)
        lazy = avgk.ensemble([avgk.softmax(da.from_array(padded, chunks=(7, 3))), avgk.softmax(padded)])
        xr.testing.assert_equal(
            avgk.evaluate(lazy, k=2, where=kept), avgk.evaluate(np.asarray(avgk.softmax(logits))[kept], k=2)
        )
    padded[1] = np.inf
    lazy = avgk.ensemble([avgk.softmax(padded), avgk.softmax(logits)])
    with pytest.raises(avgk.ScoresError, match=r"NaN.*sample 1,"):
        avgk.evaluate(lazy, k=2, where=kept)


def test_ensembles__of_arrays_and_stores_keep_their_shape():
    cube = RNG.random((4, 3, 5))
    stored = zarr.create_array({}, data=cube, chunks=(1, 3, 5))
    lazy = avgk.ensemble([cube, stored])
    assert lazy.shape == (4, 3, 5)
    assert avgk.average_k_sets(lazy, 1).shape == (4, 3, 5)


def test_soft_labels__may_be_lazy():
    logits = RNG.standard_normal((6, 10, 5))
    lazy, eager = avgk.softmax(logits), np.asarray(avgk.softmax(logits))
    xr.testing.assert_equal(avgk.evaluate(lazy, lazy, k=2), avgk.evaluate(eager, eager, k=2))


def test_lazy_scores__have_a_description_for_any_input():
    assert "cannot be computed" in repr(avgk.softmax("/nowhere.zarr"))
    assert "cannot be computed" in repr(avgk.softmax(np.ones(3)))
    assert repr(avgk.softmax(avgk.softmax(SCORES))).startswith("softmax of (softmax of scores, temperature 1)")
    assert len({avgk.softmax(SCORES), avgk.softmax(SCORES)}) == 2


def test_refusals__of_several_budgets_and_odd_weights():
    labels = np.zeros(60, int)
    labels[1] = 1
    with pytest.raises(avgk.BudgetError, match="one budget"):
        avgk.losses.calibration_at_threshold(SCORES, labels, [1, 2])
    with pytest.raises(avgk.BudgetError, match="one budget"):
        avgk.calibration.temperature_curve(SCORES, labels, [1, 2])
    with pytest.raises(avgk.OptionError, match="weights must have one entry for each"):
        avgk.ensemble([SCORES, SCORES], weights=2)
    with pytest.raises(avgk.OptionError, match="table has no"):
        avgk.plot.near_threshold(avgk.losses.expected_calibration_error(SCORES, labels))


def test_sigmoid__of_blocks_without_classes():
    blocks = da.from_array(SCORES, chunks=((60,), (2, 0, 6)))
    np.testing.assert_array_equal(np.asarray(avgk.sigmoid(blocks)), np.asarray(avgk.sigmoid(SCORES)))
