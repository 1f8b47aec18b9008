"""Exact sums of weights in [0, 1]: fixed point in 32-bit limbs, rounded once, at the very end."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.bits import add_exact

Limbs = NDArray[np.int64]

#: Limbs that hold any sum of float64 values in [0, 1] in units of 2**-1074.
N_LIMBS = 36


def zero_sums(n: int) -> Limbs:
    """Give ``n`` sums of nothing."""
    return np.zeros((n, N_LIMBS), np.int64)


def add_weights(sums: Limbs, weights: NDArray[Any], groups: NDArray[Any]) -> None:
    """Add each weight to the sum its group names, exactly."""
    values = np.ascontiguousarray(weights, np.float64)
    add_exact(values.view(np.int64), np.ascontiguousarray(groups, np.int64), sums)


def carry(sums: Limbs) -> Limbs:
    """Give the same sums with every limb below 2**32, so that many more can be added."""
    if not sums.size:
        return sums
    out = sums.copy()
    for limb in range(N_LIMBS - 1):
        out[:, limb + 1] += out[:, limb] >> 32
        out[:, limb] &= 0xFFFFFFFF
    return out


def add_limbs(parts: list[Limbs]) -> Limbs:
    """Give the sums of several arrays of sums."""
    return carry(np.sum(parts, axis=0))


def as_fraction(limbs: Limbs) -> Fraction:
    """Give one sum as an exact fraction."""
    units = sum(int(limb) << (32 * place) for place, limb in enumerate(limbs.tolist()))
    return Fraction(units, 1 << 1074)


def as_units(sums: Limbs) -> NDArray[Any]:
    """Give sums as Python integers, in units of 2**-1074."""
    total = np.zeros(len(sums), object)
    for place in range(N_LIMBS):
        total = total + (sums[:, place].astype(object) << (32 * place))
    return total


def error_of(weight: Fraction, n_labelled: int) -> Fraction:
    """Return the error of sets that hold so much label weight: 1 - weight / n, but never below 0.

    Stored probabilities are rounded: ten of 0.1 sum to a little more than 1, which is no negative error.

    Examples
    --------
    >>> error_of(Fraction(3), 4), error_of(10 * Fraction(0.1), 1)
    (Fraction(1, 4), Fraction(0, 1))

    """
    return max(1 - weight / n_labelled, Fraction(0))


def sum_weights(weights: NDArray[Any]) -> Fraction:
    """Give the exact sum of an array of weights."""
    sums = zero_sums(1)
    add_weights(sums, weights, np.zeros(weights.size, np.int64))
    return as_fraction(sums[0])
