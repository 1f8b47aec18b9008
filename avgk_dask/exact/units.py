"""Order keys as exact numbers: multiples of the smallest positive number of their dtype."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ..arrays import Array, Dtype
from ..kernels.keys import is_float

#: Stored bits of mantissa and bias of the exponent.
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
