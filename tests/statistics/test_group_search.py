"""Thresholds of groups: a bracket with another number of scores than before shows that the data changed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from avgk_dask.errors import ScoresError
from avgk_dask.statistics.group_search import OpenBrackets

LOWEST, HIGHEST = -100, 100


def check(low, high, before, now):
    brackets = SimpleNamespace(lows=np.array([low]), highs=np.array([high]))
    previous = SimpleNamespace(brackets=brackets, sizes=np.array([before]))
    OpenBrackets.check_sizes(previous, np.array([now]), (LOWEST, HIGHEST))


@pytest.mark.parametrize("now", [4, 6])
def test_brackets__raise_if_their_number_of_scores_changes(now):
    with pytest.raises(ScoresError, match="scores changed"):
        check(-5, 5, before=5, now=now)


@pytest.mark.parametrize("low,high", [(LOWEST, 5), (-5, HIGHEST)])
def test_brackets__that_reach_the_lowest_or_highest_key_may_hold_fewer_scores(low, high):
    check(low, high, before=5, now=4)
    with pytest.raises(ScoresError):
        check(low, high, before=5, now=6)
