"""A histogram of order keys that is exact while it fits, and coarsens by a rule that no order of merging can change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .units import in_units

Ints = NDArray[np.int64]

#: Bins that always suffice to keep each within one power of two, where values are linear in their keys:
#: a double has 2 * 2047 of those.
LEAST_ROOM = 4096
#: Sums of offsets are kept in two halves, so that 2**37 keys of one bin cannot overflow them.
_LOW_BITS = 26


@dataclass(frozen=True)
class KeyHistogram:
    """A multiset of keys in bins of ``2**shift``, with the exact sum of the keys in each bin.

    The shift is the least with which the distinct bins number at most ``room``. Keys added later
    can only raise it, so any grouping and order of merging ends at the same shift and the same bins.
    With shift 0 nothing is lost. ``room`` is at least 2: keys of both signs never join. With a ``room`` of at least ``LEAST_ROOM`` a bin of floats lies within
    one power of two, so that sums of keys give sums of values.
    """

    room: int
    shift: int
    bins: Ints
    counts: Ints
    #: Sums of (key - first key of the bin): of the low bits, and of the rest.
    low_sums: Ints
    high_sums: Ints
    lowest: int
    highest: int

    @classmethod
    def from_keys(cls, keys: NDArray[Any], room: int) -> KeyHistogram:
        """Give the histogram of some keys (not none)."""
        ordered = np.sort(keys)
        first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        bins, counts = ordered[first].astype(np.int64), np.diff(first, append=keys.size)
        none = np.zeros(bins.size, np.int64)
        exact = cls(room, 0, bins, counts, none, none, int(bins[0]), int(bins[-1]))
        return exact._fit()

    @classmethod
    def merge(cls, parts: list[KeyHistogram]) -> KeyHistogram:
        """Give the histogram of all the keys together."""
        shift = max(part.shift for part in parts)
        parts = [part.coarsen(shift) for part in parts]
        columns = [np.concatenate([getattr(p, name) for p in parts]) for name in ("bins", *_SUMS)]
        order = np.argsort(columns[0], kind="stable")
        lowest, highest = min(p.lowest for p in parts), max(p.highest for p in parts)
        bins, counts, low, high = _join(columns[0][order], [column[order] for column in columns[1:]])
        return cls(parts[0].room, shift, bins, counts, low, high, lowest, highest)._fit()

    def coarsen(self, shift: int) -> KeyHistogram:
        """Give the same keys in bins of ``2**shift``."""
        if shift == self.shift:
            return self
        bins = self.bins >> (shift - self.shift)
        # How far each bin's first key lies behind the first key of the bin it joins.
        moved = (self.bins << self.shift) - (bins << shift)
        low = self.low_sums + (moved & ((1 << _LOW_BITS) - 1)) * self.counts
        high = self.high_sums + (moved >> _LOW_BITS) * self.counts
        bins, counts, low, high = _join(bins, [self.counts, low, high])
        return KeyHistogram(self.room, shift, bins, counts, low, high, self.lowest, self.highest)

    def _fit(self) -> KeyHistogram:
        """Give the histogram with the least shift that fits the room."""
        if self.bins.size <= self.room:
            return self
        # Two neighbours are in one bin once they are shifted by as many bits as they differ in.
        n_apart = np.bincount(_bit_lengths(self.bins[1:] ^ self.bins[:-1]), minlength=65)
        n_bins = 1 + n_apart.sum() - np.cumsum(n_apart)
        return self.coarsen(self.shift + int(np.flatnonzero(n_bins <= self.room)[0]))

    def offset_sums(self) -> NDArray[Any]:
        """Give each bin's sum of (key - first key of the bin) as Python integers."""
        return np.asarray(self.low_sums.astype(object) + (self.high_sums.astype(object) << _LOW_BITS))

    def value_sums(self, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Give each bin's sum of values, and the step from one key to the next in it, in the dtype's smallest unit."""
        first = self.bins << self.shift
        start = in_units(first, dtype)
        steps = in_units(first + 1, dtype) - start if self.shift else np.zeros(first.size, object)
        return start * self.counts.astype(object) + self.offset_sums() * steps, steps


_SUMS = ("counts", "low_sums", "high_sums")


def _bit_lengths(numbers: Ints) -> Ints:
    """Give the number of bits of each number, taken as unsigned."""
    words = numbers.view(np.uint64)
    high, low = (words >> np.uint64(32)).astype(np.float64), (words & np.uint64(0xFFFFFFFF)).astype(np.float64)
    return np.where(high > 0, 32 + np.frexp(high)[1], np.frexp(low)[1])


def _join(bins: Ints, columns: list[Ints]) -> tuple[Ints, ...]:
    """Add up the rows of ascending bins that are equal."""
    first = np.flatnonzero(np.concatenate([[True], bins[1:] != bins[:-1]]))
    return bins[first], *(np.add.reduceat(column, first) for column in columns)
