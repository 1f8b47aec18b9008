"""Files with false headers, archives, tables, pipes and devices: each is refused by name, and no output is left."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import struct
import zipfile

import numpy as np
import pytest
from judging import READERS, check_error, evaluate, judge, outcome
from sound_stores import LABELS, SCORES, write_ours
from test_metadata import replace

import avgk_dask as avgk

pytestmark = pytest.mark.timeout(20)


def ingested(path, labels=None):
    """Return the outcome of ingesting a file: ("refused", text) or ("answer", result)."""
    out = path.with_name("out.zarr")
    try:
        avgk.ingest(path, labels, out=out)
    except avgk.AvgkError as error:
        check_error(error, path if labels is None or path.name in str(error) else labels)
        assert not out.exists()
        assert not [name for name in os.listdir(path.parent) if "out" in name]
        return "refused", str(error)
    return "answer", evaluate(out)


def npy(header, data=b"", version=(1, 0), magic=b"\x93NUMPY"):
    """Return the bytes of an npy file with any header."""
    text = header if isinstance(header, bytes) else header.encode()
    size = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return magic + bytes(version) + size + text + data


def described(descr="'<f4'", order="False", shape="(60, 5)"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


GOOD = SCORES.tobytes()
NPY = {
    "empty": b"",
    "magic only": b"\x93NUMPY",
    "other magic": npy(described(), GOOD, magic=b"\x93NUMPX"),
    "version 9": npy(described(), GOOD, version=(9, 0)),
    "header shortened": npy(described(), GOOD)[:40],
    "numbers shortened": npy(described(), GOOD[:-1]),
    "no numbers": npy(described()),
    "header is code": npy("__import__('os').abort()\n", GOOD),
    "header is a list": npy("[1, 2]\n", GOOD),
    "header is text": npy(b"\xff\xfe\xfd\n", GOOD),
    "a key too many": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (60, 5), 'x': 1}\n", GOOD),
    "negative": npy(described(shape="(-60, -5)"), GOOD),
    "huge": npy(described(shape="(10**18, 10**18)"), GOOD),
    "large": npy(described(shape="(1000000000000000000, 5)"), GOOD),
    "overflowing": npy(described(shape="(4611686018427387904, 4)"), GOOD),
    "one dimension": npy(described(shape="(300,)"), GOOD),
    "three dimensions": npy(described(shape="(10, 6, 5)"), GOOD),
    "no dimension": npy(described(shape="()"), GOOD),
    "no class": npy(described(shape="(60, 0)"), GOOD),
    "no sample": npy(described(shape="(0, 5)"), GOOD),
    "fractional": npy(described(shape="(60.0, 5)"), GOOD),
    "objects": npy(described("'|O'"), pickle.dumps([print] * 300)),
    "text": npy(described("'<U4'"), bytes(4 * 4 * 300)),
    "complex": npy(described("'<c8'"), bytes(8 * 300)),
    "bool": npy(described("'|b1'"), bytes(300)),
    "fields": npy(described("[('a', '<f4')]"), GOOD),
    "void": npy(described("'|V4'"), GOOD),
    "dates": npy(described("'<M8[s]'"), bytes(8 * 300)),
    "an invalid dtype": npy(described("'<q99'"), GOOD),
    "a dtype of code": npy(described("'<f4' if exit() else 0"), GOOD),
    "deep": npy("(" * 5000 + ")" * 5000 + "\n", GOOD),
}  # fmt: skip


@pytest.mark.parametrize("name", NPY)
def test_npy_files__that_lie_are_refused(tmp_path, name):
    path = tmp_path / "a.npy"
    path.write_bytes(NPY[name])
    assert ingested(path)[0] == "refused"


@pytest.mark.sample(12)
@pytest.mark.parametrize("kind", ["fifo", "zero", "null", "folder", "dangling", "huge"])
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet", ".csv", ".arrow", ".zip", ".zarr"])
def test_paths__that_are_no_files_are_refused_at_once(tmp_path, suffix, kind):
    path = tmp_path / f"a{suffix}"
    path.touch()
    replace(path, kind)
    assert ingested(path)[0] == "refused"
    for name in ("evaluate", "threshold", "info", "verify"):
        assert outcome(READERS[name], path)[0] == "refused"


@pytest.mark.parametrize("kind", ["fifo", "zero", "null", "folder", "dangling"])
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet", ".csv"])
def test_labels__that_are_no_files_are_refused_at_once(tmp_path, suffix, kind):
    np.save(tmp_path / "scores.npy", SCORES)
    labels = tmp_path / f"a{suffix}"
    labels.touch()
    replace(labels, kind)
    assert ingested(tmp_path / "scores.npy", labels)[0] == "refused"
    with pytest.raises(avgk.AvgkError):
        avgk.evaluate(SCORES, labels, 1)


def array_bytes(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def zipped(members, method=zipfile.ZIP_DEFLATED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return stream.getvalue()


def npz_cases():
    scores, labels = array_bytes(SCORES), array_bytes(LABELS)
    good = zipped([("scores.npy", scores), ("labels.npy", labels)])
    index = good.index(b"scores.npy") + 60
    bomb = npy(described(shape="(60, 5)"), bytes(200_000_000))
    return {
        "empty": b"", "no archive": b"hello", "shortened": good[:-30], "shortened in front": good[30:],
        "a bit": good[:index] + bytes([good[index] ^ 1]) + good[index + 1 :],
        "nothing inside": zipped([]), "no arrays": zipped([("readme.txt", b"hi")]),
        "objects": zipped([("scores.npy", array_bytes(np.array([[print]], object)))]),
        "labels of objects": zipped([("scores.npy", scores), ("labels.npy", array_bytes(np.array([{}] * 60)))]),
        "labels too few": zipped([("scores.npy", scores), ("labels.npy", array_bytes(LABELS[:50]))]),
        "labels too large": zipped([("scores.npy", scores), ("labels.npy", array_bytes(LABELS + 5))]),
        "labels of text": zipped([("scores.npy", scores), ("labels.npy", array_bytes(np.array(["a"] * 60)))]),
        "a bad header": zipped([("scores.npy", NPY["huge"])]), "header shortened": zipped([("scores.npy", NPY["header shortened"])]),
        "numbers shortened": zipped([("scores.npy", NPY["numbers shortened"])]),
        "two matrices": zipped([("a.npy", scores), ("b.npy", scores)]),
        "Fortran order": zipped([("scores.npy", array_bytes(np.asfortranarray(SCORES)))]),
        "a path upwards": zipped([("../../scores.npy", NPY["objects"])]),
        "a bomb after the numbers": zipped([("scores.npy", NPY["one dimension"]), ("x.npy", bomb)]),
    }  # fmt: skip


NPZ = npz_cases()


@pytest.mark.parametrize("name", NPZ)
def test_npz_files__that_lie_are_refused(tmp_path, name):
    path = tmp_path / "a.npz"
    path.write_bytes(NPZ[name])
    assert ingested(path)[0] == "refused"


TABLES = {
    "empty": b"", "text": b"hello, world\n", "binary": bytes(range(256)) * 10, "parquet magic": b"PAR1" + bytes(40) + b"PAR1",
    "arrow magic": b"ARROW1\0\0" + bytes(40) + b"ARROW1", "huge footer": b"PAR1" + b"\xff" * 20 + b"\xff\xff\xff\x7fPAR1",
    "columns of text": b"a,b\nx,y\n", "header only": b"a,b\n", "ragged": b"a,b\n0.1,0.2\n0.3\n", "nul": b"a,b\n0.1,\0\n",
    "one wide cell": b"a\n" + b"9" * 3_000_000 + b"\n", "quotes": b'a,b\n"0.1,0.2\n0.3,0.4\n',
}  # fmt: skip


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".arrow", ".feather", ".csv.gz"])
@pytest.mark.parametrize("name", TABLES)
def test_tables__that_lie_are_refused(tmp_path, name, suffix):
    pytest.importorskip("pyarrow")
    path = tmp_path / f"a{suffix}"
    path.write_bytes(TABLES[name])
    assert ingested(path)[0] == "refused"


@pytest.fixture(scope="module")
def good_zip(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zip")
    write_ours(folder / "a")
    return shutil.make_archive(str(folder / "a"), "zip", folder / "a")


def rezipped(source, target, change):
    """Rewrite an archive with ``change`` applied to each member; None removes it."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.infolist():
            data = change(member.filename, old.read(member)) if not member.is_dir() else None
            if data is not None:
                new.writestr(member.filename, data)


ARCHIVES = {
    "no root": lambda name, data: None if name == "zarr.json" else data,
    "no array": lambda name, data: None if name.startswith("scores/") else data,
    "no chunk": lambda name, data: None if name == "scores/c/1/0" else data,
    "a bomb for a chunk": lambda name, data: bytes(200_000_000) if name == "scores/c/1/0" else data,
    "a bomb for metadata": lambda name, data: b" " * 70_000_000 if name == "zarr.json" else data,
    "a chunk shortened": lambda name, data: data[:-1] if name == "scores/c/1/0" else data,
    "metadata shortened": lambda name, data: data[:-9] if name == "zarr.json" else data,
    "other chunk": lambda name, data: bytes(len(data)) if name == "scores/c/1/0" else data,
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ARCHIVES)
def test_zipped_stores__that_lie_are_refused(tmp_path, good_zip, name):
    rezipped(good_zip, tmp_path / "a.zip", ARCHIVES[name])
    assert outcome(evaluate, tmp_path / "a.zip")[0] == "refused"
    judge(tmp_path / "a.zip", {}, may_change=True)


@pytest.mark.parametrize("n_lost", [10, 100, 1000])
def test_zipped_stores__that_are_shortened_are_refused(tmp_path, good_zip, n_lost):
    with open(good_zip, "rb") as file:
        data = file.read()
    for name, part in (("end.zip", data[:-n_lost]), ("front.zip", data[n_lost:])):
        path = tmp_path / name
        path.write_bytes(part)
        kind, result = outcome(evaluate, path)
        assert kind == "refused" or result.identical(evaluate(good_zip))  # the lost bytes may be only a comment


def test_a_sound_zip__is_read(good_zip):
    assert evaluate(good_zip).identical(avgk.evaluate(SCORES, LABELS, [0.5, 1], straddle=False).drop_attrs())
