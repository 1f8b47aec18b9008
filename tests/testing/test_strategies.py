"""The strategies draw boundary cases often enough."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from avgk_dask.kernels.keys import encode
from avgk_dask.testing import strategies

FLOATS = ("float16", "float32", "float64", "bfloat16")


@pytest.mark.slow
def test_budgets__include_the_boundaries_of_the_scores():
    counts = Counter()

    @settings(max_examples=400, database=None)
    @given(st.data())
    def draw(data):
        scores = data.draw(strategies.score_matrices(FLOATS, nan=True))
        n_samples, n_classes = scores.shape
        n_real = int((scores == scores).sum())
        for k in data.draw(strategies.budgets(n_classes, scores)):
            assert 0 < k <= n_classes
            budget = int(Fraction(k) * n_samples)
            counts.update(
                {
                    "one sample": n_samples == 1,
                    "no label": budget == 0,
                    "all labels": budget == scores.size,
                    "all but one": budget == scores.size - 1,
                    "all numbers": budget == n_real < scores.size,
                    "one NaN": budget == n_real + 1 <= scores.size,
                    "half the classes": 2 * k == n_classes,
                }
            )

    draw()
    assert min(counts.values()) >= 5, counts


@pytest.mark.parametrize("dtype", strategies.DTYPES)
def test_bin_ends__are_the_last_key_of_a_bin_and_the_next(dtype):
    kind = strategies.as_dtype(dtype)

    @settings(max_examples=30, database=None)
    @given(strategies.bin_ends(kind, [1]))
    def draw(values):
        keys = encode(np.array(values, object).astype(float if kind.kind not in "iu" else kind).astype(kind))
        assert np.diff(keys).tolist() == [1] * (len(values) - 1)

    draw()
