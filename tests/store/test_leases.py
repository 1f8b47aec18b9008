"""Leases: one writer at a time, everywhere; a dead one's is taken over at once, a distant one's after its time."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import uuid
import warnings

import numpy as np
import pytest
import zarr
from zarr.core.sync import sync
from zarr.storage import MemoryStore

import avgk_dask as avgk
from avgk_dask.store.write import leases
from avgk_dask.store.write.lease_storage import FOLDER, leases_of
from avgk_dask.store.write.leases import Process
from avgk_dask.store.write.targets import check_target, claim, holds_anything, writable
from avgk_dask.testing import Simulation, simulate_store

SCORES = np.random.default_rng(1).random((60, 4), dtype=np.float32)
BUSY = "is being written by process"


def tree(path):
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(pathlib.Path(path).rglob("*")) if p.is_file()}


@pytest.fixture(params=["local", "memory", "opened", "obstore", "fsspec"])
def anywhere(request, tmp_path):
    """Give a new place of each kind, and its options."""
    if request.param == "local":
        return tmp_path / "a.zarr", None
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}.zarr", None
    if request.param == "opened":
        return MemoryStore(), None
    return f"s3://scores/{uuid.uuid4().hex}.zarr", {**request.getfixturevalue("s3"), "client": request.param}


def keys(path, options):
    async def listed(store):
        await store._ensure_open()
        return sorted([key async for key in store.list()])

    return sync(listed(writable(path, options)[0]))


def elsewhere(monkeypatch):
    """Let leases taken from now on seem those of another machine; give the function that ends this."""
    here = Process.here

    def there():
        real = here()
        return Process("elsewhere", "another boot", real.pid, real.started)

    monkeypatch.setattr(Process, "here", there)
    return lambda: monkeypatch.setattr(Process, "here", here)


def later(monkeypatch, seconds):
    monkeypatch.setattr(leases, "now", lambda real=leases.time.time: real() + seconds)


@pytest.mark.sample(2)
@pytest.mark.parametrize("how", [{"resume": True}, {"overwrite": True}, {}])
def test_writer__refuses_a_second_one(anywhere, how):
    path, options = anywhere
    first = avgk.ScoreWriter(path, 4, chunk_rows=8, storage_options=options)
    first.append(SCORES[:20])
    with pytest.raises(avgk.StoreError, match=BUSY) as refused:
        avgk.ScoreWriter(path, 4, chunk_rows=8, storage_options=options, **how)
    assert not isinstance(refused.value, avgk.WriteError)
    first.append(SCORES[20:])
    first.close()
    assert np.array_equal(avgk.open_scores(path, storage_options=options).scores.values, SCORES)
    assert not [key for key in keys(path, options) if FOLDER in key]


def test_refusal__says_who_since_when_and_what_to_remove(tmp_path):
    first = avgk.ScoreWriter(tmp_path / "a.zarr", 4)
    with pytest.raises(avgk.StoreError) as refused:
        avgk.ScoreWriter(tmp_path / "a.zarr", 4, resume=True)
    (lease,) = (tmp_path / "a.zarr" / FOLDER).iterdir()
    holder = json.loads(lease.read_bytes())
    mine = Process.here()
    assert (holder["process"]["pid"], holder["process"]["host"], holder["lasts"]) == (mine.pid, mine.host, 900)
    assert len(holder["owner"]) == 32
    assert f"process {mine.pid} on {mine.host} since 20" in str(refused.value)
    assert f"remove {tmp_path / 'a.zarr' / FOLDER} and try again" in str(refused.value)
    lease.unlink()  # as the message says
    avgk.ScoreWriter(tmp_path / "a.zarr", 4, resume=True)
    first.append(SCORES)
    with pytest.raises(avgk.WriteError, match="taken over by another process"):
        first.close()


def test_everything_that_writes__refuses_a_place_that_is_written(tmp_path):
    path = tmp_path / "a.zarr"
    np.save(tmp_path / "s.npy", SCORES)
    from avgk_dask.api.written_sets import SetChoice, write_sets

    held = avgk.ScoreWriter(path, 4)
    before = tree(path)
    for overwrite in (False, True):
        for write in (
            lambda: avgk.ingest(tmp_path / "s.npy", out=path, overwrite=overwrite),  # noqa: B023
            lambda: write_sets(SCORES, path, SetChoice(k=1), overwrite=overwrite),  # noqa: B023
            lambda: simulate_store(path, Simulation(30, 4), overwrite=overwrite),  # noqa: B023
            lambda: avgk.join_parts(path),
        ):
            with pytest.raises(avgk.StoreError, match=BUSY):
                write()
            assert tree(path) == before
    held.append(SCORES)
    held.close()
    assert avgk.verify(path).ok
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.zarr", "s.npy"]


def test_runs__that_replace_a_store_hold_it_meanwhile(tmp_path):
    """Even during the search for a threshold, before anything is written."""
    import dask.array as da

    from avgk_dask.api.written_sets import SetChoice, write_sets

    path, tried = tmp_path / "a.zarr", []
    simulate_store(path, Simulation(30, 4))
    before = tree(path)

    def look(block):
        with pytest.raises(avgk.StoreError, match=BUSY):
            avgk.ScoreWriter(path, 4, overwrite=True)
        tried.append(1)
        assert {name: data for name, data in tree(path).items() if FOLDER not in name} == before
        return block

    scores = da.from_array(SCORES, chunks=(20, 4)).map_blocks(look, dtype=SCORES.dtype, meta=SCORES[:0])
    write_sets(scores, path, SetChoice(k=1), overwrite=True)
    assert tried
    assert zarr.open_group(path, mode="r")["sets"].shape == (60, 4)
    assert [p.name for p in tmp_path.iterdir()] == ["a.zarr"]


def test_run__refused_or_failed_leaves_the_other_ones_store_alone(tmp_path, monkeypatch):
    """After a failure a run removes only its own files, even if another writer has begun meanwhile."""
    import dask.array as da

    from avgk_dask.api.written_sets import SetChoice, write_sets

    path = tmp_path / "a.zarr"

    def fail(block):
        raise RuntimeError("no scores")

    with avgk.ScoreWriter(path, 4) as writer:
        writer.append(SCORES)
    before = tree(path)
    scores = da.from_array(SCORES, chunks=(20, 4)).map_blocks(fail, dtype=SCORES.dtype, meta=SCORES[:0])
    for overwrite in (False, True):
        with pytest.raises((RuntimeError, avgk.StoreError)):
            write_sets(scores, path, SetChoice(k=1), overwrite=overwrite)
        assert tree(path) == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.zarr"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("client", ["obstore", "fsspec"])
def test_run__that_fails_before_it_writes_leaves_a_distant_store(s3, client):
    import dask.array as da

    from avgk_dask.api.written_sets import SetChoice, write_sets

    path, options = f"s3://scores/{uuid.uuid4().hex}.zarr", {**s3, "client": client}
    with avgk.ScoreWriter(path, 4, storage_options=options) as writer:
        writer.append(SCORES)
    before = keys(path, options)

    def fail(block):
        raise RuntimeError("no scores")

    scores = da.from_array(SCORES, chunks=(20, 4)).map_blocks(fail, dtype=SCORES.dtype, meta=SCORES[:0])
    with pytest.raises(RuntimeError):
        write_sets(scores, path, SetChoice(k=1), overwrite=True, out_options=options)
    assert keys(path, options) == before
    assert avgk.verify(path, storage_options=options).ok


@pytest.mark.sample(1)
def test_overwriting__leaves_nothing_of_the_old_store(anywhere):
    path, options = anywhere
    with avgk.ScoreWriter(path, 4, chunk_rows=8, storage_options=options) as writer:
        writer.append(SCORES, np.zeros(60, int))
    with avgk.ScoreWriter(path, 4, storage_options=options, overwrite=True) as writer:
        writer.append(SCORES[:9])
    assert not [key for key in keys(path, options) if key.startswith("labels") or FOLDER in key]
    assert avgk.open_scores(path, storage_options=options).sizes["sample"] == 9
    assert avgk.verify(path, storage_options=options).ok


# Holds a store, and says so; then waits for a line, or goes on to the end.
HOLDER = """
import sys, numpy as np, avgk_dask as avgk
path, options = sys.argv[1], dict(pair.split("=", 1) for pair in sys.argv[2:])
writer = avgk.ScoreWriter(path, 4, chunk_rows=8, resume=True, storage_options=options)
writer.append(np.ones((20, 4), np.float32))
print("held", flush=True)
sys.stdin.readline()
writer.close()
"""


@pytest.fixture
def hold():
    """Give a function that starts a process which holds a store; all are ended."""
    started = []

    def start(path, options=None):
        words = [f"{name}={value}" for name, value in (options or {}).items()]
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(path), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("where", ["local", "obstore", "fsspec"])
def test_processes__refuse_each_other_and_a_killed_one_is_resumed_at_once(tmp_path, hold, request, where):
    path, options = tmp_path / "a.zarr", None
    if where != "local":
        path, options = f"s3://scores/{uuid.uuid4().hex}.zarr", {**request.getfixturevalue("s3"), "client": where}
    other = hold(path, options)
    with pytest.raises(avgk.StoreError, match=f"{BUSY} {other.pid} on"):
        avgk.ScoreWriter(path, 4, chunk_rows=8, resume=True, storage_options=options)
    other.send_signal(signal.SIGKILL)
    other.wait()
    how = {"chunk_rows": 8, "resume": True, "storage_options": options}
    with pytest.warns(avgk.LeftoverWarning, match=f"process {other.pid} on .* stopped while writing .*takes over"):
        writer = avgk.ScoreWriter(path, 4, **how)
    n = writer.n_samples
    assert n == (16 if where == "local" else 0)  # a shard of four chunks is not full yet
    writer.append(SCORES[n:])
    writer.close()
    assert np.array_equal(avgk.open_scores(path, storage_options=options).scores.values[n:], SCORES[n:])
    assert not [key for key in keys(path, options) if FOLDER in key]


def test_process__that_ends_lets_go(tmp_path):
    """When the interpreter exits, also after an exception; the next writer gets no warning."""
    for end in ("sys.exit(0)", "raise RuntimeError"):
        path = tmp_path / f"{len(end)}.zarr"
        code = f"import sys, avgk_dask as avgk; writer = avgk.ScoreWriter({str(path)!r}, 4); {end}"
        subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        assert not (path / FOLDER).exists()
        assert (path / "zarr.json").exists()


def test_child_process__does_not_let_go_of_its_parents_lease(tmp_path):
    code = f"""
import os, avgk_dask as avgk
writer = avgk.ScoreWriter({str(tmp_path / "a.zarr")!r}, 4)
child = os.fork()
if not child:
    del writer
    os._exit(0)
os.waitpid(child, 0)
print(os.listdir({str(tmp_path / "a.zarr" / FOLDER)!r}))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.stdout == "['1']\n", done.stderr


def test_writer__lets_go_when_it_fails_is_left_or_forgotten(tmp_path):
    def fails(path):
        with avgk.ScoreWriter(path, 4) as writer:
            writer.append(SCORES)
            raise RuntimeError

    def is_forgotten(path):
        avgk.ScoreWriter(path, 4).append(SCORES)

    def is_empty(path):
        with avgk.ScoreWriter(path, 4):
            pass

    for number, use in enumerate((fails, is_forgotten, is_empty)):
        path = tmp_path / f"{number}.zarr"
        with contextlib.suppress(RuntimeError, avgk.StoreError):
            use(path)
        assert not (path / FOLDER).exists()
        avgk.ScoreWriter(path, 4, resume=True)


def test_writer__that_was_left_by_an_exception_writes_no_more(tmp_path):
    writer = avgk.ScoreWriter(tmp_path / "a.zarr", 4, chunk_rows=8)

    def fail():
        with writer:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with pytest.raises(avgk.WriteError, match="resume=True"):
        writer.append(SCORES)


@pytest.mark.sample(1)
def test_lease__of_another_machine_holds_for_its_time_only(anywhere, monkeypatch):
    path, options = anywhere
    how = {"chunk_rows": 8, "storage_options": options}
    back = elsewhere(monkeypatch)
    first = avgk.ScoreWriter(path, 4, **how)
    first.append(SCORES[:32])
    back()
    later(monkeypatch, 800)
    with pytest.raises(avgk.StoreError, match=f"{BUSY} .* on elsewhere"):
        avgk.ScoreWriter(path, 4, resume=True, **how)
    later(monkeypatch, 1000)
    with pytest.warns(avgk.LeftoverWarning, match="on elsewhere since .*takes over"):
        second = avgk.ScoreWriter(path, 4, resume=True, **how)
    before = keys(path, options)
    with pytest.raises(avgk.WriteError, match="taken over"):
        first.append(SCORES[:32])  # a stored chunk, or shard
    with pytest.raises(avgk.StoreError, match="resume=True"):
        first.close()
    assert keys(path, options) == before
    second.append(SCORES[second.n_samples :])
    second.close()
    assert np.array_equal(avgk.open_scores(path, storage_options=options).scores.values, SCORES)
    assert not [key for key in keys(path, options) if FOLDER in key]


def test_writer__names_the_one_that_took_over(tmp_path, monkeypatch):
    back = elsewhere(monkeypatch)
    first = avgk.ScoreWriter(tmp_path / "a.zarr", 4, chunk_rows=8)
    back()
    later(monkeypatch, 1000)
    with pytest.warns(avgk.LeftoverWarning):
        second = avgk.ScoreWriter(tmp_path / "a.zarr", 4, chunk_rows=8, resume=True)
    mine = Process.here()
    with pytest.raises(avgk.WriteError, match=f"taken over by process {mine.pid} on {mine.host}"):
        first.append(SCORES)
    with second:
        second.append(SCORES)


@pytest.mark.sample(1)
def test_writer__is_stopped_at_its_end_too(anywhere, monkeypatch):
    """Even if all of its rows are written at the end, when it finishes."""
    path, options = anywhere
    back = elsewhere(monkeypatch)
    first = avgk.ScoreWriter(path, 4, storage_options=options)
    first.append(SCORES)
    back()
    later(monkeypatch, 1000)
    with pytest.warns(avgk.LeftoverWarning):
        second = avgk.ScoreWriter(path, 4, resume=True, storage_options=options)
    second.append(SCORES[:30])
    second.close()
    with pytest.raises(avgk.WriteError, match="taken over"):
        first.close()
    assert avgk.verify(path, storage_options=options).ok
    assert avgk.open_scores(path, storage_options=options).sizes["sample"] == 30


@pytest.mark.sample(1)
def test_lease__is_renewed_when_a_third_of_its_time_has_passed(anywhere, monkeypatch):
    path, options = anywhere
    elsewhere(monkeypatch)
    writer = avgk.ScoreWriter(path, 4, chunk_rows=8, storage_options=options)
    place = leases_of(writable(path, options)[0])

    def renewed():
        lease = place.newest()
        return lease.modified, lease.data

    before = renewed()
    writer.append(SCORES[:8])
    assert renewed() == before
    later(monkeypatch, 400)
    writer.append(SCORES[8:56])
    assert renewed() != before
    writer.close()


def test_lease__is_renewed_while_a_writer_waits(tmp_path, monkeypatch):
    """By a thread: a model may take longer for a chunk than a lease lasts."""
    monkeypatch.setattr(leases, "LASTS", 0.03)
    renewed = threading.Event()
    from avgk_dask.store.write.lease_storage import LeaseFiles

    renew = LeaseFiles.renew

    def notify(self, lease, data):
        renew(self, lease, data)
        renewed.set()

    monkeypatch.setattr(LeaseFiles, "renew", notify)
    writer = avgk.ScoreWriter(tmp_path / "a.zarr", 4)
    assert renewed.wait(60)
    writer.append(SCORES)
    writer.close()
    threads = [thread for thread in threading.enumerate() if thread.name == "avgk-lease" and thread.is_alive()]
    for thread in threads:
        thread.join(60)
    assert not [thread for thread in threads if thread.is_alive()]


RACER = """
import sys, warnings, numpy as np, avgk_dask as avgk
print("ready", flush=True)
sys.stdin.readline()
try:
    with avgk.ScoreWriter(sys.argv[1], 4, resume=sys.argv[2] == "resume") as writer:
        writer.append(np.full((5, 4), int(sys.argv[3]), np.float32))
        print("won", flush=True)
        sys.stdin.readline()
except avgk.StoreError as error:
    print("lost", "being written" in str(error) or "exists already" in str(error), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["new", "resume", "stale"])
def test_processes__that_start_at_once_are_all_refused_but_one(tmp_path, how, hold):
    path = tmp_path / "a.zarr"
    if how == "stale":
        other = hold(path)
        other.send_signal(signal.SIGKILL)
        other.wait()
        shutil.rmtree(path / "scores")
        (path / "zarr.json").unlink()
    command = [sys.executable, "-W", "ignore", "-c", RACER, str(path), "new" if how == "new" else "resume"]
    racers = [
        subprocess.Popen([*command, str(i)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for i in range(4)
    ]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    answers = [racer.stdout.readline().strip() for racer in racers]
    for racer in racers:
        racer.communicate("end\n")
    assert sorted(answers) == ["lost True"] * 3 + ["won"]
    assert np.all(avgk.open_scores(path).scores.values == answers.index("won"))
    assert not (path / FOLDER).exists()


def test_a_place__that_another_begins_during_the_check_is_reported_as_being_written(tmp_path):
    path = tmp_path / "a.zarr"
    store, location = writable(path)
    others = []

    def check():  # sees the store of one that was quicker
        others.append(avgk.ScoreWriter(path, 4))
        check_target(store, location, False)

    with pytest.raises(avgk.StoreError, match=BUSY):
        claim(store, location, check)


def test_a_folder__that_another_makes_during_the_look_is_empty(tmp_path, monkeypatch):
    path = tmp_path / "a.zarr"

    def made(look):
        def looked(*given):
            try:
                return look(*given)
            finally:
                path.mkdir(exist_ok=True)

        return looked

    monkeypatch.setattr(os, "listdir", made(os.listdir))
    monkeypatch.setattr(pathlib.Path, "is_dir", made(pathlib.Path.is_dir))
    assert not holds_anything(writable(path)[0])


@pytest.mark.sample(1)
def test_threads__that_start_at_once_are_all_refused_but_one(anywhere):
    path, options = anywhere
    start, won, lost = threading.Barrier(5), [], []

    def race():
        start.wait()
        try:
            won.append(avgk.ScoreWriter(path, 4, resume=True, storage_options=options))
        except avgk.StoreError as error:
            lost.append(str(error))

    threads = [threading.Thread(target=race) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 4)
    assert all("being written" in text for text in lost)


@pytest.mark.sample(1)
def test_threads__that_take_over_at_once_are_all_refused_but_one(anywhere, monkeypatch):
    path, options = anywhere
    back = elsewhere(monkeypatch)
    left = avgk.ScoreWriter(path, 4, storage_options=options)
    back()
    later(monkeypatch, 1000)
    start, won, lost = threading.Barrier(4), [], []

    def race():
        start.wait()
        try:
            won.append(avgk.ScoreWriter(path, 4, resume=True, storage_options=options))
        except avgk.StoreError as error:
            lost.append(str(error))

    threads = [threading.Thread(target=race) for _ in range(4)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", avgk.LeftoverWarning)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (len(won), len(lost)) == (1, 3)
    left.append(SCORES)
    with pytest.raises(avgk.WriteError, match="taken over"):
        left.close()


@pytest.mark.sample(1)
def test_parts__have_leases_of_their_own_and_a_join_waits_for_all(anywhere):
    path, options = anywhere
    if isinstance(path, MemoryStore):
        pytest.skip("parts need a path")
    writers = [avgk.ScoreWriter(path, 4, part=i, chunk_rows=8, storage_options=options) for i in range(2)]
    with pytest.raises(avgk.StoreError, match=BUSY):
        avgk.ScoreWriter(path, 4, part=1, chunk_rows=8, resume=True, storage_options=options)
    for number, writer in enumerate(writers):
        writer.append(SCORES[:20])
        for use in (
            lambda: avgk.join_parts(path, storage_options=options),
            lambda: avgk.ScoreWriter(path, 4, overwrite=True, storage_options=options),
        ):
            with pytest.raises(avgk.StoreError, match=f"part {number} of .* {BUSY}"):
                use()
        writer.close()
    avgk.join_parts(path, 2, storage_options=options)
    assert avgk.open_scores(path, storage_options=options).sizes["sample"] == 40
    assert not [key for key in keys(path, options) if FOLDER in key]


def test_part__is_refused_while_a_join_is_at_work(tmp_path, monkeypatch):
    from avgk_dask.store.write import joining

    path = tmp_path / "a.zarr"
    for part in range(2):
        with avgk.ScoreWriter(path, 4, part=part, chunk_rows=8) as writer:
            writer.append(SCORES)
    join = joining._join

    def meanwhile(*arguments):
        for use in (lambda: avgk.join_parts(path), lambda: avgk.ScoreWriter(path, 4, part=2, chunk_rows=8)):
            with pytest.raises(avgk.StoreError, match=BUSY):
                use()
        join(*arguments)

    monkeypatch.setattr(joining, "_join", meanwhile)
    avgk.join_parts(path)
    assert avgk.open_scores(path).sizes["sample"] == 120


def test_finished_store__is_the_same_however_it_was_written(tmp_path, monkeypatch):
    def write(name, bounds):
        for last in bounds:
            with avgk.ScoreWriter(tmp_path / name, 4, chunk_rows=8, resume=True) as writer:
                writer.append(SCORES[writer.n_samples : last])
                if last < 60:
                    break_off = RuntimeError("stopped")
                    try:
                        raise break_off
                    except RuntimeError:
                        writer.__exit__(RuntimeError, break_off, None)
        return tree(tmp_path / name)

    expected = write("whole.zarr", [60])
    assert not [key for key in expected if FOLDER in key]
    np.save(tmp_path / "s.npy", SCORES)
    avgk.ingest(tmp_path / "s.npy", out=tmp_path / "i.zarr", chunk_rows=8)
    avgk.ingest(tmp_path / "s.npy", out=tmp_path / "i.zarr", chunk_rows=8, overwrite=True)
    assert tree(tmp_path / "i.zarr") == expected
    back = elsewhere(monkeypatch)
    left = avgk.ScoreWriter(tmp_path / "t.zarr", 4, chunk_rows=8)
    left.append(SCORES[:30])
    back()
    later(monkeypatch, 1000)
    with pytest.warns(avgk.LeftoverWarning):
        taken = avgk.ScoreWriter(tmp_path / "t.zarr", 4, chunk_rows=8, resume=True)
    taken.append(SCORES[taken.n_samples :])
    taken.close()
    assert tree(tmp_path / "t.zarr") == expected


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'{"owner": 1}', b"\xff\xfe"])
def test_lease__that_is_damaged_holds_for_its_time(tmp_path, monkeypatch, data):
    folder = tmp_path / "a.zarr" / FOLDER
    folder.mkdir(parents=True)
    (folder / "1").write_bytes(data)
    with pytest.raises(avgk.StoreError, match="is being written by another process"):
        avgk.ScoreWriter(tmp_path / "a.zarr", 4)
    later(monkeypatch, 1000)
    with pytest.warns(avgk.LeftoverWarning, match="takes over"):
        avgk.ScoreWriter(tmp_path / "a.zarr", 4)


def test_process__is_known_by_its_start_too(monkeypatch):
    here = Process.here()
    assert here.is_running()
    assert Process(here.host, here.machine, here.pid, "1").is_running() is False  # its number is used again
    assert Process(here.host, "another boot", here.pid, here.started).is_running() is None
    assert Process("elsewhere", here.machine, here.pid, here.started).is_running() is None
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert Process(here.host, here.machine, ended.pid, "1").is_running() is False


def test_process__that_ended_and_was_not_waited_for_is_gone():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    from avgk_dask.store.write import leases as processes

    here = Process.here()
    mine = Process(here.host, here.machine, child.pid, processes._stat(child.pid)[1])
    assert mine.is_running()
    child.kill()
    child.stdout.read()  # until it has ended; it is waited for below
    assert mine.is_running() is False or processes._stat(child.pid)[0] not in ("Z", "X")
    child.communicate()


def test_store__that_is_being_replaced_can_be_read(tmp_path):
    """Readers do not take a lease for anything: neither avgk, zarr nor xarray, with metadata in one place or not."""
    import xarray as xr

    frame = xr.Dataset({"scores": (("sample", "class"), SCORES)})
    for consolidated in (True, False):
        path = tmp_path / f"{consolidated}.zarr"
        frame.to_zarr(path, zarr_format=3, consolidated=consolidated)
        with leases_held(path):
            assert avgk.evaluate(path, k=1).attrs["n_samples"] == 60
            assert avgk.verify(path).ok


class leases_held:  # noqa: N801
    def __init__(self, path):
        self._place = leases_of(writable(path)[0])

    def __enter__(self):
        self._lease = leases.Lease.take(self._place, "a store")

    def __exit__(self, *_):
        self._lease.release()


def test_leased_store__has_no_lease_in_other_processes(tmp_path):
    """Workers of a cluster neither renew nor release the lease."""
    import pickle

    from avgk_dask.store.write.leases import lease_of
    from avgk_dask.store.write.targets import claim

    leased = claim(*writable(tmp_path / "a.zarr"), lambda: None)
    sent = pickle.loads(pickle.dumps(leased))
    assert lease_of(leased)
    assert lease_of(sent) is None
    assert sent == writable(tmp_path / "a.zarr")[0]
    leased.release()
    assert not (tmp_path / "a.zarr").exists()


def test_refusals__show_no_credentials():
    url = f"memory://me:PASSWORD@{uuid.uuid4().hex}.zarr?token=PASSWORD"
    holder = avgk.ScoreWriter(url, 4)
    part = f"memory://me:PASSWORD@{uuid.uuid4().hex}.zarr"
    with avgk.ScoreWriter(part, 4, part=0) as writer:
        writer.append(SCORES)
    lease = leases.Lease.take(leases_of(writable(part)[0]), "a join")
    for use in (
        lambda: avgk.ScoreWriter(url, 4, resume=True),
        lambda: avgk.ScoreWriter(part, 4, part=1),
        lambda: avgk.join_parts(part),
    ):
        with pytest.raises(avgk.StoreError, match="is being written") as refused:
            use()
        assert "PASSWORD" not in str(refused.value)
    lease.release()
    del holder


def test_leases__that_are_not_regular_files_do_not_hang(tmp_path):
    path = tmp_path / "a.zarr"
    (path / ".avgk-lease").mkdir(parents=True)
    os.mkfifo(path / ".avgk-lease" / "1")
    with pytest.raises(avgk.StoreError, match="is being written by another process"):
        avgk.ScoreWriter(path, 3)


@pytest.mark.parametrize("mark", [
    None, b"", b"5", b'{"owner": 5}', b'{"owner": null, "process": {}}',
    b'{"owner": "deadbeef", "process": {"host": "h", "machine": "", "pid": 1.5, "started": ""}, "since": 1, "renewed": 1, "lasts": 1}',
    b'{"owner": "deadbeef", "process": {"host": "h", "machine": "", "pid": 1, "started": ""}, "since": 1e300, "renewed": 1, "lasts": NaN}',
])  # fmt: skip
def test_owner_files__that_are_invalid_are_ignored(tmp_path, mark):
    folder = tmp_path / ".a.zarr-avgk-deadbeef"
    folder.mkdir()
    if mark is None:
        os.mkfifo(folder / "owner")
    else:
        (folder / "owner").write_bytes(mark)
    with pytest.raises(avgk.StoreError, match="no such store"):
        avgk.evaluate(tmp_path / "a.zarr", k=1)
    with avgk.ScoreWriter(tmp_path / "a.zarr", 3) as writer:
        writer.append(np.eye(3))
    assert (folder / "owner").exists()


def test_failed_runs__on_a_link_to_a_folder_end_and_leave_it_empty(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link.zarr").symlink_to("real")
    np.save(tmp_path / "s.npy", np.eye(3))
    with pytest.raises(avgk.LabelsError):
        avgk.ingest(tmp_path / "s.npy", [0, 1, 7], out=tmp_path / "link.zarr")
    assert not list((tmp_path / "real").iterdir())
