"""Checkpoints: an interrupted run, one over a grown store and one for other budgets find what a fresh run finds."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import random
import shutil
import subprocess
import sys

import dask
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.storage import LocalStore, MemoryStore, WrapperStore

import avgk_dask as avgk
from avgk_dask.engine import checkpoint as checkpoints
from avgk_dask.engine.plan import Wave
from avgk_dask.engine.search import ThresholdSearch
from avgk_dask.engine.tasks import token_of
from avgk_dask.testing import CountingStore, Simulation, simulate_store, strategies

ENGINES = {
    "rows": {},
    "no pilot": {"avgk.small-scores": 1 << 18},
    "events": {"avgk.kept-bytes": 0},
    "waves": {"avgk.kept-bytes": 0, "avgk.max-events": 60, "avgk.least-events": 8},
    "few events": {"avgk.kept-bytes": 0, "avgk.max-events": 0, "avgk.least-events": 0},
    "histograms": {"avgk.ranked-bytes": 0, "avgk.kept-bytes": 0},
}
BASE = {"avgk.small-scores": 0, "avgk.band-bytes": 0, "avgk.task-bytes": 1, "avgk.fan-in": 2}


class Interruption(BaseException):
    """Stands for a kill: nothing of ours handles it."""


class BreakingStore(WrapperStore):
    """A place for checkpoints that is gone after some writes."""

    def __init__(self, store, n_writes):
        super().__init__(store)
        self.n_left = n_writes

    async def set(self, key, value, byte_range=None):
        if self.n_left == 0:
            raise Interruption
        self.n_left -= 1
        await self._store.set(key, value)


def using(engine):
    return dask.config.set({**BASE, "scheduler": "synchronous", **ENGINES[engine]})


def stored(scores, labels, chunks, label_chunk=None):
    """Return a counting store of scores and labels, which a run may read and a test may change."""
    store = CountingStore(MemoryStore())
    group = zarr.open_group(store, mode="w")
    group.create_array("scores", data=scores, chunks=chunks, config={"write_empty_chunks": True})
    if labels is not None:
        shape = (label_chunk or len(scores), *labels.shape[1:])
        group.create_array("labels", data=labels, chunks=shape, config={"write_empty_chunks": True})
    store.reads.clear()
    return store


def grow(store, scores, labels):
    """Append rows to a store, as any writer could."""
    with zarr.config.set({"array.write_empty_chunks": True}):
        group = zarr.open_group(store, mode="r+")
        for name, values in (("scores", scores), ("labels", labels)):
            if values is not None:
                array, n = group[name], group[name].shape[0]
                array.resize((n + len(values), *array.shape[1:]))
                array[n:] = values
    store.reads.clear()


def chunk_reads(store):
    """Return how many chunks of scores were read since this was last asked."""
    n = sum(n for key, n in store.chunk_reads().items() if key.startswith("scores/"))
    store.reads.clear()
    return n


def evaluate(store, k, place=None, **options):
    return avgk.evaluate(store, k=k, checkpoint=place, **options)


def same(one, other):
    return one.drop_attrs().identical(other.drop_attrs())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "hard", "soft"])
@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=settings().max_examples // 3)
@given(data=st.data())
def test_checkpoint__changes_no_result(engine, kind, data):
    scores = data.draw(strategies.score_matrices())
    scores = scores.astype("f4") if scores.dtype.name == "bfloat16" else scores  # which Zarr does not have
    labels = None
    if kind != "none":
        drawn = strategies.hard_labels if kind == "hard" else strategies.soft_labels
        labels = data.draw(drawn(scores.shape))
    ks, others = (data.draw(strategies.budgets(scores.shape[1], scores)) for _ in range(2))
    n, c = scores.shape
    first = data.draw(st.integers(1, n))
    chunks = data.draw(st.integers(1, n)), data.draw(st.integers(1, c))
    straddle = data.draw(st.booleans())
    before = None if labels is None else labels[:first]
    store = stored(scores[:first], before, chunks, data.draw(st.integers(1, n)))
    place = MemoryStore()
    with using(engine):
        expected = evaluate(store, ks, straddle=straddle)
        chunk_reads(store)
        for _ in range(data.draw(st.integers(0, 3))):  # interruptions
            try:
                actual = evaluate(store, ks, BreakingStore(place, data.draw(st.integers(0, 12))), straddle=straddle)
            except Interruption:
                continue
            assert same(actual, expected)
        assert same(evaluate(store, ks, place, straddle=straddle), expected)
        chunk_reads(store)
        assert same(evaluate(store, ks, place, straddle=straddle), expected)
        assert chunk_reads(store) == 0
        assert same(evaluate(store, others, place, straddle=straddle), evaluate(store, others, straddle=straddle))
        if first < n:
            grow(store, scores[first:], None if labels is None else labels[first:])
        for wanted in (ks, others):
            assert same(evaluate(store, wanted, place, straddle=straddle), evaluate(store, wanted, straddle=straddle))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["rows", "events", "waves", "histograms"])
def test_checkpoint__of_a_grown_store_reads_what_is_new(engine):
    spec = Simulation(10_100, 20)
    scores, labels, _ = spec.rows(0, 10_100)
    store, place = stored(scores[:10_000], labels[:10_000], (50, 20), 3000), MemoryStore()
    with using(engine), dask.config.set({"avgk.max-events": 20_000}):
        evaluate(store, [1, 2, 5], place)
        grow(store, scores[10_000:], labels[10_000:])
        actual = evaluate(store, [1, 2, 5], place)
        assert chunk_reads(store) <= 0.03 * 202
        assert same(actual, evaluate(store, [1, 2, 5]))


def test_checkpoint__of_a_grown_store_reads_again_where_a_threshold_left_its_bracket():
    rng = np.random.default_rng(0)
    scores = rng.random((2_000, 10), "f4")
    store, place = stored(scores[:1_900], None, (50, 10)), MemoryStore()
    grown = np.concatenate([scores[:1_900], scores[1_900:] + 1])
    with using("events"):
        evaluate(store, [1], place)
        grow(store, grown[1_900:], None)
        actual = evaluate(store, [1], place)
        assert chunk_reads(store) <= 40 + 4
        assert same(actual, evaluate(grown, [1]))


@pytest.mark.slow
def test_checkpoint__of_an_interrupted_run_reads_what_is_missing():
    scores, labels, _ = Simulation(2_000, 20).rows(0, 2_000)
    store, place = stored(scores, labels, (50, 20)), MemoryStore()
    random.seed(0)
    with using("waves"), dask.config.set({"avgk.max-events": 2_000, "avgk.task-bytes": 8_000}):
        expected = evaluate(store, [1, 2])
        n_fresh, n_read, n_kills = chunk_reads(store), 0, 0
        while True:
            try:
                actual = evaluate(store, [1, 2], BreakingStore(place, random.randint(1, 12)))
                break
            except Interruption:
                n_kills += 1
        n_read = chunk_reads(store)
    assert same(actual, expected)
    assert n_kills > 5
    assert n_read <= n_fresh + 2 * n_kills  # a group of two bands for each


def test_checkpoint__is_used_with_other_settings_and_threads(tmp_path):
    simulate_store(tmp_path / "s.zarr", Simulation(4_000, 50), chunks=(100, 50))
    store = CountingStore(LocalStore(tmp_path / "s.zarr", read_only=True))
    with using("events"):
        expected = evaluate(store, [1, 2], tmp_path / "checkpoint")
    chunk_reads(store)
    other = {
        "avgk.task-bytes": 1 << 20,
        "avgk.max-events": 1 << 18,
        "avgk.band-bytes": 1 << 18,
        "avgk.pilot-share": 0.5,
    }
    with dask.config.set({**other, "avgk.small-scores": 0}):
        assert same(evaluate(store, [1, 2], tmp_path / "checkpoint"), expected)
    assert chunk_reads(store) == 0


SECOND = """
import hashlib, sys, dask, avgk_dask as avgk
from avgk_dask.store.read import direct
read, seen = direct._read_file, []
direct._read_file = lambda path, *rest: (seen.append(path), read(path, *rest))[1]
with dask.config.set({"avgk.small-scores": 0, "avgk.kept-bytes": 0}):
    actual = avgk.evaluate(sys.argv[1], k=[1, 2], checkpoint=sys.argv[2])
digest = hashlib.sha256(b"".join(actual[name].values.tobytes() for name in sorted(actual.variables)))
print(sum("/scores/" in path for path in seen), digest.hexdigest())
"""


@pytest.mark.slow
def test_checkpoint__is_found_by_another_process(tmp_path):
    simulate_store(tmp_path / "s.zarr", Simulation(4_000, 50), chunks=(100, 50))
    command = [sys.executable, "-c", SECOND, str(tmp_path / "s.zarr"), str(tmp_path / "checkpoint")]
    one, other = (subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(2))
    assert int(one[0]) > 40
    assert int(other[0]) == 0
    assert one[1] == other[1]


def test_checkpoint__of_something_else_is_refused_by_name(tmp_path, monkeypatch):
    scores, labels, _ = Simulation(500, 10).rows(0, 500)
    store, place = stored(scores, labels, (50, 10)), tmp_path / "checkpoint"
    evaluate(store, [1], place)
    with pytest.raises(avgk.OptionError, match="straddle was 'True' and is 'False'"):
        evaluate(store, [1], place, straddle=False)
    with pytest.raises(avgk.OptionError, match="function was 'evaluate' and is 'threshold'"):
        avgk.threshold(store, [1], checkpoint=place)
    with pytest.raises(avgk.OptionError, match="belongs to another store"):
        evaluate(stored(scores + 1, labels, (50, 10)), [1], place)
    with pytest.raises(avgk.OptionError, match="other labels or clusters"):
        evaluate(stored(scores, (labels + 1) % 10, (50, 10)), [1], place)
    with pytest.raises(avgk.OptionError, match=r"500 rows, and this store has 450"):
        evaluate(stored(scores[:450], labels[:450], (50, 10)), [1], place)
    with pytest.raises(avgk.OptionError, match="classes was 10 and is 9"):
        evaluate(stored(scores[:, :9], None, (50, 9)), [1], place)
    with pytest.raises(avgk.OptionError, match="in memory or a Dask array"):
        evaluate(scores, [1], place)
    with pytest.raises(avgk.OptionError, match="path, a URL or a Zarr store; got 7"):
        evaluate(store, [1], 7)
    monkeypatch.setattr(checkpoints, "version", lambda _: "9.9")
    with pytest.raises(avgk.OptionError, match=r"avgk_dask was '.*' and is '9.9'"):
        evaluate(store, [1], place)


@pytest.mark.slow
def test_checkpoint__that_is_damaged_is_computed_again(tmp_path):
    scores, labels, _ = Simulation(1_000, 10).rows(0, 1_000)
    store, place = stored(scores, labels, (50, 10)), tmp_path / "checkpoint"
    with using("waves"):
        expected = evaluate(store, [1, 2], place)
        for file in sorted(path for path in place.rglob("*") if path.is_file()):
            data = file.read_bytes()
            kinds = b"", data[: len(data) // 2], bytes([*data[:40], data[40] ^ 1, *data[41:]])
            # A damaged request may still name another one, which is then refused.
            file.write_bytes(b"" if file.name == "request.json" else kinds[len(file.name) % 3])
            assert same(evaluate(store, [1, 2], place), expected)
    assert json.loads((place / "request.json").read_text())["function"] == "evaluate"


def test_checkpoint__reads_again_the_bands_whose_chunks_changed():
    scores, labels, _ = Simulation(1_000, 10).rows(0, 1_000)
    store, place = stored(scores, labels, (50, 10)), MemoryStore()
    with using("events"):
        evaluate(store, [1, 2], place)
        changed = scores.copy()
        changed[120:130] = 1 / 10
        zarr.open_group(store, mode="r+")["scores"][120:130] = changed[120:130]
        store.reads.clear()
        assert same(evaluate(store, [1, 2], place), evaluate(changed, [1, 2], labels=labels))
        assert chunk_reads(store) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("top_m", [None, 8])
def test_checkpoint__serves_every_function_that_scans(tmp_path, top_m):
    scores, labels, _ = Simulation(1_000, 10).rows(0, 1_000)
    path = tmp_path / "s.zarr"
    with avgk.ScoreWriter(path, n_classes=10, chunk_rows=100, top_m=top_m) as writer:
        writer.append(scores, labels)
    calls = {
        "threshold": ([1],),
        "straddle_strength": ([1],),
        "ranked_supports": ([1, 2],),
        "supports_overlap": ([1],),
        "average_set_size_at": ([0.9],),
        "threshold_at": ([0.5],),
        "risk": (),
        "evaluate": (),
        "breakdown": (None, 1),
        "transfer": (path,),
    }
    options_of = {
        "best_threshold": {"cost": 0.1},
        "risk": {"cost": 0.1, "thresholds": [0.9]},
        "evaluate": {"k": [1]},
        "transfer": {"k": 1},
    }
    if top_m is None:
        calls |= {"error_curve": (), "best_threshold": (), "smallest_k": ()}
        options_of["smallest_k"] = {"max_error": 0.1}
        options_of["evaluate"] |= {"k": [1, 2], "ties": "spread"}
    for name, arguments in calls.items():
        options = options_of.get(name, {})
        place = tmp_path / name
        with using("events"):
            expected = getattr(avgk, name)(path, *arguments, **options)
            for is_finished in (False, True):
                actual = getattr(avgk, name)(path, *arguments, **options, checkpoint=place)
                if not hasattr(actual, "attrs"):
                    reads = {"reads": 0} if is_finished and hasattr(actual, "reads") else {}
                    assert actual == (dataclasses.replace(expected, **reads) if reads else expected)
                    continue
                names = [reads for reads in ("reads", "calibration_reads") if reads in expected.attrs]
                for reads in names:  # a pass that a call asks for twice is kept from the first time on
                    n = expected.attrs[reads]
                    assert actual.attrs[reads] == 0 if is_finished else 0 < actual.attrs[reads] <= n
                assert actual.assign_attrs({reads: expected.attrs[reads] for reads in names}).identical(expected)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["rows", "waves"])
def test_reads__count_those_of_this_call(engine):
    scores, labels, _ = Simulation(1_050, 10).rows(0, 1_050)
    store, place = stored(scores[:1_000], labels[:1_000], (50, 10), 50), MemoryStore()
    with using(engine):
        fresh = evaluate(store, [1, 2]).attrs["reads"]
        assert fresh >= 1
        counts = []
        for n_writes in (8, 30, 1 << 30):
            try:
                counts.append(evaluate(store, [1, 2], BreakingStore(place, n_writes)).attrs["reads"])
            except Interruption:
                continue
        assert 1 <= counts[0] <= fresh  # of which a part was kept
        for key in [key for key in place._store_dict if "/all-" in key]:
            del place._store_dict[key]  # as in a run that was killed after its last task
        chunk_reads(store)
        assert evaluate(store, [1, 2], place).attrs["reads"] == chunk_reads(store) == 0
        assert evaluate(store, [1, 2], place).attrs["reads"] == 0
        grow(store, scores[1_000:], labels[1_000:])
        assert evaluate(store, [1, 2], place).attrs["reads"] >= 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("engine", ["rows", "events", "waves"])
def test_checkpoint__with_a_file_in_the_place_of_another_computes_that_again(tmp_path, engine):
    """As after a restore that went wrong: the file is sound, and its hash is its own."""
    scores, labels, _ = Simulation(1_000, 10).rows(0, 1_000)
    store, place = stored(scores, labels, (50, 10)), tmp_path / "checkpoint"
    with using(engine):
        expected = evaluate(store, [1, 2], place)
        chunk_reads(store)
        for folder in [*(place / "states").iterdir(), place / "searches" / "0"]:
            files = sorted(folder.iterdir())
            held = {path: path.read_bytes() for path in files}
            for path, other in zip(files, files[1:] + files[:1], strict=True):
                path.write_bytes(held[other])
            assert same(evaluate(store, [1, 2], place), expected)
        assert chunk_reads(store) > 0


@pytest.mark.slow
def test_checkpoint__with_files_of_another_one_does_not_use_them(tmp_path):
    scores, labels, _ = Simulation(1_000, 10).rows(0, 1_000)
    store = stored(scores, labels, (50, 10))
    with using("waves"):
        expected = evaluate(store, [1, 2])
        evaluate(stored(scores[::-1], labels[::-1], (50, 10)), [3, 4], tmp_path / "other", straddle=False)
        for name in ("bands", "searches"):
            place = tmp_path / f"with {name}"
            evaluate(store, [1, 2], place)
            there, other = place / name, tmp_path / "other" / name
            shutil.rmtree(there) if there.is_dir() else there.unlink()
            shutil.copytree(other, there) if other.is_dir() else shutil.copy(other, there)
            assert same(evaluate(store, [1, 2], place), expected)


@pytest.mark.slow
def test_wave__comes_back_with_the_same_token():
    plans = []

    class Watched(ThresholdSearch):
        def next_pass(self):
            following = super().next_pass()
            if following is not None and following.name == "scan":
                plans.append(following.plan)
            return following

    scores, labels, _ = Simulation(2_000, 10).rows(0, 2_000)
    with using("waves"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("avgk_dask.statistics.thresholds.ThresholdSearch", Watched)
        for dtype in ("float32", "float16", "int16", "uint64"):
            values = scores if "f" in dtype else scores * 1000
            evaluate(stored(values.astype(dtype), labels, (50, 10)), [1, 2])
    assert len(plans) > 4
    for plan in plans:
        again = Wave.from_bytes(b"".join(Wave.from_plan(plan, range(3)).to_parts())).plan
        assert token_of(again) == token_of(plan)


def test_shelves__tell_what_fails(tmp_path):
    (tmp_path / "file").write_text("")
    store = stored(np.eye(100, 4, dtype="f4"), None, (10, 4))
    with pytest.raises(avgk.StoreError, match=r"request\.json of"):
        evaluate(store, [1], tmp_path / "file" / "checkpoint")


def test_format__of_checkpoints_is_told(tmp_path):
    evaluate(stored(np.eye(100, 4, dtype="f4"), None, (10, 4)), [1], tmp_path)
    request = json.loads(pathlib.Path(tmp_path / "request.json").read_text())
    assert request["format"] == checkpoints.FORMAT
    assert request["avgk_dask"] == avgk.__version__


@pytest.mark.slow
@pytest.mark.parametrize("n_more", [1, 100])
def test_checkpoint__of_a_store_that_a_writer_appended_to_reads_what_is_new(tmp_path, n_more):
    scores, labels, _ = Simulation(10_000 + n_more, 20).rows(0, 10_000 + n_more)
    path = tmp_path / "s.zarr"
    with avgk.ScoreWriter(path, n_classes=20, chunk_rows=30) as writer:
        writer.append(scores[:10_000], labels[:10_000])
    store = CountingStore(LocalStore(path, read_only=True))
    with using("events"):
        evaluate(store, [1, 2, 5], tmp_path / "checkpoint")
        with avgk.ScoreWriter(path, append=True) as writer:
            writer.append(scores[10_000:], labels[10_000:])
        chunk_reads(store)
        actual = evaluate(store, [1, 2, 5], tmp_path / "checkpoint")
        assert chunk_reads(store) <= 0.03 * 334
        assert same(actual, evaluate(scores, [1, 2, 5], labels=labels))


def changed(store, name, **document):
    """Edit the metadata of an array as no writer of ours would."""
    path = pathlib.Path(store) / name / "zarr.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | document))


def test_checkpoint__is_of_what_the_chunks_mean(tmp_path):
    path, scores = tmp_path / "s.zarr", np.random.default_rng(0).integers(0, 1000, (200, 5)).astype("i2")
    array = zarr.open_group(path, mode="w").create_array("scores", data=scores, chunks=(20, 5))
    array.attrs["scale_factor"] = 0.001
    evaluate(path, [1], tmp_path / "checkpoint")
    changed(path, "scores", attributes={"scale_factor": 0.002})
    with pytest.raises(avgk.OptionError, match="belongs to another store"):
        evaluate(path, [1], tmp_path / "checkpoint")


def test_checkpoint__sees_changes_behind_links(tmp_path):
    path, scores = tmp_path / "s.zarr", np.random.default_rng(0).random((200, 5), "f4")
    array = zarr.open_group(path, mode="w").create_array("scores", data=scores, chunks=(20, 5))
    (path / "scores" / "c").rename(tmp_path / "chunks")
    (path / "scores" / "c").symlink_to(tmp_path / "chunks")
    (tmp_path / "chunks" / "nowhere").symlink_to(tmp_path / "nothing")
    evaluate(path, [1], tmp_path / "checkpoint")
    array[20:40] = scores[20:40] + 5
    assert same(evaluate(path, [1], tmp_path / "checkpoint"), evaluate(path, [1]))


def test_checkpoint__tells_large_labels_from_negative_ones():
    scores, labels = np.eye(50, 5, dtype="f4"), np.zeros(50, np.int64)
    labels[3] = -1
    store, place = stored(scores, None, (10, 5)), MemoryStore()
    evaluate(store, [1], place, labels=labels)
    with pytest.raises(avgk.OptionError, match="other labels or clusters"):
        evaluate(store, [1], place, labels=labels.astype(np.uint64))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["rows", "events", "waves"])
def test_checkpoint__of_a_store_that_grows_again_and_again_reads_what_is_new(engine):
    scores, labels, _ = Simulation(2_500, 10).rows(0, 2_500)
    store, place = stored(scores[:2_000], labels[:2_000], (20, 10), 100), MemoryStore()
    with using(engine), dask.config.set({"avgk.max-events": 20_000, "avgk.least-events": 5_000}):
        evaluate(store, [1, 2], place)
        for first in range(2_000, 2_300, 100):
            grow(store, scores[first : first + 100], labels[first : first + 100])
            actual = evaluate(store, [1, 2], place)
            assert chunk_reads(store) <= 5
        assert same(actual, evaluate(store, [1, 2]))


@pytest.mark.slow
@pytest.mark.parametrize("n_writes", [4, 9, 16, 30])
def test_checkpoint__of_other_budgets_that_was_killed_goes_on(n_writes):
    scores, labels, _ = Simulation(2_000, 10).rows(0, 2_000)
    store, place = stored(scores, labels, (50, 10)), MemoryStore()
    with using("waves"), dask.config.set({"avgk.max-events": 600}):
        evaluate(store, [1], place, straddle=False)
        with contextlib.suppress(Interruption):
            evaluate(store, [1, 2], BreakingStore(place, n_writes), straddle=False)
        assert same(evaluate(store, [1, 2], place, straddle=False), evaluate(store, [1, 2], straddle=False))


def test_checkpoint__of_larger_workers_is_not_used_where_it_would_not_fit(monkeypatch):
    scores, labels, _ = Simulation(2_000, 10).rows(0, 2_000)
    store, place = stored(scores, labels, (50, 10)), MemoryStore()
    with using("rows"):
        expected = evaluate(store, [1], place)
        chunk_reads(store)
        monkeypatch.setattr("avgk_dask.statistics.thresholds.fits", lambda *_: False)
        with dask.config.set({"avgk.kept-bytes": 0}):
            assert same(evaluate(store, [1], place), expected)
        assert chunk_reads(store) >= 40


def test_checkpoint__inside_its_store_is_refused(tmp_path):
    simulate_store(tmp_path / "s.zarr", Simulation(200, 5), chunks=(50, 5))
    before = sorted(tmp_path.rglob("*"))
    for place in (tmp_path / "s.zarr", tmp_path / "s.zarr" / "checkpoint", f"{tmp_path}/s.zarr/"):
        with pytest.raises(avgk.OptionError, match="must not be inside the store"):
            avgk.evaluate(tmp_path / "s.zarr", k=1, checkpoint=place)
    assert sorted(tmp_path.rglob("*")) == before
    avgk.evaluate(tmp_path / "s.zarr", k=1, checkpoint=tmp_path / "s.zarr-checkpoint")


@pytest.mark.sample(1)
@pytest.mark.parametrize("lazily", [lambda s: s, avgk.softmax, avgk.sigmoid])
def test_checkpoint__is_found_under_any_name_of_the_store(tmp_path, monkeypatch, lazily):
    simulate_store(tmp_path / "s.zarr", Simulation(2_000, 20), chunks=(100, 20))
    monkeypatch.chdir(tmp_path)
    reads = []
    for place in ("s.zarr", "./s.zarr", tmp_path / "s.zarr"):
        store = CountingStore(LocalStore(place, read_only=True))
        names = {"s.zarr": place, "store": store}
        avgk.threshold(lazily(names["s.zarr"]), 2, checkpoint=tmp_path / "checkpoint")
        avgk.threshold(lazily(store), 2, checkpoint=tmp_path / "checkpoint")
        reads.append(sum(store.chunk_reads().values()))
    assert reads == [0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"ignore_index": -1}, {"where": True}])
def test_checkpoint__of_a_softmax_with_a_mask_reads_what_is_new(tmp_path, options):
    scores, labels, _ = Simulation(10_100, 20).rows(0, 10_100)
    labels[::7] = -1
    path = tmp_path / "s.zarr"
    with avgk.ScoreWriter(path, n_classes=20, chunk_rows=30) as writer:
        writer.append(scores[:10_000], labels[:10_000])
    store = CountingStore(LocalStore(path, read_only=True))

    def evaluate_first(n, place):
        mask = {"where": np.arange(n) % 5 > 0} if "where" in options else options
        with dask.config.set({"avgk.band-bytes": 0, "avgk.small-scores": 0}):
            return avgk.evaluate(avgk.softmax(store), k=[1, 2], straddle=False, checkpoint=place, **mask)

    evaluate_first(10_000, tmp_path / "checkpoint")
    with avgk.ScoreWriter(path, n_classes=20, append=True) as writer:
        writer.append(scores[10_000:], labels[10_000:])
    store.reads.clear()
    again = evaluate_first(10_100, tmp_path / "checkpoint")
    assert sum(store.chunk_reads().values()) <= 0.03 * 337
    assert again.drop_attrs().identical(evaluate_first(10_100, None).drop_attrs())


def test_checkpoint__whose_request_is_damaged_begins_anew(tmp_path):
    scores, labels, _ = Simulation(500, 10).rows(0, 500)
    store, place = stored(scores, labels, (50, 10)), tmp_path / "checkpoint"
    expected = evaluate(store, [1], place)
    request = place / "request.json"
    request.write_text(request.read_text().replace("class numbers", "clars numbers"))
    assert evaluate(store, [1], place).drop_attrs().identical(expected.drop_attrs())
    assert "class numbers" in request.read_text()


def test_checkpoint__of_one_function_is_refused_by_those_that_keep_folders(tmp_path):
    simulate_store(tmp_path / "s.zarr", Simulation(500, 10), chunks=(50, 10))
    avgk.evaluate(tmp_path / "s.zarr", k=1, checkpoint=tmp_path / "checkpoint")
    with pytest.raises(avgk.OptionError, match="belongs to another request"):
        avgk.transfer(tmp_path / "s.zarr", tmp_path / "s.zarr", k=1, checkpoint=tmp_path / "checkpoint")
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir() if path.is_file()) == [
        "bands",
        "request.json",
    ]
