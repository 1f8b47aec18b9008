"""Every kind of input gives the same result; bad input is refused by one error that says what to do."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.storage import MemoryStore, ZipStore

import avgk_dask as avgk

SCORES = np.random.default_rng(0).random((50, 8)).astype("f4")
LABELS = np.arange(50) % 8


@pytest.fixture(scope="module")
def expected():
    return avgk.evaluate(SCORES, LABELS, [1, 2.5]).drop_attrs()


def as_store(path, scores=SCORES, labels=LABELS, **options):
    group = zarr.open_group(path, mode="w", **options)
    group.create_array("scores", data=scores, chunks=(7, 3))
    group.create_array("labels", data=labels, chunks=(11,))
    return group


def test_evaluate__takes_arrays_of_every_kind(expected, tmp_path):
    group = as_store(tmp_path / "a.zarr")
    frame = xr.DataArray(SCORES, dims=("sample", "class"))
    both = xr.Dataset({"scores": frame, "labels": ("sample", LABELS)})
    for scores, labels in [
        (SCORES, LABELS.tolist()),
        (da.from_array(SCORES, chunks=(9, 4)), da.from_array(LABELS, chunks=13)),
        (group["scores"], group["labels"]),
        (da.from_array(SCORES, chunks=(9, 4)), group["labels"]),
        (group["scores"], da.from_array(LABELS, chunks=13)),
        (frame, xr.DataArray(LABELS, dims="sample")),
        (frame.transpose(), LABELS),
        (both, None),
        (both.chunk({"sample": 9}), None),
        (tmp_path / "a.zarr", None),
        (str(tmp_path / "a.zarr"), None),
        (group, None),
        (group.store, None),
    ]:
        result = avgk.evaluate(scores, labels, [1, 2.5])
        assert result.drop_attrs().identical(expected), type(scores)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_evaluate__reads_both_zarr_formats_and_shards(expected, tmp_path, zarr_format):
    as_store(tmp_path / "a.zarr", zarr_format=zarr_format)
    assert avgk.evaluate(tmp_path / "a.zarr", k=[1, 2.5]).drop_attrs().identical(expected)
    if zarr_format == 3:
        sharded = zarr.create_array(MemoryStore(), data=SCORES, chunks=(5, 2), shards=(10, 4))
        assert avgk.evaluate(sharded, LABELS, [1, 2.5]).drop_attrs().identical(expected)


def test_evaluate__reads_xarray_stores_lazily_opened(expected, tmp_path):
    both = xr.Dataset({"scores": (("sample", "class"), SCORES), "labels": ("sample", LABELS)})
    both.chunk({"sample": 20}).to_zarr(tmp_path / "x.zarr", consolidated=False)
    for chunks in ({}, None):
        opened = xr.open_zarr(tmp_path / "x.zarr", consolidated=False, chunks=chunks)
        result = avgk.evaluate(opened, k=[1, 2.5])
        assert result.drop_attrs().identical(expected)
        assert result.attrs["store"].endswith("x.zarr")


def test_evaluate__reads_zip_files_and_fsspec_urls(expected, tmp_path):
    with ZipStore(tmp_path / "a.zip", mode="w") as store:
        as_store(store)
    assert avgk.evaluate(tmp_path / "a.zip", k=[1, 2.5]).drop_attrs().identical(expected)
    as_store("memory://inputs.zarr")
    assert avgk.evaluate("memory://inputs.zarr", k=[1, 2.5]).drop_attrs().identical(expected)


@pytest.mark.parametrize("codec", ["blosc", "zstd", "none", "gzip"])
def test_evaluate__reads_every_codec_and_missing_chunks_as_zarr_does(tmp_path, codec):
    from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

    compressors = {"blosc": BloscCodec(), "zstd": ZstdCodec(), "none": None, "gzip": GzipCodec()}[codec]
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=SCORES.shape, chunks=(8, 8), dtype="f4", compressors=compressors
    )
    array[:40] = SCORES[:40]  # the last chunks stay missing: zeros
    expected = avgk.evaluate(array[:], LABELS, [1, 2.5]).drop_attrs()
    assert avgk.evaluate(tmp_path / "a.zarr", LABELS, [1, 2.5]).drop_attrs().identical(expected)


@pytest.mark.parametrize("codec", ["blosc", "zstd", "none"])
def test_evaluate__names_the_part_of_a_damaged_store(tmp_path, codec):
    from zarr.codecs import BloscCodec, ZstdCodec

    compressors = {"blosc": BloscCodec(), "zstd": ZstdCodec(), "none": None}[codec]
    zarr.create_array(tmp_path / "a.zarr", data=SCORES, chunks=(8, 8), compressors=compressors)
    chunk = tmp_path / "a.zarr" / "c" / "2" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-9])
    with pytest.raises(avgk.ReadError, match=r"could not read \[16:24, 0:8\]"):
        avgk.evaluate(tmp_path / "a.zarr", LABELS, [1])


def test_evaluate__works_without_labels():
    result = avgk.evaluate(SCORES, k=[1, 2])
    assert np.isnan(result.average_k_error).all()
    assert np.isnan(result.top_k_error).all()
    assert result.attrs["n_labelled"] == 0
    assert result.set_size_count.sum("size").values.tolist() == [50, 50]


def test_evaluate__leaves_unlabelled_samples_out_of_errors_only():
    labels = np.where(np.arange(50) < 10, -1, LABELS)
    result = avgk.evaluate(SCORES, labels, [2])
    rows = avgk.average_k_sets(SCORES, 2).compute()[10:]
    assert result.attrs["n_labelled"] == 40
    assert float(result.average_k_error[0]) == 1 - rows[np.arange(40), labels[10:]].mean()


def test_evaluate__accepts_big_endian_and_read_only_arrays():
    turned = SCORES.astype(">f4")
    turned.flags.writeable = False
    expected = avgk.evaluate(SCORES, LABELS, 2).drop_attrs()
    assert avgk.evaluate(turned, LABELS, 2).drop_attrs().identical(expected)


@pytest.mark.parametrize(
    "scores, labels, error, match",
    [
        (np.zeros(3), None, avgk.ScoresError, "must be a matrix"),
        (np.zeros((2, 2, 2)), None, avgk.ScoresError, "must be a matrix"),
        (np.zeros((0, 3)), None, avgk.ScoresError, "at least one sample"),
        (np.zeros((3, 0)), None, avgk.ScoresError, "at least one sample"),
        (np.zeros((2, 2), complex), None, avgk.DtypeError, "real numbers"),
        (np.array([["a", "b"]]), None, avgk.DtypeError, "real numbers"),
        (np.ones((2, 2), bool), None, avgk.DtypeError, "real numbers"),
        (object(), None, avgk.DtypeError, "scores must be a NumPy"),
        (SCORES, LABELS[:-1], avgk.LabelsError, "fit the scores"),
        (SCORES.T, LABELS, avgk.LabelsError, "transposed"),
        (SCORES, LABELS.astype(float), avgk.DtypeError, "labels must be integers"),
        (SCORES, np.full(50, 8), avgk.LabelsError, "0..7.*first is sample 0"),
        (SCORES, np.where(np.arange(50) == 33, 99, LABELS), avgk.LabelsError, "1 samples.*sample 33"),
        (SCORES, SCORES[:, :3], avgk.LabelsError, "fit the scores"),
        (SCORES, np.where(np.arange(50)[:, None] == 7, -0.5, SCORES), avgk.LabelsError, "probabilities.*sample 7"),
        (SCORES, np.where(np.arange(50)[:, None] == 7, np.nan, SCORES), avgk.LabelsError, "probabilities.*sample 7"),
        (xr.Dataset({"other": ("x", [1])}), None, avgk.ScoresError, "must be a variable"),
        ("/no/such/store", None, avgk.StoreError, "must exist"),
    ],
)
def test_evaluate__refuses_bad_input(scores, labels, error, match):
    with pytest.raises(error, match=match):
        avgk.evaluate(scores, labels, 1)


def test_evaluate__names_the_first_nan_whatever_the_chunks():
    scores = SCORES.copy()
    scores[[31, 31, 44], [6, 2, 0]] = np.nan
    for chunks in [(50, 8), (7, 3), (1, 1), (32, 5)]:
        with pytest.raises(avgk.ScoresError, match="3 of them, the first at sample 31, class 2"):
            avgk.evaluate(da.from_array(scores, chunks=chunks), LABELS, 1)


def test_evaluate__refuses_an_unknown_nan_policy():
    with pytest.raises(avgk.OptionError, match="nan_policy"):
        avgk.evaluate(SCORES, nan_policy="omit")


def test_open__tells_which_arrays_a_store_has(tmp_path):
    zarr.open_group(tmp_path / "g.zarr", mode="w").create_array("logits", data=SCORES)
    with pytest.raises(avgk.StoreError, match="no array 'scores'; it has logits"):
        avgk.evaluate(tmp_path / "g.zarr")
    (tmp_path / "empty").mkdir()
    with pytest.raises(avgk.StoreError, match="could not open"):
        avgk.evaluate(tmp_path / "empty")


def test_exceptions__are_also_the_built_in_ones():
    assert issubclass(avgk.BudgetError, ValueError)
    assert issubclass(avgk.DtypeError, TypeError)
    assert issubclass(avgk.ReadError, OSError)
    assert issubclass(avgk.ScoresError, avgk.AvgkError)
