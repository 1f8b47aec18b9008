"""Exact sums: of either sign, in any order, to the last bit."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from avgk_dask.exact.sums import ExactSums

values = st.floats(-(2.0**31), 2.0**31, allow_nan=False) | st.sampled_from([5e-324, -5e-324, -0.0, 1.0, -1.0, 0.1])


def total(numbers):
    return sum(map(Fraction, numbers), Fraction(0))


@given(st.lists(values, max_size=40), st.integers(1, 5), st.randoms(use_true_random=False))
def test_exact_sums__are_those_of_fractions_in_any_grouping(numbers, n, random):
    parts = [ExactSums.from_values(part) for part in np.array_split(np.array(numbers, np.float64), n)]
    random.shuffle(parts)
    assert ExactSums.merge(parts)[0] == ExactSums.from_values(np.array(numbers, np.float64))[0] == total(numbers)


@given(st.lists(st.tuples(values, st.integers(0, 3)), max_size=40))
def test_exact_sums__are_by_group_running_integers_and_scattered(pairs):
    sums = ExactSums.zeros(4)
    sums.add(np.array([value for value, _ in pairs], np.float64), np.array([group for _, group in pairs], np.int64))
    expected = [total(value for value, group in pairs if group == g) for g in range(4)]
    assert sums.fractions() == sums.settled().fractions() == expected
    assert sums.running().fractions() == [sum(expected[: g + 1], Fraction(0)) for g in range(4)]
    integers, one = sums.integers()
    assert [Fraction(int(n), one) for n in integers] == expected
    _, places, amounts = sums.scattered()
    assert ExactSums.gathered(places, amounts) == sum(expected)


def test_exact_sums__settle_to_small_limbs():
    limbs = np.zeros((1, 36), np.int64)
    limbs[0, :3] = [2**40 + 5, -(2**33), 7]
    sums = ExactSums(limbs)
    assert sums.settled()[0] == sums[0]
    assert sums.settled().limbs[0, :35].min() >= 0
    assert sums.settled().limbs[0, :35].max() < 2**32


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2.0**32, -(2.0**40)])
def test_exact_sums__refuse_what_has_no_room(value):
    with pytest.raises(OverflowError, match=r"between -2\*\*32 and 2\*\*32"):
        ExactSums.from_values(np.array([0.5, value]))
