"""Rules give the same members for any block of a matrix."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from avgk_dask.kernels.keys import TIE_DRAWS, encode
from avgk_dask.statistics.rules import ThresholdRule, TopRule
from avgk_dask.testing import oracle_top_k_sets, strategies


@given(data=st.data())
def test_threshold_rule__does_not_depend_on_blocks(data):
    scores = data.draw(strategies.score_matrices(max_samples=7, nan=True))
    n, c = scores.shape
    key = int(data.draw(st.sampled_from(encode(scores).reshape(-1).tolist())))
    last = data.draw(st.integers(-1, n * c - 1))
    order = data.draw(st.sampled_from([{}, *({"tied": key, "ties": ties} for ties in TIE_DRAWS)]))
    rule = ThresholdRule(key, *divmod(last, c), **order) if last >= 0 else ThresholdRule(key, **order)
    members = rule.choose(scores, 0, 0, c)
    if not order:
        keys, indices = encode(scores), np.arange(n * c).reshape(n, c)
        assert np.array_equal(members, (keys > key) | ((keys == key) & (indices <= last)))
    row, column = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, c - 1))
    block = np.ascontiguousarray(scores[row:, column:])
    assert np.array_equal(rule.choose(block, row, column, c), members[row:, column:])


@given(data=st.data())
def test_top_rule__is_the_definition(data):
    scores = data.draw(strategies.score_matrices(max_samples=7, nan=True))
    k = data.draw(st.integers(1, scores.shape[1]))
    assert np.array_equal(TopRule(k).choose(scores, 0, 0, scores.shape[1]), oracle_top_k_sets(scores, k))
