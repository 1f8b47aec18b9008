"""What some rows of each band look like: probabilities, or other scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Dtype, Floats
from ..kernels.keys import is_float
from ..records import Count, State

#: How far from 1 the sum of a row may be, and beyond 0 and 1 a score, by rounding; more for dtypes that are coarser.
_SUM, _VALUE = 1e-2, 1e-3
#: Scores that are looked at together.
_STRIP = 1 << 18


@dataclass(frozen=True)
class LookedRows(State):
    """Counts of rows that were looked at, and of those whose scores are no probabilities."""

    n_looked: Count
    #: Rows whose sum is not 1, with a score below 0 or above 1, and with -inf, or 0, in more than half of the classes.
    n_unnormalised: Count
    n_outside: Count
    n_infinite: Count
    n_zero: Count

    @classmethod
    def empty(cls) -> LookedRows:
        """Return the counts of no rows."""
        return cls(0, 0, 0, 0, 0)


class RowLook:
    """Looks at some rows of a band, slab by slab."""

    def __init__(self, rows: Array, dtype: Dtype) -> None:
        self.rows, self.n_classes = rows, 0
        rounding = 0.0 if not is_float(dtype) or dtype.itemsize > 2 else 1 / 64
        self.sum_off, self.value_off = _SUM + rounding, _VALUE + rounding
        self.sums: Floats = np.zeros(rows.size)
        self.low, self.high = np.full(rows.size, np.inf), np.full(rows.size, -np.inf)
        self.n_infinite, self.n_zero = np.zeros(rows.size, np.int64), np.zeros(rows.size, np.int64)

    def take(self, slab: Array) -> None:
        """Look at the next classes, of a few rows at a time: a copy of all could take more than the slab."""
        self.n_classes += slab.shape[1]
        step = max(1, _STRIP // slab.shape[1])
        for first in range(0, self.rows.size, step):
            self._take(slice(first, first + step), slab[self.rows[first : first + step]].astype(np.float64))

    def _take(self, which: slice, values: Floats) -> None:
        low = values.min(1)
        with np.errstate(invalid="ignore", over="ignore"):
            self.sums[which] += values.sum(1)
        np.minimum(self.low[which], low, out=self.low[which])
        np.maximum(self.high[which], values.max(1), out=self.high[which])
        if (low == -np.inf).any():
            self.n_infinite[which] += (values == -np.inf).sum(1)
        if not (low > 0).all():
            self.n_zero[which] += (values == 0).sum(1)

    def counts(self) -> LookedRows:
        """Return what was seen; rows with NaN do not count."""
        seen = ~np.isnan(self.low)
        outside = (self.low < -self.value_off) | (self.high > 1 + self.value_off)
        off = ~(np.abs(self.sums - 1) <= self.sum_off)
        half = self.n_classes / 2
        found = (seen, seen & off, seen & outside, seen & (self.n_infinite > half), seen & (self.n_zero > half))
        return LookedRows(*(int(which.sum()) for which in found))
