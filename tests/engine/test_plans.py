"""Plans of scans: intervals that hold what brackets hold."""

from __future__ import annotations

import numpy as np

from avgk_dask.engine.pilot import plan_scan
from avgk_dask.engine.plan import ScanShape
from avgk_dask.kernels import keys


def test_plan_scan__cuts_brackets_that_overlap_between_their_middles():
    shape = ScanShape(10, 10, np.dtype("int32"), 0, 1, 10, 10, 64)
    zones = plan_scan(shape, [(5, 9), (8, 12), (3, 4)], 0, keys.KEY_MAX).zones
    assert [zones.interval(j) for j in range(zones.n_intervals)] == [(9, 12), (5, 8), (3, 4)]


def test_plan_scan__reaches_the_highest_key_there_is():
    shape = ScanShape(10, 10, np.dtype("int64"), 0, 1, 10, 10, 64)
    zones = plan_scan(shape, [(keys.KEY_MIN, keys.KEY_MAX)], keys.KEY_MIN, keys.KEY_MAX).zones
    assert zones.interval(0) == (keys.KEY_MIN, keys.KEY_MAX)
