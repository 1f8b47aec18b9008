"""A histogram of order keys that is exact while it fits, and coarsens by a rule that no order of merging can change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np

from ..arrays import Array, Dtype, Ints
from ..exact.units import in_units
from ..kernels.chosen import count_apart, join_bins
from ..kernels.keys import KEY_MAX, NAN_KEY
from ..records import OWN, State

#: Bins that always suffice to keep each within one power of two, where values are linear in their keys:
#: a double has 2 * 2047 of those.
LEAST_BINS = 4096
#: Sums of offsets are held in two halves, so that 2**37 keys of one bin cannot overflow them.
_LOW_BITS = 26


@dataclass(frozen=True)
class KeyHistogram(State):
    """A multiset of keys in bins of ``2**shift``, with the exact sum of the keys in each bin.

    The shift is the least with which the distinct bins number at most ``most_bins``. Keys added later
    can only raise it, so any grouping and order of merging ends at the same shift and the same bins.
    With shift 0 nothing is lost. ``most_bins`` is at least 2: keys of both signs never join. With a ``most_bins`` of at least ``LEAST_BINS`` a bin of floats lies within
    one power of two, so that sums of keys give sums of values.
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
        """Return the histogram of some keys (not none)."""
        ordered = np.sort(keys)
        single = np.zeros(0, np.int64), np.zeros((3, 0), np.int64)
        return cls._of_bins(most_bins, 0, ordered, *single, int(ordered[0]), int(ordered[-1]))

    @classmethod
    def empty(cls, most_bins: int) -> Self:
        """Return the histogram of no key."""
        return cls(most_bins, 0, np.zeros(0, np.int64), np.zeros((3, 0), np.int64), KEY_MAX, NAN_KEY)

    def nothing(self) -> Self:
        """Return the histogram of no key."""
        return self.empty(self.most_bins)

    @classmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        """Return the histogram of all the keys together."""
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
        """Return the histogram of ascending bins, equal ones joined, with the least shift that fits the most_bins.

        The sums of a bin are at its index in ``order``; none stand for one key each.
        """
        # Two neighbours are in one bin once they are shifted by as many bits as they differ in.
        n_apart = np.zeros(65, np.int64)
        count_apart(bins, n_apart)
        assert most_bins >= 2, "keys of both signs never join"
        n_bins = bins.size - np.cumsum(n_apart)
        more = int(np.flatnonzero(n_bins <= most_bins)[0])
        joined = _joined(bins, order, sums, shift, shift + more, int(n_bins[more]))
        return cls(most_bins, shift + more, *joined, lowest, highest)

    def coarsen(self, shift: int) -> Self:
        """Return the same keys in bins of ``2**shift``."""
        if shift == self.shift:
            return self
        joined = _joined(self.bins, np.arange(self.bins.size), self.sums, self.shift, shift, self.bins.size)
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


def _joined(bins: Array, order: Ints, sums: Ints, old_shift: int, shift: int, most_bins: int) -> tuple[Ints, Ints]:
    """Return ascending bins joined into wider ones, of which there are at most ``most_bins``, and their sums."""
    new_bins, new_sums = np.empty(most_bins, np.int64), np.empty((3, most_bins), np.int64)
    n = join_bins(bins, order, sums, old_shift, shift, _LOW_BITS, new_bins, new_sums)
    return new_bins[:n], new_sums[:, :n]
