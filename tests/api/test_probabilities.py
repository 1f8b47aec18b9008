"""Logits as probabilities: the same result as the probabilities in memory, for any chunking, in as many reads."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special
from zarr.storage import MemoryStore

import avgk_dask as avgk
from avgk_dask.kernels.numpy import exponentials as plain
from avgk_dask.results import datasets as json_text
from avgk_dask.sources import source as sources
from avgk_dask.sources.planning import band_bytes, slab_bytes
from avgk_dask.testing import CountingStore, strategies

RNG = np.random.default_rng(11)
LOGITS = (RNG.standard_normal((2_000, 60)) * 4).astype("f4")
LABELS = np.where(RNG.random(2_000) < 0.7, LOGITS.argmax(1), RNG.integers(-1, 60, 2_000))
CHUNKS = [
    (2_000, 60), (100, 60), (250, 13), (7, 60), (2_000, 1), (333, 59), (64, 8), (1, 60), (1_999, 30), (500, 60),
    (90, 17), (1_000, 2), (128, 64), (30, 30), (50, 11), (777, 7), (11, 60), (400, 45), (1_200, 60), (600, 20),
]  # fmt: skip


def probabilities(scores, temperature=1.0):
    """Return the softmax by its definition, rounded once."""
    rows = scores.astype("f8")
    return special.softmax(rows / temperature, axis=1).astype("f8" if scores.dtype.itemsize == 8 else "f4")


def as_text(result):
    result.attrs["store"] = ""
    result.attrs.pop("made_by", None)
    return json_text.to_json(result)


@pytest.mark.slow
def test_softmax__gives_the_same_bytes_for_any_chunking_and_number_of_threads():
    expected = as_text(avgk.evaluate(probabilities(LOGITS, 1.7), LABELS, [1, 2.5, 5]))
    sets = avgk.average_k_sets(probabilities(LOGITS, 1.7), 2.5).compute()
    for number, chunks in enumerate(CHUNKS):
        store = CountingStore(MemoryStore())
        stored = zarr.create_array(store, data=LOGITS, chunks=chunks, config={"write_empty_chunks": True})
        store.reads.clear()
        with dask.config.set({"num_workers": 1 + number % 2, "avgk.slab-bytes": 1 << 16}):
            result = avgk.evaluate(avgk.softmax(stored, temperature=1.7), LABELS, [1, 2.5, 5])
        assert result.attrs["reads"] == 1
        assert max(store.chunk_reads().values()) <= 2
        assert as_text(result) == expected
        actual = avgk.average_k_sets(avgk.softmax(stored, temperature=1.7), 2.5)
        np.testing.assert_array_equal(actual.compute(), sets)


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", ["f4", "f2", "i1", "f8", "i8"])
def test_softmax__of_large_bands_is_given_in_slabs_of_the_same_bits(dtype, monkeypatch):
    logits = LOGITS.clip(-20, 20).astype(dtype)
    where = RNG.random(2_000) < 0.8
    stored = zarr.create_array(MemoryStore(), data=logits, chunks=(500, 17))
    whole = as_text(avgk.evaluate(avgk.softmax(stored), LABELS, [1, 2.5], where=where))
    curve = avgk.error_curve(avgk.softmax(stored), LABELS)
    monkeypatch.setattr(sources, "_WHOLE_BYTES", 1)
    assert len(avgk.softmax(stored).as_source(None).classes) == 2  # short rows
    monkeypatch.setattr(sources, "_LONG_ROW", 1)
    with dask.config.set({"avgk.slab-bytes": 1 << 12, "avgk.small-scores": 0}):
        source = avgk.softmax(stored).as_source(None)
        assert (len(source.classes) > 5) == (dtype in ("f4", "f2", "i1"))
        assert slab_bytes(source) < band_bytes(source) or dtype in ("f8", "i8")
        assert as_text(avgk.evaluate(avgk.softmax(stored), LABELS, [1, 2.5], where=where)) == whole
        assert avgk.error_curve(avgk.softmax(stored), LABELS).identical(curve)
        if dtype in ("f4", "f2"):
            bad = logits.copy()
            bad[77] = -np.inf
            with pytest.raises(avgk.ScoresError, match=r"sample 77 .* are -inf in every class"):
                avgk.evaluate(avgk.softmax(zarr.create_array(MemoryStore(), data=bad, chunks=(500, 17))), k=1)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", strategies.DTYPES)
@settings(max_examples=settings().max_examples // 3)
@given(data=st.data())
def test_softmax__takes_every_dtype(name, data):
    dtype = strategies.as_dtype(name)
    shape = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    low = 0 if name.startswith("u") else -30
    scores = np.array(
        data.draw(st.lists(st.integers(low, 30), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    )
    scores = scores.reshape(shape).astype(dtype)
    lazy = da.from_array(scores, chunks=data.draw(strategies.chunkings(shape)))
    actual = avgk.softmax(lazy, temperature=2)
    assert actual.dtype == ("f8" if dtype.itemsize == 8 else "f4")
    expected = probabilities(scores, 2)
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=3e-7 if actual.dtype == "f4" else 1e-14)
    result, other = (avgk.evaluate(s, k=1, straddle=False) for s in (actual, np.asarray(actual)))
    assert as_text(result) == as_text(other)


@pytest.mark.slow
def test_sigmoid__equals_its_twin_for_any_chunking():
    expected = np.empty_like(LOGITS)
    plain.sigmoid_narrow(LOGITS, 1.0, expected, np.empty(60))
    whole = as_text(avgk.evaluate(expected, LABELS, [1, 3]))
    for chunks in CHUNKS[:8]:
        stored = zarr.create_array(MemoryStore(), data=LOGITS, chunks=chunks)
        np.testing.assert_array_equal(np.asarray(avgk.sigmoid(stored)), expected)
        assert as_text(avgk.evaluate(avgk.sigmoid(stored), LABELS, [1, 3])) == whole


@pytest.mark.slow
def test_every_function__takes_probabilities_of_logits(tmp_path):
    lazy, eager = avgk.softmax(da.from_array(LOGITS, chunks=(300, 25))), probabilities(LOGITS)
    hard = np.where(LABELS < 0, 0, LABELS)
    for call in (
        lambda p: avgk.threshold(p, [1, 2]),
        lambda p: avgk.error_curve(p, hard),
        lambda p: avgk.risk(p, hard, thresholds=[0.1, 0.2], cost=0.1),
        lambda p: avgk.straddle_strength(p, 2),
        lambda p: avgk.ranked_supports(p, [1, 2]),
        lambda p: avgk.average_set_size_at(p, [0.1, 0.3]),
        lambda p: avgk.plug_in_regret(p, eager, 2),
        lambda p: avgk.plug_in_regret(eager, p, 2),
        lambda p: avgk.adaptive_gain(p, 2),
        lambda p: avgk.evaluate(p, hard, 2, ties="spread"),
        lambda p: avgk.evaluate(p, p, 2),
    ):
        xr.testing.assert_equal(call(lazy), call(eager))
    assert avgk.best_threshold(lazy, hard, cost=0.1).value == avgk.best_threshold(eager, hard, cost=0.1).value
    assert avgk.threshold_at(lazy, 2.0) == avgk.threshold_at(eager, 2.0)
    for sets in (avgk.top_k_sets, avgk.average_k_sets):
        np.testing.assert_array_equal(sets(lazy, 3).compute(), sets(eager, 3).compute())
    np.testing.assert_array_equal(
        avgk.predict_sets(lazy, threshold=0.2).compute(), avgk.predict_sets(eager, threshold=0.2).compute()
    )


def test_softmax__of_a_store_has_its_labels_its_place_and_its_checkpoint(tmp_path):
    path = tmp_path / "logits.zarr"
    with avgk.ScoreWriter(path, n_classes=60, dtype="float32", chunk_rows=200) as writer:
        writer.append(LOGITS, LABELS)
    expected = avgk.evaluate(probabilities(LOGITS), LABELS, 2)
    for n_reads in (1, 0):
        result = avgk.evaluate(avgk.softmax(path), k=2, checkpoint=tmp_path / "kept")
        assert result.attrs["store"] == str(path)
        assert as_text(result) == as_text(expected.assign_attrs(reads=n_reads))
    with pytest.raises(
        avgk.OptionError, match=r"made by was 'softmax, temperature 1\.0' and is 'softmax, temperature 2.0'"
    ):
        avgk.evaluate(avgk.softmax(path, temperature=2), k=2, checkpoint=tmp_path / "kept")


def test_softmax__keeps_the_frame_of_xarray():
    frame = xr.DataArray(LOGITS, dims=("image", "species"), coords={"image": np.arange(2_000)})
    sets = avgk.top_k_sets(avgk.softmax(frame), 2)
    assert sets.dims == ("image", "species")
    assert int(sets.sum()) == 4_000


def test_softmax__refuses_infinite_rows_and_names_the_sample():
    for value, text in ((np.inf, "infinite"), (-np.inf, "-inf in every class")):
        bad = LOGITS.copy()
        bad[1234] = value
        with pytest.raises(avgk.ScoresError, match=f"sample 1234 are {text}"):
            avgk.evaluate(avgk.softmax(da.from_array(bad, chunks=(500, 7))), k=1)


def test_softmax__leaves_nan_to_the_policy():
    bad = LOGITS.copy()
    bad[77, 5] = np.nan
    lazy = avgk.softmax(da.from_array(bad, chunks=(500, 7)))
    with pytest.raises(avgk.ScoresError, match="sample 77"):
        avgk.evaluate(lazy, LABELS, k=1)
    eager = np.asarray(lazy)
    assert np.isnan(eager).sum() == 1
    assert as_text(avgk.evaluate(lazy, LABELS, 1, nan_policy="lowest")) == as_text(
        avgk.evaluate(eager, LABELS, 1, nan_policy="lowest")
    )


@pytest.mark.parametrize("temperature", [0, -1, np.nan, np.inf, "warm", None, 1e300])
def test_softmax__refuses_other_temperatures(temperature):
    with pytest.raises(avgk.OptionError, match="temperature must be a positive number"):
        avgk.softmax(LOGITS, temperature=temperature)


def test_softmax__refuses_truncated_rows(tmp_path):
    path = tmp_path / "top.zarr"
    with avgk.ScoreWriter(path, n_classes=60, top_m=5) as writer:
        writer.append(LOGITS, LABELS)
    with pytest.raises(avgk.ScoresError, match="whole rows for a softmax"):
        avgk.evaluate(avgk.softmax(path), k=1)


def test_lazy_scores__describe_themselves(tmp_path):
    lazy = avgk.softmax(LOGITS, temperature=2)
    assert isinstance(lazy, avgk.LazyScores)
    assert (lazy.shape, lazy.ndim, lazy.dtype) == ((2_000, 60), 2, np.float32)
    assert repr(lazy) == "softmax of scores, temperature 2: 2,000 x 60, float32, not computed yet"
    np.testing.assert_allclose(lazy.to_dask().sum(1).compute(), 1, rtol=1e-6)


def test_softmax__of_huge_integers_is_that_of_their_differences():
    for dtype, base in (("i8", 2**60), ("i8", -(2**62)), ("u8", 2**63 + 2**60)):
        logits = np.array([[base + 3, base, base + 1], [base, base + 64, base]], dtype)
        expected = special.softmax(np.array([[3.0, 0, 1], [0, 64, 0]]), axis=1)
        np.testing.assert_allclose(np.asarray(avgk.softmax(logits)), expected, rtol=1e-14)
    wide = np.array([[2**63 - 1, -(2**63)]])
    assert np.asarray(avgk.softmax(wide)).tolist() == [[1, 0]]
