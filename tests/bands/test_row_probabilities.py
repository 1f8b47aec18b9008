"""Probabilities: rows with a score outside [0, 1] are found, on either side."""

from __future__ import annotations

import numpy as np
import pytest

from avgk_dask.bands.probabilities import probabilities_of, rows_outside

NEXT_TO_ONE = float(np.nextafter(1, 2))


@pytest.mark.parametrize("bad", [-1e-300, NEXT_TO_ONE, 1.5, 2, np.inf, -np.inf])
def test_rows_outside__are_those_with_a_score_that_is_not_a_probability(bad):
    scores = np.array([[0.0, 1], [0.5, bad], [np.nan, 0.5], [bad, 0]])
    assert rows_outside(scores).tolist() == [1, 3]


def test_rows_outside__are_none_from_0_to_1():
    assert rows_outside(np.array([[0.0, 1], [0.5, 0.5]])).tolist() == []


def test_probabilities__of_an_unknown_link_are_refused():
    with pytest.raises(KeyError):
        probabilities_of(np.zeros((1, 2)), "sparsemax", 1.0)
