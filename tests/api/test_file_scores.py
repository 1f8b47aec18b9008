"""Files as scores: results equal those of an ingested store to the last bit, without writing a store."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap

import dask
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import avgk_dask as avgk
import avgk_dask.xarray  # registers .avgk
from avgk_dask.files import matrices as matrix_files
from avgk_dask.files import npy as npy_rows
from avgk_dask.files.npy import NpyRows
from avgk_dask.files.rows import CarriedRows, LoadedRows
from avgk_dask.files.tables import TableRows
from avgk_dask.store.read.checked import rows_of
from avgk_dask.store.read.opening import open_arrays
from avgk_dask.store.where.locations import FileStore
from avgk_dask.testing import CountingStore, oracle_threshold

N, C = 230, 7
RNG = np.random.default_rng(3)
#: With many ties, and as text the same numbers.
SCORES = (np.round(64 * RNG.dirichlet(np.full(C, 0.4), N)) / 64).astype(np.float32)
LABELS = np.where(RNG.random(N) < 0.1, -1, RNG.integers(0, C, N))
NAMES = [f"class {i}" for i in range(C)]
#: Bands of a few rows, and several tasks, whatever the file.
SMALL = {"avgk.small-scores": 0, "avgk.band-bytes": 400, "avgk.task-bytes": 800, "scheduler": "synchronous"}


def table(labels="labels"):
    pa = pytest.importorskip("pyarrow")
    columns = {name: SCORES[:, i] for i, name in enumerate(NAMES)}
    return pa.table({**columns, labels: pa.array(LABELS, mask=LABELS < 0)} if labels else columns)


def lists():
    pa = pytest.importorskip("pyarrow")
    return pa.table({"logits": pa.array(list(SCORES)), "label": LABELS})


def write_parquet(path, table, rows):
    pytest.importorskip("pyarrow.parquet").write_table(table, path, row_group_size=rows)


def write_arrow(path, table, *, stream=False, compression=None, rows=50):
    ipc = pytest.importorskip("pyarrow.ipc")
    new = ipc.new_stream if stream else ipc.new_file
    with new(str(path), table.schema, options=ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=rows)


def write_folder(path):
    path.mkdir()
    write_parquet(path / "a.parquet", table().slice(0, 70), 30)
    write_parquet(path / "b.parquet", table().slice(70), 64)


def write_csv(path):
    pytest.importorskip("pyarrow.csv").write_csv(table(), path)


#: How each kind of file is written, and how its rows are read.
FILES = {
    "c.npy": (lambda path: np.save(path, SCORES), NpyRows),
    "fortran.npy": (lambda path: np.save(path, np.asfortranarray(SCORES)), NpyRows),
    "big.npy": (lambda path: np.save(path, SCORES.astype(">f4")), NpyRows),
    "big_fortran.npy": (lambda path: np.save(path, np.asfortranarray(SCORES.astype(">f8"))), NpyRows),
    "stored.npz": (lambda path: np.savez(path, scores=SCORES, labels=LABELS, other=np.eye(3)), NpyRows),
    "compressed.npz": (lambda path: np.savez_compressed(path, probs=SCORES, y_true=LABELS), LoadedRows),
    "groups.parquet": (lambda path: write_parquet(path, table(), 32), TableRows),
    "lists.parquet": (lambda path: write_parquet(path, lists(), 100), TableRows),
    "folder": (write_folder, TableRows),
    "file.arrow": (lambda path: write_arrow(path, table()), TableRows),
    "stream.arrow": (lambda path: write_arrow(path, lists(), stream=True), TableRows),
    "packed.feather": (lambda path: write_arrow(path, table(), compression="zstd"), LoadedRows),
    "t.csv": (write_csv, LoadedRows),
}


def make(folder, name):
    """Write a file, and return it with the labels that are not in it."""
    np.save(folder / "y.npy", LABELS)
    FILES[name][0](folder / name)
    return folder / name, folder / "y.npy" if name.endswith(".npy") else None


def same(one, other):
    """Compare two results except for their location and reads."""
    one, other = (x.assign_attrs(store="", calibration_store="", reads=0) for x in (one, other))
    assert one.identical(other)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("settings", [{}, SMALL], ids=["at once", "in bands"])
def test_evaluate__of_a_file_equals_that_of_the_ingested_store(tmp_path, name, settings):
    path, labels = make(tmp_path, name)
    avgk.ingest(path, labels, out=tmp_path / "s.zarr", chunk_rows=40)
    with dask.config.set(settings):
        expected = avgk.evaluate(tmp_path / "s.zarr", k=[1, 2.5, 4])
        result = avgk.evaluate(path, labels, k=[1, 2.5, 4])
    same(result, expected)
    assert result.attrs["store"] == str(path)
    assert isinstance(rows_of(open_arrays(path).scores), FILES[name][1])


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["c.npy", "stored.npz", "groups.parquet", "t.csv"])
def test_functions__accept_files_like_stores(tmp_path, name):
    path, labels = make(tmp_path, name)
    store = tmp_path / "s.zarr"
    avgk.ingest(path, labels, out=store, chunk_rows=40)
    same(avgk.threshold(path, [1, 3]), avgk.threshold(store, [1, 3]))
    same(avgk.breakdown(path, labels, k=2), avgk.breakdown(store, k=2))
    same(avgk.transfer(path, path, labels, k=2), avgk.transfer(store, store, k=2))
    same(avgk.error_curve(path, labels), avgk.error_curve(store))
    assert np.array_equal(avgk.average_k_sets(path, 1.5).compute(), avgk.average_k_sets(store, 1.5).compute())
    assert np.array_equal(np.asarray(avgk.softmax(path)), np.asarray(avgk.softmax(store)))
    one, other = (avgk.conformal.calibrate(p, y, 0.2) for p, y in ((path, labels), (store, None)))
    assert one.threshold == other.threshold
    fitted = [avgk.calibration.TemperatureScaling().fit(p, y).temperature for p, y in ((path, labels), (store, None))]
    assert fitted[0] == fitted[1]


def test_compare__takes_files(tmp_path):
    path, labels = make(tmp_path, "c.npy")
    make(tmp_path, "groups.parquet")
    result = avgk.compare({"a": path, "b": tmp_path / "groups.parquet"}, labels, k=[1, 2])
    expected = avgk.compare({"a": SCORES, "b": SCORES}, LABELS, k=[1, 2])
    assert result.equals(expected)


@pytest.mark.parametrize("name", ["groups.parquet", "file.arrow", "t.csv"])
def test_names_of_columns__are_those_of_classes(tmp_path, name):
    path, _ = make(tmp_path, name)
    assert avgk.open_scores(path)["class"].values.tolist() == NAMES
    assert sorted(avgk.breakdown(path, k=1).name.values.tolist()) == sorted(NAMES)


def test_open_scores__gives_a_lazy_dataset_of_a_file(tmp_path):
    path, _ = make(tmp_path, "stored.npz")
    opened = avgk.open_scores(path)
    assert opened.scores.dims == ("sample", "class")
    assert np.array_equal(opened.scores.values, SCORES)
    assert np.array_equal(opened.labels.values, LABELS)
    same(opened.avgk.evaluate(k=2), avgk.evaluate(path, k=2))


def test_open_scores__takes_names_inside_a_file(tmp_path):
    np.savez(tmp_path / "a.npz", one=SCORES, two=SCORES[::-1], y=LABELS)
    opened = avgk.open_scores(tmp_path / "a.npz", scores="two", labels="y")
    assert np.array_equal(opened.scores.values, SCORES[::-1])
    with pytest.raises(avgk.StoreError, match="must have a member 'scores', or a single matrix"):
        avgk.evaluate(tmp_path / "a.npz")
    with pytest.raises(avgk.StoreError, match=r"has no member 'tow'.* Did you mean 'two'"):
        avgk.open_scores(tmp_path / "a.npz", scores="tow")


def test_soft_labels__come_from_files(tmp_path):
    pa = pytest.importorskip("pyarrow")
    eta = RNG.dirichlet(np.ones(C), N)
    np.savez(tmp_path / "a.npz", scores=SCORES, labels=eta)
    np.savez_compressed(tmp_path / "b.npz", scores=SCORES, labels=eta)
    write_parquet(tmp_path / "c.parquet", pa.table({"scores": list(SCORES), "labels": list(eta)}), 30)
    expected = avgk.evaluate(SCORES, eta, k=2)
    for name in ("a.npz", "b.npz", "c.parquet"):
        with dask.config.set(SMALL):
            same(avgk.evaluate(tmp_path / name, k=2), expected)


def test_labels_too_large_for_int64__are_refused_and_not_unlabelled(tmp_path):
    pa = pytest.importorskip("pyarrow")
    labels = np.zeros(N, np.uint64)
    labels[5] = 2**64 - 1
    write_parquet(tmp_path / "a.parquet", pa.table({"scores": list(SCORES), "labels": labels}), 30)
    with pytest.raises(avgk.LabelsError, match="sample 5"):
        avgk.evaluate(tmp_path / "a.parquet", k=1)


# --- laziness, reads, memory


class Watched:
    """Counts the rows that are read of files."""

    def __init__(self, monkeypatch):
        self.rows = []
        for kind in (NpyRows, LoadedRows, TableRows):
            fill = kind.fill

            def counted(rows, first, last, out, fill=fill):
                if len(rows.shape) == 2:
                    self.rows.append((first, last))
                fill(rows, first, last, out)

            monkeypatch.setattr(kind, "fill", counted)

    def counts(self):
        """Return how often each row was read."""
        counts = np.zeros(N, int)
        for first, last in self.rows:
            counts[first:last] += 1
        return counts


@pytest.mark.parametrize("name", FILES)
def test_opening__reads_no_scores(tmp_path, name, monkeypatch):
    path, _ = make(tmp_path, name)
    watched = Watched(monkeypatch)
    avgk.open_scores(path)
    avgk.softmax(path).to_dask()
    avgk.average_k_sets(path, 2)
    assert watched.rows == []


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", FILES)
def test_evaluate__reads_each_row_once_after_a_pilot(tmp_path, name, monkeypatch):
    path, labels = make(tmp_path, name)
    watched = Watched(monkeypatch)
    result = avgk.evaluate(path, labels, k=[1, 3])
    assert watched.counts().tolist() == [1] * N  # small matrices need no pilot
    assert result.attrs["reads"] == 1
    watched.rows.clear()
    with dask.config.set(SMALL):
        avgk.evaluate(path, labels, k=[1, 3])
    assert watched.counts().min() == 1 or len(watched.rows) <= 4  # where a file is one part, the pilot reads it whole
    assert watched.counts().max() <= 3


def test_file_store__is_read_through_zarr_as_well(tmp_path):
    path, _ = make(tmp_path, "fortran.npy")
    store = CountingStore(FileStore.from_path(path, None, None, True))
    with dask.config.set(SMALL):
        result = avgk.evaluate(store, LABELS, k=2)
    same(result, avgk.evaluate(SCORES, LABELS, k=2))
    assert set(store.chunk_reads().values()) <= {1, 2}


PEAK = textwrap.dedent(r"""
    import re, sys
    import numpy as np
    import avgk_dask as avgk

    def peak():
        return 1024 * int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1])

    path, samples, classes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    np.lib.format.open_memmap(path, "w+", np.float32, (samples, classes))  # sparse: zeros that take no room
    avgk.evaluate(np.zeros((10, classes), np.float32), k=5)
    before = peak()
    result = avgk.evaluate(path, k=5)
    assert result.n_ties.item() == samples * classes
    print(peak() - before)
""")


@pytest.mark.slow
def test_evaluate__needs_little_memory_for_a_large_npy_file(tmp_path):
    command = [sys.executable, "-c", PEAK, str(tmp_path / "s.npy"), "400000", "1000"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 500e6  # of 1.6 GB; 360 to 430 were measured


@given(st.data())
def test_rows_of_files__are_any_rows_of_the_array(tmp_path_factory, data):
    name = data.draw(st.sampled_from(sorted(FILES)))
    folder = tmp_path_factory.mktemp("rows")
    path, _ = make(folder, name)
    rows = open_arrays(path).scores.store_path.store._store.rows["scores"]
    first = data.draw(st.integers(0, N))
    last = data.draw(st.integers(first, N))
    assert np.array_equal(rows.read(first, last), SCORES[first:last])


# --- clusters and checkpoints


@pytest.mark.parametrize("name", FILES)
def test_rows__are_sent_with_the_tasks_if_they_are_few(tmp_path, name, monkeypatch):
    path, _ = make(tmp_path, name)
    rows = rows_of(open_arrays(path).scores)
    carried = pickle.loads(pickle.dumps(rows))
    assert isinstance(carried, CarriedRows)
    assert np.array_equal(carried.read(3, 9), SCORES[3:9])
    monkeypatch.setattr("avgk_dask.files.rows._SENT_BYTES", 0)
    again = pickle.loads(pickle.dumps(rows))
    assert type(again) is type(rows)
    assert np.array_equal(again.read(3, 9), SCORES[3:9])
    os.rename(path, tmp_path / "elsewhere")
    if not isinstance(rows, LoadedRows):  # whose values this process has
        with pytest.raises(avgk.ReadError, match="Workers of a cluster must see it at the same path"):
            again.read(0, 1)


@pytest.mark.slow
def test_evaluate__gives_the_same_of_files_on_a_cluster(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    names = ["c.npy", "groups.parquet", "t.csv"]
    expected = {name: avgk.evaluate(*make(tmp_path, name), k=[1, 2]) for name in names}
    size = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": None}
    with (
        distributed.LocalCluster(**size) as cluster,
        distributed.Client(cluster),
        dask.config.set(SMALL | {"scheduler": None}),
    ):
        for travels in (4 << 20, 0):
            monkeypatch.setattr("avgk_dask.files.rows._SENT_BYTES", travels)
            for name in names:
                labels = tmp_path / "y.npy" if name.endswith("npy") else None
                same(avgk.evaluate(tmp_path / name, labels, k=[1, 2]), expected[name])


@pytest.mark.parametrize("name", ["c.npy", "groups.parquet", "t.csv"])
def test_checkpoint__of_a_file_is_used_while_the_file_is_unchanged(tmp_path, name, monkeypatch):
    path, labels = make(tmp_path, name)
    with dask.config.set(SMALL):
        first = avgk.evaluate(path, labels, k=2, checkpoint=tmp_path / "kept")
        watched = Watched(monkeypatch)
        again = avgk.evaluate(path, labels, k=2, checkpoint=tmp_path / "kept")
        same(again, first)
        assert watched.rows == []
        os.utime(path, ns=(0, 10**18))  # as if it had been written again
        with pytest.raises(avgk.OptionError, match="belongs to another store"):
            avgk.evaluate(path, labels, k=2, checkpoint=tmp_path / "kept")


# --- refusals


def test_changed_files__are_refused_while_they_are_read(tmp_path):
    path, _ = make(tmp_path, "c.npy")
    lazy = avgk.average_k_sets(path, 2)
    np.save(path, SCORES[:100])
    with pytest.raises(avgk.ReadError, match="changed after it was opened"):
        lazy.compute()
    os.remove(path)
    with pytest.raises(avgk.ReadError, match=r"is not accessible on .*FileNotFoundError"):
        lazy.compute()


@pytest.mark.parametrize(
    "write, error, message",
    [
        (lambda p: p.write_bytes(b""), avgk.ReadError, "could not be read"),
        (lambda p: p.write_bytes(b"hello"), avgk.ReadError, "could not be read"),
        (lambda p: np.save(p, np.array([[1.5, None]])), avgk.DtypeError, "object"),
        (lambda p: np.save(p, np.zeros((0, 3))), avgk.ScoresError, r"at least one sample .*got shape \(0, 3\)"),
        (lambda p: np.save(p, np.zeros((3, 0))), avgk.ScoresError, "at least one class"),
        (lambda p: np.save(p, np.zeros(3)), avgk.ScoresError, "must be a matrix"),
        (lambda p: np.save(p, np.zeros((2, 3), complex)), avgk.DtypeError, "complex"),
        (lambda p: np.save(p, np.zeros((2, 3), "U2")), avgk.DtypeError, "U2"),
        (lambda p: p.mkdir(), avgk.StoreError, "is neither a store nor does it contain score files"),
        (lambda p: os.mkfifo(p), avgk.StoreError, "a pipe or device"),
        (lambda p: None, avgk.StoreError, "no such file"),
    ],
    ids=["empty", "text", "objects", "no samples", "no classes", "a column", "complex", "texts", "folder", "pipe", "none"],
)  # fmt: skip
def test_bad_npy_files__are_refused(tmp_path, write, error, message):
    write(tmp_path / "a.npy")
    with pytest.raises(error, match=message):
        avgk.evaluate(tmp_path / "a.npy", k=1)


@pytest.mark.parametrize("name", [name for name in FILES if name != "folder"])
def test_truncated_files__are_refused(tmp_path, name):
    path, _ = make(tmp_path, name)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] if name != "t.csv" else data[: -len(NAMES)] + b"\n1,2\n")
    with pytest.raises((avgk.ReadError, avgk.StoreError, avgk.ScoresError)):
        avgk.evaluate(path, k=1)


@pytest.mark.parametrize(
    "given, message",
    [
        ("-", "can be read repeatedly; got - for standard input.* avgk ingest -"),
        ("s3://bucket/scores.npy", "must be on this machine.* Download it first"),
        ("scores.pkl", "no such store or file"),
    ],
)
def test_files__of_unknown_formats_are_refused(given, message):
    with pytest.raises(avgk.StoreError, match=message):
        avgk.evaluate(given, k=1)


@pytest.mark.parametrize("name", ["compressed.npz", "packed.feather", "t.csv"])
def test_files_without_random_access__are_refused_beyond_the_limit_with_the_cure(tmp_path, name):
    path, _ = make(tmp_path, name)
    with (
        dask.config.set({"avgk.file-bytes": 1000}),
        pytest.raises(avgk.StoreError, match=r"avgk.file-bytes.* avgk ingest"),
    ):
        avgk.evaluate(path, k=1)


def test_large_row_groups__are_held_whole(tmp_path, monkeypatch):
    path, _ = make(tmp_path, "groups.parquet")
    monkeypatch.setattr("avgk_dask.files.tables._MOST_BYTES", 500)
    assert isinstance(rows_of(open_arrays(path).scores), LoadedRows)
    same(avgk.evaluate(path, k=2), avgk.evaluate(SCORES, LABELS, k=2))


def test_held_files__are_read_once_for_all_who_ask(tmp_path, monkeypatch):
    path, _ = make(tmp_path, "t.csv")
    first = open_arrays(path)
    monkeypatch.setattr("avgk_dask.files.csv.CsvTable.batches", None)  # nothing is parsed any more
    assert np.array_equal(rows_of(open_arrays(path).scores).read(0, N), rows_of(first.scores).read(0, N))


def test_file_stores__cannot_be_written(tmp_path):
    import zarr

    path, _ = make(tmp_path, "c.npy")
    with pytest.raises(Exception, match="read-only"):
        zarr.open_group(FileStore.from_path(path, None, None, True), mode="r+").create_array(
            "x", shape=(1,), dtype="f4"
        )
    with pytest.raises(avgk.StoreError, match="must be a Zarr store; got the file"):
        avgk.verify(path)


def test_info__tells_of_a_file(tmp_path):
    path, labels = make(tmp_path, "c.npy")
    info = avgk.info(path, labels=labels)
    assert (info["zarr_format"], info["codecs"], info["n_samples"], info["n_classes"]) == (None, ["npy"], N, C)
    assert info["n_stored_bytes"] == os.path.getsize(path)
    assert any("avgk ingest" in text for text in info["advice"])
    make(tmp_path, "t.csv")
    assert any("read sequentially" in text for text in avgk.info(tmp_path / "t.csv")["advice"])


def test_threshold__of_a_file_is_that_of_the_definition(tmp_path):
    path, _ = make(tmp_path, "c.npy")
    threshold = avgk.threshold(path, 2)
    assert (threshold.value, threshold.n_above, threshold.n_ties, threshold.n_kept) == oracle_threshold(SCORES, 2)


def test_csv__refuses_numbers_of_groups_among_scores(tmp_path):
    """A column of integers without a decimal point, not all 0, is not accepted next to fractions; a column of zeros is."""
    path = tmp_path / "s.csv"
    path.write_text("cat,dog,grp,label\n0.25,0.75,0,1\n0.5,0.5,1,0\n")
    with pytest.raises(avgk.ScoresError, match="holds integers, the others floats"):
        avgk.threshold(path, 1)
    path.write_text("cat,dog,cow,label\n0.25,0.75,0,1\n0.5,0.5,0,0\n")
    assert float(avgk.threshold(path, 1).value) == 0.5
    path.write_text("cat,dog,cow\n0.25,0.75,0.0\n0.5,0.5,1.0\n")
    assert avgk.threshold(path, 1).n_above == 2


# --- files that change


def test_held_folders__are_those_of_all_their_files(tmp_path):
    """A change in another file than the first was not detected, and the retained scores of the old one were used."""
    folder = tmp_path / "parts"
    folder.mkdir()
    for name, rows in (("a", slice(0, 60)), ("b", slice(60, None))):
        write_arrow(
            folder / f"{name}.arrow", table(None).slice(rows.start, (rows.stop or N) - rows.start), compression="lz4"
        )
    before = avgk.open_scores(folder)
    assert np.array_equal(before.scores.values, SCORES)
    pa = pytest.importorskip("pyarrow")
    changed = SCORES.copy()
    changed[60:] += 5
    write_arrow(folder / "b.arrow", pa.table({n: changed[60:, i] for i, n in enumerate(NAMES)}), compression="lz4")
    os.utime(folder / "b.arrow", ns=(1, 1))
    assert np.array_equal(avgk.open_scores(folder).scores.values, changed)


def test_npy__that_is_written_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "s.npy"
    np.save(path, SCORES)
    read_at = npy_rows._read_at

    def read_and_change(*args):
        read_at(*args)
        os.utime(path, ns=(1, 1))

    rows = rows_of(open_arrays(path).scores)
    monkeypatch.setattr(npy_rows, "_read_at", read_and_change)
    with pytest.raises(avgk.ReadError, match="changed after it was opened"):
        rows.read(0, 5)


@pytest.mark.parametrize("name", ["groups.parquet", "compressed.npz"])
def test_files__that_are_replaced_while_they_are_opened_are_refused(tmp_path, name, monkeypatch):
    path, _ = make(tmp_path, name)
    open_file = matrix_files.open_file

    def open_and_change(*args, **options):
        opened = open_file(*args, **options)
        os.utime(path, ns=(1, 1))
        return opened

    monkeypatch.setattr(matrix_files, "open_file", open_and_change)
    with pytest.raises(avgk.ReadError, match="changed after it was opened"):
        avgk.evaluate(path, k=1)


def test_file_bytes__count_labels_too(tmp_path):
    path = tmp_path / "soft.npz"
    np.savez_compressed(path, scores=SCORES, labels=SCORES.astype(np.float64))
    with (
        dask.config.set({"avgk.file-bytes": 2 * SCORES.nbytes}),
        pytest.raises(avgk.StoreError, match="can only be read sequentially"),
    ):
        avgk.evaluate(path, k=1)
