"""Grids: uneven chunks are read like others, if the installed zarr supports them."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import avgk_dask as avgk
from avgk_dask.api.written_sets import SetChoice, write_sets
from avgk_dask.store.read.grids import Axis

SCORES = np.random.default_rng(0).random((50, 7)).astype("f4")
LABELS = np.arange(50) % 7


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.data())
def test_axis__places_are_those_of_the_spans(sizes, data):
    n = sum(sizes)
    uneven = Axis(n, max(sizes), tuple(np.cumsum(sizes).tolist()))
    regular = Axis(n, sizes[0])
    for axis in (uneven, regular):
        spans = [axis.span(i) for i in range(axis.count)]
        assert [first for first, _ in spans] + [n] == axis.bounds()
        assert max(last - first for first, last in spans) <= axis.size
        first = data.draw(st.integers(0, n - 1))
        last = data.draw(st.integers(first + 1, n))
        touched = [i for i, (a, b) in enumerate(spans) if a < last and b > first]
        assert list(axis.indices(first, last)) == touched


@pytest.fixture
def uneven(tmp_path):
    if "array.rectilinear_chunks" not in zarr.config:
        pytest.skip("this zarr knows chunks of one size only")
    with zarr.config.set({"array.rectilinear_chunks": True}):
        group = zarr.create_group(tmp_path / "a.zarr")
        group.create_array("scores", data=SCORES, chunks=[[10, 25, 15], [3, 4]])
        group.create_array("labels", data=LABELS, chunks=[[40, 10]])
        yield tmp_path / "a.zarr"


def test_uneven_chunks__give_the_results_of_others(uneven, tmp_path):
    assert avgk.evaluate(uneven).equals(avgk.evaluate(SCORES, LABELS))
    assert avgk.error_curve(uneven).equals(avgk.error_curve(SCORES, LABELS))
    assert np.array_equal(avgk.open_scores(uneven).scores.values, SCORES)
    assert avgk.open_scores(uneven).scores.chunks == ((10, 25, 15), (3, 4))
    assert np.array_equal(avgk.average_k_sets(uneven, 2).compute(), avgk.average_k_sets(SCORES, 2).compute())
    write_sets(uneven, tmp_path / "sets.zarr", SetChoice("top", k=2))
    assert np.array_equal(
        zarr.open_group(tmp_path / "sets.zarr", mode="r")["sets"][:], avgk.top_k_sets(SCORES, 2).compute()
    )
    avgk.ingest(uneven, out=tmp_path / "o.zarr")
    assert avgk.evaluate(tmp_path / "o.zarr").equals(avgk.evaluate(SCORES, LABELS))


def test_uneven_chunks__are_described_and_verified(uneven):
    info = avgk.info(uneven)
    assert (info["chunks"], info["shards"], info["n_chunks"], info["n_missing_chunks"]) == ([25, 4], None, 6, 0)
    assert avgk.verify(uneven).n_chunks == 6 + 2


def test_uneven_chunks__that_are_missing_or_damaged_are_refused_by_name(uneven):
    chunk = uneven / "scores" / "c" / "1" / "0"
    data = chunk.read_bytes()
    chunk.write_bytes(data[:20])
    with pytest.raises(avgk.ReadError, match="scores/c/1/0"):
        avgk.evaluate(uneven)
    chunk.unlink()
    with pytest.raises(avgk.ReadError, match="scores/c/1/0"):
        avgk.evaluate(uneven)


def test_uneven_shards__are_refused_by_name(tmp_path):
    if "array.rectilinear_chunks" not in zarr.config:
        pytest.skip("this zarr knows chunks of one size only")
    with zarr.config.set({"array.rectilinear_chunks": True}):
        try:
            zarr.create_array(tmp_path / "a.zarr", shape=(50, 6), dtype="f4", chunks=(5, 6), shards=[[10, 20, 20], [6]])
        except (NotImplementedError, TypeError, ValueError):
            pytest.skip("this zarr has no uneven shards")
        with pytest.raises(avgk.StoreError, match="has an unsupported chunk grid"):
            avgk.info(tmp_path / "a.zarr")
