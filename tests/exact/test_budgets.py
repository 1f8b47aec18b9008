from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from avgk_dask.errors import BudgetError, ScoresError
from avgk_dask.exact import budgets


@pytest.mark.parametrize(
    "k, exact",
    [
        (0.1, Fraction(1, 10)),
        ("0.1", Fraction(1, 10)),
        (np.float32(0.1), Fraction(1, 10)),
        (np.float64(2.5), Fraction(5, 2)),
        (Decimal("1.25"), Fraction(5, 4)),
        (Fraction(1, 3), Fraction(1, 3)),
        (np.int16(7), Fraction(7)),
        (np.array(3), Fraction(3)),
        (1e-3, Fraction(1, 1000)),
    ],
)
def test_parse_budget__is_exact(k, exact):
    assert budgets.parse_budget(k) == exact


@pytest.mark.parametrize(
    "k",
    [True, np.True_, "five", "1/2", "", None, float("nan"), float("inf"), "nan", 1j, [1], "1e99999999", "1e-99999999"],
)
def test_parse_budget__refuses_what_is_no_number(k):
    with pytest.raises(BudgetError, match="k must be a real number"):
        budgets.parse_budget(k)


@pytest.mark.parametrize("k", [0, -1, 3.0001, "0", [1, 4], Fraction(-1, 2)])
def test_parse_budgets__refuses_what_is_out_of_range(k):
    with pytest.raises(BudgetError, match=r"in \(0, C\]"):
        budgets.parse_budgets(k, 3)


def test_parse_budgets__refuses_none_at_all():
    with pytest.raises(BudgetError, match="at least one"):
        budgets.parse_budgets([], 3)


def test_parse_budgets__keeps_the_first_of_equal_budgets():
    wanted = [3, 1, 2.5, "1.0", Fraction(5, 2), Decimal(3), 2]
    assert budgets.parse_budgets(wanted, 3) == (3, 1, Fraction(5, 2), 2)


def test_count_labels__floors_exactly():
    assert budgets.count_labels(budgets.parse_budget(0.1), 10) == 1
    assert budgets.count_labels(budgets.parse_budget(0.3), 10) == 3  # 0.3 * 10 < 3 in binary
    assert budgets.count_labels(budgets.parse_budget("0.05"), 10) == 0


@pytest.mark.parametrize("n_classes", [0, -5])
def test_parse_budgets__never_names_an_empty_range(n_classes):
    with pytest.raises(ScoresError, match=f"at least one class; got {n_classes}"):
        budgets.parse_budgets(1, n_classes)


def test_as_float__stands_for_no_fewer_labels():
    assert (budgets.as_float(2, 3), budgets.as_float(3, 2)) == (0.6666666666666667, 1.5)


def test_window_start__is_the_cube_root_of_the_squared_budget_below():
    assert [budgets.window_start(n) for n in (1000, 0, 10**9)] == [900, 0, 10**9 - (1 << 14)]
