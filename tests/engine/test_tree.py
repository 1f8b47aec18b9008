"""Graphs: few tasks, readable names, and no more than the plan says."""

from __future__ import annotations

import dask
import dask.array as da
import zarr

from avgk_dask.api.inputs.sources import as_source
from avgk_dask.engine.graph import pass_task
from avgk_dask.engine.memory import Caps
from avgk_dask.engine.search import ThresholdSearch
from avgk_dask.sources.planning import choose_pilot_chunks, count_chunks, group_bands


def scan_graph(array):
    source = as_source(array, missing="fill")
    task, _ = pass_task(source, ThresholdSearch.begin(Caps.configured().scan_shape(source), [10]).next_pass())
    return source, dict(task.dask)


def test_scan_tasks__are_at_most_1_2_a_band():
    array = zarr.create_array({}, shape=(400_000, 1000), chunks=(2_500, 1000), dtype="f4")
    source, graph = scan_graph(array)
    assert source.n_bands == 160
    assert len(graph) <= 1.2 * source.n_bands
    assert {key.split("-")[1] for key in graph} == {"scan", "merge", "plan", "store"}


def test_scan_tasks__group_the_bands_of_a_store_of_many_chunks():
    array = zarr.create_array({}, shape=(100_000, 1000), chunks=(1, 1000), dtype="f4")
    with dask.config.set({"avgk.band-bytes": 0}):
        source, graph = scan_graph(array)
    assert source.n_bands == 100_000
    assert len(graph) < 5_000
    assert [bands[0] for bands in group_bands(source)][:2] == [0, group_bands(source)[0][-1] + 1]


def test_scan_tasks__follow_the_bytes_however_small_the_chunks():
    for rows in (1, 10, 100, 1_000):
        array = zarr.create_array({}, shape=(100_000, 1000), chunks=(rows, 1000), dtype="f4")
        source, graph = scan_graph(array)
        assert 400e6 / (5 << 20) <= source.n_bands <= 400e6 / (3 << 20)
        assert 30 <= len(group_bands(source)) <= len(graph) <= 60
    # a small matrix still gives many cores something to do
    source, _ = scan_graph(zarr.create_array({}, shape=(10_000, 10), chunks=(1, 10), dtype="f4"))
    assert 32 <= source.n_bands <= 64
    assert len(group_bands(source)) >= 8


def test_groups__keep_to_a_limit_on_the_tasks():
    source = as_source(zarr.create_array({}, shape=(1000, 10), chunks=(1, 10), dtype="f4"), missing="fill")
    for most in (1, 3, 7, 500):
        groups = group_bands(source, most)
        assert len(groups) <= most
        assert [band for bands in groups for band in bands] == list(range(source.n_bands))


def test_pilot_chunks__are_few_distinct_and_spread():
    for bands in range(1, 14):
        for columns in range(1, 14):
            source = as_source(
                zarr.create_array({}, shape=(bands * 2, columns), chunks=(2, 1), dtype="f4"), missing="fill"
            )
            chunks = choose_pilot_chunks(source)
            assert len(set(chunks)) == len(chunks) <= max(8, count_chunks(source) // 10)
            assert all(0 <= band < bands and 0 <= column < columns for band, column in chunks)
            if bands >= 8:
                assert max(band for band, _ in chunks) - min(band for band, _ in chunks) >= bands // 2


def test_settings__come_from_dasks_configuration():
    lazy = da.zeros((64, 4), chunks=(2, 4))
    sizes = []
    for fan_in in (2, 16):
        with dask.config.set({"avgk.fan-in": fan_in, "avgk.task-bytes": 1}):
            sizes.append(sum(str(key).startswith("avgk-merge") for key in scan_graph(lazy)[1]))
    assert sizes == [31, 3]
