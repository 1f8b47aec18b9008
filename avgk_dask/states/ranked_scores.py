"""The ranked scores: for every rank, the scores that hold it, over all rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np

from ..arrays import Array, Dtype
from ..kernels.keys import HALF_NAN, carrier_bits, is_half
from ..records import EACH, MOST, Merging, State
from .key_histogram import KeyHistogram

#: Ranks up to which a row's highest scores are found while it is scanned; for more, NumPy's partition is faster.
MOST_FUSED = 64
#: Bytes of a bin of a ``KeyHistogram``.
BIN_BYTES = 32


def _beside(parts: list[Array]) -> Array:
    filled = [part for part in parts if part.size]
    return filled[0] if len(filled) == 1 else np.concatenate(filled, axis=1) if filled else parts[0]


#: Arrays of ranks x rows: side by side.
_COLUMNS = Merging(_beside, lambda keys: keys[:, :0])


@dataclass(frozen=True)
class RankedTally(State):
    """The keys of each rank: all of them, or where they would be too many a histogram for each rank.

    Also then keys are held as they are, while they take less than histograms would: the histogram of all is the same
    whenever they enter it. ``keys`` is ranks x rows. NaN is the smallest integer of its dtype.
    """

    keys: Annotated[Array, _COLUMNS]
    histograms: Annotated[tuple[KeyHistogram, ...], EACH] = ()
    #: Bins of each histogram; 0 where all keys are held.
    n_bins: Annotated[int, MOST] = 0

    @classmethod
    def empty(cls) -> RankedTally:
        """Return the tally of no row."""
        return cls(np.zeros((0, 0), np.int32))

    @classmethod
    def from_rows(cls, scores: Array, dtype: Dtype, n_bins: int) -> RankedTally:
        """Return the tally of rows of descending carrier values; ``n_bins`` is the number of bins of each histogram, 0 for none."""
        return cls(np.ascontiguousarray(narrow_keys(scores, dtype).T), (), n_bins)

    @property
    def n_ranks(self) -> int:
        """The number of ranks."""
        return len(self.histograms) or len(self.keys)

    def first(self, n_ranks: int) -> Self:
        """Return the tally of the first ranks alone."""
        return replace(self, keys=self.keys[:n_ranks], histograms=self.histograms[:n_ranks])

    def settled(self) -> Self:
        """Return the same in histograms, where those are smaller."""
        in_bins = self.n_bins > 0 and self.keys.nbytes > len(self.keys) * self.n_bins * BIN_BYTES
        return self.binned() if in_bins else self

    def binned(self) -> Self:
        """Return the same in histograms alone."""
        if not self.keys.size:
            return self
        new = tuple(KeyHistogram.from_keys(column, self.n_bins) for column in self.keys)
        if self.histograms:
            new = tuple(KeyHistogram.merge(pair) for pair in zip(self.histograms, new, strict=True))
        return type(self)(self.keys[:, :0], new, self.n_bins)


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
