"""The scores of each rank, over all rows: for straddle strengths and everything else that depends on ranks k and k + 1.

``RankedTally`` holds their keys, or a ``KeyHistogram`` for each rank if the keys would be too many. Pairs of keys in different bins
are exact. For the n_a and n_b keys of two columns in one bin of width w, with sums s_a and s_b above its start, the positive part
is convex, so its sum lies between n_b s_a - n_a s_b and s_a (n_b w - s_b) / w. Half the difference is the reported error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np

from ..arrays import Array, Dtype, Ints
from ..exact.sums import in_units
from ..kernels.dispatch import count_apart, join_bins
from ..kernels.keys import KEY_MAX, NAN_KEY
from ..records import EACH, MOST, OWN, Merging, State

#: With this number of bins, each is within one power of two (a double has 2 * 2047), where values are linear in their keys.
LEAST_BINS = 4096
#: Maximum number of ranks that a scan finds itself; for more, NumPy's partition is faster.
MOST_FUSED = 64
#: Bytes of a bin of a ``KeyHistogram``.
BIN_BYTES = 32
#: Sums of offsets are held in two halves, so that 2**37 keys of one bin cannot overflow them.
_LOW_BITS = 26


@dataclass(frozen=True)
class KeyHistogram(State):
    """A multiset of keys in bins of ``2**shift``, with the exact sum of the keys in each bin.

    The shift is the least with at most ``most_bins`` distinct bins. More keys can only raise it, so any grouping and order of
    merging ends with the same bins. With shift 0 it is exact. ``most_bins`` is at least 2, since keys of both signs never join.
    From ``LEAST_BINS`` on, a bin of floats is within one power of two, so that sums of keys give sums of values.
    """

    most_bins: Annotated[int, OWN]
    shift: Annotated[int, OWN]
    bins: Annotated[Ints, OWN]
    #: Three rows: counts, and the sums of (key - first key of the bin), of the low bits and of the rest.
    sums: Annotated[Ints, OWN]
    lowest: Annotated[int, OWN]
    highest: Annotated[int, OWN]

    @property
    def counts(self) -> Ints:
        """The number of keys in each bin."""
        counts: Ints = self.sums[0]
        return counts

    @classmethod
    def from_keys(cls, keys: Array, most_bins: int) -> Self:
        """Return the histogram of at least one key."""
        ordered = np.sort(keys)
        single = np.zeros(0, np.int64), np.zeros((3, 0), np.int64)
        return cls._of_bins(most_bins, 0, ordered, *single, int(ordered[0]), int(ordered[-1]))

    @classmethod
    def empty(cls, most_bins: int) -> Self:
        """Return the empty histogram."""
        return cls(most_bins, 0, np.zeros(0, np.int64), np.zeros((3, 0), np.int64), KEY_MAX, NAN_KEY)

    def nothing(self) -> Self:
        """Return the empty histogram."""
        return self.empty(self.most_bins)

    @classmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        """Return the histogram of all keys."""
        if len(states) == 1:
            return states[0]
        shift = max(part.shift for part in states)
        parts = [part.coarsen(shift) for part in states]
        bins = np.concatenate([part.bins for part in parts])
        sums = np.concatenate([part.sums for part in parts], axis=1)
        order = np.argsort(bins, kind="stable")
        lowest, highest = min(p.lowest for p in parts), max(p.highest for p in parts)
        return cls._of_bins(parts[0].most_bins, shift, bins[order], order, sums, lowest, highest)

    @classmethod
    def _of_bins(
        cls, most_bins: int, shift: int, bins: Array, order: Ints, sums: Ints, lowest: int, highest: int
    ) -> Self:
        """Return the histogram of ascending bins, whose sums are at their index in ``order``; without any, a bin is one key."""
        # Two neighbours join once the shift exceeds the highest bit in which they differ.
        n_apart = np.zeros(65, np.int64)
        count_apart(bins, n_apart)
        assert most_bins >= 2, "keys of both signs never join"
        n_bins = bins.size - np.cumsum(n_apart)
        more = int(np.flatnonzero(n_bins <= most_bins)[0])
        joined = _join(bins, order, sums, shift, shift + more, int(n_bins[more]))
        return cls(most_bins, shift + more, *joined, lowest, highest)

    def coarsen(self, shift: int) -> Self:
        """Return the same keys in bins of ``2**shift``."""
        if shift == self.shift:
            return self
        joined = _join(self.bins, np.arange(self.bins.size), self.sums, self.shift, shift, self.bins.size)
        return type(self)(self.most_bins, shift, *joined, self.lowest, self.highest)

    def offset_sums(self) -> Array:
        """Return each bin's sum of (key - first key of the bin) as Python integers."""
        return np.asarray(self.sums[1].astype(object) + (self.sums[2].astype(object) << _LOW_BITS))

    def value_sums(self, dtype: Dtype) -> tuple[Array, Array]:
        """Return each bin's sum of values, and the step from one key to the next in it, in the dtype's smallest unit."""
        first = self.bins << self.shift
        start = in_units(first, dtype)
        steps = in_units(first + 1, dtype) - start if self.shift else np.zeros(first.size, object)
        return start * self.counts.astype(object) + self.offset_sums() * steps, steps


def _join(bins: Array, order: Ints, sums: Ints, old_shift: int, shift: int, most_bins: int) -> tuple[Ints, Ints]:
    """Join ascending bins into at most ``most_bins`` wider ones, with their sums."""
    new_bins, new_sums = np.empty(most_bins, np.int64), np.empty((3, most_bins), np.int64)
    n = join_bins(bins, order, sums, old_shift, shift, _LOW_BITS, new_bins, new_sums)
    return new_bins[:n], new_sums[:, :n]


def _concatenate_columns(parts: list[Array]) -> Array:
    filled = [part for part in parts if part.size]
    return filled[0] if len(filled) == 1 else np.concatenate(filled, axis=1) if filled else parts[0]


#: Arrays of ranks x rows: concatenated by rows.
_COLUMNS = Merging(_concatenate_columns, lambda keys: keys[:, :0])


@dataclass(frozen=True)
class RankedTally(State):
    """The keys of each rank: all of them, or a histogram for each rank if they would be too many.

    Keys enter histograms once these take less memory; the result does not depend on when they do.
    """

    #: Ranks x rows; NaN is the smallest integer of the dtype.
    keys: Annotated[Array, _COLUMNS]
    histograms: Annotated[tuple[KeyHistogram, ...], EACH] = ()
    #: Bins of each histogram, or 0 to hold all keys.
    n_bins: Annotated[int, MOST] = 0

    @classmethod
    def empty(cls) -> RankedTally:
        """Return the empty tally."""
        return cls(np.zeros((0, 0), np.int32))

    @property
    def n_ranks(self) -> int:
        """The number of ranks."""
        return len(self.histograms) or len(self.keys)

    def first(self, n_ranks: int) -> Self:
        """Return the tally of the first ranks alone."""
        return replace(self, keys=self.keys[:n_ranks], histograms=self.histograms[:n_ranks])

    def settled(self) -> Self:
        """Return the tally in histograms if these are smaller."""
        in_bins = self.n_bins > 0 and self.keys.nbytes > len(self.keys) * self.n_bins * BIN_BYTES
        return self.binned() if in_bins else self

    def binned(self) -> Self:
        """Return the tally in histograms alone."""
        if not self.keys.size:
            return self
        new = tuple(KeyHistogram.from_keys(column, self.n_bins) for column in self.keys)
        if self.histograms:
            new = tuple(KeyHistogram.merge(pair) for pair in zip(self.histograms, new, strict=True))
        return type(self)(self.keys[:, :0], new, self.n_bins)


def partitioned_top(tile: Array, n_ranks: int) -> Array:
    """Return each row's highest scores, descending, by NumPy's partition; the tile must not contain NaN."""
    first = tile.shape[1] - n_ranks
    top = np.partition(tile, first, axis=1)[:, first:] if first else tile.copy()
    top.sort(axis=1)
    return top[:, ::-1]
