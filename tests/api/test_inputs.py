"""Every kind of input gives the same result; bad input is refused by one error that says what to do."""

from __future__ import annotations

import pathlib

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


@pytest.mark.slow
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
def test_evaluate__reads_every_codec_and_fills_missing_chunks_on_request(tmp_path, codec):
    from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

    compressors = {"blosc": BloscCodec(), "zstd": ZstdCodec(), "none": None, "gzip": GzipCodec()}[codec]
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=SCORES.shape, chunks=(8, 8), dtype="f4", compressors=compressors
    )
    array[:40] = SCORES[:40]  # the last chunks stay missing: zeros
    expected = avgk.evaluate(array[:], LABELS, [1, 2.5]).drop_attrs()
    assert avgk.evaluate(tmp_path / "a.zarr", LABELS, [1, 2.5], missing="fill").drop_attrs().identical(expected)


def zeros(path, n=50, dtype=int):
    """Store a column of which zarr writes no chunk but the first: the rest is its fill value."""
    column = zarr.create_array(path, shape=(n,), chunks=(10,), dtype=dtype)
    column[:10] = np.arange(10) % 3
    return column


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", [pathlib.Path, zarr.open_array])
def test_columns__of_zeros_that_are_not_stored_are_filled_on_request(tmp_path, how):
    plain = zeros(tmp_path / "c.zarr")[:]
    column = how(tmp_path / "c.zarr")
    options = {"k": [1, 2.5], "missing": "fill"}
    result = avgk.evaluate(SCORES, column, clusters=column, **options)
    assert result.drop_attrs().identical(avgk.evaluate(SCORES, plain, clusters=plain, k=[1, 2.5]).drop_attrs())
    groups = avgk.breakdown(SCORES, LABELS, 2, by=column, missing="fill")
    assert groups.drop_attrs().identical(avgk.breakdown(SCORES, LABELS, 2, by=plain).drop_attrs())
    models = {"a": SCORES, "b": SCORES[:, ::-1]}
    compared = avgk.compare(models, LABELS, clusters=column, **options)
    assert compared.drop_attrs().identical(avgk.compare(models, LABELS, clusters=plain, k=[1, 2.5]).drop_attrs())
    covered = avgk.conformal.calibrate(SCORES, LABELS, alpha=0.2, by=column, missing="fill")
    assert covered == avgk.conformal.calibrate(SCORES, LABELS, alpha=0.2, by=plain)
    assert covered.evaluate(SCORES, LABELS, groups=column, missing="fill").sizes
    zarr.create_array(tmp_path / "s.zarr", data=SCORES)
    opened = avgk.open_scores(tmp_path / "s.zarr", labels=column, missing="fill")
    assert np.array_equal(opened.labels, plain)
    avgk.ingest(tmp_path / "s.zarr", column, out=tmp_path / "o.zarr", missing="fill")
    assert np.array_equal(avgk.open_scores(tmp_path / "o.zarr").labels, plain)
    with pytest.raises(avgk.ReadError, match="missing"):
        avgk.evaluate(SCORES, LABELS, 1, clusters=column)


def test_sets__that_are_empty_and_not_stored_are_empty(tmp_path):
    members = np.zeros(SCORES.shape, bool)
    members[:5] = SCORES[:5] > 0.7
    stored = zarr.create_array(tmp_path / "sets.zarr", data=members, chunks=(5, 4))
    eta = SCORES / SCORES.sum(1, keepdims=True)
    assert avgk.regret(stored, eta).drop_attrs().identical(avgk.regret(members, eta).drop_attrs())


@pytest.mark.parametrize("codec", ["blosc", "zstd", "none"])
def test_evaluate__names_the_part_of_a_damaged_store(tmp_path, codec):
    from zarr.codecs import BloscCodec, ZstdCodec

    compressors = {"blosc": BloscCodec(), "zstd": ZstdCodec(), "none": None}[codec]
    zarr.create_array(tmp_path / "a.zarr", data=SCORES, chunks=(8, 8), compressors=compressors)
    chunk = tmp_path / "a.zarr" / "c" / "2" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-9])
    with pytest.raises(avgk.ReadError, match=r"c/2/0"):
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


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "dtype", [">f4", ">u8", *(pytest.param(name, marks=pytest.mark.slow) for name in (">f2", ">f8", ">i4"))]
)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_foreign_byte_order__is_read_right_from_memory_and_stores(tmp_path, dtype, zarr_format):
    scores = (SCORES * 100).astype(dtype)
    native = scores.astype(scores.dtype.newbyteorder("="))
    expected = avgk.evaluate(native, LABELS, [1, 2.5]).drop_attrs()
    sets = avgk.average_k_sets(native, 2.5).compute()
    stored = zarr.create_array(tmp_path / "a.zarr", data=scores, chunks=(7, 8), zarr_format=zarr_format)
    for given in (scores, da.from_array(scores, chunks=(9, 3)), stored):
        assert avgk.evaluate(given, LABELS, [1, 2.5]).drop_attrs().identical(expected)
        assert np.array_equal(avgk.average_k_sets(given, 2.5).compute(), sets)
        assert np.array_equal(avgk.top_k_sets(given, 2).compute(), avgk.top_k_sets(native, 2).compute())


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("codec", [None, "auto"])
def test_byte_order_of_the_codec__is_used_for_any_dtype(expected, tmp_path, order, codec):
    from zarr.codecs import BytesCodec

    serializer = BytesCodec(endian=order)
    group = zarr.create_group(tmp_path / "a.zarr")
    group.create_array("scores", data=SCORES, chunks=(7, 8), serializer=serializer, compressors=codec)
    assert avgk.evaluate(tmp_path / "a.zarr", LABELS, [1, 2.5]).drop_attrs().identical(expected)


def test_labels__may_come_from_a_store_of_their_own(expected, tmp_path):
    group = as_store(tmp_path / "a.zarr", scores=SCORES[::-1].copy())
    for labels in (
        tmp_path / "a.zarr",
        group,
        group["labels"],
        tmp_path / "a.zarr" / "labels",
        xr.Dataset({"labels": ("sample", LABELS)}),
    ):
        assert avgk.evaluate(SCORES, labels, [1, 2.5]).drop_attrs().identical(expected)


def test_labels__of_other_samples_are_refused():
    frame = xr.DataArray(SCORES, dims=("sample", "class"), coords={"sample": np.arange(50)})
    labels = xr.DataArray(LABELS, dims="sample", coords={"sample": np.arange(50)})
    assert avgk.evaluate(frame, labels, 1).attrs["n_labelled"] == 50
    with pytest.raises(avgk.LabelsError, match="must have the sample names of scores"):
        avgk.evaluate(frame, labels[::-1], 1)
    with pytest.raises(avgk.LabelsError, match="dimension"):
        avgk.evaluate(frame, labels.rename(sample="foo"), 1)


def test_labels__in_a_damaged_chunk_are_a_read_error(tmp_path):
    as_store(tmp_path / "a.zarr")
    (tmp_path / "a.zarr" / "labels" / "c" / "0").write_bytes(b"rubbish")
    with pytest.raises(avgk.ReadError, match="chunk labels/c/0 of"):
        avgk.evaluate(tmp_path / "a.zarr", k=1)


def test_evaluate__drops_empty_dask_chunks(expected):
    ragged = da.from_array(SCORES, chunks=((20, 0, 30), (8,)))
    assert 0 in ragged.chunks[0]
    assert avgk.evaluate(ragged, LABELS, [1, 2.5]).drop_attrs().identical(expected)
    assert avgk.average_k_sets(ragged, 2).chunks == ragged.chunks
    assert np.array_equal(avgk.average_k_sets(ragged, 2).compute(), avgk.average_k_sets(SCORES, 2).compute())


@pytest.mark.parametrize("lie", [lambda b: b.astype("f8"), lambda b: b[:-1], lambda b: b[:, :-1]])
def test_evaluate__refuses_blocks_that_are_not_as_declared(lie):
    lazy = da.from_array(SCORES, chunks=(10, 8))
    lying = lazy.map_blocks(lie, dtype="f4", chunks=lazy.chunks, meta=np.empty((0, 0), "f4"))
    with pytest.raises(avgk.ScoresError, match="metadata"):
        avgk.evaluate(lying, k=1)


def test_evaluate__reads_bfloat16_through_xarray(tmp_path):
    from avgk_dask.testing import Simulation, simulate_store

    simulate_store(tmp_path / "b.zarr", Simulation(60, 5, dtype="bfloat16"))
    direct = avgk.evaluate(tmp_path / "b.zarr", k=2).drop_attrs()
    assert avgk.evaluate(xr.open_zarr(tmp_path / "b.zarr", consolidated=False), k=2).drop_attrs().identical(direct)


def test_evaluate__does_not_load_files_opened_by_xarray(tmp_path):
    pytest.importorskip("h5netcdf")
    path = tmp_path / "s.nc"
    xr.Dataset({"scores": (("sample", "class"), SCORES)}).to_netcdf(path, engine="h5netcdf")
    with xr.open_dataset(path, engine="h5netcdf") as opened:
        sets = avgk.predict_sets(opened, threshold=0.5)
        assert sets.chunks is not None
        assert np.array_equal(sets.values, SCORES > 0.5)


def test_threshold__keeps_64_bit_integers_exact():
    scores = np.array([[2**53 + 1, 2**53 + 3, 5, 2**53 + 2]])
    assert avgk.threshold(scores, 2).value == 2**53 + 1
    for given in (scores, scores.astype("u8")):
        result = avgk.evaluate(given, k=[2])
        assert int(result.threshold[0]) == 2**53 + 1
        assert avgk.predict_sets(given, threshold=result.threshold[0]).compute().sum() == 2


def test_evaluate__takes_budgets_from_xarray():
    assert avgk.evaluate(SCORES, k=xr.DataArray([1.0, 2.5])).k.values.tolist() == [1, 2.5]


def test_evaluate__refuses_checkpoints_for_now():
    with pytest.raises(avgk.OptionError, match="checkpoint"):
        avgk.evaluate(SCORES, k=1, checkpoint="here")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_open__refuses_a_transposed_store(tmp_path, zarr_format):
    frame = xr.Dataset({"scores": (("class", "sample"), SCORES)})
    frame.to_zarr(tmp_path / "t.zarr", consolidated=False, zarr_format=zarr_format)
    with pytest.raises(avgk.ScoresError, match="Transpose"):
        avgk.evaluate(tmp_path / "t.zarr", k=1)


@pytest.mark.parametrize(
    "scores, labels, error, match",
    [
        (np.zeros(3), None, avgk.ScoresError, "must be a matrix"),
        (np.zeros((0, 3)), None, avgk.ScoresError, "at least one sample"),
        (np.zeros((3, 0)), None, avgk.ScoresError, "at least one sample"),
        (np.zeros((2, 2), complex), None, avgk.DtypeError, "real numbers"),
        (np.array([["a", "b"]]), None, avgk.DtypeError, "real numbers"),
        (np.ones((2, 2), bool), None, avgk.DtypeError, "real numbers"),
        (object(), None, avgk.DtypeError, "scores must be a NumPy"),
        (SCORES, LABELS[:-1], avgk.LabelsError, "fit the scores"),
        (SCORES.T, LABELS, avgk.LabelsError, "transposed"),
        (SCORES, LABELS.astype(float), avgk.DtypeError, "labels must be integers"),
        (SCORES, np.full(50, 8), avgk.LabelsError, r"0\.\.7.*got 50 that do not, the first at sample 0"),
        (
            SCORES,
            np.where(np.arange(50) == 33, 99, LABELS),
            avgk.LabelsError,
            "got 1 that does not, the first at sample 33",
        ),
        (SCORES, SCORES[:, :3], avgk.LabelsError, "fit the scores"),
        (SCORES, np.where(np.arange(50)[:, None] == 7, -0.5, SCORES), avgk.LabelsError, "probabilities.*sample 7"),
        (SCORES, np.where(np.arange(50)[:, None] == 7, np.nan, SCORES), avgk.LabelsError, "probabilities.*sample 7"),
        (np.ma.masked_array(SCORES, mask=SCORES > 0.5), None, avgk.ScoresError, "masked"),
        (xr.DataArray(SCORES, dims=("class", "image")), None, avgk.ScoresError, "Transpose"),
        (SCORES, xr.Dataset({"y": ("sample", LABELS)}), avgk.LabelsError, "Dataset without one"),
        ("scores.npy", None, avgk.StoreError, "no such file"),
        (xr.Dataset({"other": ("x", [1])}), None, avgk.ScoresError, "must be a variable"),
        ("/no/such/store", None, avgk.StoreError, "no such store"),
    ],
)
def test_evaluate__refuses_bad_input(scores, labels, error, match):
    with pytest.raises(error, match=match):
        avgk.evaluate(scores, labels, 1)


def test_evaluate__names_the_first_nan_for_any_chunks():
    scores = SCORES.copy()
    scores[[31, 31, 44], [6, 2, 0]] = np.nan
    for chunks in [(50, 8), (7, 3), (1, 1), (32, 5)]:
        with pytest.raises(avgk.ScoresError, match="got 3, the first at sample 31, class 2"):
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
