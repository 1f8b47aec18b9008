"""Parquet, Arrow and CSV files: column rules, round trips and errors."""

from __future__ import annotations

import decimal
import gzip
import json
import sys

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")

from avgk_dask.errors import DtypeError, LabelsError, ReadError, ScoresError, StoreError  # noqa: E402
from avgk_dask.files import is_row_file, open_file  # noqa: E402
from avgk_dask.files.matrices import as_table  # noqa: E402

DTYPES = st.sampled_from(["f2", "f4", "f8", "i1", "u2", "i4", "i8", "u8"])


@st.composite
def matrices(draw):
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=9))
    return draw(hnp.arrays(draw(DTYPES), shape))


def read(file, max_bytes=1 << 20):
    blocks, labels = [], []
    for block, part in file.blocks(max_bytes):
        assert block.dtype == file.dtype
        assert block.flags.c_contiguous
        assert block.flags.owndata
        assert block.nbytes <= max_bytes or len(block) == 1
        assert (part is not None) == file.has_labels
        blocks.append(block)
        labels.append(part)
    scores = np.concatenate(blocks) if blocks else np.empty((0, file.n_classes), file.dtype)
    return scores, np.concatenate(labels) if file.has_labels and labels else None


def lists(matrix, kind="list"):
    """Give a matrix as an Arrow column of lists."""
    values, width = pa.array(matrix.reshape(-1)), matrix.shape[1]
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(values, width)
    offsets = np.arange(len(matrix) + 1) * width
    if kind == "large":
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def write(table, path, rows=None):
    """Write a table in the format of the path, in row groups or record batches of some rows."""
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=rows or 1000)
    elif path.suffix == ".feather":
        feather.write_feather(table, path, chunksize=rows or 1000)
    else:
        opened = pa.ipc.new_file if path.stem == "file" else pa.ipc.new_stream
        with pa.OSFile(str(path), "wb") as sink, opened(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows or 1000)
    return path


FORMATS = ["a.parquet", "a.feather", "file.arrow", "stream.arrow"]
LAYOUTS = st.sampled_from(["list", "large", "fixed", "wide"])


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_tables__round_trip(tmp_path_factory, name, data):
    scores = data.draw(matrices())
    layout, soft = data.draw(LAYOUTS), data.draw(st.booleans())
    labels = np.arange(len(scores), dtype="i2")[:, None] + np.zeros(scores.shape, "f4")
    hard = labels[:, 0].astype("i2")
    columns = {"id": pa.array(["x"] * len(scores)), "label": lists(labels) if soft else pa.array(hard)}
    if layout == "wide":
        columns |= {f"c{index}": pa.array(scores[:, index].copy()) for index in range(scores.shape[1])}
    else:
        columns["logits"] = lists(scores, layout)
        columns["hidden"] = lists(np.zeros((len(scores), 2)))
    path = tmp_path_factory.mktemp("table") / name
    write(pa.table(columns), path, data.draw(st.integers(1, 12)))
    file = open_file(path)
    assert (file.n_samples, file.n_classes, file.dtype) == (*scores.shape, scores.dtype)
    assert file.class_names == ([f"c{i}" for i in range(scores.shape[1])] if layout == "wide" else None)
    actual, actual_labels = read(file, data.draw(st.integers(1, 500)))
    np.testing.assert_array_equal(actual, scores)
    np.testing.assert_array_equal(actual_labels, labels if soft else hard)


@pytest.mark.parametrize("name", FORMATS)
def test_tables__label_rules(tmp_path, name):
    path = write(pa.table({"s": lists(np.eye(2)), "y": [1, 0], "label": ["a", "b"]}), tmp_path / name)
    assert not open_file(path).has_labels  # of two names that fit, neither
    assert open_file(path).ignored == ("y", "label")
    np.testing.assert_array_equal(read(open_file(path, labels="y"))[1], [1, 0])
    with pytest.raises(LabelsError, match=r"column 'label' of .* holds string"):
        open_file(path, labels="label")
    with pytest.raises(StoreError, match=r"no column 'labls'; it has s, y, label.*Did you mean 'label'"):
        open_file(path, labels="labls")


def test_tables__refuse_labels_of_floats(tmp_path):
    path = write(pa.table({"a": [0.5], "label": [1.0]}), tmp_path / "a.parquet")
    with pytest.raises(LabelsError, match=r"column 'label' of .* holds double"):
        open_file(path)


def test_tables__score_rules(tmp_path):
    table = pa.table({"a": lists(np.eye(2)), "b": lists(np.ones((2, 3))), "c": [1.0, 2.0]})
    path = write(table, tmp_path / "a.parquet")
    assert open_file(path, scores="b").n_classes == 3
    with pytest.raises(StoreError, match="several columns of lists: a, b"):
        open_file(path)
    with pytest.raises(ScoresError, match=r"column 'c' of .* holds double"):
        open_file(path, scores="c")
    with pytest.raises(StoreError, match="no column 'zzz'"):
        open_file(path, scores="zzz")
    with pytest.raises(StoreError, match="different names"):
        open_file(path, scores="a", labels="a")


def test_tables__mixed_columns_get_the_common_dtype(tmp_path):
    table = pa.table({"a": pa.array([1, 2], pa.float64()), "b": pa.array([0.5, 1], pa.float32()), "label": [0, 1]})
    file = open_file(write(table, tmp_path / "a.parquet"))
    assert file.dtype == np.float64
    np.testing.assert_array_equal(read(file)[0], [[1, 0.5], [2, 1]])


def test_tables__leave_out_the_index_of_pandas(tmp_path):
    table = pa.table({"a": [1.0], "__index_level_0__": [7]})
    assert open_file(write(table, tmp_path / "a.parquet")).class_names == ["a"]


def test_tables__refuse_columns_without_numbers(tmp_path):
    path = write(pa.table({"a": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(ScoresError, match=r"has only a\."):
        open_file(path)
    path = write(pa.table({"a": [1.0], "b": [decimal.Decimal("1.5")]}), tmp_path / "b.parquet")
    with pytest.raises(DtypeError, match=r"column 'b' of .* holds decimal"):
        open_file(path)


def test_tables__refuse_equal_names(tmp_path):
    table = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
    with pytest.raises(StoreError, match="repeats a"):
        open_file(write(table, tmp_path / "file.arrow"))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "rows, match",
    [
        ([[1.0, 2], [3, 4], [5]], "row 2 .*has 1"),
        ([[1.0, 2], [3, 4], None], "row 2 .*null"),
        ([[1.0, 2], [3, 4], [None, 5], [None, None]], "row 2 .*null"),
    ],
)
def test_tables__refuse_ragged_and_missing_lists(tmp_path, name, rows, match):
    file = open_file(write(pa.table({"scores": rows}), tmp_path / name, 3))
    for max_bytes in (16, 1000):
        with pytest.raises(ScoresError, match=match):
            read(file, max_bytes)


def test_tables__name_the_first_row_with_a_null(tmp_path):
    file = open_file(write(pa.table({"a": [1.0, 2, None, 3], "b": [1.0, None, 2, 3]}), tmp_path / "a.parquet"))
    with pytest.raises(ScoresError, match=r"row 1 .from 0. of column 'b'"):
        read(file)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", ["int64", "uint8", "int32"])
def test_tables__missing_class_numbers_mean_unlabelled(tmp_path, name, kind):
    labels = pa.array([1, None, 0, None], kind)
    path = write(pa.table({"scores": lists(np.eye(4)), "label": labels}), tmp_path / name, 3)
    np.testing.assert_array_equal(read(open_file(path))[1], [1, -1, 0, -1])
    path = write(pa.table({"scores": lists(np.eye(4)), "label": pa.nulls(4)}), tmp_path / f"2{name}", 3)
    np.testing.assert_array_equal(read(open_file(path))[1], [-1, -1, -1, -1])


def test_csv__missing_class_numbers_mean_unlabelled(tmp_path):
    (tmp_path / "a.csv").write_text("label,a,b\n1,2,3\n,3,4\n-5,4,5\n")
    np.testing.assert_array_equal(read(open_file(tmp_path / "a.csv"))[1], [1, -1, -5])


def test_tables__refuse_missing_probabilities_and_ragged_labels(tmp_path):
    scores = lists(np.eye(2))
    for labels in ([[0.5, 0.5], [0.5, None]], [[0.5, 0.5], None]):
        with pytest.raises(LabelsError, match=r"row 1 .*null"):
            read(open_file(write(pa.table({"scores": scores, "label": labels}), tmp_path / "a.parquet")))
    labels = [[0.5, 0.5], [0.1, 0.2, 0.7]]
    with pytest.raises(LabelsError, match=r"row 1 .*has 3"):
        read(open_file(write(pa.table({"scores": scores, "labels": labels}), tmp_path / "b.parquet")))


def test_tables__refuse_lists_of_unknown_or_no_length(tmp_path):
    for name, rows in (("a.parquet", []), ("b.parquet", [[]])):
        path = write(pa.table({"scores": pa.array(rows, pa.list_(pa.float32()))}), tmp_path / name)
        with pytest.raises(ScoresError, match="at least one"):
            open_file(path)
    empty = pa.table({"scores": pa.array([], pa.list_(pa.float32(), 3))})
    file = open_file(write(empty, tmp_path / "c.parquet"))
    assert (file.n_samples, file.n_classes) == (0, 3)
    assert list(file.blocks(10)) == []


@pytest.mark.parametrize("name", FORMATS)
def test_tables__refuse_truncated_files(tmp_path, name):
    path = write(pa.table({"scores": lists(np.random.default_rng(0).normal(size=(100, 7)))}), tmp_path / name, 30)
    content = path.read_bytes()
    for keep in (0, 3, 11, len(content) // 2, len(content) - 20):
        path.write_bytes(content[:keep])
        with pytest.raises(StoreError, match=name):
            assert len(read(open_file(path))[0]) == 100


@pytest.mark.parametrize("name", FORMATS)
def test_tables__damaged_files_give_errors_of_the_package(tmp_path, name):
    path = write(pa.table({"scores": lists(np.ones((20, 3))), "label": [1] * 20}), tmp_path / name, 7)
    content = path.read_bytes()
    random = np.random.default_rng(1)
    for _ in range(150):
        damaged = bytearray(content)
        damaged[random.integers(len(content))] = random.integers(256)
        path.write_bytes(damaged)
        try:
            for _ in open_file(path).blocks(1000):
                pass
        except (StoreError, ScoresError, LabelsError, DtypeError):
            pass


def test_feather__version_1_is_refused(tmp_path):
    (tmp_path / "a.feather").write_bytes(b"FEA1" + bytes(20))
    with pytest.raises(ReadError, match="Feather version 1"):
        open_file(tmp_path / "a.feather")


def test_missing_pyarrow__is_reported_with_the_command_to_install_it(tmp_path, monkeypatch):
    path = write(pa.table({"a": [1.0]}), tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(StoreError, match=r"avgk_dask\[arrow\]"):
        open_file(path)


# -- folders


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_folders__files_follow_each_other_in_sorted_order(tmp_path, suffix):
    for name, value in (("b", 2.0), ("a", 1.0)):
        write(pa.table({"x": [value, value], "label": [int(value)] * 2}), tmp_path / f"{name}{suffix}")
    (tmp_path / "_SUCCESS").touch()
    assert is_row_file(tmp_path)
    file = open_file(tmp_path)
    assert file.n_samples == 4
    assert file.location == str(tmp_path)
    scores, labels = read(file)
    assert scores.ravel().tolist() == labels.tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_folders__refuse_parts_that_differ(tmp_path, suffix):
    write(pa.table({"x": [1.0]}), tmp_path / f"a{suffix}")
    write(pa.table({"y": [1.0]}), tmp_path / f"b{suffix}")
    with pytest.raises(StoreError, match="differs from the first in x, y"):
        open_file(tmp_path)


def test_hub_folder__reads_the_files_its_state_lists_in_their_order(tmp_path):
    for name, value in (("data-0.arrow", 2.0), ("data-1.arrow", 1.0), ("cache.arrow", 9.0)):
        write(pa.table({"logits": lists(np.full((2, 3), value)), "label": [0, 1]}), tmp_path / name)
    state = {"_data_files": [{"filename": "data-0.arrow"}, {"filename": "data-1.arrow"}]}
    (tmp_path / "state.json").write_text(json.dumps(state))
    scores, labels = read(open_file(tmp_path), 24)
    assert scores[:, 0].tolist() == [2, 2, 1, 1]
    assert labels.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    "name, content, match",
    [
        ("dataset_dict.json", '{"splits": ["train", "test"]}', "several splits: .*/train, .*/test"),
        ("dataset_dict.json", "[]", "not a JSON object"),
        ("state.json", "{", r"state\.json could not be read"),
        ("state.json", "{}", r"state\.json could not be read"),
        ("state.json", '{"_data_files": []}', "lists none"),
        ("state.json", '{"_data_files": [{"filename": "a.arrow"}]}', r"a\.arrow could not be read"),
        ("state.json", '{"_data_files": [], "_indices_files": [1]}', "flatten_indices"),
    ],
)
def test_hub_folder__refuses_splits_indices_and_damage(tmp_path, name, content, match):
    (tmp_path / name).write_text(content)
    assert is_row_file(tmp_path)
    with pytest.raises(StoreError, match=match):
        open_file(tmp_path)


# -- CSV


@given(data=st.data())
def test_csv__round_trip(tmp_path_factory, data):
    scores = data.draw(hnp.arrays("f8", hnp.array_shapes(min_dims=2, max_dims=2, max_side=9)))
    header, zipped = data.draw(st.booleans()), data.draw(st.booleans())
    lines = [",".join([*map(repr, map(float, row)), str(index)]) for index, row in enumerate(scores)]
    names = [*(f"c{index}" for index in range(scores.shape[1])), "label"]
    text = "\n".join([",".join(names), *lines] if header else lines) + data.draw(st.sampled_from(["", "\n"]))
    path = tmp_path_factory.mktemp("csv") / ("a.csv.gz" if zipped else "a.csv")
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    file = open_file(path, labels=None if header else f"f{scores.shape[1]}")
    assert (file.n_samples, file.n_classes, file.dtype) == (None, scores.shape[1], np.float64)
    assert file.class_names == (names[:-1] if header else [f"f{index}" for index in range(scores.shape[1])])
    actual, labels = read(file, data.draw(st.integers(1, 500)))
    np.testing.assert_array_equal(actual, scores)
    np.testing.assert_array_equal(labels, np.arange(len(scores)))


def test_csv__streams_several_blocks_of_text(tmp_path):
    scores = np.random.default_rng(0).normal(size=(9000, 20))
    np.savetxt(tmp_path / "a.csv", scores, delimiter=",", fmt="%.17g")
    blocks = [block for block, _ in open_file(tmp_path / "a.csv").blocks(1 << 16)]
    assert len(blocks) > 20
    np.testing.assert_array_equal(np.concatenate(blocks), scores)


@pytest.mark.parametrize("value", ["9007199254740993", " -9007199254740993", "18446744073709551615", "9" * 400])
def test_csv__refuses_integers_that_float64_does_not_hold(tmp_path, value):
    rows = [f"{i},{2**60 + i * 2**10},{10**20}" for i in range(5000)]
    rows[4321] = f"1,{value},3"
    (tmp_path / "a.csv").write_text("\n".join(["a,b,c", *rows, "1,2,3"]))
    for max_bytes in (1 << 12, 1 << 24):
        with pytest.raises(ScoresError, match=rf"line 4323, column 'b' of .*a.csv has {value.strip()[:40]}\."):
            read(open_file(tmp_path / "a.csv"), max_bytes)


def test_csv__reads_large_numbers_that_are_no_integers_or_lose_nothing(tmp_path):
    texts = [
        ["9007199254740992", "9007199254740993.0"],
        ["100000000000000000000", "1e300"],
        ["-9007199254740994", "-2e17"],
    ]
    (tmp_path / "a.csv").write_text("\n".join(map(",".join, texts)))
    np.testing.assert_array_equal(read(open_file(tmp_path / "a.csv"))[0], np.array(texts, float))


def test_csv__keeps_the_digits_of_labels(tmp_path):
    (tmp_path / "a.csv").write_text(f"label,a,b\n{2**53 + 1},0.5,0.25\n{-(2**63)},0.5,0.25\n")
    assert read(open_file(tmp_path / "a.csv"))[1].tolist() == [2**53 + 1, -(2**63)]
    (tmp_path / "a.csv").write_text(f"label,a,b\n1,0.5,0.25\n{2**63},0.5,0.25\n")
    with pytest.raises(LabelsError, match=f"line 3, column 'label' of .* has an invalid value '{2**63}'"):
        read(open_file(tmp_path / "a.csv"))


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_tables__whose_integers_become_floats_must_not_lose_digits(tmp_path, name):
    signed, unsigned = np.array([-1, 2**60, 3]), np.array([2**63, 2, 2**53], "u8")
    write(pa.table({"a": signed, "b": unsigned}), tmp_path / name)
    expected = np.stack([signed.astype(float), unsigned.astype(float)], axis=1)
    np.testing.assert_array_equal(read(open_file(tmp_path / name))[0], expected)
    unsigned[1] = 2**53 + 1
    write(pa.table({"a": signed, "b": unsigned}), tmp_path / name)
    with pytest.raises(
        ScoresError, match=r"cannot represent 9007199254740993 at row 1 \(from 0\) of column 'b' of .* Cast all columns"
    ):
        read(open_file(tmp_path / name))


def test_decimal_labels__are_refused_as_labels(tmp_path):
    whole = pa.array([decimal.Decimal(1), decimal.Decimal(0)], pa.decimal128(20, 0))
    write(pa.table({"a": [0.5, 1.0], "b": [0.25, 0.5], "label": whole}), tmp_path / "a.parquet")
    with pytest.raises(LabelsError, match=r"column 'label' of .* holds decimal128\(20, 0\). Convert it to integers"):
        open_file(tmp_path / "a.parquet")


def test_csv__header_alone_gives_no_rows(tmp_path):
    (tmp_path / "a.csv").write_text("\ufeffa,b\n", encoding="utf-8")
    file = open_file(tmp_path / "a.csv")
    assert (file.class_names, file.n_samples) == (["a", "b"], 0)
    assert list(file.blocks(100)) == []


@pytest.mark.parametrize(
    "text, error, match",
    [
        ("a,id\n1,cat.jpg\n", ScoresError, "column 'id' of .* has 'cat.jpg'. Drop the column"),
        ("a,b\n1,2\n1,dog\n", ScoresError, "line 3, column 'b' of .* invalid value 'dog'"),
        ("a,b\n1,2\n1,\n", ScoresError, "row 1 .*column 'b' .*null"),
        ("label,b\n1,2\n1,dog\n", ScoresError, "line 3, column 'b' of .* invalid value 'dog'"),
        ("label,b\n1,2\nx,3\n", LabelsError, "line 3, column 'label' .*'x'"),
        ("label,b\n1,2\n2.5,3\n", LabelsError, "line 3, column 'label' .*'2.5'"),
        ("a,b\n1,2\n1\n", ReadError, "Expected 2 columns, got 1"),
        ("\n1,2\n", ReadError, "first line is empty"),
        ("", ReadError, "first line is empty"),
        (",a,b\n0,1,2\n", ScoresError, "column 1 of .*index=False"),
        ("0,1,2\n0.5,0.1,0.4\n", ScoresError, "0, 1, 2, ... may be names or scores"),
        ("label\n1\n", ScoresError, "has only|has none"),
        ("a,a\n1,2\n", StoreError, "repeats a"),
    ],
)
def test_csv__refusals(tmp_path, text, error, match):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(error, match=match):
        read(open_file(tmp_path / "a.csv"))


def test_csv__refuses_damaged_archives_and_bytes(tmp_path):
    whole = gzip.compress(b"a,b\n" + b"1,2\n" * 50_000)
    for content in (whole[:20], whole[: len(whole) // 2], b"a,b\n1,2\n"):
        (tmp_path / "a.csv.gz").write_bytes(content)
        with pytest.raises(ReadError, match=r"a\.csv\.gz could not be read"):
            read(open_file(tmp_path / "a.csv.gz"))
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00,b\n1,2\n")
    with pytest.raises(ReadError, match=r"a\.csv could not be read"):
        open_file(tmp_path / "a.csv")


def test_csv__refuses_a_scores_column_and_unknown_names(tmp_path):
    (tmp_path / "a.csv").write_text("cat,dog\n1,2\n")
    with pytest.raises(ScoresError, match="Drop the name if each column is a class"):
        open_file(tmp_path / "a.csv", scores="cat")
    with pytest.raises(StoreError, match=r"no column 'dogs'.*Did you mean 'dog'"):
        open_file(tmp_path / "a.csv", labels="dogs")


def test_columns__of_integers_among_scores_are_refused(tmp_path):
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"a": [0.5, 0.2], "b": [0.5, 0.8], "group": [0, 1]})
    pyarrow.parquet.write_table(table, tmp_path / "s.parquet")
    with pytest.raises(ScoresError, match=r"group.*Name the labels"):
        open_file(tmp_path / "s.parquet")
    assert open_file(tmp_path / "s.parquet", labels="group").n_classes == 2


def test_as_table__refuses_an_unknown_suffix():
    with pytest.raises(StoreError, match=r"format of the file 'scores\.orc' is not supported\. Convert it"):
        as_table("scores.orc", None)
