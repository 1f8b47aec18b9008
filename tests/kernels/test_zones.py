"""Zones and their bins: wide enough for all keys, and for all counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from avgk_dask.engine.zones import ZoneTable, shift_to_fit


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
