"""npy and npz files and streams: every row once, in order, in bounded memory; nothing unpickled."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp

from avgk_dask.errors import DtypeError, LabelsError, ReadError, ScoresError, StoreError
from avgk_dask.files import is_row_file, open_file

DTYPES = st.sampled_from(["<f2", "<f4", ">f4", "<f8", ">f8", "i1", "<u2", ">i4", "<i8", ">u8"])


@st.composite
def matrices(draw):
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12))
    return draw(hnp.arrays(draw(DTYPES), shape))


def read(file, max_bytes):
    """Return all rows of a file from its blocks, after checking each."""
    blocks, labels = [], []
    for block, part in file.blocks(max_bytes):
        assert block.dtype == file.dtype
        assert block.dtype.isnative
        assert block.flags.c_contiguous
        assert type(block) is np.ndarray
        assert block.nbytes <= max_bytes or len(block) == 1
        assert (part is not None) == file.has_labels
        blocks.append(block)
        labels.append(part)
    scores = np.concatenate(blocks) if blocks else np.empty((0, file.n_classes), file.dtype)
    return scores, np.concatenate(labels) if file.has_labels and labels else None


@given(matrices(), st.integers(1, 700), st.booleans())
def test_npy__round_trip(tmp_path_factory, scores, max_bytes, fortran):
    path = tmp_path_factory.mktemp("npy") / "scores.npy"
    np.save(path, np.asfortranarray(scores) if fortran else scores)
    file = open_file(path)
    assert (file.n_samples, file.n_classes) == scores.shape
    assert not file.has_labels
    assert file.class_names is None
    np.testing.assert_array_equal(read(file, max_bytes)[0], scores)
    np.testing.assert_array_equal(read(file, max_bytes)[0], scores)


def test_npy__reads_fortran_order_in_groups_of_columns(tmp_path):
    scores = np.random.default_rng(0).normal(size=(37, 600))
    np.save(tmp_path / "a.npy", np.asfortranarray(scores))
    np.testing.assert_array_equal(read(open_file(tmp_path / "a.npy"), 50_000)[0], scores)


def test_npy__no_rows_give_no_blocks(tmp_path):
    np.save(tmp_path / "a.npy", np.empty((0, 3)))
    assert list(open_file(tmp_path / "a.npy").blocks(100)) == []


@pytest.mark.parametrize("shape", [(5,), (2, 3, 4), (), (4, 0)])
def test_npy__refuses_other_shapes(tmp_path, shape):
    np.save(tmp_path / "a.npy", np.zeros(shape))
    with pytest.raises(ScoresError, match=r"a\.npy has shape"):
        open_file(tmp_path / "a.npy")


class Trap:
    """An object that runs code when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, (os.environ["AVGK_TRAP"],)


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_numpy_files__refuse_objects_without_unpickling(tmp_path, monkeypatch, name):
    monkeypatch.setenv("AVGK_TRAP", str(tmp_path / "sprung"))
    scores = np.array([[Trap(), Trap()]], object)
    if name == "a.npy":
        np.save(tmp_path / name, scores, allow_pickle=True)
    else:
        np.savez(tmp_path / name, scores=scores)
    with pytest.raises(DtypeError, match="dtype object"):
        open_file(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("dtype", ["complex64", "bool", "U3", "V2"])
def test_npy__refuses_dtypes_without_order(tmp_path, dtype):
    np.save(tmp_path / "a.npy", np.zeros((2, 2), dtype))
    with pytest.raises(DtypeError):
        open_file(tmp_path / "a.npy")


@pytest.mark.parametrize("keep", [0, 4, 20, 100, 128, 200])
def test_npy__refuses_truncated_files(tmp_path, keep):
    np.save(tmp_path / "a.npy", np.zeros((4, 5)))
    content = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(content[:keep])
    with pytest.raises(ReadError, match=r"a\.npy"):
        open_file(tmp_path / "a.npy")


@given(st.binary(max_size=150), st.integers(0, 140))
def test_npy__damaged_headers_give_errors_of_the_package(noise, at):
    stream = io.BytesIO()
    np.save(stream, np.zeros((2, 3)))
    content = bytearray(stream.getvalue())
    content[at : at + len(noise)] = noise
    try:
        file = open_file(io.BytesIO(bytes(content)))
        if file.n_classes * (file.n_samples or 0) < 10**6:
            list(file.blocks(10**6))
    except (StoreError, ScoresError, DtypeError):
        pass


def test_npy__refuses_negative_shapes():
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": (-2, 3)})
    stream.seek(0)
    with pytest.raises(ReadError, match=r"\(-2, 3\)"):
        open_file(stream)


def test_npy__refuses_names(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 2)))
    with pytest.raises(StoreError, match="Drop the name"):
        open_file(tmp_path / "a.npy", scores="scores")
    with pytest.raises(StoreError, match="Drop the name"):
        open_file(io.BytesIO(), labels="labels")


RESIDENT = """
import resource, sys
import numpy as np
from avgk_dask.files import open_file

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

shape, before = (1 << 17, 1 << 10), peak()
for fortran in (False, True):
    with open(sys.argv[1], "wb") as stream:
        header = {"descr": "<f4", "fortran_order": fortran, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)
        stream.truncate(stream.tell() + 4 * shape[0] * shape[1])
    for block, _ in open_file(sys.argv[1]).blocks(1 << 24):
        pass
    print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux only")
def test_npy__resident_memory_is_that_of_a_few_blocks(tmp_path):
    """Sparse files of 512 MiB in both orders are read in blocks of 16 MiB."""
    command = [sys.executable, "-c", RESIDENT, str(tmp_path / "a.npy")]
    grown = subprocess.run(command, check=True, capture_output=True, timeout=100).stdout.split()
    assert max(map(int, grown)) < 100


# -- streams


class Dribble(io.RawIOBase):
    """A stream that returns at most seven bytes at a time and cannot seek, as pipes do."""

    def __init__(self, content):
        self._content = io.BytesIO(content)

    def readable(self):
        return True

    def read(self, size=-1):
        return self._content.read(min(size, 7))


@given(matrices(), st.integers(1, 700))
def test_stream__round_trip(scores, max_bytes):
    stream = io.BytesIO()
    np.save(stream, np.ascontiguousarray(scores))
    file = open_file(Dribble(stream.getvalue()))
    assert (file.n_samples, file.n_classes) == scores.shape
    np.testing.assert_array_equal(read(file, max_bytes)[0], scores)


def test_stream__standard_input(monkeypatch):
    stream = io.BytesIO()
    np.save(stream, np.eye(3))
    stream.seek(0)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
    np.testing.assert_array_equal(read(open_file("-"), 10)[0], np.eye(3))


def test_stream__can_be_read_once():
    stream = io.BytesIO()
    np.save(stream, np.eye(3))
    stream.seek(0)
    file = open_file(stream)
    read(file, 10)
    with pytest.raises(ReadError, match="has been read already"):
        read(file, 10)


def test_stream__reports_the_number_of_missing_bytes():
    stream = io.BytesIO()
    np.save(stream, np.zeros((4, 5)))
    file = open_file(io.BytesIO(stream.getvalue()[:-50]))
    with pytest.raises(ReadError, match="it ends 10 bytes early"):
        read(file, 40)


def test_stream__refuses_fortran_order():
    stream = io.BytesIO()
    np.save(stream, np.asfortranarray(np.zeros((4, 5))))
    stream.seek(0)
    with pytest.raises(StoreError, match="ascontiguousarray"):
        open_file(stream)


def test_stream__refuses_text():
    with pytest.raises(ReadError):
        open_file(io.StringIO("0.1,0.2"))


# -- npz


@given(matrices(), st.integers(1, 700), st.booleans(), st.sampled_from(["none", "hard", "soft"]))
def test_npz__round_trip(tmp_path_factory, scores, max_bytes, compressed, kind):
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    labels = np.arange(len(scores)) if kind == "hard" else np.full(scores.shape, 0.5)
    members = {"scores": np.ascontiguousarray(scores)} | ({} if kind == "none" else {"labels": labels})
    (np.savez_compressed if compressed else np.savez)(path, **members)
    file = open_file(path)
    assert file.n_samples == len(scores)
    assert file.has_labels == (kind != "none")
    actual, actual_labels = read(file, max_bytes)
    np.testing.assert_array_equal(actual, scores)
    if file.has_labels:
        np.testing.assert_array_equal(actual_labels, labels)


def test_npz__takes_the_only_matrix_and_named_members(tmp_path):
    np.savez(tmp_path / "a.npz", logits=np.eye(2), z=[1, 0], note=np.array(["x"]))
    assert not open_file(tmp_path / "a.npz").has_labels
    assert open_file(tmp_path / "a.npz").ignored == ("z", "note")
    file = open_file(tmp_path / "a.npz", scores="logits", labels="z")
    np.testing.assert_array_equal(read(file, 1)[1], [1, 0])
    assert file.ignored == ("note",)


def test_npz__refuses_missing_members(tmp_path):
    np.savez(tmp_path / "a.npz", logits=np.eye(2), probs=np.eye(2))
    with pytest.raises(StoreError, match=r"no member 'logit'; it has logits, probs\. Did you mean 'logits'"):
        open_file(tmp_path / "a.npz", scores="logit")
    with pytest.raises(StoreError, match=r"no member 'zzz'.*Name the member"):
        open_file(tmp_path / "a.npz", scores="logits", labels="zzz")
    with pytest.raises(StoreError, match="Name the member with the scores"):
        open_file(tmp_path / "a.npz")
    with pytest.raises(StoreError, match="different names"):
        open_file(tmp_path / "a.npz", scores="logits", labels="logits")


@pytest.mark.parametrize("labels", [np.zeros(3, int), np.zeros(2), np.zeros((2, 3)), np.array(["a", "b"]), np.array(1)])
def test_npz__refuses_labels_that_do_not_fit(tmp_path, labels):
    np.savez(tmp_path / "a.npz", scores=np.eye(2), labels=labels)
    with pytest.raises(LabelsError):
        open_file(tmp_path / "a.npz")


def test_npz__refuses_fortran_order(tmp_path):
    np.savez(tmp_path / "a.npz", scores=np.zeros((3, 4), order="F"))
    with pytest.raises(StoreError, match=r"member 'scores' of .* Fortran order.*ascontiguousarray"):
        open_file(tmp_path / "a.npz")


def test_npz__refuses_damage(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, scores=np.arange(12.0).reshape(3, 4))
    content = path.read_bytes()
    path.write_bytes(content[:-30])
    with pytest.raises(ReadError, match=r"a\.npz could not be read"):
        open_file(path)
    at = content.index(np.float64(7).tobytes())
    path.write_bytes(content[:at] + b"\x01" + content[at + 1 :])
    with pytest.raises(ReadError, match="CRC"):
        read(open_file(path), 8)


def test_npz__refuses_a_member_shorter_than_its_header(tmp_path):
    stream = io.BytesIO()
    np.save(stream, np.zeros((3, 4)))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("scores.npy", stream.getvalue()[:-8])
    with pytest.raises(ReadError, match="truncated"):
        open_file(tmp_path / "a.npz")


# -- opening


def test_open_file__refuses_other_paths(tmp_path):
    (tmp_path / "a.txt").write_text("0.1")
    with pytest.raises(StoreError, match="no such file"):
        open_file(tmp_path / "missing.npy")
    with pytest.raises(StoreError, match=r"Supported formats: \.npy"):
        open_file(tmp_path / "a.txt")
    with pytest.raises(StoreError, match="on this machine"):
        open_file("s3://bucket/a.parquet")
    with pytest.raises(StoreError, match="got int"):
        open_file(3)


def test_is_row_file__knows_the_formats(tmp_path):
    names = ["a.npy", "A.NPZ", "a.parquet", "a.csv", "a.csv.gz", "a.arrow", "a.feather", "-"]
    assert all(is_row_file(name) for name in names)
    assert is_row_file(io.BytesIO())
    assert not any(is_row_file(name) for name in ["a.zarr", "a.txt", "a", 3, tmp_path])
