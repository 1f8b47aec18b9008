"""Which bands a task reads."""

from __future__ import annotations

import dask
import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

from avgk_dask.api.inputs.sources import as_source
from avgk_dask.sources.readers import StoredReader
from avgk_dask.sources.source import group_bands


@pytest.mark.parametrize("is_far", [False, True])
def test_groups__of_checkpoints_are_the_same_for_any_number_of_threads(is_far, monkeypatch):
    if is_far:
        monkeypatch.setattr(StoredReader, "ahead_bytes", lambda self: 1 << 20)
    array = zarr.create_array(MemoryStore(), data=np.ones((4_000, 100), "f4"), chunks=(10, 100))
    found, plain = [], []
    for n in (1, 2, 7):
        with dask.config.set({"num_workers": n, "avgk.band-bytes": 1, "avgk.task-bytes": 1 << 13}):
            source = as_source(array)
            found.append([list(group) for group in group_bands(source, steady=True)])
            plain.append(len(group_bands(source)))
            assert sorted(band for group in found[-1] for band in group) == list(range(400))
    assert all(groups == found[0] for groups in found)
    assert len(found[0]) >= 64
    assert (len(set(plain)) > 1) == is_far
