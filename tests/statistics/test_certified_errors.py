"""Certified errors of straddle strengths are bounds: never rounded down, and as tight as possible."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from avgk_dask.engine.ranked import KeyHistogram
from avgk_dask.kernels.keys import encode
from avgk_dask.statistics.straddle import BinnedColumn, PairSum, Straddle, straddle_bound

parts = st.fractions(0, 10, max_denominator=1000)


@given(parts, parts, parts, parts, st.integers(1, 50))
def test_straddle__errors_bound_the_distance_from_the_rounded_values(n_pairs, n_error, total, error, n):
    pairs = PairSum(n_pairs, n_error, total, error)
    straddle = Straddle.from_pairs(pairs, n)
    bound, bound_error = straddle_bound({1: pairs}, 1, n, 2)
    exact = [
        (straddle.strength, straddle.strength_error, total, error),
        (straddle.weight, straddle.weight_error, n_pairs, n_error),
        (bound, bound_error, total, error),
    ]
    for near, certified, value, before in exact:
        value, before = value / n**2, before / n**2
        furthest = abs(Fraction(near) - value) + before
        if not before:
            assert certified == 0
            continue
        assert Fraction(certified) >= furthest
        assert Fraction(math.nextafter(certified, 0)) < furthest  # the least float that is a bound


@pytest.mark.parametrize("total, error", [(10**308, 10**308), (10**308, 10**310), (10**310, 1), (10**310, 10**310)],
                         ids=["finite", "large error", "large", "both"])  # fmt: skip
def test_straddle__errors_beyond_the_largest_float_are_infinite(total, error):
    straddle = Straddle.from_pairs(PairSum(Fraction(1), Fraction(0), Fraction(total), Fraction(error)), 1)
    assert straddle.strength == (1e308 if total == 10**308 else math.inf)
    assert straddle.strength_error == math.inf if max(total, error) == 10**310 else straddle.strength_error >= 1e308


keys = st.lists(st.integers(-40, 40), min_size=1, max_size=20)


@given(keys, keys, st.integers(2, 8))
def test_pair_sum__lower_bounds_are_not_negative(a, b, n_bins):
    dtype = np.dtype("i8")
    left, right = (BinnedColumn(KeyHistogram.from_keys(encode(np.array(x, dtype)), n_bins), dtype) for x in (a, b))
    pairs = left.pairs_above(right)
    assert pairs.total >= pairs.total_error
    assert pairs.n_pairs >= pairs.n_pairs_error


def test_pair_sum__lower_bound_of_a_bin_is_zero_if_its_sums_give_a_negative_one():
    # The bin 0..7 contains a = 0, 1 and b = 6, 7: no a is above a b, but their sums alone would give the bound -24.
    dtype = np.dtype("i8")
    others = [-1000, -900, -800, 1000]  # more distinct keys than bins
    a, b = (BinnedColumn(KeyHistogram.from_keys(np.array(x + others), 3), dtype) for x in ([0, 1], [6, 7]))
    assert a.histogram.shift >= 3
    pairs = a.pairs_above(b)
    exact = sum(max(x - y, 0) for x in [0, 1, *others] for y in [6, 7, *others])
    assert pairs.total - pairs.total_error <= exact <= pairs.total + pairs.total_error
    assert pairs.total >= pairs.total_error


def test_straddle_bound__adds_all_orders_up_to_half_the_classes():
    pairs = {o: PairSum(Fraction(1), Fraction(0), Fraction(o), Fraction(0)) for o in (1, 2, 3)}
    assert [straddle_bound(pairs, k, 1, 4)[0] for k in (1, 2, 3)] == [1, 3, 1]
    assert [straddle_bound(pairs, k, 1, 6)[0] for k in (2, 3, 4)] == [3, 6, 1]
    assert straddle_bound(pairs, 3, 1, 5)[0] == 1  # it has two orders, but 2 k > C
