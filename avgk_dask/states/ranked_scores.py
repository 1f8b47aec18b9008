"""The ranked scores: for every rank, the scores that hold it, over all rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ..arrays import Array, Dtype
from ..kernels.keys import HALF_NAN, carrier_bits, is_half
from ..records import CHAINED, EACH, State
from .key_histogram import KeyHistogram

#: Ranks up to which a row's highest scores are found while it is scanned; for more, NumPy's partition is faster.
MOST_FUSED = 64


@dataclass(frozen=True)
class RankedTally(State):
    """The keys of each rank: all of them, or where they would be too many a histogram for each rank.

    ``parts`` are arrays of ranks x rows. NaN is the smallest integer of their dtype.
    """

    parts: Annotated[tuple[Array, ...], CHAINED] = ()
    histograms: Annotated[tuple[KeyHistogram, ...], EACH] = ()

    @classmethod
    def from_rows(cls, scores: Array, dtype: Dtype, n_bins: int) -> RankedTally:
        """Return the tally of rows of descending carrier values; ``n_bins`` is the number of bins of each histogram, 0 for none."""
        keys = np.ascontiguousarray(narrow_keys(scores, dtype).T)
        if not n_bins:
            return cls(parts=(keys,))
        return cls(histograms=tuple(KeyHistogram.from_keys(column, n_bins) for column in keys))


def narrow_keys(scores: Array, dtype: Dtype) -> Array:
    """Return the order keys of carrier values in 32 bits where those suffice; NaN is the smallest integer."""
    bits, magnitude = carrier_bits(scores)
    narrow = narrow_dtype(dtype)
    if magnitude:
        keys = np.where(bits < 0, -(bits & narrow.type(magnitude)), bits)
        keys[scores != scores] = missing_key(dtype)
        return keys
    keys = scores.astype(narrow)
    if is_half(dtype):
        keys[scores == HALF_NAN] = missing_key(dtype)
    return keys


def narrow_dtype(dtype: Dtype) -> Dtype:
    """Return the integers that hold the keys of a dtype: 32 bits, or 64."""
    return np.dtype(np.int64 if dtype.itemsize == 8 or dtype == np.uint32 else np.int32)


def missing_key(dtype: Dtype) -> int:
    """Return what stands for NaN among the narrow keys of a floating-point dtype: the smallest integer."""
    return -(1 << 8 * narrow_dtype(dtype).itemsize - 1)


def partitioned_top(tile: Array, n_ranks: int) -> Array:
    """Return each row's highest scores, descending, by NumPy's partition; for tiles without NaN."""
    first = tile.shape[1] - n_ranks
    top = np.partition(tile, first, axis=1)[:, first:] if first else tile.copy()
    top.sort(axis=1)
    return top[:, ::-1]
