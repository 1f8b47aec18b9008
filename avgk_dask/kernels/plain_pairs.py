"""Plain twins of the kernels of ``pairs``."""

from __future__ import annotations

from typing import Any

import numpy as np

_HALF, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


def count_lower(a: Any, b: Any, below: Any, above: Any) -> int:
    """Count, for two ascending columns, the b below each a and the a above each b; return the number of pairs."""
    below[:] = np.searchsorted(b, a, side="left")
    above[:] = a.size - np.searchsorted(a, b, side="right")
    return int(below.sum())


def add_products(keys: Any, counts: Any, mantissa_bits: int, base: Any, stretches: Any, sums: Any) -> int:
    """Sum value times count over an ascending column of keys, exactly, by stretches of one exponent; return their number."""
    wide = keys.astype(np.int64)
    signs, exponents, mantissas = np.ones_like(wide), np.zeros_like(wide), wide - np.int64(base)
    if mantissa_bits:
        signs, magnitudes = np.where(wide < 0, -1, 1), np.abs(wide)
        exponents = magnitudes >> np.int64(mantissa_bits)
        # The implicit bit is that of the exponent 1; an exponent above it is taken off but for that bit.
        mantissas = magnitudes - (np.maximum(exponents - 1, 0) << np.int64(mantissa_bits))
    named = np.stack([signs, exponents])
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, wide.size), bool), (named[:, 1:] != named[:, :-1]).any(0)]))
    parts, times = mantissas.view(np.uint64), counts.astype(np.uint64)
    low, high = (parts & _HALF) * times, (parts >> _32) * times
    n = starts.size
    stretches[:n] = named[:, starts].T
    if n:
        sums[:n] = np.add.reduceat(np.stack([low & _HALF, low >> _32, high & _HALF, high >> _32]), starts, axis=1).T
    return n
