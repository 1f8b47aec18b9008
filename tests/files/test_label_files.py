"""Labels in files of their own."""

from __future__ import annotations

import numpy as np
import pytest

from avgk_dask.errors import LabelsError, ReadError, StoreError
from avgk_dask.files import open_label_file

HARD = np.array([3, 0, -1], "i4")
SOFT = np.array([[0.25, 0.75], [1, 0]], "f4")


@pytest.mark.parametrize("labels", [HARD, HARD.astype(">i8"), SOFT, np.asfortranarray(SOFT), np.zeros(0, int)])
def test_label_file__npy_and_npz(tmp_path, labels):
    np.save(tmp_path / "a.npy", labels)
    np.savez(tmp_path / "a.npz", labels=np.ascontiguousarray(labels), other=np.eye(2))
    np.savez(tmp_path / "b.npz", y=np.ascontiguousarray(labels))
    for name in ("a.npy", "a.npz", "b.npz"):
        result = open_label_file(tmp_path / name)
        np.testing.assert_array_equal(result, labels)
        assert result.dtype == labels.dtype.newbyteorder("=")


def test_label_file__npy_is_mapped(tmp_path):
    np.save(tmp_path / "a.npy", HARD)
    assert isinstance(open_label_file(tmp_path / "a.npy"), np.memmap)


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_label_file__tables(tmp_path, suffix):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    for name, table, expected in (
        ("a", pa.table({"y": HARD}), HARD),
        ("b", pa.table({"id": ["x"] * 3, "label": HARD}), HARD),
        ("c", pa.table({"labels": SOFT.tolist()}), SOFT),
        ("d", pa.table({"y": pa.array([], pa.int64())}), np.zeros(0, int)),
    ):
        path = tmp_path / f"{name}.{suffix}"
        if suffix == "parquet":
            pq.write_table(table, path, row_group_size=1)
        else:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=1)
        np.testing.assert_array_equal(open_label_file(path), expected)


@pytest.mark.parametrize("text", ["3\n0\n-1\n", "y\n3\n0\n-1\n", "file,label,weight\na.jpg,3,x\nb.jpg,0,y\nc,-1,z\n"])
def test_label_file__csv(tmp_path, text):
    pytest.importorskip("pyarrow")
    (tmp_path / "a.csv").write_text(text)
    np.testing.assert_array_equal(open_label_file(tmp_path / "a.csv"), HARD)


@pytest.mark.parametrize("text", ["y\n1.5\n", "y\ncat\n", "y,label\n1,x\n"])
def test_label_file__refuses_csv_without_class_numbers(tmp_path, text):
    pytest.importorskip("pyarrow")
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(LabelsError):
        open_label_file(tmp_path / "a.csv")


def test_label_file__missing_class_numbers_mean_unlabelled(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "a.csv").write_text("y,label\n1,\n1,3\n")
    np.testing.assert_array_equal(open_label_file(tmp_path / "a.csv"), [-1, 3])
    pq.write_table(pa.table({"labels": pa.array([None, 3, 0], "uint16")}), tmp_path / "a.parquet", row_group_size=1)
    np.testing.assert_array_equal(open_label_file(tmp_path / "a.parquet"), [-1, 3, 0])


@pytest.mark.parametrize(
    "labels", [np.zeros(3), np.zeros((2, 2, 2), bool), np.array(["a"]), np.array([{}]), np.array(1)]
)
def test_label_file__refuses_other_values(tmp_path, labels):
    np.save(tmp_path / "a.npy", labels, allow_pickle=True)
    np.savez(tmp_path / "a.npz", labels=labels)
    for name in ("a.npy", "a.npz"):
        with pytest.raises(LabelsError, match="labels must be integers"):
            open_label_file(tmp_path / name)


def test_label_file__refuses_several_columns_without_the_name(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    np.savez(tmp_path / "a.npz", x=HARD, y=HARD)
    pq.write_table(pa.table({"x": HARD, "y": HARD}), tmp_path / "a.parquet")
    for name in ("a.npz", "a.parquet"):
        with pytest.raises(StoreError, match=r"it has x, y. Store the labels alone"):
            open_label_file(tmp_path / name)


def test_label_file__refuses_columns_of_other_types(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"labels": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(LabelsError, match="holds string"):
        open_label_file(tmp_path / "a.parquet")


def test_label_file__refuses_missing_and_truncated_files(tmp_path):
    with pytest.raises(StoreError, match="no such file"):
        open_label_file(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", HARD)
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-1])
    with pytest.raises(ReadError, match="truncated"):
        open_label_file(tmp_path / "a.npy")
