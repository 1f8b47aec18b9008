"""Error curves: every K at once equals the evaluation of each, in one read or two."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

import avgk_dask as avgk
from avgk_dask.api import curves
from avgk_dask.results import datasets as json_text
from avgk_dask.testing import CountingStore, Simulation, oracle_evaluate, strategies


def check_curve(curve, scores, labels):
    n_classes = scores.shape[1]
    assert curve.k.values.tolist() == list(range(1, n_classes + 1))
    expected = [oracle_evaluate(scores, labels, k) for k in range(1, n_classes + 1)]
    for name in ("top_k_error", "average_k_error"):
        assert np.array_equal(curve[name].values, [e[name] for e in expected], equal_nan=True), name
        assert float(curve[f"mean_{name}"]) == pytest.approx(float(curve[name].mean(skipna=False)), nan_ok=True)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("few", [0, 128])
@given(data=st.data())
def test_error_curve__equals_the_definitions(kind, few, nan, data):
    dtypes = ("float16", "float32", "float64", "bfloat16") if nan else strategies.DTYPES
    scores = data.draw(strategies.score_matrices(dtypes, nan=nan))
    labels = data.draw(strategies.hard_labels(scores.shape) if kind == "hard" else strategies.soft_labels(scores.shape))
    lazy = da.from_array(scores, chunks=data.draw(strategies.chunkings(scores.shape)))
    with (
        dask.config.set({"scheduler": "synchronous", "avgk.task-bytes": 1, "avgk.fan-in": 2}),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(curves, "_FEW_CLASSES", few)
        curve = avgk.error_curve(lazy, labels, nan_policy="lowest" if nan else "raise")
    check_curve(curve, scores, labels)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("n_classes, n_reads", [(60, 1), (140, 2)])
def test_error_curve__is_the_same_for_any_chunking_and_reads_twice_at_most(dtype, n_classes, n_reads):
    scores, labels, _ = Simulation(1_500, n_classes, dtype=dtype).rows(0, 1_500)
    expected = avgk.evaluate(scores, labels, range(1, n_classes + 1), straddle=False)
    whole = json_text.to_json(avgk.error_curve(scores, labels))
    for chunks in ((1_500, n_classes), (100, n_classes), (250, 13), (7, n_classes)):
        store = CountingStore(MemoryStore())
        stored = zarr.create_array(store, data=scores, chunks=chunks, config={"write_empty_chunks": True})
        store.reads.clear()
        curve = avgk.error_curve(stored, labels)
        assert set(store.chunk_reads().values()) == {n_reads}
        assert curve.attrs["reads"] == n_reads
        curve.attrs["store"] = ""
        assert json_text.to_json(curve) == whole
        for name in ("top_k_error", "average_k_error"):
            assert np.array_equal(curve[name], expected[name])


def test_error_curve__needs_labels():
    with pytest.raises(avgk.LabelsError, match="labels are required"):
        avgk.error_curve(np.eye(3))


def test_error_curve__names_nan_and_bad_labels():
    scores = np.random.default_rng(0).random((9, 4))
    with pytest.raises(avgk.LabelsError, match="sample 2"):
        avgk.error_curve(scores, np.array([0, 1, 7, 0, 1, 9, 0, 0, 0]))
    for dtype in ("float16", "float64"):
        bad = scores.astype(dtype)
        bad[5, 2] = np.nan
        with pytest.raises(avgk.ScoresError, match="sample 5, class 2"):
            avgk.error_curve(da.from_array(bad, chunks=(2, 4)), np.zeros(9, int))


def test_error_curve__refuses_bands_that_do_not_fit():
    scores = da.zeros((4_000_000, 50), chunks=(4_000_000, 1), dtype="float32")
    with dask.config.set({"avgk.memory-limit": "1GB"}), pytest.raises(avgk.MemoryLimitError, match="fewer rows"):
        avgk.error_curve(scores, np.zeros(4_000_000, np.int8))
