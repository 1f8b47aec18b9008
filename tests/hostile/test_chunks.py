"""Chunks that are damaged, swapped, or not files: refused at once by every reader, even without a listing."""

from __future__ import annotations

import functools
import http.server
import os
import socket
import threading

import numpy as np
import pytest
import zarr
from judging import READERS, answers, evaluate, judge, outcome
from sound_stores import LABELS, SCORES
from test_metadata import replace
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

import avgk_dask as avgk

pytestmark = pytest.mark.timeout(120)

CHUNKS = {
    "ours": "scores/c/1/0", "sharded": "scores/c/0/0", "truncated": "class_index/c/1/0", "v3": "scores/c/1/0",
    "v2": "scores/1.0",
}  # fmt: skip


@pytest.fixture(scope="module")
def sound(masters):
    return {name: answers(masters / name) for name in CHUNKS}


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", ["fifo", "zero", "null", "folder", "dangling", "huge"])
@pytest.mark.parametrize("name", CHUNKS)
def test_chunks__that_are_no_files_or_too_large_are_refused_at_once(store, sound, name, kind):
    path = store(name)
    replace(path / CHUNKS[name], kind)
    outcomes = judge(path, sound[name], may_change=True)
    for reader in ("evaluate", "verify"):
        assert outcomes[reader] != ("answer", "ok")
        assert CHUNKS[name] in outcomes[reader][1], outcomes[reader]


@pytest.mark.parametrize("reader", ["evaluate", "threshold", "verify", "info"])
def test_chunks__that_are_sockets_are_refused(store, reader):
    path = store("ours")
    (path / "scores/c/0/0").unlink()
    here = os.getcwd()
    os.chdir(path / "scores/c/0")  # the name of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind("0")
            answer = outcome(READERS[reader], path)
    finally:
        os.chdir(here)
    assert answer != ("answer", "ok")


BYTES = {
    "emptied": lambda data: b"",
    "shortened": lambda data: data[:-3],
    "longer": lambda data: data + b"more",
    "first bit": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "last bit": lambda data: data[:-1] + bytes([data[-1] ^ 128]),
    "zeros": lambda data: bytes(len(data)),
    "text": lambda data: b"<html>404</html>",
    "backwards": lambda data: data[::-1],
    "twice": lambda data: data * 2,
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("name, key", [
    *(("ours", key) for key in ("scores/c/0/0", "scores/c/3/0", "labels/c/0", "manifest/scores/c/0/0/0")),
    ("sharded", "scores/c/1/0"), ("truncated", "scores/c/2/0"), ("truncated", "class_index/c/0/0"),
])  # fmt: skip
def test_chunks__of_our_stores_with_other_bytes_are_refused(store, sound, name, key, kind):
    path = store(name)
    (path / key).write_bytes(BYTES[kind]((path / key).read_bytes()))
    outcomes = judge(path, sound[name])
    assert outcomes["evaluate"][0] == "refused"
    assert outcomes["verify"] != ("answer", "ok")


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("name", ["v3", "v2"])
def test_chunks__of_foreign_stores_with_other_bytes_end_in_an_answer_or_one_clear_error(store, sound, name, kind):
    path = store(name)
    chunk = path / CHUNKS[name]
    chunk.write_bytes(BYTES[kind](chunk.read_bytes()))
    judge(path, sound[name], may_change=True)


def test_frames__that_claim_to_decode_to_gigabytes_are_refused_before_that(tmp_path):
    """A Zstandard frame of a few bytes whose header claims 100 GB."""
    path = tmp_path / "a.zarr"
    zarr.create_array(path, data=SCORES, chunks=(16, 5))
    frame = bytes.fromhex("28b52ffd") + bytes([0xE0]) + (10**11).to_bytes(8, "little") + bytes(16)
    (path / "c/1/0").write_bytes(frame)
    kind, text = outcome(evaluate, path)
    assert kind == "refused"
    assert "c/1/0" in text


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture
def served(tmp_path):
    """Return the address of a web server of this folder, whose listings are not used."""
    pytest.importorskip("obstore")
    handler = functools.partial(_Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.sample(1)
@pytest.mark.parametrize("missing", ["raise", "fill"])
@pytest.mark.parametrize("name", ["ours", "sharded"])
def test_missing_chunks__that_a_manifest_knows_are_refused_where_nothing_can_be_listed(store, served, name, missing):
    path = store(name)
    assert avgk.evaluate(f"{served}/a.zarr", k=1, missing=missing).attrs["n_samples"] == 60
    (path / CHUNKS[name]).unlink()
    with pytest.raises(avgk.ReadError, match=f"{CHUNKS[name]} of .* is missing"):
        avgk.evaluate(f"{served}/a.zarr", k=1, missing=missing)
    with pytest.raises(avgk.ReadError, match=f"{CHUNKS[name]} of .* is missing"):
        avgk.open_scores(f"{served}/a.zarr", missing=missing).scores.compute()
    assert CHUNKS[name] in str(avgk.verify(f"{served}/a.zarr").damaged)


class Blind(MemoryStore):
    """A store that cannot be listed."""

    supports_listing = False


@pytest.mark.parametrize("missing", ["raise", "fill"])
def test_missing_labels__that_a_manifest_knows_are_refused_where_nothing_can_be_listed(store, missing):
    path = store("ours")
    make = default_buffer_prototype().buffer.from_bytes
    files = {str(p.relative_to(path)): make(p.read_bytes()) for p in path.rglob("*") if p.is_file()}
    del files["labels/c/0"]
    with pytest.raises(avgk.ReadError, match=r"labels/c/0 of .* is missing"):
        avgk.evaluate(Blind(files), k=1, missing=missing)


def test_large_objects__of_a_web_server_are_refused_before_they_come(store, served):
    path = store("ours")
    replace(path / CHUNKS["ours"], "huge")
    with pytest.raises(avgk.ReadError, match=r"scores/c/1/0 .* it has 10,737,418,240 bytes instead of"):
        avgk.evaluate(f"{served}/a.zarr", k=1)
    replace(path / "zarr.json", "huge")
    with pytest.raises(avgk.StoreError, match=r"10,737,418,240 bytes, and the limit for metadata is 64,000,000"):
        avgk.evaluate(f"{served}/a.zarr", k=1)


def test_metadata__may_be_larger_where_a_setting_says_so(store):
    import dask

    path = store("v3")
    with dask.config.set({"avgk.metadata-bytes": 100}), pytest.raises(avgk.StoreError, match=r"avgk\.metadata-bytes"):
        evaluate(path)
    (path / "zarr.json").write_bytes((path / "zarr.json").read_bytes() + b" " * 65_000_000)
    with pytest.raises(avgk.StoreError, match="limit for metadata is 64,000,000"):
        evaluate(path)
    with dask.config.set({"avgk.metadata-bytes": 10**8}):
        assert avgk.evaluate(path, k=1).attrs["n_samples"] == 60


def test_swapped_arrays__are_refused(store):
    path = store("ours")
    (path / "labels").rename(path / "x")
    (path / "scores").rename(path / "labels")
    (path / "x").rename(path / "scores")
    assert outcome(evaluate, path)[0] == "refused"


def test_truncated_rows__that_are_not_in_order_are_refused(tmp_path):
    """A foreign truncated store whose slots are not sorted, or have invalid classes."""
    top = np.argsort(-SCORES, axis=1, kind="stable")[:, :4]
    kept = np.take_along_axis(SCORES, top, axis=1)

    def write(path, scores, index):
        group = zarr.open_group(path, mode="w")
        group.attrs["n_classes"] = 5
        for name, data in (("scores", scores), ("class_index", index.astype("i4")), ("labels", LABELS)):
            group.create_array(name, data=data, chunks=(16, *data.shape[1:]))
        return path

    good = avgk.evaluate(write(tmp_path / "good.zarr", kept, top), k=1, straddle=False).drop_attrs()
    assert good.average_k_error.item() == avgk.evaluate(SCORES, LABELS, 1).average_k_error.item()
    swapped = kept.copy()
    swapped[17, :2] = swapped[17, 1::-1]
    with pytest.raises(avgk.ScoresError, match=r"in descending order; sample 17"):
        avgk.evaluate(write(tmp_path / "order.zarr", swapped, top), k=1, straddle=False)
    for value in (5, -1):
        other = top.copy()
        other[20, 2] = value
        with pytest.raises(avgk.ScoresError, match=r"class_index must .* sample 20"):
            avgk.evaluate(write(tmp_path / "range.zarr", kept, other), k=1, straddle=False)
    other = top.copy()
    other[20, 2] = other[20, 0]
    with pytest.raises(avgk.ScoresError, match=r"class_index must .* sample 20"):
        avgk.evaluate(write(tmp_path / "twice.zarr", kept, other), k=1, straddle=False)
