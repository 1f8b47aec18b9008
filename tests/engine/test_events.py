"""Held and counted events: the place of the last kept tie, and the gains of the sets."""

from __future__ import annotations

import numpy as np

from avgk_dask.engine.events import EventTally, HeldEvents, IntervalEvents, row_numbers

#: One interval of one key.
FLOORS = np.array([8, 7])


def test_interval_events__name_the_band_whose_counted_ties_are_cut():
    rows, bases = np.array([0, 0, 4], np.int32), np.zeros(3, np.int32)
    hits, strata = np.array([1, 0, 1], np.uint8), np.array([2, 2, 5], np.int32)
    bands = [HeldEvents(np.full(3, 7), row_numbers(b, rows), bases, hits, strata) for b in (0, 1)]
    counted = EventTally.merge([band.counted(FLOORS) for band in bands])
    assert counted.to_parts() == HeldEvents.merge(bands).counted(FLOORS).to_parts()
    events = IntervalEvents(HeldEvents.empty(), counted.between(7, 7))
    assert events.key_at_rank(5, 7, 7) == 7
    taken = events.take(7, 4, 9)
    assert (taken.cut.band, taken.cut.n_ties, taken.cut.pending) == (1, 1, True)
    assert taken.weight_kept == 2
    assert taken.changes[:6].tolist() == [-2, 0, 0, 1, 0, 1]  # both sets hold their label
    assert taken.strata.sizes[[2, 5], 0].tolist() == [2, 1]
    assert taken.strata.hits[[2, 5], 0].tolist() == [1, 1]
    taken = events.take(7, 3, 9)
    assert (taken.cut.band, taken.cut.n_ties, taken.cut.pending) == (0, 3, False)
    single = IntervalEvents(HeldEvents.merge(bands[::-1]).in_order(), EventTally.empty()).take(7, 4, 9)
    assert (single.cut.band, single.cut.n_ties, single.cut.pending) == (1, 1, False)
    assert single.weight_kept == 3
    assert single.changes[:6].tolist() == [-3, 0, 0, 2, 0, 1]
    assert single.strata.sizes[[2, 5], 0].tolist() == [3, 1]
    mixed = IntervalEvents(bands[0], bands[1].counted(FLOORS).between(7, 7)).take(7, 5, 9)
    assert (mixed.cut.band, mixed.cut.n_ties, mixed.cut.pending) == (1, 2, True)
    assert mixed.weight_kept == 2
    assert mixed.weight_ties == 4
