"""Filtered sources contain only the samples that exist, and report the original sample numbers."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
import zarr

import avgk_dask as avgk
from avgk_dask.api.inputs.sources import as_source
from avgk_dask.engine.run import Run
from avgk_dask.sources.planning import choose_pilot_chunks, chunk_shape, pilot_end
from avgk_dask.sources.row_values import Condition, SampleMask, first_samples
from avgk_dask.sources.source import reorder_ties
from avgk_dask.statistics.thresholds import find_thresholds, pilot_pass
from avgk_dask.testing import CountingStore

N, C = 90, 12
RNG = np.random.default_rng(5)
SCORES = RNG.integers(0, 200, (N, C)).astype(np.uint8)
LABELS = RNG.integers(0, C, N)
WHERE = RNG.random(N) < 0.5
WHERE[20:52] = False


def stored(data, chunks):
    return zarr.create_array({}, data=data, chunks=chunks, config={"write_empty_chunks": True})


def sources(where=WHERE, **options):
    yield as_source(da.from_array(SCORES, chunks=(13, 5)), LABELS, where=where, **options)
    yield as_source(stored(SCORES, (13, 5)), LABELS, where=where, **options)


def kinds(where=WHERE):
    return [where, da.from_array(where, chunks=11), stored(where, (17,))]


@pytest.mark.parametrize("where", kinds(), ids=["memory", "dask", "stored"])
def test_filtered__counts_samples_and_leaves_out_bands_without_any(where):
    for source in sources(where):
        assert source.shape == (WHERE.sum(), C)
        assert source.stored_bands == [0, 1, 4, 5, 6]
        assert source.rows == [0, *np.cumsum([WHERE[13 * i : 13 * i + 13].sum() for i in source.stored_bands])]
        assert source.unfiltered.shape == (N, C)


def test_filtered__counts_without_reading_scores():
    store = CountingStore(zarr.storage.MemoryStore())
    zarr.create_array(store, data=SCORES, chunks=(13, 5), config={"write_empty_chunks": True})
    array = zarr.open_array(store, mode="r")
    store.reads.clear()
    as_source(array, LABELS, where=stored(WHERE, (17,)))
    assert not store.chunk_reads("scores")


@pytest.mark.parametrize("where", kinds(), ids=["memory", "dask", "stored"])
def test_filtered__reports_original_sample_numbers(where):
    for source in sources(where):
        names = [
            source.sample_number(b, r)
            for b in range(source.n_bands)
            for r in range(source.rows[b + 1] - source.rows[b])
        ]
        assert names == np.flatnonzero(WHERE).tolist()
        spread = reorder_ties(source, [3], "spread")
        assert spread.sample_number(2, 0) == source.sample_number(2, 0)
        assert (spread.reader, spread.stored_bands) == (source.reader, source.stored_bands)


def test_filtered__raises_if_no_sample_is_left():
    for where in kinds(np.zeros(N, bool)):
        with pytest.raises(avgk.ScoresError, match="exclude all 90 samples"):
            as_source(SCORES, LABELS, where=where)


def test_filtered__pilot_reads_only_samples_that_exist():
    where = WHERE.copy()
    where[:13] = False
    where[12] = True
    with dask.config.set({"avgk.small-scores": 0, "avgk.band-bytes": 0, "scheduler": "synchronous"}):
        for source in sources(where):
            for band, column in choose_pilot_chunks(source):
                assert chunk_shape(source, band, column)[0] > 0
            pilot = pilot_pass(source, [45])
            assert Run(source).read(pilot).strip_scores.sum() == sum(r * c for r, c in pilot.plan.shapes)


def joined_bands(where):
    """Return a source whose bands join several row chunks, of which the pilot reads only the first."""
    array = stored(np.tile(SCORES, (8, 1)), (5, 12))
    with dask.config.set({"avgk.band-bytes": 1 << 20, "avgk.pilot-share": 0.001}):
        return as_source(array, where=where)


def test_filtered__pilot_skips_pieces_of_bands_without_samples():
    n = 8 * N
    some = np.ones(n, bool)
    source = joined_bands(some)
    firsts = [band for band in range(source.n_bands) if pilot_end(source, band) < source.rows[band + 1]]
    assert firsts  # pieces are smaller than bands
    for band in firsts[:-1]:
        some[source.rows[band] : pilot_end(source, band)] = False
    with dask.config.set({"avgk.small-scores": 0, "avgk.pilot-share": 0.001, "scheduler": "synchronous"}):
        filtered = joined_bands(some)
        usable = {*firsts[-1:], *set(range(filtered.n_bands)) - set(firsts)}
        assert {band for band, _ in choose_pilot_chunks(filtered)} <= usable
        for band in range(source.n_bands):
            some[source.rows[band] : pilot_end(source, band)] = False
        none = joined_bands(some)
        assert choose_pilot_chunks(none) == []
        key = find_thresholds(Run(none), [45]).selections[0].key
        assert key == find_thresholds(Run(as_source(np.tile(SCORES, (8, 1))[some])), [45]).selections[0].key


def test_filtered__dask_array_has_zeros_for_samples_that_do_not_exist():
    for source in sources():
        assert np.array_equal(source.dask_array().compute(), np.where(WHERE[:, None], SCORES, 0))


@pytest.mark.parametrize("where", kinds(), ids=["memory", "dask", "stored"])
def test_first_samples__counts_the_samples_before_each_block(where):
    mask = SampleMask([Condition(where), Condition(LABELS, 3)], [0, N])
    kept = WHERE & (LABELS != 3)
    assert first_samples(mask, (40, 10, 40)).tolist() == [0, kept[:40].sum(), kept[:50].sum()]
    assert np.array_equal(mask.band(0), kept)


def test_filtered__tokens_and_stamps_depend_on_the_mask(tmp_path):
    array = zarr.create_array(tmp_path / "a.zarr", data=SCORES, chunks=(13, 5), config={"write_empty_chunks": True})
    other = WHERE.copy()
    other[0] = ~other[0]
    plain = as_source(array)
    first, second = (plain.with_conditions([Condition(w)]) for w in (WHERE, other))
    assert len({plain.token, first.token, second.token}) == 3
    assert (first.row_stamps() == second.row_stamps()).tolist() == [False, True, True, True, True]
    assert not set(first.row_stamps()) & set(plain.row_stamps())
    again = first.with_rows(first.unfiltered.rows)
    assert (again.rows, again.row_stamps().tolist()) == (first.rows, first.row_stamps().tolist())
    assert first.with_labels(LABELS).rows == first.rows
