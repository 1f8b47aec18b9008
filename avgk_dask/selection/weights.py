"""Exact sums of the label weights in the bins of a histogram."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.keys import decode
from ..summaries.histogram import KeyHistogram

_DOUBLE = np.dtype(np.float64)


def bin_weights(histogram: KeyHistogram) -> NDArray[Any]:
    """Give each bin's sum as a fraction: within a bin, doubles are linear in their keys."""
    first = histogram.bins << histogram.shift
    starts, nexts = (decode(keys, _DOUBLE).tolist() for keys in (first, first + 1))
    offsets = histogram.offset_sums().tolist()
    return np.array(
        [
            Fraction(start) * count + (Fraction(after) - Fraction(start)) * offset
            for start, after, count, offset in zip(starts, nexts, histogram.counts.tolist(), offsets, strict=True)
        ],
        object,
    )
