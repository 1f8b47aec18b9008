"""The tallies are monoids: any grouping and any order of merging gives the same tally."""

from __future__ import annotations

import dataclasses
from itertools import pairwise, permutations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from avgk_dask.kernels import keys
from avgk_dask.selection.bracket import ScanShape, plan_scan
from avgk_dask.selection.search import Search
from avgk_dask.summaries.events import EventTally
from avgk_dask.summaries.exact import as_fraction, carry, sum_weights, zero_sums
from avgk_dask.summaries.kept import IntervalEvents, KeptEvents
from avgk_dask.summaries.scan import scan_band
from avgk_dask.summaries.tally import ScanTally
from avgk_dask.testing import strategies


def outcome(search: Search, tally: ScanTally) -> tuple:
    after = search.advance(tally)
    return [
        (i, dataclasses.replace(s, set_sizes=s.set_sizes.tolist())) for i, s in sorted(after.found.items())
    ], after.open


@settings(max_examples=60)
@given(data=st.data())
def test_scan_tally__merges_in_any_order_and_grouping(data):
    scores = data.draw(strategies.score_matrices(max_samples=9))
    labels = data.draw(strategies.hard_labels(scores.shape))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(scores)), min_size=2, max_size=2)) | {0, len(scores)})
    shape = ScanShape(*scores.shape, scores.dtype, 1, len(cuts) - 1, 1000, 1000, 64)
    search = Search.begin(shape, [data.draw(st.integers(0, scores.size))], None)
    bands = [scan_band([scores[a:b]], labels[a:b], i, search.plan) for i, (a, b) in enumerate(pairwise(cuts)) if b > a]
    whole = outcome(search, ScanTally.merge(bands))
    for order in permutations(bands):
        assert outcome(search, ScanTally.merge(list(order))) == whole
    nested = ScanTally.merge([bands[0], ScanTally.merge(bands[1:])]) if len(bands) > 1 else bands[0]
    assert outcome(search, nested) == whole


@given(st.lists(st.floats(0, 1), max_size=30), st.integers(1, 5))
def test_exact_sums__do_not_depend_on_grouping(weights, n):
    parts = np.array_split(np.array(weights), n)
    assert sum(map(sum_weights, parts)) == sum_weights(np.array(weights))


def test_carry__keeps_the_sum():
    sums = zero_sums(1)
    sums[0, :3] = [2**40 + 5, 2**33, 7]
    assert as_fraction(carry(sums)[0]) == as_fraction(sums[0])
    assert carry(sums)[0, :2].max() < 2**32


def test_interval_events__name_the_band_whose_counted_ties_are_cut():
    rows, bases = np.array([0, 0, 4], np.int32), np.zeros(3, np.int32)
    bands = [KeptEvents(b, np.array([0, 3]), np.full(3, 7), rows, bases, np.ones(3, np.uint8)) for b in (0, 1)]
    counted = EventTally.merge([band.counted() for band in bands])
    events = IntervalEvents.gather([], counted, 0, (7, 7))
    assert events.key_at_rank(5, 7, 7) == 7
    taken = events.take(7, 4, 9)
    assert (taken.cut.band, taken.cut.n_ties, taken.cut.pending) == (1, 1, True)
    assert taken.weight_kept == 3
    assert taken.changes[:3].tolist() == [-2, 1, 1]
    taken = events.take(7, 3, 9)
    assert (taken.cut.band, taken.cut.n_ties, taken.cut.pending) == (0, 3, False)
    single = IntervalEvents.gather(bands[::-1], EventTally.empty(), 0, (7, 7)).take(7, 4, 9)
    assert (single.cut.band, single.cut.n_ties, single.cut.pending) == (1, 1, False)
    assert single.weight_kept == 4
    assert single.changes[:3].tolist() == [-3, 2, 1]
    mixed = IntervalEvents.gather(bands[:1], bands[1].counted(), 0, (7, 7)).take(7, 5, 9)
    assert (mixed.cut.band, mixed.cut.n_ties, mixed.cut.pending) == (1, 2, True)
    assert mixed.weight_kept == 3
    assert mixed.weight_ties == 6


def test_plan_scan__cuts_brackets_that_overlap_between_their_middles():
    shape = ScanShape(10, 10, np.dtype("int32"), 0, 1, 10, 10, 64)
    zones = plan_scan(shape, [(5, 9), (8, 12), (3, 4)], 0, keys.KEY_MAX).zones
    assert [zones.interval(j) for j in range(zones.n_intervals)] == [(9, 12), (5, 8), (3, 4)]


def test_plan_scan__reaches_the_highest_key_there_is():
    shape = ScanShape(10, 10, np.dtype("int64"), 0, 1, 10, 10, 64)
    zones = plan_scan(shape, [(keys.KEY_MIN, keys.KEY_MAX)], keys.KEY_MIN, keys.KEY_MAX).zones
    assert zones.interval(0) == (keys.KEY_MIN, keys.KEY_MAX)
