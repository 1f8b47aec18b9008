"""The scores of one rank over all rows, as the analysis reads them: sorted, or as a histogram."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..arrays import Array, Dtype
from ..exact.units import float_format, smallest_unit
from ..kernels.chosen import add_products, count_lower
from ..kernels.keys import is_float, key_range
from ..states.ranked_scores import RankedTally
from .binned import BinnedColumn
from .pair_sums import PairSum, all_finite, real_ends


@dataclass(frozen=True)
class SortedColumn:
    """All keys of a rank, ascending."""

    keys: Array
    dtype: Dtype

    @property
    def ends(self) -> tuple[int, int]:
        """The lowest and the highest key."""
        return real_ends(int(self.keys[0]), int(self.keys[-1]), self.dtype)

    @property
    def finite_ends(self) -> tuple[int, int] | None:
        """The lowest and the highest key of a finite score, if there is one."""
        if not is_float(self.dtype):
            return self.ends
        least, most = key_range(self.dtype)
        kind = self.keys.dtype.type  # else NumPy would convert all the keys
        first = int(np.searchsorted(self.keys, kind(least), side="right"))
        last = int(np.searchsorted(self.keys, kind(most), side="left"))
        return (int(self.keys[first]), int(self.keys[last - 1])) if first < last else None

    def counts_from(self, edges: Sequence[int]) -> tuple[list[int], Array]:
        """Return how many keys lie from each ascending edge to the next, the first edge being the lowest key."""
        limits = np.iinfo(self.keys.dtype)  # the order key of NaN may be below all narrow ones
        bounds = np.clip(np.array(edges[1:], np.int64), limits.min, limits.max).astype(self.keys.dtype)
        below = np.searchsorted(self.keys, bounds)
        return list(edges), np.diff(below, prepend=0, append=self.keys.size)

    def pairs_above(self, other: SortedColumn, space: Array | None = None) -> PairSum:
        """Sum max(0, a - b) over all pairs of a key of this column and one of the other.

        ``space`` is two rows of int32 as long as the columns, to work in.
        """
        space = pairs_space(self, other) if space is None else space
        a = self.keys[np.searchsorted(self.keys, other.keys[0], side="right") :]
        b = other.keys[: np.searchsorted(other.keys, a[-1], side="left")] if a.size else other.keys[:0]
        below, above = space[0, : a.size], space[1, : b.size]
        n_pairs, none = Fraction(int(count_lower(a, b, below, above))), Fraction(0)
        if not (all_finite(self.ends, self.dtype) and all_finite(other.ends, self.dtype)):
            return PairSum(n_pairs, none, None, none)
        base = int(b[0]) if b.size else 0  # integers are counted from here: it cancels out
        total = _weighted_sum(a, below, self.dtype, base) - _weighted_sum(b, above, self.dtype, base)
        return PairSum(n_pairs, none, total, none)


def _weighted_sum(keys: Array, counts: Array, dtype: Dtype, base: int) -> Fraction:
    """Return the exact sum of value times count; integers are counted from ``base``."""
    bits, bias = float_format(dtype)
    n_stretches = 2 * (2 * bias + 2) if bits else 1
    stretches, sums = np.empty((n_stretches, 2), np.int64), np.empty((n_stretches, 4), np.uint64)
    n_stretches = add_products(keys, counts, bits, np.int64(base), stretches, sums)
    units = sum(
        sign * _joined(halves) << max(exponent - 1, 0)
        for (sign, exponent), halves in zip(stretches[:n_stretches].tolist(), sums[:n_stretches].tolist(), strict=True)
    )
    return Fraction(units) * smallest_unit(dtype)


def _joined(halves: list[int]) -> int:
    low0, low1, high0, high1 = halves
    return low0 + (low1 + high0 << 32) + (high1 << 64)


Column = SortedColumn | BinnedColumn


def pairs_space(*columns: Column) -> Array:
    """Return space for sums over the pairs of any two of these columns."""
    return np.empty((2, max((c.keys.size for c in columns if isinstance(c, SortedColumn)), default=0)), np.int32)


def rank_column(tally: RankedTally, rank: int, dtype: Dtype) -> Column:
    """Return the column of a rank, 1 for the highest; where there are to be histograms, all keys are in them."""
    if tally.histograms:
        return BinnedColumn(tally.histograms[rank - 1], dtype)
    return SortedColumn(np.sort(tally.keys[rank - 1]), dtype)
