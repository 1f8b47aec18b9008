"""Bands: read in order, each once, and ahead if the store is remote."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

import avgk_dask as avgk
from avgk_dask.api.inputs.sources import as_source
from avgk_dask.store.read import bands
from avgk_dask.store.read.bands import plan_bands
from avgk_dask.store.read.grids import Axis
from avgk_dask.testing import CountingStore

SCORES = np.random.default_rng(0).random((101, 13), dtype=np.float32)


@pytest.fixture
def far(monkeypatch):
    """Treat every store as remote."""
    monkeypatch.setattr(bands, "is_local", lambda store: False)


@pytest.mark.parametrize("chunks, slab", [((7, 13), 1 << 20), ((10, 4), 1), ((101, 1), 1)])
def test_read_bands__gives_the_slabs_in_order_each_read_once(far, chunks, slab):
    store = CountingStore(MemoryStore())
    zarr.create_array(store, data=SCORES, chunks=chunks)
    store.reads.clear()
    source = as_source(zarr.open_array(store, mode="r"))
    rows, classes = plan_bands(*(Axis(n, size) for n, size in zip(SCORES.shape, chunks, strict=True)), 4, slab)
    reader = bands.BandReader(source.reader.array, tuple(rows), tuple(classes), np.dtype("f4"))
    for first, last in ((0, source.n_bands), (source.n_bands // 2, source.n_bands)):
        store.reads.clear()
        read = [np.concatenate(list(slabs), axis=1) for slabs in reader.read_bands(range(first, last))]
        assert np.array_equal(np.concatenate(read), SCORES[rows[first] :])
        assert set(store.chunk_reads().values()) == {1}


def test_read_bands__ends_with_the_error_of_a_chunk(far, tmp_path):
    with avgk.ScoreWriter(tmp_path / "a.zarr", 13, chunk_rows=5) as writer:
        writer.append(SCORES)
    opened = avgk.open_scores(tmp_path / "a.zarr")
    (tmp_path / "a.zarr" / "scores" / "c" / "9" / "0").write_bytes(b"")
    with pytest.raises(avgk.ReadError, match="scores/c/9/0"):
        opened.scores.compute()
    source = as_source(avgk.open_scores(tmp_path / "a.zarr", missing="fill").scores.isel(sample=slice(0, 20)))
    assert source.shape == (20, 13)


def test_evaluate__is_the_same_when_reading_ahead(far):
    stored = zarr.create_array({}, data=SCORES, chunks=(4, 3))
    assert avgk.evaluate(stored, k=[1, 3]).equals(avgk.evaluate(SCORES, k=[1, 3]))


def test_wrapped_stores__see_every_read_and_write_whatever_way_zarr_takes():
    """This includes methods of newer versions of zarr, and a pipeline that reads without the event loop."""
    from zarr.abc.store import Store
    from zarr.storage import WrapperStore

    from avgk_dask.store.read.checked import StoreWrapper

    harmless = {"get", "set", "get_sync", "set_sync", "delete_sync", "set_if_not_exists"}  # the last writes no chunk
    for name, method in vars(WrapperStore).items():  # the methods that forward to the inner store
        if ("get" in name or "set" in name) and not name.startswith("__") and name not in harmless:
            assert getattr(StoreWrapper, name) is not method, f"{name} goes past get and set"

    class Watching(StoreWrapper):
        seen: list[str] = []  # noqa: RUF012

        async def get(self, key, prototype, byte_range=None):
            self.seen.append(f"get {key}")
            return await super().get(key, prototype, byte_range)

        async def set(self, key, value):
            self.seen.append(f"set {key}")
            await super().set(key, value)

    paths = ["zarr.core.codec_pipeline.BatchedCodecPipeline"]
    if hasattr(Store, "get_ranges"):
        paths.append("zarr.core.codec_pipeline.FusedCodecPipeline")
    for path in paths:
        Watching.seen.clear()
        with zarr.config.set({"codec_pipeline.path": path}):
            array = zarr.create_array(Watching(MemoryStore()), data=np.eye(8), chunks=(1, 8), shards=(4, 8))
            assert np.array_equal(array[2:3], np.eye(8)[2:3])
        assert {"set c/0/0", "set c/1/0", "get c/0/0"} <= set(Watching.seen)
