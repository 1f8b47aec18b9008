"""Thresholds of groups: brackets that hold other numbers of scores than before show that the data changed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from avgk_dask.errors import ScoresError
from avgk_dask.statistics.group_search import Bracketed

LOWEST, HIGHEST = -100, 100


def refuse(low, high, before, now):
    brackets = SimpleNamespace(lows=np.array([low]), highs=np.array([high]))
    wanted = SimpleNamespace(brackets=brackets, sizes=np.array([before]))
    Bracketed.refuse_others(wanted, np.array([now]), (LOWEST, HIGHEST))


@pytest.mark.parametrize("now", [4, 6])
def test_brackets__with_another_number_of_scores_are_refused(now):
    with pytest.raises(ScoresError):
        refuse(-5, 5, before=5, now=now)


@pytest.mark.parametrize("low,high", [(LOWEST, 5), (-5, HIGHEST)])
def test_brackets__up_to_the_end_of_all_keys_may_hold_fewer_but_not_more(low, high):
    refuse(low, high, before=5, now=4)
    with pytest.raises(ScoresError):
        refuse(low, high, before=5, now=6)
