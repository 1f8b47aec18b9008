"""Appending to finished stores: the store of one writer of all rows, byte for byte; the old one until then, whatever happens."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import subprocess
import sys
import uuid

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.core.sync import sync
from zarr.storage import LocalStore, MemoryStore

import avgk_dask as avgk
from avgk_dask.store.write import appending, writer
from avgk_dask.store.write.lease_storage import FOLDER
from avgk_dask.store.write.targets import writable

SCORES = np.random.default_rng(1).random((157, 5), dtype=np.float32)
SOFT = SCORES / SCORES.sum(1, keepdims=True)
LABELS = np.random.default_rng(2).integers(-1, 5, 157)


def tree(path):
    """Give all files below a path with their contents."""
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def rows(first, last, labels=LABELS):
    return SCORES[first:last], None if labels is None else labels[first:last]


def write(path, n, labels=LABELS, **options):
    with avgk.ScoreWriter(path, 5, **options) as made:
        made.append(*rows(0, n, labels))


def add(path, first, last, labels=LABELS, **options):
    with avgk.ScoreWriter(path, append=True, **options) as more:
        assert more.n_samples == first
        more.append(*rows(first, last, labels))
    assert more.n_samples == last


@settings(max_examples=settings().max_examples // 3)
@given(data=st.data())
def test_append__gives_the_store_of_one_writer_byte_for_byte(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("a")
    bounds = sorted(data.draw(st.lists(st.integers(1, 60), min_size=2, max_size=5)))
    labels = data.draw(st.sampled_from([LABELS, SOFT, SOFT.astype("f8"), None]))
    options = {
        "chunk_rows": data.draw(st.sampled_from([None, 1, 7, 16])),
        "shard_chunks": data.draw(st.integers(1, 3)),
        "top_m": data.draw(st.sampled_from([None, 2])),
        "dtype": data.draw(st.sampled_from([None, "float16", "bfloat16", "float64"])),
        "codec": data.draw(st.sampled_from(["blosc", "zstd", "none"])),  # gzip writes the time into each chunk
        "attributes": data.draw(st.sampled_from([None, {"model": "m"}])),
    }
    label_rows = data.draw(st.sampled_from([5, 12, 1 << 20]))
    with pytest.MonkeyPatch.context() as patch:
        for module in (writer, appending):
            patch.setattr(module, "LABEL_ROWS", label_rows)
        write(folder / "one.zarr", bounds[-1], labels, **options)
        write(folder / "more.zarr", bounds[0], labels, **options)
        for first, last in itertools.pairwise(bounds):
            add(folder / "more.zarr", first, last, labels)
    assert tree(folder / "more.zarr") == tree(folder / "one.zarr")
    assert avgk.verify(folder / "more.zarr").ok


def test_append__in_batches_of_any_size_gives_the_same(tmp_path):
    write(tmp_path / "one.zarr", 157, chunk_rows=10, shard_chunks=2)
    write(tmp_path / "more.zarr", 33, chunk_rows=10, shard_chunks=2)
    with avgk.ScoreWriter(tmp_path / "more.zarr", append=True) as more:
        for first in range(33, 157, 9):
            more.append(*rows(first, first + 9))
    assert tree(tmp_path / "more.zarr") == tree(tmp_path / "one.zarr")


def test_append__works_with_gzip(tmp_path):
    write(tmp_path / "a.zarr", 33, chunk_rows=10, codec="gzip")
    add(tmp_path / "a.zarr", 33, 157)
    assert np.array_equal(avgk.open_scores(tmp_path / "a.zarr").scores.values, SCORES)
    assert avgk.verify(tmp_path / "a.zarr").ok


def test_append__leaves_full_chunks_alone(tmp_path):
    path = tmp_path / "a.zarr"
    write(path, 45, chunk_rows=10)
    before = {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in path.glob("scores/c/*/0")}
    add(path, 45, 77)
    after = {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in path.glob("scores/c/*/0")}
    assert len(after) == 8
    assert [p.parent.name for p in sorted(before) if before[p] != after[p]] == ["4"]
    full = {p: after[p] for p in path.glob("scores/c/[0-6]/0")}
    add(path, 77, 80)
    add(path, 80, 95)
    assert {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in full} == full


def test_append__leaves_full_chunks_of_labels_alone(tmp_path, monkeypatch):
    """Also where they end within a chunk of scores that is not full, and are made again."""
    for module in (writer, appending):
        monkeypatch.setattr(module, "LABEL_ROWS", 4)
    path = tmp_path / "a.zarr"
    write(path, 38, chunk_rows=30)
    before = {p: p.stat().st_ino for p in path.glob("labels/c/*")}
    add(path, 38, 50)
    assert [p.name for p in sorted(before) if p.stat().st_ino != before[p]] == ["9"]
    assert np.array_equal(avgk.open_scores(path).labels.values, LABELS[:50])


def test_append__lets_the_old_store_be_read_until_its_end(tmp_path):
    path = tmp_path / "a.zarr"
    write(path, 45, chunk_rows=10)
    expected = avgk.evaluate(path, k=[1, 2])
    with avgk.ScoreWriter(path, append=True) as more:
        more.append(*rows(45, 157))
        assert avgk.evaluate(path, k=[1, 2]).drop_attrs().identical(expected.drop_attrs())
        assert np.array_equal(xr.open_zarr(path).scores.values, SCORES[:45])
        assert avgk.verify(path).ok
    assert avgk.open_scores(path).sizes["sample"] == 157


def test_append__keeps_attributes_of_users(tmp_path):
    path = tmp_path / "a.zarr"
    write(path, 45, chunk_rows=10, attributes={"model": "m"})
    for name in ("", "scores", "labels"):
        zarr.open(path, path=name, mode="r+").attrs[f"note{name}"] = "mine"
    add(path, 45, 50, attributes={"run": 2})
    root = zarr.open_group(path, mode="r")
    assert {"model": "m", "note": "mine", "run": 2}.items() <= dict(root.attrs).items()
    assert root["scores"].attrs["notescores"] == root["labels"].attrs["notelabels"] == "mine"
    assert avgk.verify(path).ok


def test_append__reports_its_rounding(tmp_path):
    path = tmp_path / "a.zarr"
    with avgk.ScoreWriter(path, 5) as made:
        made.append(SCORES[:9].astype("f2"))
    with avgk.ScoreWriter(path, append=True) as more:
        more.append(SCORES[9:20])
    assert more.rounding == avgk.info(path)["rounding"] == "float32 rounded to float16, to nearest, ties to even"
    with avgk.ScoreWriter(path, append=True) as again:
        assert again.rounding == more.rounding
        again.append(SCORES[20:30].astype("f2"))
    assert avgk.info(path)["rounding"] == more.rounding


def test_append__of_nothing_writes_nothing(tmp_path):
    path = tmp_path / "a.zarr"
    write(path, 45, chunk_rows=10)
    before, root = tree(path), (path / "zarr.json").stat().st_ino
    with avgk.ScoreWriter(path, append=True) as more:
        more.append(*rows(45, 45))
    assert tree(path) == before
    assert (path / "zarr.json").stat().st_ino == root


def test_append__that_fails_leaves_the_store_as_it_was(tmp_path):
    path = tmp_path / "a.zarr"
    write(path, 45, chunk_rows=10)
    before = tree(path)

    def fail():
        with avgk.ScoreWriter(path, append=True) as more:
            more.append(*rows(45, 157))
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        fail()
    assert tree(path) == before


def test_append__begins_a_new_store(tmp_path):
    with pytest.raises(avgk.OptionError, match="n_classes is required"):
        avgk.ScoreWriter(tmp_path / "a.zarr", append=True)
    assert not (tmp_path / "a.zarr").exists()
    with avgk.ScoreWriter(tmp_path / "a.zarr", 5, append=True) as made:
        made.append(*rows(0, 45))
    add(tmp_path / "a.zarr", 45, 157)
    write(tmp_path / "one.zarr", 157)
    assert tree(tmp_path / "a.zarr") == tree(tmp_path / "one.zarr")


@pytest.fixture(params=["memory", "opened", "obstore", "fsspec"])
def far(request):
    """Give a new place of each kind except folders, and its options."""
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}.zarr", None
    if request.param == "opened":
        return MemoryStore(), None
    return f"s3://scores/{uuid.uuid4().hex}.zarr", {**request.getfixturevalue("s3"), "client": request.param}


def far_tree(path, options):
    async def read(store):
        await store._ensure_open()
        prototype = zarr.core.buffer.default_buffer_prototype()
        return {key: (await store.get(key, prototype)).to_bytes() async for key in store.list()}

    return sync(read(writable(path, options)[0]))


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", [{"shard_chunks": 2}, {"top_m": 2, "shard_chunks": 1}])
def test_append__works_on_stores_elsewhere(far, tmp_path, how):
    path, options = far
    write(tmp_path / "one.zarr", 157, chunk_rows=10, **how)
    write(path, 45, chunk_rows=10, storage_options=options, **how)
    add(path, 45, 46, storage_options=options)
    first = avgk.ScoreWriter(path, append=True, storage_options=options)
    with pytest.raises(avgk.StoreError, match="is being written by process"):
        avgk.ScoreWriter(path, append=True, storage_options=options)
    first.append(*rows(46, 157))
    first.close()
    assert far_tree(path, options) == tree(tmp_path / "one.zarr")


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "options, match",
    [
        ({"n_classes": 6}, "n_classes is 5, got 6"),
        ({"dtype": "float64"}, "dtype is 'float32', got 'float64'"),
        ({"chunk_rows": 11}, "chunk_rows is 10, got 11"),
        ({"shard_chunks": 3}, "shard_chunks is 2, got 3"),
        ({"top_m": 2}, "top_m is None, got 2"),
        ({"codec": "zstd"}, "codec is 'blosc', got 'zstd'"),
        ({"attributes": {"model": "other"}}, "got another model"),
        ({"resume": True}, "append cannot be combined with resume"),
        ({"overwrite": True}, "append cannot be combined with overwrite"),
        ({"part": 0}, "append cannot be combined with part"),
    ],
)
@pytest.mark.parametrize("n", [7, 45])
def test_append__refuses_other_options(tmp_path, n, options, match):
    path = tmp_path / "a.zarr"
    write(path, n, chunk_rows=10, shard_chunks=2, attributes={"model": "m"})
    before = tree(path)
    with pytest.raises(avgk.OptionError, match=match):
        avgk.ScoreWriter(path, append=True, **options)
    assert tree(path) == before
    add(path, n, 50, n_classes=5, dtype="f4", chunk_rows=10, shard_chunks=2, codec="blosc", attributes={"model": "m"})


@pytest.mark.parametrize("labels, other", [(LABELS, SOFT), (SOFT, None), (None, LABELS)])
def test_append__refuses_labels_of_another_kind(tmp_path, labels, other):
    write(tmp_path / "a.zarr", 45, labels, chunk_rows=10)
    with avgk.ScoreWriter(tmp_path / "a.zarr", append=True) as more, pytest.raises(avgk.LabelsError, match="one kind"):
        more.append(*rows(45, 50, other))
    add(tmp_path / "a.zarr", 45, 50, labels)


def joined(path):
    for part in range(2):
        with avgk.ScoreWriter(path, 5, part=part) as made:
            made.append(*rows(0, 9))
    avgk.join_parts(path)


def in_parts(path):
    with avgk.ScoreWriter(path, 5, part=0) as made:
        made.append(*rows(0, 9))


def unfinished(path):
    made = avgk.ScoreWriter(path, 5, chunk_rows=5)
    made.append(*rows(0, 9))


def foreign(path):
    zarr.create_group(path).create_array("scores", data=SCORES)


def sets(path):
    from avgk_dask.api.written_sets import SetChoice, write_sets

    write_sets(SCORES, path, SetChoice(k=1))


def in_blocks(path):
    avgk.testing.simulate_store(path, avgk.testing.Simulation(30, 4), chunks=(10, 2))


@pytest.mark.parametrize(
    "make, match",
    [
        (joined, "was joined from parts"),
        (in_parts, "is written in parts"),
        (unfinished, r"its writer did not finish.*resume=True"),
        (foreign, "was not written by this package"),
        (sets, "its chunks are not whole rows"),
        (in_blocks, "its chunks are not whole rows"),
    ],
)
def test_append__refuses_other_stores(tmp_path, make, match):
    make(tmp_path / "a.zarr")
    before = tree(tmp_path / "a.zarr")
    with pytest.raises(avgk.StoreError, match=match):
        avgk.ScoreWriter(tmp_path / "a.zarr", append=True)
    assert tree(tmp_path / "a.zarr") == before


def test_append__goes_on_with_simulated_stores(tmp_path):
    avgk.testing.simulate_store(tmp_path / "a.zarr", avgk.testing.Simulation(30, 5))
    with avgk.ScoreWriter(tmp_path / "a.zarr", append=True) as more:
        more.append(SCORES[:9].astype(more._stored), LABELS[:9])
    assert avgk.verify(tmp_path / "a.zarr").ok


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["scores/c/4/0", "labels/c/0", "manifest/scores/c/0/0/0", "scores/zarr.json"])
def test_append__refuses_a_store_that_is_damaged_where_it_goes_on(tmp_path, name):
    path = tmp_path / "a.zarr"
    write(path, 45, chunk_rows=10)
    data = (path / name).read_bytes()
    (path / name).write_bytes(data.replace(b"float32", b"float16") if name.endswith("json") else data[:-1] + b"?")
    before = tree(path)
    with pytest.raises(avgk.AvgkError, match=r"damaged|cannot be read"):
        avgk.ScoreWriter(path, append=True)
    assert tree(path) == before
    (path / name).write_bytes(data)
    add(path, 45, 50)


@pytest.fixture
def stop_after(monkeypatch):
    """Give a function that fails after a number of writes and removals of keys, or never if that is None."""
    left = [None]

    def guarded(name):
        original = getattr(LocalStore, name)

        async def call(self, *arguments):
            if left[0] == 0:
                raise OSError("stopped here")
            left[0] = None if left[0] is None else left[0] - 1
            return await original(self, *arguments)

        monkeypatch.setattr(LocalStore, name, call)

    for name in ("set", "set_if_not_exists", "delete", "delete_dir"):
        guarded(name)

    def allow(n):
        left[0] = n

    return allow


def test_append__that_loses_its_lease_at_its_end_stops(tmp_path, monkeypatch):
    path, put = tmp_path / "a.zarr", LocalStore.set
    write(path, 45, chunk_rows=10)

    async def lose(self, key, value):
        await put(self, key, value)
        if key == "scores/zarr.json":
            shutil.rmtree(path / FOLDER)

    monkeypatch.setattr(LocalStore, "set", lose)
    with pytest.raises(avgk.WriteError, match="was taken over"):
        add(path, 45, 50)
    monkeypatch.undo()
    with pytest.raises(avgk.StoreError, match="is incomplete"):
        avgk.open_scores(path)
    with pytest.warns(avgk.LeftoverWarning, match="finished an interrupted append"):
        add(path, 50, 60)
    assert np.array_equal(avgk.open_scores(path).scores.values, SCORES[:60])


def stopped(append, *arguments):
    """Whether an append ended because it was stopped."""
    try:
        append(*arguments)
    except avgk.StoreError as error:
        if "stopped here" not in str(error):
            raise
        return True
    return False


def state(path, old, new):
    """Say whether a store reads as the old one or the new one, or is refused as incomplete."""
    try:
        result = avgk.evaluate(path, k=0.5).drop_attrs()
    except avgk.StoreError as error:
        how = "finish it with ScoreWriter(..., append=True)"
        return "incomplete" if "is incomplete" in str(error) and how in str(error) else "wrong"
    assert avgk.verify(path).ok
    return "old" if result.identical(old) else "new" if result.identical(new) else "wrong"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::avgk_dask.errors.LeftoverWarning")
@pytest.mark.parametrize(
    "options, again",
    [({}, "rest"), ({"shard_chunks": 2}, "resume"), ({"top_m": 4, "codec": "zstd"}, "same")],
)
def test_append__stopped_before_any_write_leaves_the_old_store_or_one_that_is_finished(
    tmp_path, stop_after, options, again
):
    options = {"chunk_rows": 10, **options}
    write(tmp_path / "old.zarr", 25, **options)
    write(tmp_path / "new.zarr", 57, **options)
    old, new = (avgk.evaluate(tmp_path / f"{name}.zarr", k=0.5).drop_attrs() for name in ("old", "new"))
    states = []
    for n in itertools.count():
        path = tmp_path / f"{n}.zarr"
        shutil.copytree(tmp_path / "old.zarr", path)
        stop_after(n)
        is_stopped = stopped(add, path, 25, 57)
        stop_after(None)
        if not is_stopped:
            break
        states.append(state(path, old, new))
        if again == "resume":
            with avgk.ScoreWriter(path, 5, resume=True, **options) as more:
                assert more.n_samples == (25 if states[-1] == "old" else 57)
            if states[-1] == "old":
                assert tree(path) == tree(tmp_path / "old.zarr")
        with avgk.ScoreWriter(path, append=True) as more:
            assert more.n_samples == (25 if states[-1] == "old" else 57)
            for first in range(25 if again == "same" else more.n_samples, 57, 8):
                more.append(*rows(first, min(first + 8, 57)))
        assert more.n_samples == 57
        assert tree(path) == tree(tmp_path / "new.zarr")
    assert [name for name, _ in itertools.groupby(states)] == ["old", "incomplete", "new"]
    assert states.count("old") > 10


@pytest.mark.sample(3)
@pytest.mark.filterwarnings("ignore::avgk_dask.errors.LeftoverWarning")
@pytest.mark.parametrize(
    "more",
    [
        rows(57, 80),  # others
        rows(25, 80),  # the same, and more
        rows(25, 50),  # not all of them
        (SCORES[25:57], LABELS[:32]),  # with other labels
    ],
)
def test_append__of_other_rows_comes_after_the_append_that_was_stopped(tmp_path, more):
    cut_short(tmp_path / "a.zarr", 25, 57)
    with avgk.ScoreWriter(tmp_path / "a.zarr", append=True) as writer:
        writer.append(*more)
    opened = avgk.open_scores(tmp_path / "a.zarr")
    assert np.array_equal(opened.scores, np.concatenate([SCORES[:57], more[0]]))
    assert np.array_equal(opened.labels, np.concatenate([LABELS[:57], more[1]]))


@pytest.mark.filterwarnings("ignore::avgk_dask.errors.LeftoverWarning")
def test_append__stopped_again_and_again_adds_its_rows_once(tmp_path, stop_after):
    path = tmp_path / "a.zarr"
    write(tmp_path / "new.zarr", 57, chunk_rows=10)
    cut_short(path, 25, 57)
    counts = []

    def again():
        with avgk.ScoreWriter(path, append=True) as more:
            more.append(*rows(25, 57))
        counts.append(more.n_samples)

    for n in itertools.count(0, 3):
        stop_after(n)
        is_stopped = stopped(again)
        stop_after(None)
        if not is_stopped:
            break
    assert n > 9
    assert counts == [57]
    assert tree(path) == tree(tmp_path / "new.zarr")


@pytest.mark.filterwarnings("ignore::avgk_dask.errors.LeftoverWarning")
def test_append__reports_rows_that_are_there_already(tmp_path):
    path = tmp_path / "a.zarr"
    cut_short(path, 25, 57)
    with pytest.warns(
        avgk.LeftoverWarning, match="finished an interrupted append .* appending the same rows again has no effect"
    ):
        more = avgk.ScoreWriter(path, append=True)
    more.append(*rows(25, 57))
    with pytest.warns(avgk.LeftoverWarning, match="had already appended these 32 rows .* not added again"):
        more.close()
    with avgk.ScoreWriter(path, append=True) as more:
        more.append(*rows(25, 57))  # by another run: these are meant
    assert more.n_samples == 89


KILLED = """
import os, signal, sys, numpy as np
from zarr.storage import LocalStore
import avgk_dask as avgk

path, wanted, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
put, seen = LocalStore.set, []

async def set(self, key, value):
    seen.append(key)
    if seen.count(wanted) == number:
        os.kill(os.getpid(), signal.SIGKILL)
    await put(self, key, value)

LocalStore.set = set
scores, labels = np.load(sys.argv[4]), np.load(sys.argv[5])
with avgk.ScoreWriter(path, append=True) as writer:
    writer.append(scores, labels)
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "key, number, expected",
    [
        ("scores/c/5/0", 1, "old"),
        ("scores/append/zarr.json", 2, "old"),
        ("zarr.json", 1, "old"),
        ("labels/c/0", 1, "incomplete"),
        ("zarr.json", 2, "incomplete"),
    ],
)
def test_append__survives_a_kill(tmp_path, key, number, expected):
    path = tmp_path / "a.zarr"
    write(path, 45, chunk_rows=10)
    write(tmp_path / "new.zarr", 157, chunk_rows=10)
    old, new = (avgk.evaluate(p, k=0.5).drop_attrs() for p in (path, tmp_path / "new.zarr"))
    for name, values in zip(("s.npy", "l.npy"), rows(45, 157), strict=True):
        np.save(tmp_path / name, values)
    command = [sys.executable, "-c", KILLED, path, key, str(number), tmp_path / "s.npy", tmp_path / "l.npy"]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    assert state(path, old, new) == expected
    with pytest.warns(avgk.LeftoverWarning) as caught:
        more = avgk.ScoreWriter(path, append=True)
    assert more.n_samples == (45 if expected == "old" else 157)
    more.append(*rows(more.n_samples, 157))
    more.close()
    said = "append them again" if expected == "old" else "finished an interrupted append"
    assert sum(said in str(warning.message) for warning in caught) == 1
    assert tree(path) == tree(tmp_path / "new.zarr")


def test_append__refuses_a_second_one(tmp_path):
    path = tmp_path / "a.zarr"
    write(path, 45, chunk_rows=10)
    first = avgk.ScoreWriter(path, append=True)
    for how in ({"append": True}, {"n_classes": 5, "overwrite": True}, {"n_classes": 5, "resume": True}):
        with pytest.raises(avgk.StoreError, match="is being written by process"):
            avgk.ScoreWriter(path, **how)
    first.append(*rows(45, 50))
    first.close()
    assert not (path / FOLDER).exists()
    with pytest.raises(avgk.StoreError, match="append=True"):
        first.append(*rows(50, 60))
    add(path, 50, 60)


def cut_short(path, first=45, last=50):
    """Leave an append to a store where its root says that it is incomplete; give the root."""

    def stop(*_):
        raise OSError("stopped here")

    write(path, first, chunk_rows=10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(appending, "_move_in", stop)
        assert stopped(add, path, first, last)
    return json.loads((path / "zarr.json").read_text())


@pytest.mark.sample(3)
@pytest.mark.filterwarnings("ignore::avgk_dask.errors.LeftoverWarning")
@pytest.mark.parametrize(
    "staged",
    [
        None,
        {},
        {"scores/c/4/0": [1, 2]},
        {"../../escaped": [1, 2]},
        {"scores/../../escaped": [1, 2]},
        {"zarr.json": "xy"},
        {"zarr.json": [1, 2]},
    ],
)
def test_append__refuses_damaged_staged_files(tmp_path, staged):
    path = tmp_path / "a.zarr"
    root = cut_short(path)
    original = root["attributes"]["avgk_dask"]["staged"]
    if isinstance(staged, dict) and any(".." in key for key in staged):
        staged = {**original, **staged}
    root["attributes"]["avgk_dask"]["staged"] = staged
    (path / "zarr.json").write_text(json.dumps(root))
    before = tree(tmp_path)
    with pytest.raises(avgk.StoreError, match="damaged"):
        avgk.ScoreWriter(path, append=True)
    assert tree(tmp_path) == before
    root["attributes"]["avgk_dask"]["staged"] = original
    (path / "zarr.json").write_text(json.dumps(root))
    add(path, 50, 60)
