"""Conformal methods: each is listed once, under the name and the description that users see."""

from __future__ import annotations

from fractions import Fraction

import pytest

from avgk_dask.bands.conformal import METHODS, cost_bits
from avgk_dask.results.registry import CONFORMAL_METHODS


def test_methods__are_those_that_results_describe():
    assert list(METHODS) == list(CONFORMAL_METHODS)


@pytest.mark.parametrize(
    "penalty, k_reg, bits", [(Fraction(0), 0, 60), (Fraction(1, 100), 5, 58), (Fraction(10**9), 0, -1)]
)
def test_cost_bits__leave_room_for_the_sums_of_a_row(penalty, k_reg, bits):
    assert cost_bits(penalty, k_reg, 1000) == bits
