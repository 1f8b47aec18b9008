"""Kept and counted events: where the first ties end, and what they bring."""

from __future__ import annotations

import numpy as np

from avgk_dask.states.counted_events import EventTally
from avgk_dask.states.held_events import HeldEvents, IntervalEvents


def test_interval_events__name_the_band_whose_counted_ties_are_cut():
    rows, bases = np.array([0, 0, 4], np.int32), np.zeros(3, np.int32)
    bands = [HeldEvents(b, np.array([0, 3]), np.full(3, 7), rows, bases, np.ones(3, np.uint8)) for b in (0, 1)]
    counted = EventTally.merge([band.counted() for band in bands])
    events = IntervalEvents.gather([], counted, 0, (7, 7))
    assert events.key_at_rank(5, 7, 7) == 7
    taken = events.take(7, 4, 9)
    assert (taken.cut.band, taken.cut.n_ties, taken.cut.pending) == (1, 1, True)
    assert taken.weight_kept == 3
    assert taken.changes[:3].tolist() == [-2, 1, 1]
    taken = events.take(7, 3, 9)
    assert (taken.cut.band, taken.cut.n_ties, taken.cut.pending) == (0, 3, False)
    single = IntervalEvents.gather(bands, EventTally.empty(), 0, (7, 7)).take(7, 4, 9)
    assert (single.cut.band, single.cut.n_ties, single.cut.pending) == (1, 1, False)
    assert single.weight_kept == 4
    assert single.changes[:3].tolist() == [-3, 2, 1]
    mixed = IntervalEvents.gather(bands[:1], bands[1].counted(), 0, (7, 7)).take(7, 5, 9)
    assert (mixed.cut.band, mixed.cut.n_ties, mixed.cut.pending) == (1, 2, True)
    assert mixed.weight_kept == 3
    assert mixed.weight_ties == 6
