"""Bars of errors that average-k adds, and ticks of few fractional budgets."""

from __future__ import annotations

import numpy as np

import avgk_dask as avgk
from avgk_dask.testing import simulate


def result_of(k):
    toy = simulate(400, 20)
    return avgk.evaluate(toy.scores, toy.labels, k=k, straddle=False)


def test_gains__hatches_only_bars_to_which_errors_are_added():
    result = result_of([1, 2, 3])
    result["average_k_error"][:] = result.top_k_error.values + np.array([0.01, -0.01, -0.02])
    ax = avgk.plot.gains(result)
    hatched = [bar for bar in ax.patches if bar.get_hatch()]
    assert len(hatched) == 1
    assert hatched[0].get_height() > 0
    assert round(hatched[0].get_x() + hatched[0].get_width() / 2) == 0


def test_errors__of_two_budgets_of_which_one_is_fractional_have_a_tick_each():
    ticks = avgk.plot.errors(result_of([2.75, 3])).get_xticklabels()
    assert [tick.get_text() for tick in ticks] == ["2.75", "3"]
