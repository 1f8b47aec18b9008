"""A read of the store is the unit of cost: the number of reads of each chunk, on typical and adversarial data."""

from __future__ import annotations

import dask
import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

import avgk_dask as avgk
from avgk_dask.testing import CountingStore, Simulation


def counted(scores, labels, chunks):
    """Store scores and labels in a store that counts reads; return the counter and the group opened through it."""
    store = CountingStore(MemoryStore())
    group = zarr.create_group(store)
    group.create_array("scores", data=scores, chunks=chunks, config={"write_empty_chunks": True})
    if labels is not None:
        group.create_array("labels", data=labels, chunks=labels.shape, config={"write_empty_chunks": True})
    group = zarr.open_group(store, mode="r")
    store.reads.clear()
    return store, group


def in_memory(scores, labels, **options):
    with dask.config.set({"avgk.small-scores": 1 << 40}):
        return avgk.evaluate(scores, labels, range(1, 11), **options).drop_attrs()


@pytest.mark.slow
@pytest.mark.parametrize("kept_bytes", [0, 1 << 28])
@pytest.mark.parametrize("chunks", [(100, 50), (100, 20), (37, 50), (1000, 7)])
@pytest.mark.parametrize("dtype, levels", [("float32", None), ("float16", None), ("uint8", None), ("float32", 30)])
def test_evaluate__reads_each_chunk_once_and_a_small_pilot(dtype, levels, chunks, kept_bytes):
    scores, labels, _ = Simulation(20_000, 50, dtype=dtype, levels=levels).rows(0, 20_000)
    store, group = counted(scores, labels, chunks)
    with dask.config.set({"avgk.kept-bytes": kept_bytes}):
        result = avgk.evaluate(group)
    reads = store.chunk_reads()
    n_chunks = group["scores"].nchunks
    assert len(reads) == n_chunks
    assert result.attrs["reads"] == 1
    assert sum(reads.values()) - n_chunks <= max(8, n_chunks // 10)
    assert result.drop_attrs().identical(in_memory(scores, labels))


def test_evaluate__reads_a_small_store_once_without_a_pilot():
    scores, labels, _ = Simulation(2_000, 50).rows(0, 2_000)
    store, group = counted(scores, labels, (100, 10))
    avgk.evaluate(group)
    assert set(store.chunk_reads().values()) == {1}


@pytest.mark.slow
def test_evaluate__finds_the_extremes_of_soft_ties_in_two_more_reads():
    scores, _, eta = Simulation(6_000, 50, levels=20).rows(0, 6_000)
    store, group = counted(scores, None, (100, 50))
    with dask.config.set({"avgk.max-events": 2000, "avgk.least-events": 20}):
        result = avgk.evaluate(group["scores"], eta)
    assert result.attrs["reads"] <= 4  # two for the thresholds with this limit of events, two for the extremes
    assert max(store.chunk_reads().values()) <= 6  # including the pilot, and a second read of the band of a cut
    expected = in_memory(scores, eta)
    assert result.drop_attrs().identical(expected)
    assert (expected.average_k_error_highest > expected.average_k_error_lowest).any()


@pytest.mark.slow
def test_evaluate__spreads_ties_with_one_more_read():
    scores, labels, _ = Simulation(20_000, 50, dtype="uint8").rows(0, 20_000)
    store, group = counted(scores, labels, (100, 50))
    result = avgk.evaluate(group, ties="spread")
    reads = store.chunk_reads()
    assert result.attrs["reads"] == 2
    assert sum(reads.values()) - 2 * len(reads) <= 2 * max(8, len(reads) // 10)
    assert result.drop_attrs().identical(in_memory(scores, labels, ties="spread"))


def sorted_by_class(rng, n, c):
    labels = np.sort(rng.integers(0, c, n))
    scores = rng.random((n, c)) ** (1 + labels[:, None])
    return scores, labels


def heavy_where_the_pilot_looks(rng, n, c):
    scores = rng.random((n, c)) * 0.1
    for middle in (n // 8, 3 * n // 8, 5 * n // 8, 7 * n // 8):
        scores[middle - 60 : middle + 60] += 10
    return scores, rng.integers(0, c, n)


def light_where_the_pilot_looks(rng, n, c):
    scores, labels = heavy_where_the_pilot_looks(rng, n, c)
    return -scores, labels


def one_heavy_row(rng, n, c):
    scores = np.zeros((n, c))
    scores[n // 3] = 1 + rng.random(c)
    return scores, rng.integers(0, c, n)


def in_ascending_order(rng, n, c):
    return np.sort(rng.random(n * c)).reshape(n, c), rng.integers(0, c, n)


def in_two_narrow_clusters(rng, n, c):
    scores = np.where(rng.random((n, c)) < 0.2, 1e-30, 0.5) * (1 + 1e-6 * rng.random((n, c)))
    scores[: n // 2] *= 1e-9
    return scores, rng.integers(0, c, n)


def all_equal(rng, n, c):
    return np.full((n, c), 0.25), rng.integers(0, c, n)


HOSTILE = [sorted_by_class, heavy_where_the_pilot_looks, light_where_the_pilot_looks, one_heavy_row,
           in_ascending_order, in_two_narrow_clusters, all_equal]  # fmt: skip


@pytest.mark.sample(1)
@pytest.mark.parametrize("make", HOSTILE)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("chunks", [(100, 40), (100, 10)])
def test_evaluate__is_exact_on_hostile_data_with_three_reads_at_most(make, dtype, chunks):
    scores, labels = make(np.random.default_rng(0), 10_000, 40)
    scores = scores.astype(dtype)
    store, group = counted(scores, labels, chunks)
    result = avgk.evaluate(group)
    assert max(store.chunk_reads().values()) <= 3
    assert result.drop_attrs().identical(in_memory(scores, labels))


@pytest.mark.sample(1)
@pytest.mark.parametrize("kept_bytes", [0, 2_500_000])
@pytest.mark.parametrize("make", HOSTILE)
def test_evaluate__reads_three_times_at_most_when_little_can_be_kept(make, kept_bytes):
    """A band may retain the same share of events as for a store of 3,200,000 x 1,000 scores.

    The windows of label shares need 35,000 more: for this number of samples, 1,170 to 5,400 scores per budget.
    """
    scores, labels = make(np.random.default_rng(1), 40_000, 50)
    store, group = counted(scores.astype("f4"), labels, (400, 50))
    few = {
        "avgk.kept-bytes": kept_bytes,
        "avgk.max-events": 21_000 + 35_000,
        "avgk.least-events": 1000,
        "avgk.band-bytes": 0,
    }
    with dask.config.set(few):
        result = avgk.evaluate(group)
    assert max(store.chunk_reads().values()) <= 3
    assert result.drop_attrs().identical(in_memory(scores.astype("f4"), labels))


def test_evaluate__reads_local_files_once_each(tmp_path, monkeypatch):
    from avgk_dask.store.read.direct import ChunkFiles

    places = []
    chunk = ChunkFiles._chunk

    def counting(self, index, scratch, out):
        places.append(index)
        return chunk(self, index, scratch, out)

    monkeypatch.setattr(ChunkFiles, "_chunk", counting)
    scores, labels, _ = Simulation(20_000, 50).rows(0, 20_000)
    stored = zarr.create_array(tmp_path / "s.zarr", data=scores, chunks=(100, 50), config={"write_empty_chunks": True})
    result = avgk.evaluate(stored, labels)
    assert len(set(places)) == 200
    assert len(places) - 200 <= 20
    assert result.drop_attrs().identical(in_memory(scores, labels))
