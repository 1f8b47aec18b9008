"""Exact sums of floats, in fixed point and rounded once at the end, and order keys as exact numbers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Self

import numpy as np

from ..arrays import Array, Dtype, Ints
from ..kernels.dispatch import add_exact
from ..kernels.keys import is_float
from ..records import ADDED, State

#: Sums are integers in units of the smallest double, in limbs of 32 bits: enough for 2**60 values below ``_MOST``.
_UNIT = 1 << 1074
_N_LIMBS = 36
_MOST = 2.0**32


@dataclass(frozen=True)
class ExactSums(State):
    """Several exact sums of float64 values of either sign: no order of adding or merging can change a bit.

    Examples
    --------
    >>> sums = ExactSums.zeros(2)
    >>> sums.add(np.array([0.1, 0.2, -0.3]), np.array([0, 1, 1]))
    >>> float(sums[0]), float(sums[1])
    (0.1, -0.09999999999999998)
    """

    limbs: Annotated[Ints, ADDED]

    @classmethod
    def zeros(cls, n: int) -> Self:
        """Return ``n`` empty sums."""
        return cls(np.zeros((n, _N_LIMBS), np.int64))

    @classmethod
    def from_values(cls, values: Array) -> Self:
        """Return the sum of some values."""
        return cls.by_group(values, np.zeros(values.size, np.int64), 1)

    @classmethod
    def by_group(cls, values: Array, groups: Array, n_groups: int) -> Self:
        """Return the sum of the values of each group."""
        sums = cls.zeros(n_groups)
        sums.add(values, groups)
        return sums.settled()

    def add(self, values: Array, groups: Array) -> None:
        """Add each value to the sum of its group, in place."""
        wide = np.ascontiguousarray(values, np.float64)
        names = np.ascontiguousarray(groups, np.int64)
        if wide.size and not (wide.min() > -_MOST and wide.max() < _MOST):
            raise OverflowError(
                f"values must lie between -2**32 and 2**32 to be summed; got {wide.min()}, {wide.max()}"
            )
        negative = np.signbit(wide)
        if negative.any():
            other = np.zeros_like(self.limbs)
            add_exact(np.abs(wide[negative]).view(np.int64), names[negative], other)
            self.limbs[:] -= other
            wide, names = wide[~negative], names[~negative]
        add_exact(wide.view(np.int64), names, self.limbs)

    def settled(self) -> Self:
        """Return the sums with every limb but the last in [0, 2**32), so that more can be added."""
        limbs = self.limbs.copy()
        for number in range(_N_LIMBS - 1):
            limbs[:, number + 1] += limbs[:, number] >> 32
            limbs[:, number] &= 0xFFFFFFFF
        return type(self)(limbs)

    def __len__(self) -> int:
        return len(self.limbs)

    def __getitem__(self, i: int) -> Fraction:
        return _value(self.limbs[i])

    def fractions(self) -> list[Fraction]:
        """Return all sums."""
        return [self[i] for i in range(len(self))]

    def running(self) -> Self:
        """Return the cumulative sums."""
        return type(self)(np.cumsum(self.settled().limbs, axis=0)).settled()

    def integers(self) -> tuple[Array, int]:
        """Return the sums as Python integers, and the integer for 1."""
        total = np.zeros(len(self), object)
        for number in range(_N_LIMBS):
            total = total + (self.limbs[:, number].astype(object) << (32 * number))
        return total, _UNIT

    def scattered(self) -> tuple[Ints, Ints, Ints]:
        """Return the numbers of sum and limb of each nonzero limb, and the limbs."""
        group, number = np.nonzero(self.limbs)
        return group, number, self.limbs[group, number]

    @classmethod
    def gathered(cls, numbers: Ints, amounts: Ints) -> Fraction:
        """Return the sum of limbs from ``scattered``."""
        limbs = np.zeros(_N_LIMBS, object)
        np.add.at(limbs, numbers, amounts.astype(object))
        return _value(limbs)


def _value(limbs: Array) -> Fraction:
    return Fraction(sum(int(limb) << (32 * number) for number, limb in enumerate(limbs.tolist())), _UNIT)


def error_of(weight: Fraction, n_labelled: int) -> Fraction:
    """Return the error of sets with this label weight inside: 1 - weight / n, but never below 0.

    The sum of stored probabilities may exceed 1 by rounding: ten times 0.1 does.
    """
    return max(1 - weight / n_labelled, Fraction(0))


def total_weight(weights: Array) -> Fraction:
    """Return the exact sum of hits, which are small integers, or of soft labels."""
    return (
        ExactSums.from_values(weights)[0] if weights.dtype.kind == "f" else Fraction(int(weights.sum(dtype=np.int64)))
    )


#: Stored bits of mantissa and bias of the exponent, by dtype.
_FORMATS = {"float16": (10, 15), "bfloat16": (7, 127), "float32": (23, 127), "float64": (52, 1023)}


def float_format(dtype: Dtype) -> tuple[int, int]:
    """Return the stored bits of mantissa and the exponent's bias; (0, 0) for integers."""
    return _FORMATS[dtype.name] if is_float(dtype) else (0, 0)


def smallest_unit(dtype: Dtype) -> Fraction:
    """Return the smallest positive number of a dtype: every other is a multiple of it."""
    bits, bias = float_format(dtype)
    return Fraction(1, 1 << (bias - 1 + bits)) if bits else Fraction(1)


def in_units(keys: Array, dtype: Dtype) -> Array:
    """Return the values of keys as Python integers, in the smallest unit of the dtype."""
    bits, _ = float_format(dtype)
    if not bits:
        return keys.astype(object)
    out = []
    for key in keys.tolist():
        exponent, mantissa = divmod(abs(key), 1 << bits)
        units = (mantissa + (1 << bits) << exponent - 1) if exponent else mantissa
        out.append(units if key >= 0 else -units)
    return np.array(out, object)
