"""Supports of the ranked scores: between which values the r-th highest score of a sample lies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..arrays import Array, Dtype
from ..kernels.keys import encode, is_float
from .columns import Column
from .pair_sums import values_of


def do_overlap(k: int, supports: Sequence[tuple[int, int]]) -> bool:
    """Whether the supports of ranks k and k + 1 overlap: the highest key of k + 1 is above the lowest of k.

    Where the scores are the true probabilities, average-k gains on top-k if and only if they do (the
    paper's characterisation of when top-k is optimal). Beyond the last class there is no rank to overlap.
    """
    return k < len(supports) and supports[k][1] > supports[k - 1][0]


def rank_histogram(column: Column, dtype: Dtype, n_bins: int, log: bool = False) -> tuple[Array, Array]:
    """Return counts of a rank's scores in bins over its support, and the lowest score each bin may hold.

    The bins are equally wide between the lowest and the highest finite score, to the precision of the dtype,
    or with ``log``, where those are positive and an order of magnitude apart, each wider by the same factor
    than the one below. Where only a histogram of the scores is known, the edges move down to those of that
    one. The counts are exact for the edges given. Infinite scores and NaN fall into the outermost bins.
    """
    edges, counts = column.counts_from([column.ends[0], *_inner_edges(column, dtype, n_bins, log)])
    return counts, values_of(edges, dtype)


def _inner_edges(column: Column, dtype: Dtype, n_bins: int, log: bool) -> list[int]:
    """Return the first key of each bin but the first; all at the lowest where no score is finite."""
    finite = column.finite_ends
    if finite is None:
        return [column.ends[0]] * (n_bins - 1)
    low, high = (value.item() for value in values_of(list(finite), dtype))
    if log and low > 0 and high > 10 * low:
        edges = np.geomspace(low, high, n_bins + 1)[1:-1]
    elif is_float(dtype):
        share = np.arange(1, n_bins) / n_bins
        edges = low * (1 - share) + high * share  # the difference of two floats might overflow
    else:
        edges = np.array([-((low * (i - n_bins) - high * i) // n_bins) for i in range(1, n_bins)], dtype)
    keys = encode(np.clip(edges, low, high).astype(dtype))
    return [int(key) for key in np.maximum.accumulate(np.clip(keys, *finite))]
