"""Scores of more than two dimensions: the same as the matrix of their samples in row-major order."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import obstore
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import ObjectStore

import avgk_dask as avgk
import avgk_dask.xarray  # registers .avgk
from avgk_dask.api.inputs.sources import as_source
from avgk_dask.api.written_sets import SetChoice, write_sets
from avgk_dask.sources.planning import reads_far
from avgk_dask.testing import CountingStore, Simulation
from avgk_dask.testing.strategies import chunkings

SHAPE = (6, 7, 5)
RNG = np.random.default_rng(2)
SCORES = RNG.integers(0, 30, SHAPE).astype("f4")
LABELS = RNG.integers(-1, 5, SHAPE[:-1])
ETA = RNG.dirichlet(np.ones(5), SHAPE[:-1])
WHERE = RNG.random(SHAPE[:-1]) < 0.6
FLAT = SCORES.reshape(-1, 5)
KS = [1, 2.5]
CHUNKS = [(2, 3, 2), (1, 2, 5), (1, 1, 1), (6, 7, 5), (4, 7, 3)]
WAYS = {
    "small": {},
    "pilot": {"avgk.small-scores": 0},
    "events": {
        "avgk.small-scores": 0, "avgk.kept-bytes": 0, "avgk.least-events": 4, "avgk.max-events": 4, "avgk.slab-bytes": 1,
        "avgk.band-bytes": 0,
    },
}  # fmt: skip


def stored(data, chunks, **options):
    return zarr.create_array({}, data=data, chunks=chunks, config={"write_empty_chunks": True}, **options)


def equal(result, expected):
    return np.array_equal(np.asarray(result), np.asarray(expected))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("chunks", CHUNKS)
def test_evaluate__is_that_of_the_matrix_of_all_samples(chunks, way):
    with dask.config.set(WAYS[way]), dask.config.set(scheduler="synchronous"):
        hard = avgk.evaluate(FLAT, LABELS.reshape(-1), KS).drop_attrs()
        soft = avgk.evaluate(FLAT, ETA.reshape(-1, 5), KS).drop_attrs()
        padded = avgk.evaluate(SCORES[WHERE], LABELS[WHERE], KS).drop_attrs()
        for make in (lambda data, chunks: data, lambda data, chunks: da.from_array(data, chunks=chunks), stored):
            scores = make(SCORES, chunks)
            assert avgk.evaluate(scores, make(LABELS, chunks[:-1]), KS).drop_attrs().identical(hard)
            assert avgk.evaluate(scores, make(ETA, chunks), KS).drop_attrs().identical(soft)
            result = avgk.evaluate(scores, make(LABELS, chunks[:-1]), KS, where=make(WHERE, chunks[:-1]))
            assert result.drop_attrs().identical(padded)


@pytest.mark.slow
@given(st.data())
def test_evaluate__is_that_of_the_matrix_for_any_shape_and_chunks(data):
    lead = tuple(data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=3)))
    shape = (*lead, data.draw(st.integers(1, 4)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    scores, labels = rng.integers(0, 5, shape).astype("f4"), rng.integers(-1, shape[-1], lead)
    where = rng.random(lead) < 0.5
    where.flat[data.draw(st.integers(0, where.size - 1))] = True
    ragged = data.draw(chunkings(shape))
    if data.draw(st.booleans()):
        given_scores = da.from_array(scores, chunks=ragged)
    else:
        given_scores = stored(scores, tuple(map(max, ragged)))
    options = data.draw(st.sampled_from([{"where": where}, {"ignore_index": -1}, {}]))
    kept = options.get("where", labels != options.get("ignore_index", -9))
    if not kept.any():
        return
    k = data.draw(st.sampled_from([1, "0.7", shape[-1]]))
    with dask.config.set(WAYS[data.draw(st.sampled_from(sorted(WAYS)))]), dask.config.set(scheduler="synchronous"):
        result = avgk.evaluate(given_scores, labels, k, **options)
        assert result.drop_attrs().identical(avgk.evaluate(scores[kept], labels[kept], k).drop_attrs())
        options = {"where": kept}
        sets = np.zeros(shape, bool)
        sets[kept] = np.asarray(avgk.average_k_sets(scores[kept], k))
        assert equal(avgk.average_k_sets(given_scores, k, **options), sets)


@pytest.mark.sample(1)
@pytest.mark.parametrize("chunks", CHUNKS)
def test_sets__come_back_in_the_shape_given(chunks):
    for scores in (SCORES, da.from_array(SCORES, chunks=chunks), stored(SCORES, chunks)):
        for ties in ("first", "spread"):
            sets = avgk.average_k_sets(scores, 2.3, ties=ties)
            assert sets.shape == SHAPE
            assert equal(sets, np.asarray(avgk.average_k_sets(FLAT, 2.3, ties=ties)).reshape(SHAPE))
        assert equal(avgk.top_k_sets(scores, 2), np.asarray(avgk.top_k_sets(FLAT, 2)).reshape(SHAPE))
        assert equal(avgk.predict_sets(scores, threshold=9), SCORES > 9)


def test_frames__come_back_with_their_dimensions_and_coordinates():
    frame = xr.DataArray(
        SCORES, dims=("image", "pixel", "class"), coords={"image": np.arange(6) * 10, "class": list("abcde")}
    )
    for given_frame in (frame, frame.transpose("class", "pixel", "image").transpose("image", "class", "pixel")):
        sets = given_frame.avgk.average_k_sets(2.3)
        assert sets.dims == ("image", "pixel", "class")
        assert sets.coords.equals(frame.coords)
        assert equal(sets, avgk.average_k_sets(SCORES, 2.3))
    labels = xr.DataArray(LABELS, dims=("image", "pixel"))
    expected = avgk.evaluate(FLAT, LABELS.reshape(-1), KS).drop_attrs()
    assert avgk.evaluate(frame, labels.transpose(), KS).drop_attrs().identical(expected)
    assert (
        xr.Dataset({"scores": frame, "labels": labels.transpose()}).avgk.evaluate(k=KS).drop_attrs().identical(expected)
    )
    unnamed = xr.DataArray(SCORES, dims=("a", "b", "c"))
    assert unnamed.avgk.threshold(2) == avgk.threshold(FLAT, 2)


def test_frames__take_the_last_dimension_for_the_classes_unless_one_is_so_called():
    turned = xr.DataArray(SCORES.transpose(2, 0, 1), dims=("class", "a", "b"))
    assert equal(turned.avgk.top_k_sets(2), avgk.top_k_sets(SCORES, 2))


@pytest.mark.sample(1)
@pytest.mark.parametrize("format", ["booleans", "indices"])
def test_written_sets__are_those_of_the_samples_in_order(tmp_path, format):
    write_sets(stored(SCORES, (2, 3, 2)), tmp_path / "a.zarr", SetChoice(k=2.3), format=format, where=WHERE)
    write_sets(FLAT, tmp_path / "b.zarr", SetChoice(k=2.3), format=format, where=WHERE.reshape(-1))
    result, expected = (zarr.open_group(tmp_path / name, mode="r") for name in ("a.zarr", "b.zarr"))
    for name in ("sets",) if format == "booleans" else ("offsets", "classes"):
        assert np.array_equal(result[name][:], expected[name][:])


def test_gains_and_regrets__take_more_dimensions():
    flat = ETA.reshape(-1, 5)
    assert avgk.adaptive_gain(ETA, 2).drop_attrs().identical(avgk.adaptive_gain(flat, 2).drop_attrs())
    sets = ETA > 0.3
    result = avgk.regret(sets, stored(ETA, (2, 3, 2)), where=WHERE)
    assert result.drop_attrs().identical(avgk.regret(sets[WHERE], ETA[WHERE]).drop_attrs())
    for eta in (ETA, stored(ETA, (2, 3, 2))):
        result = avgk.plug_in_regret(1 - ETA, eta, 2)
        assert result.drop_attrs().identical(avgk.plug_in_regret(1 - flat, flat, 2).drop_attrs())


def test_stores__of_more_dimensions_open_with_their_labels(tmp_path):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    options = {"config": {"write_empty_chunks": True}}
    group.create_array("scores", data=SCORES, chunks=(2, 3, 5), dimension_names=("image", "pixel", "class"), **options)
    group.create_array("labels", data=LABELS, chunks=(3, 7), dimension_names=("image", "pixel"), **options)
    expected = avgk.evaluate(FLAT, LABELS.reshape(-1), KS).drop_attrs()
    assert avgk.evaluate(tmp_path / "a.zarr", k=KS).drop_attrs().identical(expected)
    opened = avgk.open_scores(tmp_path / "a.zarr")
    assert (opened.scores.dims, opened.labels.dims) == (("image", "pixel", "class"), ("image", "pixel"))
    assert opened.avgk.evaluate(k=KS).drop_attrs().identical(expected)
    info = avgk.info(tmp_path / "a.zarr")
    assert (info["n_samples"], info["n_classes"], info["chunks"]) == (42, 5, [2, 3, 5])
    assert info["labels"].startswith("class numbers")
    np.save(tmp_path / "labels.npy", LABELS)
    assert avgk.evaluate(group["scores"], tmp_path / "labels.npy", KS).drop_attrs().identical(expected)
    assert avgk.verify(tmp_path / "a.zarr").ok


@pytest.mark.parametrize("names", [("class", "image", "pixel"), ("image", "class", "pixel")])
def test_stores__with_the_classes_elsewhere_are_refused(tmp_path, names):
    zarr.create_array(tmp_path / "a.zarr", data=SCORES, dimension_names=names)
    with pytest.raises(avgk.ScoresError, match="Transpose it first"):
        avgk.evaluate(tmp_path / "a.zarr")


@pytest.mark.sample(3)
@pytest.mark.parametrize("options", [{}, {"avgk.band-bytes": 0, "avgk.small-scores": 0, "avgk.slab-bytes": 1}])
@pytest.mark.parametrize("chunks", CHUNKS)
def test_evaluate__reads_far_stores_of_more_dimensions_ahead(chunks, options):
    far = ObjectStore(obstore.store.MemoryStore())
    array = zarr.create_array(far, data=SCORES, chunks=chunks, config={"write_empty_chunks": True})
    with dask.config.set(options):
        assert reads_far(as_source(array))
        result = avgk.evaluate(array, LABELS, KS, where=WHERE)
        assert result.drop_attrs().identical(avgk.evaluate(SCORES[WHERE], LABELS[WHERE], KS).drop_attrs())


@pytest.mark.sample(1)
@pytest.mark.parametrize("chunks", [(2, 250, 20), (1, 100, 50), (1, 300, 10)])
@pytest.mark.parametrize("options", [{}, {"avgk.band-bytes": 0}])
def test_evaluate__reads_each_chunk_of_more_dimensions_once(chunks, options):
    scores, labels, _ = Simulation(20_000, 50).rows(0, 20_000)
    store = CountingStore(zarr.storage.MemoryStore())
    array = zarr.create_array(
        store, name="scores", data=scores.reshape(20, 1000, 50), chunks=chunks, config={"write_empty_chunks": True}
    )
    store.reads.clear()
    with dask.config.set(options):
        result = avgk.evaluate(array, labels.reshape(20, 1000))
    reads = store.chunk_reads()
    assert len(reads) == array.nchunks
    pilot = sum(reads.values()) - len(reads)
    assert pilot <= 16 * max(1, -(-1000 // chunks[1]))  # a piece of the pilot is a whole row of chunks
    assert result.drop_attrs().identical(avgk.evaluate(scores, labels).drop_attrs())


def test_checkpoint__serves_stores_of_more_dimensions(tmp_path):
    path = tmp_path / "a.zarr"
    zarr.create_array(path, data=SCORES, chunks=(1, 3, 5), config={"write_empty_chunks": True})
    expected = avgk.evaluate(FLAT, LABELS.reshape(-1), KS).drop_attrs()
    with dask.config.set({"avgk.band-bytes": 0}):
        for _ in range(2):
            result = avgk.evaluate(path, LABELS, KS, checkpoint=tmp_path / "kept")
            assert result.drop_attrs().identical(expected)


BAD = {
    "flat labels": (avgk.LabelsError, r"samples' shape \(6, 7\)", lambda: avgk.evaluate(SCORES, LABELS.reshape(-1))),
    "flat where": (
        avgk.ScoresError, r"samples' shape \(6, 7\)", lambda: avgk.evaluate(SCORES, LABELS, where=WHERE.reshape(-1))
    ),
    "one dimension": (avgk.ScoresError, "got 1 dimensions", lambda: avgk.evaluate(SCORES[0, 0])),
    "no samples": (avgk.ScoresError, "at least one sample", lambda: avgk.evaluate(SCORES[:, :0])),
    "float labels": (avgk.DtypeError, "labels must be integers", lambda: avgk.evaluate(SCORES, LABELS * 0.5)),
    "sets": (avgk.ScoresError, r"eta's shape \(6, 7, 5\)", lambda: avgk.regret(ETA.reshape(-1, 5) > 0.3, ETA)),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_more_dimensions__that_do_not_fit_are_refused(case):
    error, text, call = BAD[case]
    with pytest.raises(error, match=text):
        call()


def test_masked_labels__of_more_dimensions_are_unlabelled():
    masked = np.ma.masked_equal(LABELS, 2)
    expected = avgk.evaluate(FLAT, np.where(LABELS == 2, -1, LABELS).reshape(-1), KS).drop_attrs()
    assert avgk.evaluate(SCORES, masked, KS).drop_attrs().identical(expected)
