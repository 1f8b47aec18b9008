"""The same bytes from any chunking, scheduler and number of workers."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

import avgk_dask as avgk
from avgk_dask.results import datasets as json_text
from avgk_dask.testing import Simulation

N, C = 3_000, 120
KS = [1, 2, 2.5, 5, 10, "0.3"]
CHUNKS = [(N, C), (N, 1), (1, C), (7, C), (1000, 40), (999, 41), (64, 64), (N, 17), (2999, 119), (1500, 60),
          (500, 120), (250, 30), (3, 120), (301, 7), (77, 77), (128, 120), (2000, 100), (600, 24), (1234, 56), (50, 12)]  # fmt: skip


@pytest.fixture(scope="module", params=["float32", "uint8", "soft"])
def case(request):
    dtype = "float32" if request.param == "soft" else request.param
    scores, labels, eta = Simulation(N, C, seed=5, dtype=dtype).rows(0, N)
    return scores, eta if request.param == "soft" else labels


def as_bytes(result: xr.Dataset) -> bytes:
    return json_text.to_json(result).encode()


@pytest.fixture(scope="module")
def expected(case):
    return as_bytes(avgk.evaluate(*case, KS))


@pytest.mark.sample(1)
@pytest.mark.parametrize("chunks", CHUNKS)
def test_evaluate__gives_the_same_bytes_for_any_chunking(case, expected, chunks):
    scores, labels = case
    assert as_bytes(avgk.evaluate(da.from_array(scores, chunks=chunks), labels, KS)) == expected
    if chunks[0] * chunks[1] > 100:
        stored = zarr.create_array({}, data=scores, chunks=chunks, config={"write_empty_chunks": True})
        result = avgk.evaluate(stored, labels, KS)
        result.attrs["store"] = ""
        assert as_bytes(result) == expected


@pytest.mark.sample(1)
@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes"])
@pytest.mark.parametrize("workers", [1, 2])
def test_evaluate__gives_the_same_bytes_under_any_scheduler(case, expected, scheduler, workers):
    scores, labels = case
    with dask.config.set(scheduler=scheduler, num_workers=workers):
        assert as_bytes(avgk.evaluate(da.from_array(scores, chunks=(700, 50)), labels, KS)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_evaluate__gives_the_same_bytes_on_a_cluster(case, expected, workers, tmp_path):
    distributed = pytest.importorskip("distributed")
    scores, labels = case
    zarr.create_array(tmp_path / "s.zarr", data=scores, chunks=(500, 50), config={"write_empty_chunks": True})
    with (
        distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        distributed.Client(cluster),
    ):
        result = avgk.evaluate(tmp_path / "s.zarr", labels, KS, progress=True)
        result.attrs["store"] = ""
        assert as_bytes(result) == expected
        lazy = da.from_array(scores, chunks=(700, 50))
        assert as_bytes(avgk.evaluate(lazy, labels, KS)) == expected
        sets = avgk.average_k_sets(lazy, 2.5).compute()
        spread = avgk.evaluate(tmp_path / "s.zarr", labels, KS, ties="spread", straddle=False)
        curve = avgk.error_curve(tmp_path / "s.zarr", labels)
        best = avgk.best_threshold(tmp_path / "s.zarr", labels, cost=0.05)
    assert spread.drop_attrs().identical(avgk.evaluate(scores, labels, KS, ties="spread", straddle=False).drop_attrs())
    assert curve.drop_attrs().identical(avgk.error_curve(scores, labels).drop_attrs())
    assert best == avgk.best_threshold(scores, labels, cost=0.05)
    assert np.array_equal(sets, avgk.average_k_sets(scores, 2.5).compute())


@pytest.mark.sample(1)
def test_result__comes_back_equal_from_zarr_netcdf_and_json(case, tmp_path):
    result = avgk.evaluate(*case, KS)
    result.to_zarr(tmp_path / "r.zarr", consolidated=False)
    assert xr.open_zarr(tmp_path / "r.zarr", consolidated=False).load().identical(result)
    assert json_text.from_json(json_text.to_json(result)).identical(result)
    pytest.importorskip("h5netcdf")
    result.to_netcdf(tmp_path / "r.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "r.nc", engine="h5netcdf") as back:
        assert back.load().identical(result)


def test_result__is_described(case):
    result = avgk.evaluate(*case, KS)
    for name, variable in result.variables.items():
        assert variable.attrs["long_name"], name
        assert variable.attrs["description"], name
    assert {"n_samples", "n_classes", "n_labelled", "store", "versions", "reads"} <= set(result.attrs)
    assert result.k.dtype == np.float64
