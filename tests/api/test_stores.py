"""open_scores, verify and info: lazily, from metadata, and as fast as the store itself."""

from __future__ import annotations

import json
import pickle

import dask
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.storage import MemoryStore

import avgk_dask as avgk
from avgk_dask.sources.readers import StoredReader
from avgk_dask.sources.row_values import stored_array
from avgk_dask.testing import CountingStore

SCORES = np.random.default_rng(1).dirichlet(np.ones(8), 120).astype(np.float32)
LABELS = np.random.default_rng(2).integers(0, 8, 120)


@pytest.fixture
def path(tmp_path):
    with avgk.ScoreWriter(tmp_path / "a.zarr", 8, chunk_rows=25) as writer:
        writer.append(SCORES, LABELS)
    return tmp_path / "a.zarr"


def test_open_scores__is_lazy_and_reads_metadata_only():
    store = CountingStore(MemoryStore())
    group = zarr.open_group(store, mode="w")
    group.create_array("scores", data=SCORES, chunks=(25, 3), shards=(50, 6))
    group.create_array("labels", data=LABELS, chunks=(30,))
    store.reads.clear()
    opened = avgk.open_scores(store)
    assert not store.chunk_reads()
    assert opened.scores.chunks == ((50, 50, 20), (6, 2))  # shards are not cut
    assert opened.labels.chunks == ((30, 30, 30, 30),)
    assert np.array_equal(opened.scores.values, SCORES)
    assert max(store.chunk_reads().values()) == 1
    assert np.array_equal(opened.isel(sample=slice(3, 9)).scores.values, SCORES[3:9])


@pytest.mark.slow
def test_open_scores__is_read_like_the_store_itself(path):
    opened = avgk.open_scores(path)
    assert stored_array(opened.scores.data) is not None
    from avgk_dask.api.inputs.sources import as_source

    assert isinstance(as_source(opened).reader, StoredReader)
    assert isinstance(as_source(opened.scores).reader, StoredReader)
    assert not isinstance(as_source(opened.isel(sample=slice(0, 10))).reader, StoredReader)
    direct = avgk.evaluate(path, k=[1, 2.5])
    assert avgk.evaluate(opened, k=[1, 2.5]).identical(direct)
    assert avgk.evaluate(opened.isel(sample=slice(0, 60)), k=2).equals(avgk.evaluate(SCORES[:60], LABELS[:60], 2))
    assert avgk.average_k_sets(opened, 2).dims == ("sample", "class")
    assert avgk.error_curve(opened).equals(avgk.error_curve(path))
    with dask.config.set(scheduler="processes"):
        assert np.array_equal(pickle.loads(pickle.dumps(opened)).scores.values, SCORES)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_open_scores__keeps_zeros_that_xarray_takes_for_missing(tmp_path, zarr_format):
    scores = np.where(SCORES > 0.1, SCORES, 0)
    group = zarr.open_group(tmp_path / "z.zarr", mode="w", zarr_format=zarr_format)
    group.create_array("scores", data=scores, chunks=(60, 8))
    opened = avgk.open_scores(tmp_path / "z.zarr")
    assert np.array_equal(opened.scores.values, scores)
    assert avgk.evaluate(tmp_path / "z.zarr", k=2).equals(avgk.evaluate(scores, k=2))


def test_open_scores__reads_fortran_order(tmp_path):
    zarr.create_array(tmp_path / "f.zarr", data=SCORES, chunks=(25, 3), zarr_format=2, order="F")
    assert avgk.evaluate(tmp_path / "f.zarr", LABELS, 2).equals(avgk.evaluate(SCORES, LABELS, 2))


def test_open_scores__takes_labels_from_anywhere(path, tmp_path):
    np.save(tmp_path / "l.npy", LABELS[::-1])
    group = zarr.open_group(tmp_path / "b.zarr", mode="w")
    group.create_array("labels", data=LABELS[::-1].copy(), chunks=(7,))
    group.create_array("other", data=LABELS[::-1].copy())
    for labels in (tmp_path / "l.npy", str(tmp_path / "l.npy"), tmp_path / "b.zarr", tmp_path / "b.zarr" / "other"):
        assert np.array_equal(avgk.open_scores(path, labels=labels).labels.values, LABELS[::-1])
        assert avgk.evaluate(path, labels, 2).equals(avgk.evaluate(SCORES, LABELS[::-1], 2))


@pytest.mark.parametrize(
    "options, error, match",
    [
        ({"scores": "scorse"}, avgk.StoreError, "Did you mean 'scores'"),
        ({"labels": "lable"}, avgk.StoreError, "Did you mean 'labels'"),
        ({"labels": "nothing.npy"}, avgk.StoreError, "no such file"),
        ({"missing": "ignore"}, avgk.OptionError, "missing must be"),
        ({"storage_options": {"client": "curl"}}, avgk.OptionError, "client must be"),
    ],
)
def test_open_scores__refuses_bad_options(path, options, error, match):
    with pytest.raises(error, match=match):
        avgk.open_scores(path, **options)


def test_open_scores__refuses_stores_without_scores(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.txt").write_text("hello")
    zarr.open_group(tmp_path / "vector.zarr", mode="w").create_array("scores", data=SCORES[0])
    for name, match in {
        "nothing": "no such store",
        "folder": "no zarr.json",
        "file.txt": r"numpy\.save\. Supported formats: \.npy, \.npz",
    }.items():
        with pytest.raises(avgk.StoreError, match=match):
            avgk.open_scores(tmp_path / name)
    with pytest.raises(avgk.ScoresError, match="matrix"):
        avgk.open_scores(tmp_path / "vector.zarr")
    with pytest.raises(avgk.StoreError, match="foo"):
        avgk.open_scores("foo://bar/baz.zarr")


def test_open_scores__refuses_a_matrix_that_looks_transposed(tmp_path):
    group = zarr.open_group(tmp_path / "t.zarr", mode="w")
    group.create_array("scores", data=np.ascontiguousarray(SCORES.T))
    group.create_array("labels", data=LABELS)
    for use in (avgk.open_scores, avgk.evaluate):
        with pytest.raises((avgk.ScoresError, avgk.LabelsError), match="transposed"):
            use(tmp_path / "t.zarr")


def test_info__describes_a_store(path):
    info = avgk.info(path)
    assert json.loads(json.dumps(info)) == info
    assert (info["n_samples"], info["n_classes"], info["dtype"]) == (120, 8, "float32")
    assert (info["n_chunks"], info["chunks"], info["shards"]) == (5, [25, 8], None)
    assert (info["n_bytes"], info["n_missing_chunks"], info["has_manifest"]) == (3840, 0, True)
    assert info["n_stored_bytes"] == sum(p.stat().st_size for p in (path / "scores" / "c").rglob("0") if p.is_file())
    assert info["values"]["kind"] == "probabilities: rows sum to 1"
    assert info["labels"] == "class numbers, int64, shape (120,)"
    assert info["task_memory"] > 0


def test_info__gives_advice(tmp_path):
    group = zarr.open_group(tmp_path / "b.zarr", mode="w")
    array = group.create_array("scores", shape=(120, 8), chunks=(30, 2), dtype="f4")
    array[:60] = np.log(SCORES[:60])
    info = avgk.info(tmp_path / "b.zarr")
    assert info["n_missing_chunks"] == 8
    assert info["values"]["kind"].startswith("logits")
    advice = " ".join(info["advice"])
    for word in ("missing", "split the classes into 4", "small", "manifest", "no labels", "lz4"):
        assert word in advice


@pytest.mark.parametrize(
    "values, kind",
    [
        (np.arange(12, dtype=np.uint8).reshape(3, 4), "integers"),
        (np.full((3, 4), 0.9), "in [0, 1], rows do not sum to 1"),
        (np.array([[0.5, np.nan], [0.1, np.inf]]), "with infinities or NaN"),
    ],
)
def test_info__looks_at_the_values(tmp_path, values, kind):
    zarr.create_array(tmp_path / "v.zarr", data=values)
    assert avgk.info(tmp_path / "v.zarr")["values"]["kind"].startswith(kind)


def test_verify__reports_whether_there_is_a_manifest(path, tmp_path):
    verification = avgk.verify(path)
    assert (verification.ok, verification.n_chunks, verification.has_manifest) == (True, 6, True)
    xr.Dataset({"scores": (("sample", "class"), SCORES)}).to_zarr(tmp_path / "x.zarr", consolidated=False)
    other = avgk.verify(tmp_path / "x.zarr")
    assert (other.ok, other.has_manifest) == (True, False)
