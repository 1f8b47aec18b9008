"""Waves: scans in parts, with brackets that narrow. A folded tally is that of a scan with the narrow ones."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import dask
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import avgk_dask as avgk
from avgk_dask.engine.events import IntervalEvents
from avgk_dask.engine.plan import ScanPlan, ScanShape, ZoneTable
from avgk_dask.engine.scan import scan_band
from avgk_dask.engine.tally import ScanTally
from avgk_dask.engine.waves import base_cells, certain_bracket, first_wave, fold, next_wave, spread_bands
from avgk_dask.kernels.keys import encode, key_range
from avgk_dask.testing import CountingStore, Simulation


def plan_of(shape, intervals):
    top = key_range(shape.dtype)[1]
    return ScanPlan(shape, ZoneTable.from_intervals(intervals, top, 64), -top, 40, top)


def scanned(scores, labels, cuts, plan):
    parts = [(i, slice(a, b)) for i, (a, b) in enumerate(pairwise(cuts))]
    mine = [scan_band([scores[rows]], None if labels is None else labels[rows], i, plan) for i, rows in parts]
    return ScanTally.merge(mine[::-1])


def summed(sums):
    """Return the sums of the strata that have any."""
    rows = zip(sums.strata.tolist(), sums.sizes.tolist(), sums.hits.tolist(), strict=True)
    return [row for row in rows if any(row[1])]


@st.composite
def drawn_scans(draw):
    n, c = draw(st.integers(2, 12)), draw(st.integers(1, 6))
    levels = st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0]) | st.floats(0, 1, width=32)
    scores = np.array(draw(st.lists(levels, min_size=n * c, max_size=n * c)), "f4").reshape(n, c)
    kind = draw(st.sampled_from(["none", "hard", "soft"]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    labels = {"none": None, "hard": rng.integers(-1, c, n), "soft": rng.random((n, c))}[kind]
    cuts = sorted({0, n, *draw(st.sets(st.integers(1, n - 1), max_size=3))})
    ends = sorted(draw(st.lists(levels, min_size=4, max_size=4, unique=True)), reverse=True)
    keys = [int(key) for key in encode(np.array(ends, "f4"))]
    old = [(keys[1], keys[0]), (keys[3], keys[2])]
    new = []
    for low, high in old:
        inner = sorted(draw(st.lists(st.integers(low, high), min_size=2, max_size=2)))
        new.append(tuple(inner))
    return scores, labels, cuts, old, new


@given(drawn_scans(), st.sampled_from([1000, 0]), st.sampled_from([1, 2]))
def test_fold__gives_what_a_scan_of_narrower_intervals_gives(drawn, max_events, n_together):
    scores, labels, cuts, old, new = drawn
    n, c = scores.shape
    shape = ScanShape(n, c, scores.dtype, 1, len(cuts) - 1, max_events, 1000, 16, n_together=n_together, strata="ranks")
    wide, narrow = plan_of(shape, old), plan_of(shape, new)
    actual, expected = (scanned(scores, labels, cuts, plan) for plan in (wide, narrow))
    if actual.dropped.any() or expected.dropped.any():
        return
    actual = fold(actual, wide.zones, narrow.zones)
    assert actual.histogram.table().sum(1).tolist() == expected.histogram.table().sum(1).tolist()
    assert actual.hits.tolist() == expected.hits.tolist()
    assert actual.weight_above.fractions() == expected.weight_above.fractions()
    for j in range(2):
        cells = [np.trim_zeros(base_cells(tally, j), "b").tolist() for tally in (actual, expected)]
        assert cells[0] == cells[1]
        sums = [summed(tally.strata.columns([j])) for tally in (actual, expected)]
        assert sums[0] == sums[1]
        zone = 2 * j + 1
        assert actual.histogram.table()[zone].tolist() == expected.histogram.table()[zone].tolist()
        events = [
            IntervalEvents(t.events.between(*new[j]).in_order(), t.counted.between(*new[j]), n_together)
            for t in (actual, expected)
        ]
        for key in {key for key in encode(scores.reshape(-1)).tolist() if new[j][0] <= key <= new[j][1]}:
            whole = events[0].take(key, events[0].n_scores, c)
            for n_labels in range(whole.n_above, whole.n_above + whole.n_ties + 1):
                outcomes = []
                for one in events:
                    t = one.take(key, n_labels, c)
                    counts = t.n_above, t.n_ties, t.changes.tolist(), summed(t.strata)
                    outcomes.append((*counts, t.weight_kept, t.weight_above, t.cut))
                assert outcomes[0] == outcomes[1]


@given(drawn_scans(), st.data())
def test_certain_bracket__holds_the_score_of_the_rank(drawn, data):
    scores, _, cuts, old, new = drawn
    n, c = scores.shape
    shape = ScanShape(n, c, scores.dtype, 0, len(cuts) - 1, 1000, 1000, 16)
    bands = [(i, slice(a, b)) for i, (a, b) in enumerate(pairwise(cuts))]
    scans = []
    for i, rows in bands:
        plan = plan_of(shape, [old, new][i % 2])
        scans.append((plan.zones, scan_band([scores[rows]], None, i, plan).histogram))
    keys = np.sort(encode(scores.reshape(-1)))[::-1]
    floor = max(int(zones.floors[-1]) for zones, _ in scans)
    n_listed = int((keys >= floor).sum())
    if n_listed:
        rank = data.draw(st.integers(1, n_listed))
        low, high = certain_bracket(scans, rank, key_range(scores.dtype)[1])
        assert low <= keys[rank - 1] <= high


def test_spread_bands__are_all_bands_once_and_spread():
    parts = [spread_bands(1000, 0, 10), spread_bands(1000, 10, 100), spread_bands(1000, 100, 1000)]
    assert sorted(sum(parts, ())) == list(range(1000))
    for part in parts[:2]:
        gaps = np.diff([-1, *part, 1000])
        assert gaps.max() < 3 * 1000 / len(part)
    assert (spread_bands(10, 0, 4), spread_bands(4, 2, 4, read=(0, 3))) == ((0, 2, 5, 7), (1, 2))


def test_waves__grow_as_far_as_events_can_be_held():
    shape = ScanShape(10**6, 10, np.dtype("f4"), 0, 1000, 10**5, 3 * 10**5, 16, n_bands=1000, band_rows=1000)
    assert first_wave(shape, 9e4) == 1000
    assert first_wave(shape, 1e6) == 100
    assert next_wave(shape, 100, 10_000) == 900
    assert next_wave(shape, 100, 50_000) == 100
    assert next_wave(shape, 100, 300_000) == 25  # a little at least
    assert next_wave(shape, 990, 300_000) == 10


IN_WAVES = {"avgk.small-scores": 0, "avgk.kept-bytes": 0, "avgk.least-events": 4000}


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "dtype, levels, max_events",
    [("float32", None, 60_000), ("float64", None, 20_000), ("float16", None, 20_000), ("float32", 200, 60_000)],
)
@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_evaluate__in_waves_gives_the_same_to_the_last_bit(dtype, levels, kind, max_events):
    n, c = 20_000, 20
    scores, labels, eta = Simulation(n, c, dtype=dtype, levels=levels).rows(0, n)
    labels = labels if kind == "hard" else eta
    store = zarr.create_array({}, data=scores, chunks=(300, c), config={"write_empty_chunks": True})
    with dask.config.set({"avgk.small-scores": 1 << 40}):
        expected = avgk.evaluate(scores, labels, [0.5, 1, 2, 3.25, 5])
    with dask.config.set({**IN_WAVES, "avgk.max-events": max_events}):
        actual = avgk.evaluate(store, labels, [0.5, 1, 2, 3.25, 5])
    assert actual.drop_attrs().identical(expected.drop_attrs())


@pytest.mark.slow
@pytest.mark.parametrize("levels", [20, 40])
@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_evaluate__in_waves_of_counted_ties_alone(levels, kind):
    n, c = 4_000, 6
    rng = np.random.default_rng(levels)
    scores = rng.integers(0, levels, (n, c)).astype("i2")
    labels = rng.integers(0, c, n) if kind == "hard" else rng.dirichlet(np.ones(c), n)
    store = zarr.create_array({}, data=scores, chunks=(50, c), config={"write_empty_chunks": True})
    with dask.config.set({"avgk.small-scores": 1 << 40}):
        expected = avgk.evaluate(scores, labels, [1, 1.9, 2.7, 5.2])
    few = {"avgk.least-events": 40, "avgk.max-events": 1000, "avgk.tie-groups": 2, "avgk.band-bytes": 0}
    with dask.config.set({**IN_WAVES, **few}):
        actual = avgk.evaluate(store, labels, [1, 1.9, 2.7, 5.2])
    assert actual.drop_attrs().identical(expected.drop_attrs())


def test_evaluate__in_waves_with_nan_takes_no_more_reads():
    n, c = 40_000, 20
    scores, _, _ = Simulation(n, c).rows(0, n)
    scores[np.random.default_rng(1).random(scores.shape) < 0.3] = np.nan
    store = zarr.create_array({}, data=scores, chunks=(200, c))
    with dask.config.set({**IN_WAVES, "avgk.max-events": 60_000, "avgk.band-bytes": 0}):
        actual = avgk.evaluate(store, k=[1, 2, 3], nan_policy="lowest")
    with dask.config.set({"avgk.small-scores": 1 << 40}):
        expected = avgk.evaluate(scores, k=[1, 2, 3], nan_policy="lowest")
    assert actual.attrs["reads"] == 1
    assert actual.drop_attrs().identical(expected.drop_attrs())


@pytest.mark.slow
def test_average_k_sets__whose_ties_end_with_a_group_of_bands():
    n, c, rows = 2_000, 8, 50
    scores = np.random.default_rng(3).integers(0, 4, (n, c)).astype("u1")
    store = zarr.create_array({}, data=scores, chunks=(rows, c), config={"write_empty_chunks": True})
    settings = {**IN_WAVES, "avgk.least-events": 10, "avgk.max-events": 50, "avgk.tie-groups": 4, "avgk.band-bytes": 0}
    for groups in (1, 2, 3):
        kept = int((scores[: groups * 10 * rows] == 3).sum())  # all ties of the first groups of ten bands, and no more
        with dask.config.set(settings):
            actual = avgk.average_k_sets(store, Fraction(kept, n)).compute()
        assert actual.sum() == kept
        assert actual[: groups * 10 * rows].sum() == kept


@pytest.mark.slow
@pytest.mark.parametrize("by_chunk", [0.0, 0.05])
def test_evaluate__in_waves_reads_each_chunk_once_and_a_pilot(by_chunk):
    n, c, rows = 100_000, 20, 250
    scores, labels, _ = Simulation(n, c).rows(0, n)
    noise = np.random.default_rng(0).normal(size=n // rows) * by_chunk
    scores = (scores * np.repeat(1 + noise, rows)[:, None]).astype("f4")  # bands that differ need wider brackets
    store = CountingStore(zarr.storage.MemoryStore())
    group = zarr.open_group(store, mode="w")
    group.create_array("scores", data=scores, chunks=(rows, c))
    group.create_array("labels", data=labels, chunks=(rows,))
    store.reads.clear()
    with dask.config.set({**IN_WAVES, "avgk.max-events": 120_000 if not by_chunk else 300_000}):
        actual = avgk.evaluate(zarr.open_group(store, mode="r"), k=[1, 2, 3, 4, 5])
    assert actual.attrs["reads"] == 1
    reads = {key: times for key, times in store.chunk_reads().items() if key.startswith("scores")}
    assert len(reads) == n // rows
    assert sum(reads.values()) <= 1.1 * n // rows


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 3, 1000])
@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_evaluate__cuts_ties_that_several_bands_count_together(groups, kind):
    n, c = 4_000, 12
    scores, labels, eta = Simulation(n, c, levels=6).rows(0, n)
    labels = labels if kind == "hard" else eta
    store = zarr.create_array({}, data=scores, chunks=(100, c), config={"write_empty_chunks": True})
    with dask.config.set({"avgk.small-scores": 1 << 40}):
        expected = avgk.evaluate(scores, labels, range(1, 6), ties="first")
        sets = avgk.average_k_sets(scores, 3).compute()
    with dask.config.set({**IN_WAVES, "avgk.tie-groups": groups, "avgk.max-events": 50, "avgk.least-events": 10}):
        actual = avgk.evaluate(store, labels, range(1, 6), ties="first")
        assert np.array_equal(avgk.average_k_sets(store, 3).compute(), sets)
    assert actual.drop_attrs().identical(expected.drop_attrs())
