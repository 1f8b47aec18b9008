"""Supports of the ranked scores: between which values the r-th highest score of a sample lies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.keys import first_key_above, key_range
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

    The bins are equally wide between the lowest and the highest finite score, but where only a histogram
    of the scores is known, their edges move down to those of that one; the counts are exact for the edges
    given. Infinite scores and NaN fall into the outermost bins.
    """
    edges, counts = column.counts_from([column.ends[0], *_inner_edges(column, dtype, n_bins)])
    return counts, values_of(edges, dtype)


def _inner_edges(column: Column, dtype: np.dtype[Any], n_bins: int) -> list[int]:
    """Give the first key of each bin but the first; all at the lowest where no score is finite."""
    finite = column.finite_ends
    if finite is None:
        return [column.ends[0]] * (n_bins - 1)
    first, last = (Fraction(v.item()) for v in values_of(list(finite), dtype))
    edges = (first + (last - first) * i / n_bins for i in range(1, n_bins))
    return [_first_key_from(edge, dtype) for edge in edges]


def _first_key_from(value: Fraction, dtype: np.dtype[Any]) -> int:
    """Give the smallest key whose value is at least ``value``."""
    key = first_key_above(value, dtype)
    below = values_of([key - 1], dtype)[0].item() if key > key_range(dtype)[0] else -math.inf
    return key - 1 if math.isfinite(below) and Fraction(below) == value else key
