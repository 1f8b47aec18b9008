"""Transforms change scores between reading and ranking, and nothing else."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
import zarr

from avgk_dask.api.inputs.sources import as_source
from avgk_dask.engine.run import Run
from avgk_dask.sources.planning import choose_pilot_chunks, held_bytes, slab_bytes
from avgk_dask.sources.transforms import Transform
from avgk_dask.statistics.thresholds import find_thresholds
from avgk_dask.testing import CountingStore

SCORES = np.random.default_rng(5).integers(0, 200, (90, 12)).astype(np.uint8)
LABELS = np.random.default_rng(6).integers(0, 12, 90)
#: Settings that make a scan take each of its paths.
PATHS = [
    {},
    {"avgk.small-scores": 0},
    {"avgk.small-scores": 0, "avgk.kept-bytes": 0, "avgk.least-events": 4, "avgk.max-events": 4, "avgk.slab-bytes": 1},
]


class Shares(Transform):
    """Each score as a share of its row: of another dtype, and from whole rows."""

    dtype = np.dtype(np.float64)
    needs_rows = True

    def apply(self, block, first_row, first_class):
        assert block.shape[1] == SCORES.shape[1]
        return block / block.sum(1, keepdims=True, dtype=np.float64)

    def __dask_tokenize__(self):
        return "shares"


class Shifted(Transform):
    """Each score shifted by its position in the matrix."""

    dtype = np.dtype(np.int64)

    def apply(self, block, first_row, first_class):
        rows, classes = np.indices(block.shape)
        return block.astype(np.int64) + 3 * (first_row + rows) - (first_class + classes)

    def __dask_tokenize__(self):
        return "shifted"


def outcome(source, ties="first"):
    run = Run(source)
    search = find_thresholds(run, [45, 90, 200], n_ranks=2, n_ranked=3, ties=ties)
    tally = search.first_tally
    ranked = np.sort(tally.ranked.keys, axis=1).tolist()
    sets = [(s.key, s.n_above, s.n_ties, s.set_sizes.tolist(), s.weight) for _, s in sorted(search.selections.items())]
    return sets, tally.rank_counts[1:3].tolist(), ranked


def sources(chunks):
    yield as_source(da.from_array(SCORES, chunks=chunks), LABELS)
    array = zarr.create_array({}, data=SCORES, chunks=chunks, config={"write_empty_chunks": True})
    yield as_source(array, LABELS)


@pytest.mark.sample(5)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("chunks", [(90, 12), (13, 5)])
@pytest.mark.parametrize("transform", [Shares(), Shifted()])
def test_transform__gives_the_results_of_the_transformed_matrix(transform, chunks, path):
    expected = outcome(as_source(transform.apply(SCORES, 0, 0), LABELS))
    for inner in sources(chunks):
        with dask.config.set(path), dask.config.set(scheduler="synchronous"):
            source = inner.with_transform(transform)
            assert outcome(source) == expected
            assert np.array_equal(source.dask_array().compute(), transform.apply(SCORES, 0, 0))


@pytest.mark.sample(2)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("transforms", [(Shares(), Shifted()), (Shifted(), Shares()), (Shifted(), Shifted())])
def test_transforms__are_applied_in_order(transforms, path):
    twice = SCORES
    for transform in transforms:
        twice = transform.apply(twice, 0, 0)
    expected = outcome(as_source(twice, LABELS))
    for inner in sources((13, 5)):
        with dask.config.set(path), dask.config.set(scheduler="synchronous"):
            source = inner.with_transform(transforms[0]).with_transform(transforms[1])
            assert outcome(source) == expected
            assert outcome(source, ties="spread")[0][0][:3] == expected[0][0][:3]
            assert source.reader.dtype == np.uint8


def test_transforms__are_in_a_module_that_workers_can_import():
    import avgk_dask.api.calibration.affine  # noqa: F401  # a transform defined here would load xarray on workers

    homes = {kind.__module__ for kind in Transform.__subclasses__()} - {__name__}
    assert homes == {"avgk_dask.sources.transforms"}


def test_transform__has_its_own_dtype_and_memory():
    (_, stored) = sources((20, 5))
    source = stored.with_transform(Shares())
    assert (source.reader.dtype, source.dtype) == (np.uint8, np.float64)
    assert slab_bytes(source) == 20 * 12 * 8
    assert held_bytes(source) > held_bytes(stored) + slab_bytes(source)
    assert source.token != stored.with_transform(Shifted()).token != stored.token


def test_transform__reads_each_chunk_once_after_the_pilot():
    store = CountingStore(zarr.storage.MemoryStore())
    zarr.create_array(store, data=SCORES, chunks=(5, 4), config={"write_empty_chunks": True})
    source = as_source(zarr.open_array(store, mode="r"), LABELS).with_transform(Shares())
    store.reads.clear()
    with dask.config.set({"avgk.small-scores": 0, "scheduler": "synchronous"}):
        run = Run(source)
        find_thresholds(run, [90])
    assert run.reads == 1
    n_pilot = len(choose_pilot_chunks(source))
    assert sum(store.chunk_reads().values()) == 18 * 3 + n_pilot * 3
