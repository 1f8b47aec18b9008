"""ingest: files and stores of all kinds are copied to one store; failed runs lose, overwrite and leave nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
import zipfile

import numpy as np
import pytest
import xarray as xr
import zarr

import avgk_dask as avgk
from avgk_dask.api import ingestion

SCORES = np.random.default_rng(1).random((203, 7)).astype(np.float32)
LABELS = np.random.default_rng(2).integers(0, 7, 203)


def tree(path):
    """Give all files below a path with their contents."""
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def make(folder, kind):
    """Write the scores (and labels) in a format; give the arguments for ingest."""
    if kind == "npy":
        np.save(folder / "s.npy", SCORES)
        np.save(folder / "l.npy", LABELS)
        return (folder / "s.npy", folder / "l.npy")
    if kind == "fortran":
        np.save(folder / "s.npy", np.asfortranarray(SCORES))
        return (folder / "s.npy", LABELS)
    if kind == "npz":
        np.savez_compressed(folder / "s.npz", scores=SCORES, labels=LABELS)
        return (folder / "s.npz",)
    if kind in ("zarr", "sharded"):
        more = {"shards": (40, 9)} if kind == "sharded" else {}
        group = zarr.open_group(folder / "s.zarr", mode="w", zarr_format=3 if more else 2)
        group.create_array("scores", data=SCORES, chunks=(20, 3), **more)
        group.create_array("labels", data=LABELS, chunks=(50,))
        return (folder / "s.zarr",)
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = arrow.table({"scores": arrow.FixedSizeListArray.from_arrays(SCORES.ravel(), 7), "label": LABELS})
    wide = arrow.table({**{f"class {i}": SCORES[:, i] for i in range(7)}, "labels": LABELS})
    if kind in ("parquet", "wide"):
        import pyarrow.parquet

        pyarrow.parquet.write_table(table if kind == "parquet" else wide, folder / "s.parquet", row_group_size=60)
        return (folder / "s.parquet",)
    if kind == "csv":
        import pyarrow.csv

        pyarrow.csv.write_csv(wide, folder / "s.csv")
        return (folder / "s.csv",)
    (folder / "s").mkdir()
    name = str(folder / "s" / "data-00000-of-00001.arrow")
    with arrow.OSFile(name, "wb") as sink, arrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=70)
    (folder / "s" / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    (folder / "s" / "dataset_info.json").write_text("{}")
    return (folder / "s",)


KINDS = ["npy", "fortran", "npz", "zarr", "sharded", "parquet", "wide", "csv", "hub"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", KINDS)
def test_ingest__gives_the_same_results_from_every_format(tmp_path, kind):
    out = tmp_path / "out.zarr"
    done = avgk.ingest(*make(tmp_path, kind), out=out, chunk_rows=32)
    assert (done.ok, done.n_samples, done.n_classes) == (True, 203, 7)
    assert done.rounding is None
    expected = avgk.evaluate(SCORES, LABELS, [1, 2.5]).drop_attrs()
    result = avgk.evaluate(out, k=[1, 2.5]).drop_attrs()
    if kind == "csv":  # numbers in text are read as float64
        assert np.array_equal(result.average_k_error, expected.average_k_error)
    else:
        assert result.identical(expected)
    assert zarr.open_array(out / "scores", mode="r").chunks == (32, 7)
    names = [f"class {i}" for i in range(7)] if kind in ("wide", "csv") else None
    assert done.class_names == names
    assert zarr.open_group(out, mode="r").attrs.get("class_names") == names


def test_ingest__rechunks_recodes_and_rounds_on_request(tmp_path):
    avgk.ingest(*make(tmp_path, "npy"), out=tmp_path / "a.zarr")
    done = avgk.ingest(
        tmp_path / "a.zarr", out=tmp_path / "b.zarr", dtype="float16", codec="zstd", chunk_rows=16, shard_chunks=3
    )
    assert done.rounding == "float32 rounded to float16, to nearest, ties to even"
    array = zarr.open_array(tmp_path / "b.zarr" / "scores", mode="r")
    assert (array.chunks, array.shards, array.dtype) == ((16, 7), (48, 7), np.float16)
    assert np.array_equal(array[:], SCORES.astype(np.float16))
    avgk.ingest(tmp_path / "a.zarr", out=tmp_path / "m.zarr", top_m=2)
    assert xr.open_zarr(tmp_path / "m.zarr").sizes["slot"] == 2


def test_ingest__keeps_soft_labels(tmp_path):
    eta = np.full((203, 7), 1 / 7)
    np.save(tmp_path / "eta.npy", eta)
    avgk.ingest(*make(tmp_path, "npy")[:1], tmp_path / "eta.npy", out=tmp_path / "o.zarr")
    assert np.array_equal(avgk.open_scores(tmp_path / "o.zarr").labels.values, eta)


@pytest.mark.slow
def test_ingest__reads_a_stream(tmp_path):
    make(tmp_path, "npy")
    with open(tmp_path / "s.npy", "rb") as stream:
        avgk.ingest(stream, LABELS, out=tmp_path / "a.zarr")
        with open(tmp_path / "s.npy", "rb") as again:
            run = subprocess.run(
                [sys.executable, "-m", "avgk_dask", "ingest", "-", "--out", str(tmp_path / "b.zarr")],
                stdin=again,
                capture_output=True,
                text=True,
            )
    assert run.returncode == 0, run.stderr
    for name in ("a.zarr", "b.zarr"):
        assert np.array_equal(avgk.open_scores(tmp_path / name).scores.values, SCORES)


def test_ingest__overwrites_only_on_request_and_never_its_source(tmp_path):
    given = make(tmp_path, "npy")
    avgk.ingest(*given, out=tmp_path / "a.zarr")
    with pytest.raises(avgk.StoreError, match="exists already"):
        avgk.ingest(*given, out=tmp_path / "a.zarr")
    avgk.ingest(*given, out=tmp_path / "a.zarr", overwrite=True)
    for out in (tmp_path / "a.zarr", tmp_path / "a.zarr" / "scores", tmp_path):
        with pytest.raises(avgk.OptionError, match="out must not overlap"):
            avgk.ingest(tmp_path / "a.zarr", out=out, overwrite=True)
    assert avgk.verify(tmp_path / "a.zarr").ok


@pytest.mark.parametrize(
    "scores, labels, error, match",
    [
        ("s.npy", LABELS[:-1], avgk.LabelsError, "203 samples; got 202"),
        ("s.npy", "missing.npy", avgk.StoreError, "no such file"),
        ("s.npy", np.full(203, 9), avgk.LabelsError, r"0\.\.6"),
        ("nothing.npy", None, avgk.StoreError, "no such file"),
        ("flat.npy", None, avgk.ScoresError, "matrix"),
        ("object.npy", None, (avgk.DtypeError, avgk.StoreError), "object|pickle"),
        ("short.csv", None, avgk.AvgkError, "short.csv"),
        ("short.csv", LABELS, avgk.AvgkError, "short.csv|labels"),
    ],
)
def test_ingest__refuses_bad_input_and_leaves_nothing(tmp_path, scores, labels, error, match):
    make(tmp_path, "npy")
    np.save(tmp_path / "flat.npy", SCORES[0])
    np.save(tmp_path / "object.npy", np.array([[object()]]), allow_pickle=True)
    (tmp_path / "short.csv").write_text("0.1,0.2\n" * 5 + "0.3\n")
    labels = tmp_path / labels if isinstance(labels, str) else labels
    with pytest.raises(error, match=match):
        avgk.ingest(tmp_path / scores, labels, out=tmp_path / "o.zarr")
    assert not (tmp_path / "o.zarr").exists()


def test_ingest__stops_at_missing_chunks_of_another_store(tmp_path):
    array = zarr.create_array(tmp_path / "a.zarr", shape=(50, 4), chunks=(10, 4), dtype="f4")
    array[:30] = 1
    with pytest.raises(avgk.ReadError, match=r"2 of the 5 chunks .* missing"):
        avgk.ingest(tmp_path / "a.zarr", out=tmp_path / "o.zarr")
    avgk.ingest(tmp_path / "a.zarr", out=tmp_path / "o.zarr", missing="fill")
    assert np.array_equal(avgk.open_scores(tmp_path / "o.zarr").scores.values, array[:])


PEAK = textwrap.dedent(r"""
    import re, sys
    import numpy as np
    import avgk_dask as avgk

    path, out, samples, classes = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    np.lib.format.open_memmap(path, "w+", np.float32, (samples, classes))  # sparse: zeros that take no room
    done = avgk.ingest(path, out=out)
    assert done.ok and done.n_samples == samples
    print(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1])
""")


def ingest_sparse(tmp_path, samples, classes):
    """Give the peak memory, in bytes, of a process that ingests a sparse .npy file."""
    run = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path / "s.npy"), str(tmp_path / "o.zarr"), str(samples), str(classes)],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return 1024 * int(run.stdout)


@pytest.mark.slow
def test_ingest__needs_little_memory(tmp_path):
    assert ingest_sparse(tmp_path, 400_000, 1000) < 500e6  # 1.6 GB


@pytest.mark.slow
def test_ingest__takes_20_gigabytes_within_500_megabytes_of_memory(tmp_path):
    peak = ingest_sparse(tmp_path, 5_000_000, 1000)
    print(f"peak {peak / 1e6:.0f} MB")
    assert peak < 500e6


@pytest.mark.parametrize("name", ["s.parquet", "s.csv"])
def test_ingest__stores_missing_labels_as_unlabelled(tmp_path, name):
    pa = pytest.importorskip("pyarrow")
    labels = pa.array([None if label == 2 else int(label) for label in LABELS])
    columns = {f"c{i}": SCORES[:, i].astype("f8") for i in range(SCORES.shape[1])}
    table = pa.table({**columns, "labels": labels})
    if name == "s.csv":
        pytest.importorskip("pyarrow.csv").write_csv(table, tmp_path / name)
    else:
        pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / name)
    avgk.ingest(tmp_path / name, out=tmp_path / "a.zarr")
    dataset = avgk.open_scores(tmp_path / "a.zarr").labels.values
    assert dataset.tolist() == np.where(LABELS == 2, -1, LABELS).tolist()


def test_ingest__refuses_labels_that_are_no_column(tmp_path):
    np.save(tmp_path / "s.npy", SCORES)
    for labels in (5, np.zeros((203, 2, 2))):
        with pytest.raises(avgk.LabelsError, match="labels must be class numbers"):
            avgk.ingest(tmp_path / "s.npy", labels, out=tmp_path / "a.zarr")


@pytest.mark.parametrize("name", ["x.pkl", "X.PICKLE", "x.pt", "x.ckpt", "x.joblib"])
def test_ingest__never_loads_pickles_and_says_so(tmp_path, name):
    (tmp_path / name).write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    if name == "x.pt":  # as torch writes them: a zip archive
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("archive/data.pkl", b"")
    np.save(tmp_path / "s.npy", SCORES)
    for use in (lambda p: avgk.ingest(p, out=tmp_path / "o.zarr"), avgk.evaluate, avgk.info, avgk.open_scores,
                lambda p: avgk.ingest(tmp_path / "s.npy", p, out=tmp_path / "o.zarr")):  # fmt: skip
        with pytest.raises(avgk.StoreError, match="Pickles are never loaded") as refused:
            use(tmp_path / name)
        assert "avgk ingest" not in str(refused.value)
    assert not (tmp_path / "o.zarr").exists()


@pytest.mark.parametrize("name", ["x.h5", "x.txt", "x.json", "x", "x.mat", "x.zarr", "x.npy.bak"])
def test_ingest__of_an_unknown_format_says_which_are_read(tmp_path, name):
    (tmp_path / name).write_bytes(b"{}")
    for use in (lambda p: avgk.ingest(p, out=tmp_path / "o.zarr"), avgk.evaluate):
        with pytest.raises(
            avgk.StoreError, match=r"the file .* numpy\.save\. Supported formats: \.npy, .* Zarr stores"
        ) as no:
            use(tmp_path / name)
        assert "avgk ingest" not in str(no.value)


@pytest.mark.parametrize("name", ["s.npy", "s.npz", "s.csv", "blank.csv", "s.parquet", "lists.parquet", "s.zarr"])
@pytest.mark.parametrize("labels", [None, "l.npy"])
def test_ingest__of_no_rows_blames_the_file(tmp_path, name, labels):
    np.save(tmp_path / "l.npy", np.zeros(0, np.int64))
    np.save(tmp_path / "s.npy", SCORES[:0])
    np.savez(tmp_path / "s.npz", scores=SCORES[:0], labels=LABELS[:0])
    (tmp_path / "s.csv").write_text("a,b,labels\n")
    (tmp_path / "blank.csv").write_text("a,b\n\n\n")
    zarr.open_group(tmp_path / "s.zarr", mode="w").create_array("scores", data=SCORES[:0])
    if name.endswith(("parquet", "csv")):
        arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        import pyarrow.parquet

        none = arrow.array([], arrow.float32())
        pyarrow.parquet.write_table(arrow.table({"a": none, "b": none}), tmp_path / "s.parquet")
        lists = arrow.array([], arrow.list_(arrow.float32()))
        pyarrow.parquet.write_table(arrow.table({"scores": lists}), tmp_path / "lists.parquet")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(avgk.ScoresError, match=rf"at least one sample.*{name} has none\. Check how it was saved"):
        avgk.ingest(tmp_path / name, labels and tmp_path / labels, out=tmp_path / "o.zarr")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "members, has_labels, ignored",
    [
        ({"probs": SCORES, "y": LABELS}, True, ()),
        ({"logits": SCORES, "target": LABELS.astype("u1"), "ids": LABELS}, True, ("ids",)),
        ({"predictions": SCORES, "label": LABELS, "embedding": SCORES[:, :3]}, True, ("embedding",)),
        ({"scores": SCORES, "labels": LABELS, "y": LABELS}, True, ("y",)),
        ({"probs": SCORES, "y": LABELS, "target": LABELS}, False, ("y", "target")),  # which of them?
        ({"probs": SCORES, "y": LABELS[:5]}, False, ("y",)),
        ({"probs": SCORES, "y": LABELS.astype(float)}, False, ("y",)),
        ({"probs": SCORES, "y": np.eye(7)[LABELS]}, False, ("y",)),
        ({"anything": SCORES, "else": LABELS}, False, ("else",)),
    ],
)
def test_ingest__recognises_usual_names_in_an_npz_and_lists_the_others(tmp_path, members, has_labels, ignored):
    np.savez(tmp_path / "s.npz", **members)
    ingestion = avgk.ingest(tmp_path / "s.npz", out=tmp_path / "o.zarr")
    assert (ingestion.has_labels, ingestion.ignored, ingestion.n_classes) == (has_labels, ignored, 7)
    opened = avgk.open_scores(tmp_path / "o.zarr")
    assert np.array_equal(opened.scores, SCORES)
    assert not has_labels or np.array_equal(opened.labels, LABELS)


def test_ingest__of_several_usual_names_asks_for_one(tmp_path):
    np.savez(tmp_path / "s.npz", probs=SCORES, logits=SCORES)
    with pytest.raises(avgk.StoreError, match="Name the member with the scores"):
        avgk.ingest(tmp_path / "s.npz", out=tmp_path / "o.zarr")


TABLES = [
    ({"probs": list(SCORES), "y": LABELS, "id": LABELS}, "y", ("id",)),
    ({"scores": list(SCORES), "logits": list(SCORES), "name": ["a"] * 203}, None, ("logits", "name")),
    ({"a": SCORES[:, 0], "b": SCORES[:, 1], "target": LABELS % 2}, "target", ()),
    ({"a": SCORES[:, 0], "b": SCORES[:, 1], "y": SCORES[:, 2]}, None, ()),  # a class of that name
    ({"a": LABELS, "b": LABELS, "y": LABELS}, None, ()),  # quantised scores, and a class of that name
]


@pytest.mark.parametrize("columns, label, ignored", TABLES)
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_ingest__recognises_usual_names_in_a_table_and_lists_the_others(tmp_path, suffix, columns, label, ignored):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import pyarrow.csv
    import pyarrow.parquet

    if suffix == "csv" and "a" not in columns:
        pytest.skip("lists have no CSV")
    table = arrow.table(columns)
    write = pyarrow.csv.write_csv if suffix == "csv" else pyarrow.parquet.write_table
    write(table, tmp_path / f"s.{suffix}")
    ingestion = avgk.ingest(tmp_path / f"s.{suffix}", out=tmp_path / "o.zarr")
    assert (ingestion.has_labels, ingestion.ignored) == (label is not None, ignored)
    if label:
        assert np.array_equal(avgk.open_scores(tmp_path / "o.zarr").labels, columns[label])
        assert label not in (ingestion.class_names or [])


@pytest.mark.parametrize("apart", [True, False])
def test_ingest__appends_to_a_finished_store(tmp_path, apart):
    scores, labels = np.random.default_rng(1).random((40, 3)), np.arange(40) % 3
    for name, part in (("all", slice(0, 40)), ("one", slice(0, 17)), ("two", slice(17, 40))):
        np.save(tmp_path / f"{name}.npy", scores[part])
        np.save(tmp_path / f"{name}-labels.npy", labels[part])
        np.savez(tmp_path / f"{name}.npz", scores=scores[part], labels=labels[part])
    given = {
        name: (tmp_path / f"{name}.npy", tmp_path / f"{name}-labels.npy") if apart else (tmp_path / f"{name}.npz",)
        for name in ("all", "one", "two")
    }
    avgk.ingest(*given["all"], out=tmp_path / "all.zarr", chunk_rows=5)
    avgk.ingest(*given["one"], out=tmp_path / "a.zarr", chunk_rows=5, append=True)
    added = avgk.ingest(*given["two"], out=tmp_path / "a.zarr", append=True)
    assert (added.ok, added.n_samples) == (True, 23)
    assert tree(tmp_path / "a.zarr") == tree(tmp_path / "all.zarr")


@pytest.mark.filterwarnings("ignore::avgk_dask.errors.LeftoverWarning")
@pytest.mark.parametrize("n_before", [0, 7])
def test_ingest__killed_while_it_verifies_appends_its_rows_once(tmp_path, monkeypatch, n_before):
    scores = np.random.default_rng(0).random((20, 3), np.float32)
    np.save(tmp_path / "s.npy", scores)
    if n_before:
        with avgk.ScoreWriter(tmp_path / "a.zarr", 3) as writer:
            writer.append(scores[:n_before])
    real = ingestion.verify

    def verify(*args, **options):
        shutil.copytree(tmp_path / "a.zarr", tmp_path / "killed.zarr")
        return real(*args, **options)

    monkeypatch.setattr(ingestion, "verify", verify)
    assert avgk.ingest(tmp_path / "s.npy", out=tmp_path / "a.zarr", append=True).n_samples == 20
    monkeypatch.undo()
    again = avgk.ingest(tmp_path / "s.npy", out=tmp_path / "killed.zarr", append=True)
    assert (again.ok, again.n_samples) == (True, 0)
    assert tree(tmp_path / "killed.zarr") == tree(tmp_path / "a.zarr")
    assert avgk.ingest(tmp_path / "s.npy", out=tmp_path / "killed.zarr", append=True).n_samples == 20


def test_ingest__that_cannot_append_leaves_the_store_as_it_was(tmp_path):
    np.save(tmp_path / "s.npy", np.eye(3))
    np.save(tmp_path / "wide.npy", np.eye(4))
    avgk.ingest(tmp_path / "s.npy", out=tmp_path / "a.zarr")
    before = tree(tmp_path / "a.zarr")
    for scores, labels, options, match in (
        ("wide.npy", None, {}, "n_classes is 3, got 4"),
        ("s.npy", [0, 1, 2], {}, "labels must be of one kind"),
        ("s.npy", None, {"overwrite": True}, "append cannot be combined with overwrite"),
        ("a.zarr", None, {}, "out must not overlap with the scores"),
    ):
        with pytest.raises(avgk.AvgkError, match=match):
            avgk.ingest(tmp_path / scores, labels, out=tmp_path / "a.zarr", append=True, **options)
        assert tree(tmp_path / "a.zarr") == before


def test_ingest__appends_no_columns_of_other_names(tmp_path):
    for name, columns in (("a", "cat,dog"), ("b", "dog,cat")):
        (tmp_path / f"{name}.csv").write_text(f"{columns}\n0.25,0.75\n")
    avgk.ingest(tmp_path / "a.csv", out=tmp_path / "a.zarr", append=True)
    with pytest.raises(avgk.OptionError, match=r"attributes differ from the store .*: class_names"):
        avgk.ingest(tmp_path / "b.csv", out=tmp_path / "a.zarr", append=True)
    avgk.ingest(tmp_path / "a.csv", out=tmp_path / "a.zarr", append=True)
    assert avgk.open_scores(tmp_path / "a.zarr").sizes["sample"] == 2
