"""Plans of scans: intervals that contain the brackets, and zones with bins wide enough for all keys and all counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from avgk_dask.engine.pilot import plan_scan
from avgk_dask.engine.plan import ScanShape, ZoneTable, shift_to_fit
from avgk_dask.kernels import keys


def test_plan_scan__cuts_brackets_that_overlap_between_their_middles():
    shape = ScanShape(10, 10, np.dtype("int32"), 0, 1, 10, 10, 64)
    zones = plan_scan(shape, [(5, 9), (8, 12), (3, 4)], 0, keys.KEY_MAX).zones
    assert [zones.interval(j) for j in range(zones.n_intervals)] == [(9, 12), (5, 8), (3, 4)]


def test_plan_scan__reaches_the_highest_key_there_is():
    shape = ScanShape(10, 10, np.dtype("int64"), 0, 1, 10, 10, 64)
    zones = plan_scan(shape, [(keys.KEY_MIN, keys.KEY_MAX)], keys.KEY_MIN, keys.KEY_MAX).zones
    assert zones.interval(0) == (keys.KEY_MIN, keys.KEY_MAX)


@given(st.integers(1, 2**64), st.integers(1, 2**14))
def test_shift_to_fit__is_the_least_with_which_all_keys_have_a_bin(span, n_bins):
    shift = shift_to_fit(span, n_bins)
    assert span <= n_bins << shift
    assert shift == 0 or span > n_bins << (shift - 1)


@pytest.mark.parametrize("n_scores", [0, 2**31 - 1, 2**31, 2**40])
def test_no_histogram__can_count_so_many_equal_scores(n_scores):
    histogram = ZoneTable.from_intervals([(0, 9)], 100).no_histogram(n_scores)
    assert np.iinfo(histogram.dtype).max >= n_scores
    assert not histogram.any()
