"""Plain twins of the kernels of ``pairs``."""

from __future__ import annotations

from typing import Any

import numpy as np


def count_lower(a: Any, b: Any, below: Any, above: Any) -> int:
    """Count, for two ascending columns, the b below each a and the a above each b; return the number of pairs."""
    below[:] = np.searchsorted(b, a, side="left")
    above[:] = a.size - np.searchsorted(a, b, side="right")
    return int(below.sum())


def add_products(keys: Any, counts: Any, mantissa_bits: int, base: Any, stretches: Any, sums: Any) -> int:
    """Sum value times count over an ascending column of keys, exactly, by stretches of one exponent; return their number."""
    found: dict[tuple[int, int], list[int]] = {}
    for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
        sign, exponent, mantissa = 1, 0, key - int(base)
        if mantissa_bits:
            sign = -1 if key < 0 else 1
            exponent, mantissa = divmod(abs(key), 1 << mantissa_bits)
            mantissa += (1 << mantissa_bits) if exponent else 0
        halves = found.setdefault((sign, exponent), [0, 0, 0, 0])
        for half, part in enumerate(((mantissa & 0xFFFFFFFF) * count, (mantissa >> 32) * count)):
            halves[2 * half] += part & 0xFFFFFFFF
            halves[2 * half + 1] += part >> 32
    for n, (stretch, halves) in enumerate(found.items()):
        stretches[n], sums[n] = stretch, halves
    return len(found)
