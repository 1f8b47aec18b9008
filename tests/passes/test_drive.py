"""The driver: passes that share a read, passes over some bands, names that are hashes, progress that lets go."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
import zarr

import avgk_dask as avgk
from avgk_dask.api.inputs import as_source
from avgk_dask.passes.finding import scan_shape
from avgk_dask.passes.run import Run, drive
from avgk_dask.passes.tree import pass_task
from avgk_dask.scans.band_pass import Pass, Together
from avgk_dask.scans.band_scan import scan_band
from avgk_dask.scans.places import place_pass
from avgk_dask.searches.label_ranks import LabelRankSearch
from avgk_dask.searches.threshold_search import ThresholdSearch
from avgk_dask.states.scan_tally import ScanTally
from avgk_dask.testing import CountingStore, Simulation, simulate_store

SCORES = np.random.default_rng(0).random((120, 8)).astype(np.float32)
LABELS = np.random.default_rng(1).integers(0, 8, 120)


@pytest.fixture
def counted():
    store = CountingStore(zarr.storage.MemoryStore())
    zarr.create_array(store, data=SCORES, chunks=(10, 3), config={"write_empty_chunks": True})
    array = zarr.open_array(store, mode="r")
    store.reads.clear()
    return store, as_source(array, LABELS)


def searches(source):
    thresholds = ThresholdSearch.begin(scan_shape(source, 2), [120, 300])
    return thresholds, LabelRankSearch(source.dtype, source.shape[1])


def selections(search):
    return [(s.key, s.n_above, s.weight, s.set_sizes.tolist()) for _, s in sorted(search.found.items())]


def test_together__searches_share_reads_and_find_what_each_finds_alone(counted):
    store, source = counted
    alone = [drive(search, Run(source)) for search in searches(source)]
    store.reads.clear()
    run = Run(source)
    with dask.config.set(scheduler="synchronous"):
        both = drive(Together(searches(source)), run).searches
    assert run.reads == 2  # one and two, the first of them shared
    assert set(store.chunk_reads().values()) == {2}
    assert selections(both[0]) == selections(alone[0])
    assert both[1].ranks().tolist() == alone[1].ranks().tolist()


def test_together__refuses_nan_for_all(counted):
    scores = SCORES.copy()
    scores[7, 2] = np.nan
    source = as_source(scores, LABELS)
    with pytest.raises(avgk.ScoresError, match="sample 7, class 2"):
        drive(Together(searches(source)), Run(source))


def test_together__is_not_for_single_chunks():
    single = Pass("pilot", scan_band, None, ScanTally, (0,), (0,))
    search = ThresholdSearch.begin(scan_shape(as_source(SCORES)), [1], single)
    with pytest.raises(ValueError, match="cannot share a read"):
        Together((search,)).next_pass()


@pytest.mark.parametrize("first", [(0, 5, 11), (3,), tuple(range(12))])
def test_bands__read_first_and_later_merge_to_the_whole(counted, first):
    store, source = counted
    rest = tuple(band for band in range(source.n_bands) if band not in first)
    search, _ = searches(source)
    whole = search.next_pass()
    run, states = Run(source), []
    for bands in (first, rest):
        if bands:
            states.append(run.read(Pass("scan", whole.work, whole.plan, whole.state, bands)))
    assert run.reads == 0  # none read all
    assert set(store.chunk_reads().values()) == {1}
    assert selections(search.advance(ScanTally.merge(states))) == selections(drive(search, Run(source)))
    assert ScanTally.merge(states[::-1]).digest() == Run(source).read(whole).digest()


def keys_of(source):
    return set(pass_task(source, place_pass(source.dtype, source.shape[1], np.array([3, 9]))).dask)


def test_names__are_a_hash_of_what_is_computed(tmp_path):
    paths = [tmp_path / "a.zarr", tmp_path / "b.zarr"]
    for seed, path in enumerate(paths):
        simulate_store(path, Simulation(200, 5, seed=seed))
    assert keys_of(as_source(paths[0])) == keys_of(as_source(paths[0]))
    own = {key for key in keys_of(as_source(paths[0])) if not key.startswith("avgk-store")}
    other = keys_of(as_source(paths[1]))
    assert not own & other
    assert not own & keys_of(as_source(paths[0], np.zeros(200, int)))
    source = as_source(paths[0])
    more = set(pass_task(source, place_pass(source.dtype, 5, np.array([3, 10]))).dask)
    assert {key for key in own & more if key.startswith("avgk-pla")} == set()


def test_names__of_a_store_without_a_seal_are_never_the_same():
    array = zarr.create_array({}, data=SCORES, chunks=(10, 8), config={"write_empty_chunks": True})
    assert not keys_of(as_source(array)) & keys_of(as_source(array))


def test_names__of_users_blocks_follow_theirs():
    lazy = da.from_array(SCORES, chunks=(10, 8))
    assert keys_of(as_source(lazy)) == keys_of(as_source(lazy))


def test_progress__on_a_cluster_lets_go_of_what_is_merged(monkeypatch, capsys):
    distributed = pytest.importorskip("distributed")
    held = []
    gather = distributed.Client.gather

    def watched(self, futures, *arguments, **options):
        held.append(sum(future.status == "finished" for future in map(self.futures.get, list(self.futures)) if future))
        return gather(self, futures, *arguments, **options)

    monkeypatch.setattr(distributed.Client, "gather", watched)
    lazy = da.from_array(np.random.default_rng(0).random((640, 50)), chunks=(10, 50))
    with (
        dask.config.set({"avgk.task-bytes": 1, "avgk.fan-in": 4}),
        distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None),
    ):
        found = avgk.evaluate(lazy, k=[1, 2], progress=True)
    assert found.identical(avgk.evaluate(lazy, k=[1, 2]))
    assert "avgk scan" in capsys.readouterr().err
    assert max(held) <= 3  # of 85 tasks
