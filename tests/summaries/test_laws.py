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


def test_event_tally__coarse_events_name_the_band_to_cut():
    key = np.full(3, 7)
    tally = EventTally.merge(
        [
            EventTally.from_rows(b, key, np.array([0, 0, 4]), np.array([1, 2, 1], np.int32), None).coarsen()
            for b in (0, 1)
        ]
    )
    kept, cut = tally.first(4)
    assert (kept.n_scores, cut.band, cut.n_ties, cut.pending) == (3, 1, 1, True)
    kept, cut = tally.first(3)
    assert (kept.n_scores, cut.band, cut.n_ties, cut.pending) == (3, 0, 3, False)


def test_plan_scan__joins_brackets_that_overlap_but_not_neighbours():
    shape = ScanShape(10, 10, np.dtype("int32"), 0, 1, 10, 10, 64)
    zones = plan_scan(shape, [(5, 9), (8, 12), (3, 4)], 0, keys.KEY_MAX).zones
    assert [zones.interval(j) for j in range(zones.n_intervals)] == [(5, 12), (3, 4)]


def test_plan_scan__reaches_the_highest_key_there_is():
    shape = ScanShape(10, 10, np.dtype("int64"), 0, 1, 10, 10, 64)
    zones = plan_scan(shape, [(keys.KEY_MIN, keys.KEY_MAX)], keys.KEY_MIN, keys.KEY_MAX).zones
    assert zones.interval(0) == (keys.KEY_MIN, keys.KEY_MAX)
