"""Opening a store: each piece of metadata is requested once, concurrently if possible."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore, WrapperStore

from avgk_dask.store.read.opening import open_arrays
from avgk_dask.testing import Simulation, simulate_store


class WaitingStore(WrapperStore):
    """Answers only when no further requests come; counts the rounds."""

    asked: list[str]
    n_waits = 0
    _event: asyncio.Event | None = None

    async def get(self, key, prototype, byte_range=None):
        self.asked.append(key)
        if self._event is None:
            self._event = asyncio.Event()
            event = self._event
            for _ in range(50):  # let all ready tasks run
                await asyncio.sleep(0)
            self.n_waits += 1
            self._event = None
            event.set()
        else:
            await self._event.wait()
        return await self._store.get(key, prototype, byte_range)


def opened(path):
    store = WaitingStore(LocalStore(path, read_only=True))
    store.asked = []
    arrays = open_arrays(store)
    return store, arrays


def written(path, zarr_format):
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    group.create_array("scores", data=np.eye(20, 5), chunks=(10, 5))
    group.create_array("labels", data=np.arange(20) % 5, chunks=(20,))
    return path


@pytest.mark.parametrize(("zarr_format", "n_waits"), [(3, 2), (2, 5)])
def test_open_arrays__asks_once_for_each_piece_of_metadata(tmp_path, zarr_format, n_waits):
    store, arrays = opened(written(tmp_path / "s.zarr", zarr_format))
    assert len(store.asked) == len(set(store.asked))
    assert store.n_waits <= n_waits
    np.testing.assert_array_equal(arrays.labels[:], np.arange(20) % 5)


def test_open_arrays__waits_twice_for_a_store_of_ours(tmp_path):
    simulate_store(tmp_path / "s.zarr", Simulation(200, 10), chunks=(50, 10))
    store, arrays = opened(tmp_path / "s.zarr")
    assert sorted(store.asked) == ["manifest/labels/c/0/0", "manifest/scores/c/0/0/0", "zarr.json"]
    assert store.n_waits == 2
    assert arrays.scores.shape == (200, 10)


def test_open_arrays__reads_again_what_failed_on_the_way(tmp_path):
    class Flaky(WaitingStore):
        async def get(self, key, prototype, byte_range=None):
            if key.startswith("manifest/scores") and key not in self.asked:
                self.asked.append(key)
                raise OSError("lost on the way")
            return await super().get(key, prototype, byte_range)

    simulate_store(tmp_path / "s.zarr", Simulation(200, 10), chunks=(50, 10))
    store = Flaky(LocalStore(tmp_path / "s.zarr", read_only=True))
    store.asked = []
    assert open_arrays(store).scores.shape == (200, 10)


def test_open_arrays__sees_what_has_changed_since(tmp_path):
    path = written(tmp_path / "s.zarr", 3)
    assert open_arrays(path).scores.shape == (20, 5)
    written(path, 3)
    zarr.open_group(path, mode="r+").create_array("scores", data=np.eye(30, 5), chunks=(10, 5), overwrite=True)
    assert open_arrays(path).scores.shape == (30, 5)
