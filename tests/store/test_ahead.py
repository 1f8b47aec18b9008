"""Remote stores are read ahead: many concurrent requests, within limits, none of which outlives its task."""

from __future__ import annotations

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import dask
import numpy as np
import pytest
import zarr
from zarr.core.sync import sync
from zarr.storage import MemoryStore, ObjectStore

import avgk_dask as avgk
from avgk_dask.api.inputs.sources import as_source
from avgk_dask.bands.passes import CheckedTally, Pass
from avgk_dask.engine.graph import pass_task
from avgk_dask.engine.memory import memory_limit, project
from avgk_dask.engine.tasks import Assignment, TaskNumbers, read_bands
from avgk_dask.sources import reading
from avgk_dask.sources.planning import group_bands
from avgk_dask.statistics.thresholds import pilot_pass
from avgk_dask.store.read import ahead, bands, checked
from avgk_dask.store.read import checked as ranges
from avgk_dask.store.read.ahead import AHEAD_SHARE, BUDGET, Budget, Part
from avgk_dask.store.read.checked import StoreWrapper
from avgk_dask.store.read.grids import most_bytes
from avgk_dask.testing import CountingStore

SCORES = np.random.default_rng(0).random((104, 13), dtype=np.float32)
#: Seconds a request waits for another one; reached only if a test fails.
PATIENCE = 60


class Watched(StoreWrapper):
    """Answers requests for chunks only once a number of them are pending, or never; records their outcomes."""

    together, bad, stuck = 1, "", False
    n = most = 0
    cancelled: list[str]
    on_all = staticmethod(lambda: None)

    @classmethod
    def reset(cls, together=1, bad="", stuck=False, on_all=lambda: None):
        cls.together, cls.bad, cls.stuck, cls.on_all = together, bad, stuck, staticmethod(on_all)
        cls.n, cls.most, cls.cancelled, cls.opened = 0, 0, [], asyncio.Event()

    async def get(self, key, prototype, byte_range=None):
        if not key.startswith("c/"):
            return await super().get(key, prototype, byte_range)
        cls = Watched
        cls.n += 1
        cls.most = max(cls.most, cls.n)
        try:
            if cls.n == cls.together:
                cls.opened.set()
                cls.on_all()
            async with asyncio.timeout(PATIENCE):  # wait_for may swallow a cancellation before Python 3.12
                await cls.opened.wait()
            if key == cls.bad:
                raise OSError("no answer")
            if cls.stuck:
                async with asyncio.timeout(PATIENCE):
                    await asyncio.Event().wait()
            return await super().get(key, prototype, byte_range)
        except asyncio.CancelledError:
            cls.cancelled.append(key)
            raise
        finally:
            cls.n -= 1


@pytest.fixture
def far(monkeypatch):
    """Treat every store as remote, and run tasks on two separate threads."""
    monkeypatch.setattr(bands, "is_local", lambda store: False)
    monkeypatch.setattr(ahead, "BUDGET", Budget())
    with ThreadPoolExecutor(2, "own") as pool, dask.config.set(pool=pool, num_workers=2, scheduler="threads"):
        yield pool


def read_some(reader, numbers):
    return reader.read_parts([(slice(*reader.rows[band : band + 2]), slice(0, 13)) for band in numbers])


def watched(data=SCORES, **how):
    Watched.reset()
    store = Watched(MemoryStore())
    zarr.create_array(store, data=data, chunks=(4, 13))
    Watched.reset(**how)
    return zarr.open_array(store, mode="r")


def settle():
    """Let the event loop end the cancelled requests."""
    for _ in range(100):
        sync(asyncio.sleep(0))


def test_evaluate__has_many_requests_under_way_on_two_threads(far):
    # With fewer than twenty concurrent requests, none would ever be answered.
    result = avgk.evaluate(watched(together=20), k=[1, 3])
    assert Watched.most >= 20
    assert result.equals(avgk.evaluate(SCORES, k=[1, 3]))


def two_watched(**how):
    """Two arrays with chunks of different rows, whose requests are counted together."""
    stores = [Watched(MemoryStore()) for _ in range(2)]
    Watched.reset()
    for store, data, rows in zip(stores, (SCORES, SCORES[::-1]), (4, 2), strict=True):
        zarr.create_array(store, data=data, chunks=(rows, 13))
    Watched.reset(**how)
    return [zarr.open_array(store, mode="r") for store in stores]


def test_ensemble__reads_all_its_members_ahead(far):
    result = avgk.evaluate(avgk.ensemble(two_watched(together=20)), k=[1, 3])
    assert Watched.most >= 20
    assert result.equals(avgk.evaluate(avgk.ensemble([SCORES, SCORES[::-1]]), k=[1, 3]))


def test_ensemble__ends_the_requests_of_all_members_where_one_fails(far):
    with pytest.raises(avgk.ReadError, match="no answer"):
        avgk.evaluate(avgk.ensemble(two_watched(together=10, bad="c/40/0")), k=1)
    settle()
    assert (Watched.n, ahead.BUDGET.n_bytes, ahead.BUDGET.n_requests) == (0, 0, 0)


def test_soft_labels__are_read_ahead_as_scores_are(far, monkeypatch):
    monkeypatch.setattr(reading, "is_local", lambda store: False)
    eta = SCORES / SCORES.sum(1, keepdims=True)
    result = avgk.evaluate(zarr.create_array({}, data=SCORES, chunks=(4, 13)), watched(together=20, data=eta), k=[1, 3])
    assert Watched.most >= 20
    assert result.equals(avgk.evaluate(SCORES, eta, k=[1, 3]))


def test_pilot__fetches_its_chunks_at_the_same_time(far):
    with dask.config.set({"avgk.small-scores": 1, "avgk.pilot-least": 6, "avgk.pilot-most": 6}):
        # With fewer than these six concurrent requests, none would ever be answered.
        result = avgk.evaluate(watched(together=6), k=[1, 3])
    assert result.drop_attrs().equals(avgk.evaluate(SCORES, k=[1, 3]).drop_attrs())


@pytest.mark.parametrize("n_ahead", [0, 1, 3])
def test_reading_ahead__keeps_to_its_bytes(far, n_ahead):
    array = watched()
    with dask.config.set({"avgk.ahead-bytes": n_ahead * most_bytes(array) + 1}):
        assert avgk.evaluate(array, k=[1, 3]).equals(avgk.evaluate(SCORES, k=[1, 3]))
    assert Watched.most <= 2 + n_ahead  # plus the two that are scanned next
    assert (ahead.BUDGET.n_bytes, ahead.BUDGET.n_requests, ahead.BUDGET.n_readers) == (0, 0, 0)


def test_reading_ahead__keeps_to_a_share_of_the_memory(far, monkeypatch):
    array = watched()
    monkeypatch.setattr(ahead, "process_memory", lambda: AHEAD_SHARE * most_bytes(array))
    avgk.evaluate(array, k=[1, 3])
    assert Watched.most <= 2 + 1


def test_budget__grows_while_scans_wait_and_shrinks_while_they_do_not():
    budget = Budget()
    first = budget.window
    budget.adapt(waited=True)
    assert budget.window > first
    for _ in range(1000):
        budget.adapt(waited=True)
    most = budget.window
    for _ in range(1000):
        budget.adapt(waited=False)
    assert 1 <= budget.window < first < most < 1000


def test_budget__is_shared_by_those_who_read(far):
    source = as_source(watched())
    size = most_bytes(source.reader.array)

    def part(row):
        return Part(source.reader.array, (slice(row, row + 4), slice(0, 13)), size)

    budget = Budget()
    with budget.reader(1), budget.reader(2), budget.reader(2):
        mine = []
        while budget.admit(new := part(4 * len(mine)), mine, 6 * size):
            mine.append(new)
        assert len(mine) == 3
        other = part(40)
        assert budget.admit(other, [], 6 * size)
        budget.correct(other, 10)
        assert budget.n_bytes == 3 * size + 10
        for each in (*mine, other):
            budget.release(each)
    assert (budget.n_bytes, budget.n_requests, budget.n_readers) == (0, 0, 0)


def test_reading_ahead__ends_all_requests_where_one_chunk_cannot_be_read(far):
    source = as_source(watched(together=20, bad="c/1/0", stuck=True))
    with pytest.raises(avgk.ReadError, match=r"c/1/0.*no answer"):
        list(read_some(source.reader.band_reader, range(1, 26)))
    settle()
    assert Watched.n == 0
    assert len(Watched.cancelled) >= 19


def test_evaluate__stops_the_other_threads_where_one_fails(far):
    array = watched(together=20, bad="c/0/0", stuck=True)
    with pytest.raises(avgk.ReadError, match=r"c/0/0.*no answer"):
        avgk.evaluate(array, k=[1, 3])
    far.shutdown()  # waits for the tasks: the second thread's data never arrive
    settle()
    assert (Watched.n, ahead.BUDGET.n_bytes, ahead.BUDGET.n_readers) == (0, 0, 0)
    Watched.reset()
    with dask.config.set(pool=None):
        assert avgk.evaluate(array, k=[1, 3]).equals(avgk.evaluate(SCORES, k=[1, 3]))


def test_evaluate__interrupted_leaves_nothing_under_way(far):
    main = threading.main_thread().ident
    array = watched(together=20, stuck=True, on_all=lambda: signal.pthread_kill(main, signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            avgk.evaluate(array, k=[1, 3])
    finally:
        signal.signal(signal.SIGINT, before)
    far.shutdown()
    settle()
    assert (Watched.n, ahead.BUDGET.n_bytes, ahead.BUDGET.n_readers) == (0, 0, 0)


def test_tasks__stop_where_the_work_itself_fails(far):
    """The error's traceback still holds the frames of the task."""
    source = as_source(watched())

    def fail(slabs, labels, number, plan):
        next(iter(slabs))
        raise ValueError("work")

    which = TaskNumbers(range(20), range(20))
    with pytest.raises(ValueError, match="work") as caught:
        read_bands(
            source.reader.band_reader, [None] * 20, None, which, Assignment(Pass("a", fail, None, CheckedTally)), 8
        )
    assert caught.traceback
    settle()
    assert (Watched.n, ahead.BUDGET.n_bytes, ahead.BUDGET.n_readers) == (0, 0, 0)


def test_reading_ahead__starts_no_threads(far):
    array = watched()
    np.asarray(array[:])
    before = {thread.name for thread in threading.enumerate()}
    source = as_source(array)
    assert len(list(read_some(source.reader.band_reader, range(26)))) == 26
    new = {thread.name for thread in threading.enumerate()} - before
    assert all(name.startswith("asyncio") for name in new), new  # zarr decodes in those


READING = threading.Event()
ENDED = threading.Event()


def _read_all(reader):
    try:
        return len(list(read_some(reader, range(26))))
    finally:
        ENDED.set()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # from Dask
def test_reading_ahead__ends_with_a_cancelled_task_of_a_cluster(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(bands, "is_local", lambda store: False)
    READING.clear()
    ENDED.clear()
    source = as_source(watched(together=20, stuck=True, on_all=READING.set))
    with distributed.Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0", set_as_default=False
    ) as client:
        future = client.submit(_read_all, source.reader.band_reader)
        assert READING.wait(PATIENCE)
        future.cancel()
        assert ENDED.wait(PATIENCE / 2)
    settle()
    assert Watched.n == 0
    assert BUDGET.n_readers == 0


@pytest.mark.parametrize("chunks, shards", [((4, 13), None), ((4, 5), None), ((2, 13), (8, 13))])
def test_evaluate__reads_each_chunk_of_a_far_store_once(far, chunks, shards):
    store = CountingStore(MemoryStore())
    zarr.create_array(store, data=SCORES, chunks=chunks, shards=shards)
    store.reads.clear()
    result = avgk.evaluate(zarr.open_array(store, mode="r"), k=[1, 3])
    assert set(store.chunk_reads().values()) == {1}
    assert result.equals(avgk.evaluate(SCORES, k=[1, 3]))


def test_far_tasks__hold_many_bands_each(far):
    source = as_source(watched())
    assert [len(group) for group in group_bands(source)] == [13, 13]
    per_band = 4 * 13 * 4
    with dask.config.set({"avgk.ahead-bytes": per_band}):  # four bands per task
        groups = group_bands(as_source(watched()))
    assert [len(group) for group in groups] == [4, 4, 4, 4, 4, 4, 2]
    assert [band for group in groups for band in group] == list(range(26))


def test_far_tasks__are_named_by_what_each_reads(far):
    """Tasks of the same name that read more or fewer of the pilot's chunks would be mistaken for each other."""
    source = as_source(watched())
    with dask.config.set({"avgk.small-scores": 1}):
        pilot = pilot_pass(source, [104])
    names = []
    for n in (1, 2):
        with dask.config.set(num_workers=n):
            names.append({key for key in pass_task(source, pilot)[0].dask if key.startswith("avgk-pilot")})
    assert not names[0] & names[1]


def test_task_memory__counts_what_is_read_ahead(monkeypatch):
    near = as_source(watched())
    needed = project(near, [1]).task
    monkeypatch.setattr(bands, "is_local", lambda store: False)
    with dask.config.set({"avgk.ahead-bytes": 12_345}):
        assert project(as_source(watched()), [1]).task == needed + 12_345
    with dask.config.set({"avgk.memory-limit": "80 MB"}):
        assert project(as_source(watched()), [1]).task == needed + memory_limit() // AHEAD_SHARE


@pytest.fixture
def in_objects(monkeypatch):
    """Return scores in an object store whose chunks of at least 208 bytes are fetched in ranges, and the ranges."""
    obstore = pytest.importorskip("obstore.store") and pytest.importorskip("obstore")

    monkeypatch.setattr(ranges, "_WHOLE", 100)
    monkeypatch.setattr(ranges, "_RANGE", 50)
    store = ObjectStore(obstore.store.MemoryStore())
    zarr.create_array(store, data=SCORES, chunks=(4, 13), compressors=None)
    asked, get = [], obstore.get_async

    def counted(client, key, *, options=None):
        if key.startswith("c/"):
            asked.append((key, (options or {}).get("range")))
        return get(client, key, options=options)

    monkeypatch.setattr(obstore, "get_async", counted)
    return zarr.open_array(store, mode="r"), asked, obstore


def test_large_objects__are_fetched_in_ranges_each_byte_once(far, in_objects):
    array, asked, _ = in_objects
    result = avgk.evaluate(array, k=[1, 3])
    assert result.equals(avgk.evaluate(SCORES, k=[1, 3]))
    mine = sorted(part for key, part in asked if key == "c/7/0")
    assert mine == [(0, 50), (50, 100), (100, 150), (150, 200), (200, 208)]
    assert len(asked) == 26 * 5


def test_large_objects__are_fetched_whole_where_ranges_are_not_offered(far, in_objects, monkeypatch):
    array, asked, obstore = in_objects
    get = obstore.get_async

    async def without_ranges(client, key, *, options=None):
        if options:
            raise NotImplementedError("no ranges")
        return await get(client, key)

    monkeypatch.setattr(obstore, "get_async", without_ranges)
    assert avgk.evaluate(array, k=[1, 3]).equals(avgk.evaluate(SCORES, k=[1, 3]))
    assert len(asked) == 26


def test_large_objects__that_change_between_two_ranges_are_read_again_whole(far, in_objects):
    array, _, obstore = in_objects
    client = array.store.store
    source = as_source(array)
    store = source.reader.array.store_path.store
    other = np.full((4, 13), 0.5, np.float32)

    refuse = checked.Checks.refuse_size

    def changing(self, key, size):
        obstore.put(client, key, other.tobytes())
        refuse(self, key, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checked.Checks, "refuse_size", changing)
        (block,) = read_some(source.reader.band_reader, [0])
    assert np.array_equal(block, other)
    assert not store._has_ranges


def test_large_objects__are_refused_by_their_size_before_they_are_read(far, in_objects):
    array, asked, obstore = in_objects
    source = as_source(array)
    obstore.put(array.store.store, "c/3/0", bytes(100_000))
    with pytest.raises(avgk.ReadError, match=r"c/3/0.*100,000 bytes"):
        list(read_some(source.reader.band_reader, [3]))
    assert [part for key, part in asked if key == "c/3/0"] == [(0, 50)]
