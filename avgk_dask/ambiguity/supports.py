"""Supports of the ranked scores: between which values the r-th highest score of a sample lies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.keys import first_key_above, is_float, key_range
from .columns import Column
from .values import values_of

Array = NDArray[Any]


def do_overlap(k: int, supports: Sequence[tuple[int, int]]) -> bool:
    """Whether the supports of ranks k and k + 1 overlap: the highest key of k + 1 is above the lowest of k.

    Where the scores are the true probabilities, average-k gains on top-k if and only if they do (the
    paper's characterisation of when top-k is optimal). Beyond the last class there is no rank to overlap.
    """
    return k < len(supports) and supports[k][1] > supports[k - 1][0]


def rank_histogram(column: Column, dtype: np.dtype[Any], n_bins: int) -> tuple[Array, Array]:
    """Give counts of a rank's scores in bins over its support, and the lowest score each bin may hold.

    The bins are equally wide, but where only a histogram of the scores is known, their edges move to
    the next edge of that one; the counts are exact for the edges given. Infinite scores and NaN fall
    into the outermost bins.
    """
    edges, counts = column.counts_from(_edge_keys(*column.ends, dtype, n_bins))
    return counts, values_of(edges, dtype)


def _edge_keys(low: int, high: int, dtype: np.dtype[Any], n_bins: int) -> list[int]:
    """Give the first key of each of ``n_bins`` equal bins between two keys."""
    ends = low, high
    if is_float(dtype):  # infinities have no width
        least, most = key_range(dtype)
        ends = max(low, least + 1), min(high, most - 1)
    first, last = (float(v) for v in values_of(list(ends), dtype))
    inner = [first + (last - first) / n_bins * i for i in range(1, n_bins)]
    keys = [first_key_above(math.nextafter(edge, -math.inf), dtype) for edge in inner]
    return [low, *(min(max(key, low), high) for key in keys)]
