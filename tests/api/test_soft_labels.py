"""Soft labels: rows are probabilities of one right label, which sum to 1 within rounding; multi-label data are refused."""

from __future__ import annotations

import dask.array as da
import ml_dtypes
import numpy as np
import pytest
import zarr

import avgk_dask as avgk
from avgk_dask import losses

RNG = np.random.default_rng(4)
N, C = 60, 6
SCORES = RNG.dirichlet(np.ones(C), N)
ETA = RNG.dirichlet(np.ones(C), N)
#: Sample 0 has one label, as a row of probabilities would; sample 1 has three.
MULTI = RNG.random((N, C)) < 0.4
MULTI[0], MULTI[1] = np.eye(C)[2], [1, 0, 1, 0, 1, 0]
SAYS = r"sum to 1 for each sample; got \d+ rows that do not, the first at sample 1, whose sum is 3: this looks like multi-label data"

USES = {
    "evaluate": lambda labels: avgk.evaluate(SCORES, labels, 2),
    "error_curve": lambda labels: avgk.error_curve(SCORES, labels),
    "risk": lambda labels: avgk.risk(SCORES, labels, 0.1),
    "best_threshold": lambda labels: avgk.best_threshold(SCORES, labels, cost=0.1),
    "transfer": lambda labels: avgk.transfer(SCORES, SCORES, labels, 2),
    "nll": lambda labels: losses.nll(SCORES, labels),
    "expected_calibration_error": lambda labels: losses.expected_calibration_error(SCORES, labels),
    "calibration_at_threshold": lambda labels: losses.calibration_at_threshold(SCORES, labels, 2),
    "adaptive_gain": lambda labels: avgk.adaptive_gain(labels.astype("f4"), 2),
    "regret": lambda labels: avgk.regret(MULTI, labels.astype("f4")),
    "plug_in_regret": lambda labels: avgk.plug_in_regret(SCORES, labels.astype("f4"), 2),
    "Evaluator": lambda labels: avgk.Evaluator(C, 2).update(SCORES, labels),
}


@pytest.mark.parametrize("use", USES)
def test_multi_label_matrices__are_refused_by_every_function(use):
    for dtype in (bool, "u1", "f4"):
        with pytest.raises(avgk.LabelsError, match=SAYS):
            USES[use](MULTI.astype(dtype))


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", [bool, "i8", "f2", "f8"])
@pytest.mark.parametrize("chunks", [(N, C), (7, 2), ((1, 40, 19), (4, 1, 1))])
def test_multi_label_matrices__are_refused_alike_however_they_come(tmp_path, dtype, chunks):
    with pytest.raises(avgk.LabelsError, match=SAYS) as whole:
        avgk.evaluate(SCORES, MULTI.astype(float), 2)
    lazy = da.from_array(MULTI.astype(dtype), chunks=chunks)
    with pytest.raises(avgk.LabelsError) as blocks:
        avgk.evaluate(da.from_array(SCORES, chunks=chunks), lazy, 2)
    group = zarr.create_group(tmp_path / "a.zarr")
    sizes = tuple(part if isinstance(part, int) else part[0] for part in chunks)
    group.create_array("scores", data=SCORES, chunks=sizes)
    group.create_array(
        "labels", data=MULTI.astype(dtype), chunks=sizes[::-1] if min(sizes) > 1 else sizes, fill_value=None
    )
    with pytest.raises(avgk.LabelsError) as stored:
        avgk.evaluate(tmp_path / "a.zarr", k=2, missing="fill")
    np.save(tmp_path / "a.npy", MULTI.astype(dtype))
    with pytest.raises(avgk.LabelsError) as mapped:
        avgk.evaluate(SCORES, tmp_path / "a.npy", 2)
    assert len({str(error.value) for error in (whole, blocks, stored, mapped)}) == 1


def test_multi_label_matrices__are_not_stored(tmp_path):
    np.save(tmp_path / "scores.npy", SCORES)
    for dtype in (bool, "i8", "f4"):
        with pytest.raises(avgk.LabelsError, match=SAYS):
            avgk.ingest(tmp_path / "scores.npy", MULTI.astype(dtype), out=tmp_path / "b.zarr", overwrite=True)
        with avgk.ScoreWriter(tmp_path / f"{np.dtype(dtype)}.zarr", n_classes=C) as writer:
            writer.append(SCORES, ETA)
            with pytest.raises(avgk.LabelsError, match=f"the first at sample {N + 1}, whose sum is 3"):
                writer.append(SCORES, MULTI.astype(dtype))
        assert avgk.open_scores(tmp_path / f"{np.dtype(dtype)}.zarr").scores.shape == (N, C)


@pytest.mark.parametrize("dtype", [bool, "u1", "f4"])
def test_one_hot_rows__are_labels(dtype):
    hard = RNG.integers(0, C, N)
    soft = avgk.evaluate(SCORES, np.eye(C)[hard].astype(dtype), [1, 2])
    np.testing.assert_array_equal(soft.average_k_error, avgk.evaluate(SCORES, hard, [1, 2]).average_k_error)


@pytest.mark.parametrize(
    "rounded",
    [
        ETA.astype("f2"), ETA.astype("f4"), ETA.astype(ml_dtypes.bfloat16).astype("f4"), ETA.round(3),
        RNG.dirichlet(np.ones(1000), N).astype("f2"), RNG.dirichlet(np.ones(1000), N).round(4),
    ],
)  # fmt: skip
def test_sums__need_not_be_1_beyond_rounding(rounded):
    assert rounded.astype("f8").sum(1).std() > 0
    avgk.evaluate(np.tile(SCORES, 167)[:, : rounded.shape[1]], rounded, 2)


@pytest.mark.parametrize(
    "total, todo",
    [(0.98, "Divide each row by its sum"), (1.25, "Divide each row"), (0, "Leave samples without a label out")],
)
def test_sums__other_than_1_are_refused_with_the_sample_and_the_cure(total, todo):
    eta = ETA.copy()
    eta[[17, 40]] = total / C
    with pytest.raises(avgk.LabelsError) as error:
        avgk.evaluate(da.from_array(SCORES, chunks=(11, 4)), eta, 2)
    assert f"got 2 rows that do not, the first at sample 17, whose sum is {total}. {todo}" in str(error.value)


def test_sums__of_samples_that_do_not_exist_are_not_looked_at():
    where = np.arange(N) % 3 > 0
    padded = np.where(where[:, None], ETA, 0)
    expected = avgk.evaluate(SCORES[where], ETA[where], 2)
    assert avgk.evaluate(SCORES, padded, 2, where=where).drop_attrs().identical(expected.drop_attrs())
    loop = avgk.Evaluator(C, 2)
    loop.update(SCORES, padded, where=where)
    np.testing.assert_array_equal(loop.result().average_k_error, expected.average_k_error)


def test_real_soft_labels__sum_to_1(data):
    eta = np.load(data / "cifar10h" / "eta.npy")
    for labels in (eta, eta.astype("f2"), eta.round(3)):
        avgk.evaluate(eta, labels, 2)
