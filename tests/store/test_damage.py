"""The damage matrix: six kinds of damage to stores of nine layouts, ours and foreign ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

import avgk_dask as avgk
from avgk_dask.store.read.grids import Layout
from avgk_dask.store.read.opening import open_arrays
from avgk_dask.store.write.drafts import Draft, write_rows
from avgk_dask.store.write.targets import writable

SCORES = np.random.default_rng(5).random((95, 12), dtype=np.float32)
LABELS = np.random.default_rng(6).integers(0, 12, 95)
DAMAGES = ("deleted", "flipped", "truncated", "emptied", "swapped", "folder")


def damage(path, other, kind):
    """Damage a chunk file in one of six ways."""
    data = path.read_bytes()
    if kind in ("deleted", "folder"):
        path.unlink()
    if kind == "folder":
        path.mkdir()
    if kind == "flipped":
        half = len(data) // 2
        path.write_bytes(data[:half] + bytes([data[half] ^ 16]) + data[half + 1 :])
    if kind == "truncated":
        path.write_bytes(data[: len(data) * 2 // 3])
    if kind == "emptied":
        path.write_bytes(b"")
    if kind == "swapped":
        assert other.read_bytes() != data
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)


def write_ours(path, layout):
    codec, _, form = layout.partition("-")
    if form == "split":
        draft = Draft.create(*writable(path))
        array = draft.add_matrix("scores", SCORES.shape, "f4", Layout(20, 12, 5, 1, codec))
        draft.digests |= write_rows(array, 0, SCORES)
        draft.digests |= write_rows(draft.add_column("labels", 95), 0, LABELS)
        draft.finish()
        return
    with avgk.ScoreWriter(path, 12, chunk_rows=10, shard_chunks=2 if form == "sharded" else 1, codec=codec) as writer:
        for i in range(0, 95, 7):
            writer.append(SCORES[i : i + 7], LABELS[i : i + 7])


OURS = [*(f"{codec}{form}" for codec in ("blosc", "zstd", "gzip", "none") for form in ("", "-sharded")), "blosc-split"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("layout", OURS)
def test_our_stores__reveal_every_damage_and_name_the_chunk(tmp_path, layout, kind):
    path = tmp_path / "a.zarr"
    write_ours(path, layout)
    sound = avgk.evaluate(path, k=[1, 3]).drop_attrs()
    assert sound.identical(avgk.evaluate(SCORES, LABELS, [1, 3]).drop_attrs())
    assert avgk.verify(path).ok
    damage(path / "scores" / "c" / "1" / "0", path / "scores" / "c" / "2" / "0", kind)
    with pytest.raises(avgk.ReadError, match=r"scores/c/[12]/0"):
        avgk.evaluate(path, k=[1, 3])
    verification = avgk.verify(path)
    keys = {key for key, _ in verification.damaged}
    assert keys == ({"scores/c/1/0", "scores/c/2/0"} if kind == "swapped" else {"scores/c/1/0"})
    assert verification.has_manifest


FOREIGN = {
    "v3 default": {},
    "v3 blosc": {"compressors": BloscCodec(shuffle="bitshuffle")},
    "v3 raw": {"compressors": None},
    "v3 crc32c": {"compressors": Crc32cCodec()},
    "v3 gzip": {"compressors": GzipCodec()},
    "v3 zstd checksum": {"compressors": ZstdCodec(checksum=True)},
    "v3 sharded": {"shards": (20, 12)},
    "v2 default": {"zarr_format": 2},
    "v3 split": {"chunks": (20, 5)},
}
#: Damage that plain Zarr cannot detect: changed bits under codecs without a checksum, and swapped chunks.
SILENT = {
    *((layout, "swapped") for layout in FOREIGN),
    *((layout, "flipped") for layout in ("v3 default", "v3 blosc", "v3 raw", "v3 sharded", "v2 default", "v3 split")),
}


@pytest.mark.sample(15)
@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("layout", FOREIGN)
def test_foreign_stores__reveal_what_zarr_can_show(tmp_path, layout, kind):
    path = tmp_path / "a.zarr"
    options = {"chunks": (10, 12) if layout == "v3 sharded" else (20, 12), **FOREIGN[layout]}
    group = zarr.open_group(path, mode="w", zarr_format=options.pop("zarr_format", 3))
    array = group.create_array("scores", data=SCORES, **options)
    keys = [array.metadata.encode_chunk_key(index) for index in ((1, 0), (2, 0))]
    damage(*(path / "scores" / key for key in keys), kind)
    if (layout, kind) in SILENT:
        # Changed bytes may or may not decode. If they do, they are used, and verify says that it cannot detect this.
        assert not avgk.verify(path).has_manifest
        return
    with pytest.raises(avgk.ReadError, match=f"scores/{keys[0]}"):
        avgk.evaluate(path, k=1)
    verification = avgk.verify(path)
    assert not verification.has_manifest
    assert [key for key, _ in verification.damaged] == [f"scores/{keys[0]}"]


def test_missing_chunks__are_refused_with_their_number_and_may_be_filled(tmp_path):
    path = tmp_path / "a.zarr"
    array = zarr.create_array(path, shape=(95, 12), chunks=(10, 12), dtype="f4")
    array[:50] = SCORES[:50]
    with pytest.raises(avgk.ReadError, match=r"5 of the 10 chunks of array '/' .* c/5/0, c/6/0, c/7/0 and 2 more"):
        avgk.evaluate(path, LABELS, 1)
    with pytest.raises(avgk.ReadError, match="missing"):
        avgk.average_k_sets(path, 1)
    expected = avgk.evaluate(array[:], LABELS, [1, 2]).drop_attrs()
    assert avgk.evaluate(path, LABELS, [1, 2], missing="fill").drop_attrs().identical(expected)
    opened = avgk.open_scores(path, missing="fill")
    assert avgk.evaluate(opened, LABELS, [1, 2]).drop_attrs().identical(expected)
    with pytest.raises(avgk.OptionError, match="missing must be"):
        avgk.open_scores(path, missing="zero")


def test_missing_chunks__are_told_in_words_that_fit_their_number(tmp_path):
    one = zarr.create_array(tmp_path / "one.zarr", shape=(4, 3), dtype="f4")
    with pytest.raises(avgk.ReadError, match=r"^the one chunk of array '/' in .* is missing: c/0/0 .* Restore it, or"):
        avgk.evaluate(one, k=1)
    three = zarr.create_array(tmp_path / "three.zarr", shape=(6, 3), chunks=(2, 3), dtype="f4")
    three[:4] = 1
    with pytest.raises(avgk.ReadError, match=r"^1 of the 3 chunks of .* is missing: c/2/0 .* Restore it") as refused:
        avgk.evaluate(three, k=1)
    assert 'missing="fill" (on the command line --missing fill)' in str(refused.value)


@pytest.mark.parametrize("change", [lambda data: data + b"0123456789", lambda data: data[:-10]])
def test_shards__whose_length_changed_are_told_as_such(tmp_path, change):
    array = zarr.create_array(tmp_path / "a.zarr", shape=(8, 3), chunks=(2, 3), shards=(8, 3), dtype="f4")
    array[:] = 1
    shard = tmp_path / "a.zarr" / "c" / "0" / "0"
    shard.write_bytes(change(shard.read_bytes()))
    with pytest.raises(avgk.ReadError, match=r"does not match its \d+ bytes; some were lost or added"):
        avgk.evaluate(tmp_path / "a.zarr", k=1)


def test_missing_inner_chunks__of_shards_are_refused_unless_filled(tmp_path):
    path = tmp_path / "a.zarr"
    array = zarr.create_array(path, shape=(95, 12), chunks=(10, 6), shards=(40, 12), dtype="f4")
    array[:, :] = SCORES
    assert avgk.evaluate(path, LABELS, 1).attrs["n_samples"] == 95
    array[50:60, :6] = 0  # zarr does not write chunks of fill values
    with pytest.raises(avgk.ReadError, match=r"c/1/0 .* 1 of its inner chunks"):
        avgk.evaluate(path, LABELS, 1)
    expected = avgk.evaluate(array[:], LABELS, [1, 2]).drop_attrs()
    assert avgk.evaluate(path, LABELS, [1, 2], missing="fill").drop_attrs().identical(expected)


def test_our_stores__are_complete_even_where_all_scores_are_zero(tmp_path):
    with avgk.ScoreWriter(tmp_path / "z.zarr", 4, chunk_rows=10, shard_chunks=2) as writer:
        writer.append(np.zeros((95, 4)), np.zeros(95, int))
    assert avgk.verify(tmp_path / "z.zarr").ok
    assert avgk.evaluate(tmp_path / "z.zarr", k=1).n_ties.item() == 380


def test_chunks__larger_than_their_codec_can_need_are_refused_even_if_the_manifest_lists_them(tmp_path):
    with avgk.ScoreWriter(tmp_path / "s.zarr", 12, codec="none") as writer:
        writer.append(SCORES, LABELS)
    checks = open_arrays(tmp_path / "s.zarr").scores.store_path.store.checks
    n_bytes = checks.digest("scores/c/0/0")[0]
    checks.refuse_size("scores/c/0/0", n_bytes)
    with pytest.raises(avgk.ReadError, match="at most 10 are possible"):
        replace(checks, most_bytes=10).refuse_size("scores/c/0/0", n_bytes)


@pytest.mark.parametrize("name", ["scores", "labels"])
def test_manifest__that_is_damaged_is_refused(tmp_path, name):
    write_ours(tmp_path / "a.zarr", "blosc")
    table = next(path for path in (tmp_path / "a.zarr" / "manifest" / name / "c").rglob("*") if path.is_file())
    table.write_bytes(table.read_bytes()[:-1] + b"\0")
    with pytest.raises(avgk.StoreError, match="manifest"):
        avgk.evaluate(tmp_path / "a.zarr", k=1)


def test_damage__between_opening_and_reading_is_found(tmp_path):
    write_ours(tmp_path / "a.zarr", "blosc")
    opened = avgk.open_scores(tmp_path / "a.zarr")
    (tmp_path / "a.zarr" / "scores" / "c" / "3" / "0").unlink()
    with pytest.raises(avgk.ReadError, match="scores/c/3/0"):
        opened.scores.compute()


@pytest.mark.sample(13)
@pytest.mark.parametrize("n_lost", [1, 1000, 5000])
@pytest.mark.parametrize("place", ["folder", "zip", "memory"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_truncation__of_chunks_that_blosc_could_not_compress_is_found(tmp_path, zarr_format, place, n_lost):
    import shutil

    from numcodecs import Blosc
    from zarr.storage import MemoryStore

    noise = np.random.default_rng(0).integers(0, 256, (60, 400), dtype=np.uint8)
    codec = {"compressors": Blosc() if zarr_format == 2 else BloscCodec()}
    array = zarr.create_array(tmp_path / "a.zarr", data=noise, chunks=(20, 400), zarr_format=zarr_format, **codec)
    key = array.metadata.encode_chunk_key((1, 0))
    chunk = tmp_path / "a.zarr" / key
    assert chunk.stat().st_size > 8000  # stored without compression
    chunk.write_bytes(chunk.read_bytes()[:-n_lost])
    store = tmp_path / "a.zarr"
    if place == "zip":
        store = shutil.make_archive(str(tmp_path / "z"), "zip", tmp_path / "a.zarr")
    if place == "memory":
        from zarr.core.buffer import default_buffer_prototype

        make = default_buffer_prototype().buffer.from_bytes
        files = [p for p in (tmp_path / "a.zarr").rglob("*") if p.is_file()]
        store = MemoryStore({str(p.relative_to(tmp_path / "a.zarr")): make(p.read_bytes()) for p in files})
    with pytest.raises(avgk.ReadError, match=key):
        avgk.evaluate(store, k=1)
    assert not avgk.verify(store).ok


def test_truncation__of_shards_with_the_index_in_front_is_found(tmp_path):
    from zarr.codecs import BytesCodec, ShardingCodec

    codec = ShardingCodec(chunk_shape=(10, 12), codecs=[BytesCodec(), BloscCodec()], index_location="start")
    zarr.create_array(
        tmp_path / "a.zarr", data=SCORES, chunks=(50, 12), serializer=codec, compressors=None, filters=None
    )
    shard = tmp_path / "a.zarr" / "c" / "1" / "0"
    shard.write_bytes(shard.read_bytes()[:-20])
    for missing in ("raise", "fill"):
        with pytest.raises(avgk.ReadError, match="c/1/0"):
            avgk.evaluate(tmp_path / "a.zarr", k=1, missing=missing)
