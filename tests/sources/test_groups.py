"""The bands that each task reads."""

from __future__ import annotations

import dask
import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

from avgk_dask.api.inputs.sources import as_source
from avgk_dask.sources.planning import group_bands
from avgk_dask.sources.readers import StoredReader


@pytest.mark.parametrize("is_far", [False, True])
def test_group_bands__steady_groups_do_not_depend_on_threads(is_far, monkeypatch):
    if is_far:
        monkeypatch.setattr(StoredReader, "ahead_bytes", lambda self: 1 << 20)
    array = zarr.create_array(MemoryStore(), data=np.ones((4_000, 100), "f4"), chunks=(10, 100))
    steady, other = [], []
    for n in (1, 2, 7):
        with dask.config.set({"num_workers": n, "avgk.band-bytes": 1, "avgk.task-bytes": 1 << 13}):
            source = as_source(array)
            steady.append([list(group) for group in group_bands(source, steady=True)])
            other.append(len(group_bands(source)))
            assert sorted(band for group in steady[-1] for band in group) == list(range(400))
    assert all(groups == steady[0] for groups in steady)
    assert len(steady[0]) >= 64
    assert (len(set(other)) > 1) == is_far
