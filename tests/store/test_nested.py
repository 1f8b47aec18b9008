"""Arrays in inner groups, with any chunk keys and shards; the manifest of their own group applies."""

from __future__ import annotations

import json
import shutil

import fsspec
import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, ZstdCodec
from zarr.storage import FsspecStore, LocalStore, MemoryStore

import avgk_dask as avgk
from avgk_dask.testing import CountingStore

SCORES = np.random.default_rng(3).random((43, 7), dtype=np.float32)
LABELS = np.random.default_rng(4).integers(0, 7, 43)


def write(path, labels=LABELS, **options):
    with avgk.ScoreWriter(path, 7, **{"chunk_rows": 5, **options}) as writer:
        writer.append(SCORES, labels)


def swap(folder):
    one, two = (folder / "scores" / "c" / i / "0" for i in "12")
    data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)


@pytest.fixture(params=["run1", "x/c/run1"])
def nested(tmp_path, request):
    """Return a hierarchy that contains a sealed store, and its path."""
    zarr.open_group(tmp_path / "big.zarr", mode="w").create_group(request.param.rpartition("/")[0] or "other")
    write(tmp_path / "big.zarr" / request.param)
    return tmp_path / "big.zarr", request.param


@pytest.mark.sample(1)
def test_nested_store__is_checked_by_its_own_manifest(nested):
    big, inner = nested
    expected = avgk.evaluate(SCORES, LABELS, 2)
    name = f"{inner}/scores"
    ways = [
        lambda: avgk.evaluate(avgk.open_scores(big, scores=name), k=2),
        lambda: avgk.evaluate(big / inner, k=2),
        lambda: avgk.evaluate(zarr.open_group(big, mode="r")[inner], k=2),
        lambda: avgk.evaluate(zarr.open_group(big, mode="r")[name], LABELS, 2),
        lambda: avgk.evaluate(big / inner / "scores", LABELS, 2),
    ]
    for way in ways:
        assert way().equals(expected)
    assert avgk.verify(big).n_chunks == 10
    swap(big / inner)
    for way in ways:
        with pytest.raises(avgk.ReadError, match=r"scores/c/[12]/0"):
            way()
    assert len(avgk.verify(big).damaged) == 2


def test_nested_store__that_is_incomplete_is_refused(nested):
    big, inner = nested
    metadata = json.loads((big / inner / "zarr.json").read_text())
    metadata["attributes"]["avgk_dask"]["complete"] = False
    (big / inner / "zarr.json").write_text(json.dumps(metadata))
    for use in (avgk.verify, lambda p: avgk.open_scores(p, scores=f"{inner}/scores")):
        with pytest.raises(avgk.StoreError, match="incomplete"):
            use(big)


def test_verify__looks_at_every_array_and_refuses_none(tmp_path):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    with pytest.raises(avgk.StoreError, match="no arrays"):
        avgk.verify(tmp_path / "a.zarr")
    group.create_array("logits", data=SCORES, chunks=(10, 7))
    group.create_array("labels", data=LABELS + 1)
    (tmp_path / "a.zarr" / "logits" / "c" / "1" / "0").unlink()
    assert [key for key, _ in avgk.verify(tmp_path / "a.zarr").damaged] == ["logits/c/1/0"]


ENCODINGS = [
    {"name": "default", "configuration": {"separator": "/"}},
    {"name": "default", "configuration": {"separator": "."}},
    {"name": "v2", "configuration": {"separator": "."}},
    {"name": "v2", "configuration": {"separator": "/"}},
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("where", ["start", "end"])
@pytest.mark.parametrize("name", ["", "scores"])
@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_shards__of_any_keys_and_index_are_read_and_checked(tmp_path, encoding, name, where):
    codec = ShardingCodec(
        chunk_shape=(5, 7), codecs=[BytesCodec(), ZstdCodec()], index_codecs=[BytesCodec(), Crc32cCodec()], index_location=where
    )  # fmt: skip
    zarr.create_group(tmp_path / "a.zarr")
    place = tmp_path / "a.zarr" / name if name else tmp_path / "b.zarr"
    array = zarr.create_array(
        place, shape=SCORES.shape, chunks=(20, 7), dtype="f4", serializer=codec, compressors=None, filters=None,
        chunk_key_encoding=encoding,
    )  # fmt: skip
    array[:] = SCORES
    path = tmp_path / "a.zarr" if name else tmp_path / "b.zarr"
    assert avgk.evaluate(path, LABELS, 2).equals(avgk.evaluate(SCORES, LABELS, 2))
    array[10:15] = 0
    with pytest.raises(avgk.ReadError, match="1 of its inner chunks is missing"):
        avgk.evaluate(path, LABELS, 2)


@pytest.mark.sample(1)
@pytest.mark.parametrize("options", [{"shard_chunks": 2}, {"shard_chunks": 3, "chunk_rows": 4}, {}])
def test_soft_labels__may_be_sharded(tmp_path, options):
    eta = np.full((43, 7), 1 / 7)
    write(tmp_path / "a.zarr", eta, **options)
    assert avgk.evaluate(tmp_path / "a.zarr", k=[1, 2]).equals(avgk.evaluate(SCORES, eta, [1, 2]))
    chunk = tmp_path / "a.zarr" / "labels" / "c" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-5] + b"xxxxx")
    with pytest.raises(avgk.ReadError, match="labels/c/0/0"):
        avgk.evaluate(tmp_path / "a.zarr", k=[1, 2])


def test_parts_of_shards__are_checked_and_the_shard_is_read_once(tmp_path):
    write(tmp_path / "a.zarr", shard_chunks=4)
    store = CountingStore(LocalStore(tmp_path / "a.zarr", read_only=True))
    from avgk_dask.store.read.bands import read_array
    from avgk_dask.store.read.opening import open_arrays

    scores = open_arrays(store).scores
    assert np.array_equal(read_array(scores, (slice(3, 9),)), SCORES[3:9])
    assert store.chunk_reads() == {"scores/c/0/0": 1}
    chunk = tmp_path / "a.zarr" / "scores" / "c" / "1" / "0"
    data = bytearray(chunk.read_bytes())
    data[3] ^= 1
    chunk.write_bytes(bytes(data))
    with pytest.raises(avgk.ReadError, match="scores/c/1/0"):
        read_array(scores, (slice(22, 24),))


def test_chunks_that_were_written__are_not_filled_in(tmp_path):
    write(tmp_path / "a.zarr")
    (tmp_path / "a.zarr" / "scores" / "c" / "1" / "0").unlink()
    with pytest.raises(avgk.ReadError, match="scores/c/1/0"):
        avgk.evaluate(tmp_path / "a.zarr", missing="fill")


@pytest.mark.parametrize("root", ["", "/"])
def test_file_systems__without_a_root_are_listed_right(root):
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    write("memory://")
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

    store = FsspecStore(AsyncFileSystemWrapper(memory, asynchronous=True), path=root, read_only=True)
    assert avgk.evaluate(store, k=2).equals(avgk.evaluate(SCORES, LABELS, 2))
    memory.store.clear()


class Unlisted(MemoryStore):
    """A store that can be read but not listed."""

    def list_prefix(self, prefix):
        raise PermissionError("AccessDenied for AKIDSECRET")


def test_stores_that_may_not_be_listed__are_read():
    held = {}
    zarr.open_group(MemoryStore(held), mode="w").create_array("scores", data=SCORES, chunks=(9, 7))
    assert avgk.evaluate(Unlisted(held), k=2).equals(avgk.evaluate(SCORES, k=2))
    assert avgk.info(Unlisted(held))["n_missing_chunks"] is None
    del held["scores/c/1/0"]
    with pytest.raises(avgk.ReadError, match="scores/c/1/0"):
        avgk.evaluate(Unlisted(held), k=2)


def test_groups__opened_without_consolidated_metadata_stay_so(tmp_path):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    array = group.create_array("scores", data=SCORES[:20], chunks=(5, 7))
    with pytest.warns(UserWarning, match="Consolidated"):
        zarr.consolidate_metadata(tmp_path / "a.zarr")
    array.append(SCORES[20:])
    opened = zarr.open_group(tmp_path / "a.zarr", mode="r", use_consolidated=False)
    assert avgk.evaluate(opened, k=2).attrs["n_samples"] == 43


def test_labels_of_another_store__name_it_when_damaged(tmp_path):
    write(tmp_path / "a.zarr")
    group = zarr.open_group(tmp_path / "l.zarr", mode="w")
    group.create_array("labels", data=LABELS + 1)
    (tmp_path / "l.zarr" / "labels" / "c" / "0").write_bytes(b"rubbish")
    for scores in (SCORES, tmp_path / "a.zarr"):
        with pytest.raises(avgk.ReadError, match=r"labels/c/0 of .*l\.zarr"):
            avgk.evaluate(scores, tmp_path / "l.zarr", 2)


def test_a_path_relative_to_the_array__is_found(tmp_path, monkeypatch):
    write(tmp_path / "a.zarr")
    monkeypatch.chdir(tmp_path / "a.zarr" / "scores")
    assert avgk.evaluate(".", LABELS, 2).equals(avgk.evaluate(SCORES, LABELS, 2))


def test_unlike_parts__are_not_joined(tmp_path):
    for part, classes in enumerate((6, 9)):
        with avgk.ScoreWriter(tmp_path / "m.zarr", classes, top_m=3, part=part) as writer:
            writer.append(np.random.default_rng(0).random((4, classes)))
    with pytest.raises(avgk.StoreError, match="differs"):
        avgk.join_parts(tmp_path / "m.zarr")
    for part, (dtype, scores) in enumerate((("bfloat16", SCORES), ("uint16", np.zeros((4, 7), "u2")))):
        with avgk.ScoreWriter(tmp_path / "b.zarr", 7, dtype=dtype, part=part) as writer:
            writer.append(scores)
    with pytest.raises(avgk.StoreError, match="differs"):
        avgk.join_parts(tmp_path / "b.zarr")


def test_rounding__that_begins_later_is_named(tmp_path):
    with avgk.ScoreWriter(tmp_path / "a.zarr", 7, chunk_rows=5) as writer:
        writer.append(SCORES)
        writer.append(SCORES.astype(np.float64))
    assert avgk.info(tmp_path / "a.zarr")["rounding"] == "float64 rounded to float32, to nearest, ties to even"
    with avgk.ScoreWriter(tmp_path / "b.zarr", 7) as writer:
        writer.append(SCORES, np.full((43, 7), 1 / 7, np.float16))
        with pytest.raises(avgk.LabelsError, match="as in the first batch"):
            writer.append(SCORES, np.full((43, 7), 1 / 7))


def test_ingest__spares_its_source_however_it_is_given(tmp_path):
    def fresh():
        shutil.rmtree(tmp_path / "a.zarr", ignore_errors=True)
        write(tmp_path / "a.zarr")
        return tmp_path / "a.zarr"

    path = fresh()
    np.save(tmp_path / "s.npy", SCORES)
    for scores, labels in (
        (zarr.open_group(path, mode="r"), None),
        (LocalStore(path, read_only=True), None),
        (f"file://{path}", None),
        (path / "..", None),
        (tmp_path / "s.npy", path),
    ):
        with pytest.raises(avgk.AvgkError):
            avgk.ingest(scores, labels, out=path, overwrite=True)
        assert avgk.verify(path).ok


def test_ingest__that_fails_leaves_the_store_it_was_to_replace(tmp_path):
    write(tmp_path / "a.zarr")
    np.save(tmp_path / "s.npy", SCORES)
    with pytest.raises(avgk.LabelsError):
        avgk.ingest(tmp_path / "s.npy", np.append(LABELS[:-1], 99), out=tmp_path / "a.zarr", overwrite=True)
    assert avgk.verify(tmp_path / "a.zarr").n_chunks == 10
    avgk.ingest(tmp_path / "s.npy", out=tmp_path / "a.zarr", overwrite=True)
    assert avgk.verify(tmp_path / "a.zarr").n_chunks == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.zarr", "s.npy"]


def test_ingest__refuses_truncated_stores(tmp_path):
    write(tmp_path / "t.zarr", top_m=3)
    with pytest.raises(avgk.ScoresError, match="truncated"):
        avgk.ingest(tmp_path / "t.zarr", out=tmp_path / "o.zarr")
