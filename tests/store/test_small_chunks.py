"""Many small chunks: joined into bands, read once, named if damaged, and listed one by one."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import dask
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs import Blosc
from zarr.codecs import BloscCodec
from zarr.storage import LocalStore, MemoryStore, ZipStore

import avgk_dask as avgk
from avgk_dask.api.inputs.sources import as_source
from avgk_dask.sources.planning import choose_pilot_chunks, chunk_shape, count_chunks
from avgk_dask.store.read import bands, direct
from avgk_dask.store.read.grids import Axis
from avgk_dask.store.read.manifest import chunk_grid, is_metadata
from avgk_dask.store.where.addresses import write_key
from avgk_dask.testing import CountingStore, oracle_evaluate, strategies

SCORES = np.random.default_rng(0).random((1000, 6), dtype=np.float32)
LAYOUTS = {
    "raw": {"chunks": (2, 6), "compressors": None},
    "blosc": {"chunks": (2, 6), "compressors": BloscCodec(shuffle="bitshuffle")},
    "zstd": {"chunks": (2, 6)},
    "ragged": {"chunks": (3, 6)},
    "classes": {"chunks": (2, 4), "compressors": None},
    "shards": {"chunks": (2, 6), "shards": (4, 6)},
    "v2": {"chunks": (2, 6), "zarr_format": 2},
    "v2 raw": {"chunks": (2, 6), "zarr_format": 2, "compressors": None},
    "v2 blosc": {"chunks": (2, 4), "zarr_format": 2, "compressors": Blosc(shuffle=Blosc.BITSHUFFLE)},
    "v2 fortran": {"chunks": (2, 6), "zarr_format": 2, "order": "F"},
}


def axes(sizes):
    n = sum(sizes)
    return Axis(n, sizes[0]), Axis(n, max(sizes), tuple(np.cumsum(sizes).tolist()))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=40), st.integers(0, 20))
def test_joined__stretches_are_of_whole_chunks_and_no_longer_than_allowed(sizes, most):
    for axis in axes(sizes):
        bounds, ends = axis.join_chunks(most), set(axis.bounds())
        assert bounds[0] == 0
        assert bounds[-1] == axis.n
        assert set(bounds) <= ends
        for first, last in pairwise(bounds):
            assert first < last
            assert last - first <= most or len(axis.indices(first, last)) == 1


@given(st.lists(st.integers(1, 5), min_size=1, max_size=40), st.integers(1, 20))
def test_joined__neighbours_do_not_fit_together(sizes, most):
    uneven = axes(sizes)[1]
    for first, last in pairwise(uneven.join_chunks(most)):
        if last < uneven.n:
            following = uneven.span(uneven.indices(last, last + 1)[0])[1]
            assert following - first > most


def test_plan_bands__follow_the_bytes_not_the_chunks():
    for rows in (1, 8, 64, 1000):
        bounds, slabs = bands.plan_bands(Axis(800_000, rows), Axis(100, 100), 4, 8 << 20, 4 << 20)
        assert 320e6 / (4 << 20) <= len(bounds) - 1 <= 1.2 * 320e6 / (4 << 20)
        assert slabs == [0, 100]
    # Larger chunks are not joined, few rows are not joined into one band, and narrow rows have a minimum size.
    assert len(bands.plan_bands(Axis(800_000, 20_000), Axis(100, 100), 4, 8 << 20, 4 << 20)[0]) == 41
    assert len(bands.plan_bands(Axis(64, 1), Axis(10, 10), 4, 8 << 20, 4 << 20)[0]) == 33
    assert bands.plan_bands(Axis(10_000_000, 1), Axis(1, 1), 1, 8 << 20, 4 << 20)[0][1] == 1 << 16


def stored(place, layout, scores=SCORES):
    zarr.create_array(place, data=scores, config={"write_empty_chunks": True}, **LAYOUTS[layout])
    return zarr.open_array(place, mode="r")


@pytest.mark.sample(1)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_small_chunks__are_read_once_each_in_bands_of_many(layout):
    store = CountingStore(MemoryStore())
    source = as_source(stored(store, layout))
    assert 32 <= source.n_bands <= 63
    store.reads.clear()
    bands_read = source.reader.band_reader.read_bands(range(source.n_bands))
    assert np.array_equal(np.concatenate([np.concatenate(list(slabs), axis=1).copy() for slabs in bands_read]), SCORES)
    reads = {key: n for key, n in store.reads.items() if not is_metadata(key)}
    assert set(reads.values()) == {1}
    assert len(reads) == math.prod(chunk_grid(source.reader.array))


@pytest.mark.sample(1)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_small_files__are_read_once_each(tmp_path, monkeypatch, layout):
    opened = Counter()
    read = direct._read_file

    def counting(path, *arguments):
        opened[path] += 1
        return read(path, *arguments)

    monkeypatch.setattr(direct, "_read_file", counting)
    result = avgk.evaluate(stored(tmp_path / "a.zarr", layout), k=[1, 2])
    assert result.equals(avgk.evaluate(SCORES, k=[1, 2]))
    expected = {"shards": 0, "v2 fortran": 0, "ragged": 334, "classes": 1000, "v2 blosc": 1000}.get(layout, 500)
    assert len(opened) == expected
    assert set(opened.values()) <= {1}


def emptied(path):
    path.write_bytes(b"")


def cut(path):
    path.write_bytes(path.read_bytes()[:-3])


def oversized(path):
    path.write_bytes(path.read_bytes() + bytes(100_000))


def folder(path):
    path.unlink()
    path.mkdir()


DAMAGES = [emptied, cut, oversized, folder, lambda path: path.unlink()]


@pytest.mark.sample(1)
@pytest.mark.parametrize("spoil", DAMAGES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_small_chunks__that_are_bad_are_named_from_the_middle_of_a_band(tmp_path, layout, spoil):
    source = as_source(stored(tmp_path / "a.zarr", layout))
    index = source.reader.array.metadata.encode_chunk_key((101, 0))
    row = 101 * source.reader.array.metadata.chunk_grid.chunk_shape[0]
    assert row not in source.rows
    band = int(np.searchsorted(source.rows, row)) - 1
    spoil(tmp_path / "a.zarr" / index)
    with pytest.raises(avgk.ReadError, match=f"chunk {index} of "):
        list(next(source.reader.band_reader.read_bands([band])))
    with pytest.raises(avgk.ReadError, match=rf"\b{index}\b"):
        avgk.evaluate(tmp_path / "a.zarr", k=1)
    assert [key for key, _ in avgk.verify(tmp_path / "a.zarr").damaged] == [index]


@pytest.mark.sample(1)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_small_chunks__that_are_missing_are_filled_when_told(tmp_path, layout):
    place = tmp_path / "a.zarr"
    array = stored(place, layout)
    for index in ((101, 0), (102, 0), (249, 0)):
        (place / array.metadata.encode_chunk_key(index)).unlink()
    filled = array[:]
    assert not np.array_equal(filled, SCORES)
    expected = avgk.evaluate(filled, k=[1, 2])
    assert avgk.evaluate(place, k=[1, 2], missing="fill").equals(expected)


def test_pilot__reads_its_share_of_small_chunks_from_pieces_of_bands():
    array = zarr.create_array({}, shape=(800_000, 100), chunks=(8, 100), dtype="f4")
    source = as_source(array, missing="fill")
    pieces = [chunk_shape(source, *chunk) for chunk in choose_pilot_chunks(source)]
    assert len(pieces) == 16
    assert 0.04 <= sum(rows for rows, _ in pieces) / 800_000 <= 0.05
    assert all(rows % 8 == 0 for rows, _ in pieces)
    assert len(pieces) / count_chunks(source) == pytest.approx(0.05, rel=0.01)
    # with few chunks it reads whole ones
    few = as_source(zarr.create_array({}, shape=(20_000, 50), chunks=(100, 50), dtype="f4"), missing="fill")
    assert [chunk_shape(few, *chunk) for chunk in choose_pilot_chunks(few)] == [(100, 50)] * 10


@pytest.mark.slow
def test_pilot__of_small_chunks_reads_what_it_plans():
    scores = np.random.default_rng(1).random((2560, 10), dtype=np.float32)
    store = CountingStore(MemoryStore())
    zarr.create_array(store, data=scores, chunks=(2, 10))
    store.reads.clear()
    with dask.config.set({"avgk.small-scores": 0}):
        result = avgk.evaluate(zarr.open_array(store, mode="r"), k=[1, 5])
    reads = store.chunk_reads()
    assert len(reads) == 1280
    assert sum(reads.values()) - 1280 == 16 * 4  # a twentieth of the chunks
    assert result.drop_attrs().equals(avgk.evaluate(scores, k=[1, 5]).drop_attrs())


def check(result, scores, labels, ks):
    for i, k in enumerate(ks):
        expected = oracle_evaluate(scores, labels, k)
        sizes = expected.pop("set_size_count")
        assert result.set_size_count.values[i][: len(sizes)].tolist() == sizes
        for name, value in expected.items():
            assert np.array_equal(float(result[name][i]), float(value), equal_nan=True), (k, name)


@settings(max_examples=settings().max_examples // 3)
@given(data=st.data())
def test_evaluate__of_small_chunks_equals_the_definition(tmp_path, monkeypatch, data):
    """Chunks of uneven sizes if zarr supports them, in bands of any number of chunks."""
    monkeypatch.setattr(bands, "_LEAST_BANDS", 1)
    scores = data.draw(strategies.score_matrices(("float32", "float64", "uint8", "float16")))
    labels = data.draw(strategies.hard_labels(scores.shape))
    ks = data.draw(strategies.budgets(scores.shape[1], scores))
    chunks = [list(sizes) for sizes in data.draw(strategies.chunkings(scores.shape))]
    uneven = "array.rectilinear_chunks" in zarr.config and data.draw(st.booleans())
    options = {"chunks": chunks if uneven else tuple(max(sizes) for sizes in chunks), "overwrite": True}
    options["compressors"] = data.draw(st.sampled_from([None, "auto", BloscCodec(shuffle="bitshuffle")]))
    place = data.draw(st.sampled_from([{}, tmp_path / "s.zarr"]))
    with zarr.config.set({"array.rectilinear_chunks": True} if uneven else {}):
        array = zarr.create_array(place, data=scores, config={"write_empty_chunks": True}, **options)
        small = {"avgk.small-scores": data.draw(st.sampled_from([0, 1 << 18])), "scheduler": "synchronous"}
        sizes = {f"avgk.{name}-bytes": data.draw(st.sampled_from([1, 200, 1 << 20])) for name in ("band", "slab")}
        with dask.config.set({**small, **sizes}):
            check(avgk.evaluate(array, labels, ks), scores, labels, ks)


def test_listing__asks_for_every_chunk_of_a_folder(tmp_path):
    array = zarr.create_array(tmp_path / "a.zarr", data=SCORES, chunks=(1, 6), compressors=None)
    assert avgk.info(array)["n_stored_bytes"] == SCORES.nbytes
    gone = [0, 255, 256, 511, 777, 999]
    for i in gone:
        (tmp_path / "a.zarr" / "c" / str(i) / "0").unlink()
    (tmp_path / "a.zarr" / "c" / "500" / "0").write_bytes(b"123")
    with pytest.raises(avgk.ReadError, match=r"^6 of the 1,000 chunks .* c/0/0, c/255/0, c/256/0 and 3 more"):
        avgk.evaluate(tmp_path / "a.zarr", k=1)
    info = avgk.info(array)
    assert (info["n_missing_chunks"], info["n_stored_bytes"]) == (6, 993 * 24 + 3)
    damaged = dict(avgk.verify(array).damaged)
    assert damaged["c/500/0"] == "it has 3 bytes instead of 24"
    assert list(damaged) == [*(f"c/{i}/0" for i in gone), "c/500/0"]


@pytest.mark.parametrize("kind", ["memory", "zip", "folder"])
def test_listing__takes_nothing_else_for_a_chunk(tmp_path, kind):
    """Similar keys are ignored: other digits, a longer name, a chunk beyond the grid."""
    whole = MemoryStore()
    zarr.create_array(whole, data=SCORES[:8], chunks=(1, 6))
    held = {key: value.to_bytes() for key, value in whole._store_dict.items() if key != "c/5/0"}
    others = ("c/05/0", "c/5/0.bak", "c/5/0/0", "c/5.0", "c/8/0", "5/0", "c/\u0665/0")
    store = {
        "memory": MemoryStore,
        "zip": lambda: ZipStore(tmp_path / "a.zip", mode="w"),
        "folder": lambda: LocalStore(tmp_path / "a.zarr"),
    }[kind]()
    for key, value in {**held, **dict.fromkeys(others, b"other")}.items():
        write_key(store, key, value)
    store.close()
    place = {"memory": store, "zip": tmp_path / "a.zip", "folder": tmp_path / "a.zarr"}[kind]
    with pytest.raises(avgk.ReadError, match=r"^1 of the 8 chunks .* is missing: c/5/0 \("):
        avgk.evaluate(place, k=1)
