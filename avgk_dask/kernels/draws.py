"""Pseudo-random numbers of samples: one for each, from a seed and the sample's number alone, whatever the chunks are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .order import scatter


def sample_draws(seed: int, stream: int, samples: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a number in [0, 1), a multiple of 2**-53, for each sample, given their numbers.

    Streams of one seed have nothing in common.

    Examples
    --------
    >>> together = sample_draws(3, 0, np.arange(5))
    >>> bool((together[2:] == sample_draws(3, 0, np.arange(2, 5))).all())
    True

    """
    start = scatter(scatter(np.array([seed], np.uint64)) + np.uint64(stream))
    numbers = scatter(np.asarray(samples, np.int64).astype(np.uint64))
    return (scatter(start ^ numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53
