"""Thinned curves keep points in place, and omit only points near these."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from avgk_dask.plot.canvas import MOST_BINS, binned, thinned

seeds = st.integers(0, 2**32 - 1)


@given(st.integers(1, 30_000), seeds, st.sampled_from([0.1, 1.0, 8.0]))
def test_thinned__leaves_out_only_what_is_near(n, seed, power):
    x = np.arange(n)
    y = np.sort(np.random.default_rng(seed).random(n) ** power)
    kept = thinned(x, y)
    assert kept[0] == 0
    assert kept[-1] == n - 1
    assert (np.diff(kept) > 0).all()
    assert kept.size <= 2 * 400 + 2
    if n <= 800:
        assert kept.size == n
    elif kept.size > 1:  # neighbours are near in both directions, or next to each other
        near = (np.diff(x[kept]) <= (n - 1) / 399 + 1) & (np.diff(y[kept]) <= (y[-1] - y[0]) / 399 + np.diff(y).max())
        assert near.all()


@given(st.integers(1, 5_000), seeds)
def test_binned__counts_every_sample_once(n, seed):
    counts = np.random.default_rng(seed).integers(0, 5, n)
    bars, edges = binned(counts)
    assert edges[0] == 0
    assert edges[-1] == n
    assert (np.diff(edges) > 0).all()
    assert [int(counts[a:b].sum()) for a, b in itertools.pairwise(edges)] == bars.tolist()
    assert bars.size == n if n <= MOST_BINS else bars.size <= 60
