"""Bombs: small inputs that claim to be large are refused before decoding, and long ones take linear time."""

from __future__ import annotations

import gzip
import os
import struct
import tracemalloc
import zipfile
from contextlib import contextmanager

import dask
import google_crc32c
import numpy as np
import pytest
import zarr
from sound_stores import LABELS, SCORES

import avgk_dask as avgk
from avgk_dask.cli import main
from avgk_dask.credentials import hide, hide_pairs, redact, secrets_of
from avgk_dask.files import open_file
from avgk_dask.files.rows import find_name
from avgk_dask.store.read.direct import decode_bytes

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module", autouse=True)
def imported():
    """Import and compile everything first, as it would count as memory."""
    avgk.evaluate(SCORES, LABELS, 1, straddle=False)
    avgk.breakdown(SCORES, LABELS, 1)


@contextmanager
def within(n_bytes=30_000_000):
    """Assert a limit on the memory taken in the context."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < n_bytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_verify__decodes_no_texts(tmp_path, zarr_format):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=zarr_format)
    group.create_array("scores", data=SCORES, chunks=(16, 5))
    made = group.create_array("labels", shape=(60,), chunks=(60,), dtype=str, compressors=None)
    made[:] = np.array(["a"] * 60)
    (chunk,) = [
        p for p in (tmp_path / "a.zarr" / "labels").rglob("*") if p.is_file() and not p.name.startswith((".z", "zarr"))
    ]
    chunk.write_bytes(struct.pack("<III", 50_000_000, 4, 0))
    with within():
        assert avgk.verify(tmp_path / "a.zarr").n_chunks == 5
    with within(), pytest.raises(avgk.ReadError, match=r"labels.* has a wrong number of texts"):
        avgk.evaluate(tmp_path / "a.zarr", k=1)


def npz_of_zeros(path, shape):
    """Write a compressed npz file of labels 0, a thousandth of their size."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("labels.npy", "w") as member,
    ):
        np.lib.format.write_array_header_1_0(member, {"descr": "<i8", "fortran_order": False, "shape": shape})
        for _ in range(np.prod(shape) * 8 // 1_000_000):
            member.write(bytes(1_000_000))


def test_labels_in_npz_files__are_not_inflated_if_they_cannot_fit(tmp_path):
    npz_of_zeros(tmp_path / "labels.npz", (10_000_000,))
    np.save(tmp_path / "scores.npy", SCORES)
    with within():
        for use in (
            lambda: avgk.evaluate(SCORES, tmp_path / "labels.npz", 1),
            lambda: avgk.evaluate(tmp_path / "scores.npy", tmp_path / "labels.npz", 1),
            lambda: avgk.evaluate(SCORES, LABELS, 1, where=tmp_path / "labels.npz"),
        ):
            with pytest.raises(avgk.LabelsError, match="more labels than scores"):
                use()
        with dask.config.set({"avgk.file-bytes": 1_000_000}), pytest.raises(avgk.StoreError, match="80,000,000"):
            avgk.breakdown(SCORES, LABELS, 1, by=tmp_path / "labels.npz")


def test_labels_in_tables__are_not_read_if_they_cannot_fit(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    table = pa.table({"labels": np.zeros(5_000_000, np.int8)})
    pyarrow.parquet.write_table(table, tmp_path / "labels.parquet")
    assert (tmp_path / "labels.parquet").stat().st_size < 100_000
    with within(), pytest.raises(avgk.LabelsError, match="at least 5,000,000 labels"):
        avgk.evaluate(SCORES, tmp_path / "labels.parquet", 1)
    (tmp_path / "labels.csv").write_text("labels\n" + "0\n" * 200_000)
    with pytest.raises(avgk.LabelsError, match=r"more labels than scores: .* for 300 scores"):
        avgk.evaluate(SCORES, tmp_path / "labels.csv", 1)


@pytest.mark.sample(1)
@pytest.mark.parametrize("names", ["different", "twice", "scores"])
def test_tables__of_many_columns_take_no_more_time_than_these(tmp_path, names):
    pytest.importorskip("pyarrow")
    columns = [f"c{i}" if names != "twice" else f"c{i // 2}" for i in range(40_000)]
    path = tmp_path / "a.csv"
    path.write_text(f"{','.join(columns)}\n{','.join(['0.5'] * 40_000)}\n")
    if names == "twice":
        with pytest.raises(avgk.StoreError, match="repeats c0, c1"):
            open_file(str(path))
    elif names == "scores":
        with pytest.raises(avgk.StoreError, match="no column"):
            open_file(str(path), labels="c40000")
    else:
        file = open_file(str(path))
        assert file.n_classes == len(next(iter(file.blocks(1 << 24)))[0][0]) == 40_000


@pytest.mark.sample(1)
@pytest.mark.parametrize("piece", ["x", "a/", "keysig", "::", ":", "=", "@", "file://", "a=", "[:", "x@y:"])
def test_locations__of_any_length_take_no_more_time_than_that(piece, capsys):
    text = piece * 50_000
    redact(text)
    hide(text, secrets_of(text, {"option": text}))
    hide_pairs(text)
    with pytest.raises(SystemExit):
        main.main(args=["info", "x" + piece * 10_000, "--storage-option", piece * 10_000], prog_name="avgk")
    assert len(capsys.readouterr().err) < 1_500


def test_names__that_are_long_are_not_compared():
    with pytest.raises(avgk.StoreError, match="no column"):
        find_name("xy" * 10_000, ["yx" * 10_000 + str(i) for i in range(5)], "column", "a.csv")


def bomb(codec):
    """Return a chunk with a valid header that claims 4 GB, or one that inflates to 80 MB."""
    if codec == "zstd":
        return bytes.fromhex("28b52ffd") + bytes([0b11100000]) + struct.pack("<Q", 1 << 32) + bytes(40)
    if codec == "blosc":
        return bytes([2, 1, 0x21, 4]) + struct.pack("<III", (1 << 31) - 1, 1 << 18, 64) + bytes(48)
    return gzip.compress(bytes(80_000_000))


@pytest.mark.sample(3)
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("codec", ["zstd", "blosc", "gzip"])
def test_chunks__that_claim_too_much_are_refused_before_that_is_decoded(tmp_path, codec, zarr_format):
    codecs = {"zstd": zarr.codecs.ZstdCodec(), "blosc": zarr.codecs.BloscCodec(), "gzip": zarr.codecs.GzipCodec()}
    if zarr_format == 2:
        import numcodecs

        codecs = {"zstd": numcodecs.Zstd(), "blosc": numcodecs.Blosc(), "gzip": numcodecs.GZip()}
    scores = np.random.default_rng(0).random((2_000, 50)).astype(np.float32)
    array = zarr.create_array(
        tmp_path / "a.zarr", data=scores, chunks=(2_000, 50), compressors=codecs[codec], zarr_format=zarr_format
    )
    assert avgk.verify(tmp_path / "a.zarr").ok
    assert (avgk.open_scores(tmp_path / "a.zarr").scores.values == scores).all()
    chunk = tmp_path / "a.zarr" / array.metadata.encode_chunk_key((0, 0))
    chunk.write_bytes(bomb(codec))
    with within(), pytest.raises(avgk.ReadError, match="chunk"):
        avgk.evaluate(tmp_path / "a.zarr", k=1, straddle=False)
    if codec != "gzip":  # zarr reads it if it is not a local file
        store = zarr.storage.MemoryStore({})
        other = zarr.create_array(
            store, data=scores, chunks=(2_000, 50), compressors=codecs[codec], zarr_format=zarr_format
        )
        store._store_dict[other.metadata.encode_chunk_key((0, 0))] = zarr.core.buffer.cpu.Buffer.from_bytes(bomb(codec))
        with within(), pytest.raises(avgk.ReadError, match=r"decodes to|header says"):
            avgk.evaluate(store, k=1, straddle=False)


@pytest.mark.parametrize("kind", ["fifo", "zero"])
def test_files_of_results__that_never_end_are_refused_at_once(tmp_path, kind):
    path = tmp_path / "a.json"
    os.mkfifo(path) if kind == "fifo" else os.symlink("/dev/zero", path)
    for load in (avgk.Evaluator.load, avgk.calibration.load, avgk.conformal.load):
        with pytest.raises(avgk.StoreError, match="regular file"):
            load(path)


@pytest.mark.parametrize("codec", ["blosc", "zstd", "gzip", "zlib"])
def test_decode_bytes__decodes_at_most_the_given_number(codec):
    import numcodecs

    text = bytes(range(200)) * 3
    encoder = {"blosc": numcodecs.Blosc(), "zstd": numcodecs.Zstd(), "gzip": numcodecs.GZip(), "zlib": numcodecs.Zlib()}
    data = bytes(encoder[codec].encode(text))
    assert decode_bytes(codec, data, 600) == text
    assert decode_bytes(codec, data, 10_000) == text
    with pytest.raises(ValueError, match="decode"):
        decode_bytes(codec, data, 599)


def test_decode_bytes__refuses_wrong_checksums_and_frames_without_a_size():
    text = b"names"
    data = text + google_crc32c.value(text).to_bytes(4, "little")
    assert decode_bytes("crc32c", data, 5) == text
    with pytest.raises(ValueError, match="checksum"):
        decode_bytes("crc32c", b"N" + data[1:], 5)
    with pytest.raises(ValueError, match="does not state"):
        decode_bytes("zstd", bytes.fromhex("28b52ffd00") + bytes(20), 100)
