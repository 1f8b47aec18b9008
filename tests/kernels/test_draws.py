"""Random numbers of samples: uniform, and nothing in common between seeds, streams and neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from avgk_dask.kernels.keys import sample_draws


@pytest.mark.parametrize("seed, stream", [(0, 0), (0, 1), (1, 0), (2**64 - 1, 1)])
def test_draws__are_uniform_and_neighbours_independent(seed, stream):
    actual = sample_draws(seed, stream, np.arange(20_000))
    assert actual.min() >= 0
    assert actual.max() < 1
    assert stats.kstest(actual, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(actual[1:], actual[:-1])[0, 1]) < 0.03


def test_draws__of_other_seeds_and_streams_have_nothing_in_common():
    samples = np.arange(20_000)
    first = sample_draws(0, 0, samples)
    for seed, stream in ((0, 1), (1, 0), (1, 1), (2**63, 0)):
        other = sample_draws(seed, stream, samples)
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.03
        assert not np.isin(first, other).any()


def test_draws__hang_on_the_sample_alone():
    samples = np.array([5, 10**12, 0])
    assert sample_draws(3, 1, samples).tolist() == [float(sample_draws(3, 1, np.array([i]))[0]) for i in samples]
