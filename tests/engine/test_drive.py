"""The driver: passes that share a read, passes over some bands, names that are hashes, progress that lets go."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
import zarr

import avgk_dask as avgk
from avgk_dask.api.inputs.sources import as_source
from avgk_dask.bands.passes import Pass, Together
from avgk_dask.engine.graph import pass_task
from avgk_dask.engine.memory import Caps
from avgk_dask.engine.run import Run, drive
from avgk_dask.engine.search import ThresholdSearch
from avgk_dask.engine.tally import ScanTally
from avgk_dask.statistics.label_ranks import LabelRankSearch, edge_pass
from avgk_dask.statistics.thresholds import find_thresholds, pilot_pass
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
    thresholds = ThresholdSearch.begin(Caps.configured().scan_shape(source, 2), [120, 300])
    return thresholds, LabelRankSearch(source.dtype, source.shape[1])


def selections(search):
    return [(s.key, s.n_above, s.weight, s.set_sizes.tolist()) for _, s in sorted(search.selections.items())]


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


def test_find_thresholds__refuses_an_unknown_order_of_ties(counted):
    with pytest.raises(avgk.OptionError, match="ties must be 'first' or 'spread'; got 'last'"):
        find_thresholds(Run(counted[1]), [120], ties="last")


def test_together__refuses_nan_for_all(counted):
    scores = SCORES.copy()
    scores[7, 2] = np.nan
    source = as_source(scores, LABELS)
    with pytest.raises(avgk.ScoresError, match="sample 7, class 2"):
        drive(Together(searches(source)), Run(source))


def test_together__reads_a_pilot_alone_first(counted):
    source = counted[1]
    with dask.config.set({"avgk.small-scores": 0, "scheduler": "synchronous"}):
        thresholds = ThresholdSearch.begin(
            Caps.configured().scan_shape(source), [120, 300], pilot_pass(source, [120, 300])
        )
        both = Together((LabelRankSearch(source.dtype, source.shape[1]), thresholds))
        assert both.next_pass().name == "pilot"
        run = Run(source)
        actual = drive(both, run)
    assert run.reads == 2
    assert selections(actual.searches[1]) == selections(drive(searches(source)[0], Run(source)))


def test_passes__that_hold_whole_rows_are_refused_where_they_cannot_fit(counted):
    source = counted[1]
    labels = LabelRankSearch(source.dtype, source.shape[1])
    with dask.config.set({"avgk.memory-limit": "1 MB"}):
        for what in (labels.next_pass(), Together((labels,)).next_pass()):
            with pytest.raises(avgk.MemoryLimitError):
                Run(source).read(what)


@pytest.mark.parametrize("settings", [{"avgk.task-bytes": 1}, {"avgk.fan-in": 2}, {"avgk.slab-bytes": 1}])
def test_names__of_other_groups_of_bands_are_others(tmp_path, settings):
    simulate_store(tmp_path / "a.zarr", Simulation(400, 5), chunks=(10, 2))
    names = []
    for chosen in ({}, settings):
        with dask.config.set(chosen):
            source = as_source(tmp_path / "a.zarr")
            names.append(set(pass_task(source, searches(source)[0].next_pass())[0].dask))
    shared = {"-".join(key.split("-")[:2]) for key in names[0] & names[1]}
    same_reader = {"avgk-labels"} if "avgk.slab-bytes" in settings else {"avgk-store", "avgk-labels"}
    assert shared == same_reader


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
    assert ScanTally.merge(states[::-1]).to_parts() == Run(source).read(whole).to_parts()


def keys_of(source):
    return set(pass_task(source, edge_pass(source.dtype, source.shape[1], np.array([3, 9])))[0].dask)


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
    more = set(pass_task(source, edge_pass(source.dtype, 5, np.array([3, 10])))[0].dask)
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
        distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address="127.0.0.1:0"),
    ):
        actual = avgk.evaluate(lazy, k=[1, 2], progress=True)
    assert actual.identical(avgk.evaluate(lazy, k=[1, 2]))
    assert "avgk scan" in capsys.readouterr().err
    assert max(held) <= 3  # of 85 tasks
