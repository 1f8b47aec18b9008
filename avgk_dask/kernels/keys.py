"""Order keys: scores of any real dtype as int64 that sort in the same order.

The key of a positive float is its bits, that of a negative float its magnitude bits, negated. So -0.0 and 0.0 share the
key 0, infinities are ordinary, and consecutive floats have consecutive keys. NaN has one key below all others.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, Floats, Ints
from ..credentials import redact
from ..errors import DtypeError
from . import dispatch

Keys = Ints

KEY_MIN = -(2**63)
KEY_MAX = 2**63 - 1
#: The key of every NaN: below -inf, whose float64 key is -0x7FF0000000000000.
NAN_KEY = KEY_MIN

#: NaN among the 16-bit keys that carry half floats.
HALF_NAN = np.iinfo(np.int16).min

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_NAMES = {"float16", "float32", "float64", *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64))}
_BITS = {2: np.int16, 4: np.int32, 8: np.int64}


def check_dtype(dtype: Any, place: str = "") -> np.dtype[Any]:
    """Return the dtype in native byte order, or refuse one that is not supported; ``place`` is named in the error."""
    try:
        dtype = np.dtype(dtype)
    except TypeError as error:
        raise DtypeError(
            f"dtype must be one that NumPy knows, such as float32 or uint8; got {redact(dtype) if isinstance(dtype, str) else dtype!r}. "
            "Check its name."
        ) from error
    # NumPy's StringDType has no byte order.
    native: np.dtype[Any] = dtype if dtype.kind == "T" else dtype.newbyteorder("=")
    if native == BFLOAT16 or native.name in _NAMES:
        return native
    raise DtypeError(
        f"scores must be real numbers of at most 64 bits; got dtype {dtype}{place and f' in {place}'}. "
        "Convert them first, for example with scores.astype('float32')."
    )


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is a floating-point one, and so may hold NaN."""
    return dtype.kind == "f" or dtype == BFLOAT16


def is_half(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is a 16-bit float, whose carrier is its key."""
    return is_float(dtype) and dtype.itemsize == 2


def encode(values: Array) -> Keys:
    """Return the order key of every value.

    Examples
    --------
    >>> encode(np.float32([-1, -0.0, 0.0, 1e-45])).tolist()
    [-1065353216, 0, 0, 1]
    """
    dtype = check_dtype(values.dtype)
    values = np.ascontiguousarray(values, dtype)
    if dtype == np.uint64:
        return (values ^ np.uint64(2**63)).view(np.int64)
    if not is_float(dtype):
        return values.astype(np.int64)
    bits = values.view(_BITS[dtype.itemsize]).astype(np.int64)
    magnitude = bits & np.int64((1 << (8 * dtype.itemsize - 1)) - 1)
    keys = np.where(bits < 0, -magnitude, magnitude)
    keys[np.isnan(values)] = NAN_KEY
    return keys


def decode(keys: Any, dtype: np.dtype[Any]) -> Array:
    """Return the values that ``encode`` maps to these keys (0.0 for the shared key of both zeros)."""
    keys = np.asarray(keys, np.int64)
    if dtype == np.uint64:
        return np.asarray(keys.view(np.uint64) ^ np.uint64(2**63))
    if not is_float(dtype):
        return np.asarray(keys, dtype)
    sign = np.int64(-1) << np.int64(8 * dtype.itemsize - 1)
    safe = np.where(keys == NAN_KEY, 0, keys)
    bits = np.where(safe < 0, -safe | sign, safe)
    values = bits.astype(_BITS[dtype.itemsize]).view(dtype)
    return np.where(keys == NAN_KEY, np.array(np.nan, dtype), values)


def key_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the keys of the smallest and the largest value of the dtype, infinities included."""
    if is_float(dtype):
        top = int(encode(np.array([np.inf]).astype(dtype))[0])
        return -top, top
    info = np.iinfo(dtype)
    low, high = encode(np.array([info.min, info.max], dtype))
    return int(low), int(high)


def first_key_above(value: Any, dtype: np.dtype[Any]) -> int:
    """Return the smallest key whose value exceeds ``value``, unrounded; one past the largest key if none does."""
    bound = _exact_value(value)
    return _first_key(lambda score: score > bound, dtype)


def first_key_from(value: Any, dtype: np.dtype[Any]) -> int:
    """Return the smallest key whose value is at least ``value``, unrounded; one past the largest key if none is."""
    bound = _exact_value(value)
    return _first_key(lambda score: score >= bound, dtype)


def _first_key(accept: Callable[[Any], bool], dtype: np.dtype[Any]) -> int:
    low, high = key_range(dtype)
    while low <= high:
        middle = (low + high) // 2
        if accept(_exact_value(decode(np.array([middle]), dtype)[0])):
            high = middle - 1
        else:
            low = middle + 1
    return low


def _exact_value(value: Any) -> Fraction | float:
    """Return a number as a fraction, or an infinity as a float: these compare exactly."""
    if isinstance(value, np.generic) and not isinstance(value, np.longdouble):
        value = value.item() if value.dtype != BFLOAT16 else float(value)
    if isinstance(value, (float, np.longdouble)) and np.isinf(value):
        return float(value)
    return Fraction(*value.as_integer_ratio())


def carrier(block: Array) -> Array:
    """Return a block in a dtype that the kernels are compiled for, in the same order.

    float32, float64, uint8, int16, int32 and int64 pass unchanged. Half floats become their 16-bit keys, other integers
    widen.
    """
    dtype = check_dtype(block.dtype)
    block = np.ascontiguousarray(block, dtype)
    if is_half(dtype):
        infinity = np.int16(0x7F80 if dtype == BFLOAT16 else 0x7C00)
        keys = np.empty(block.shape, np.int16)
        dispatch.half_keys(block.view(np.int16).reshape(-1), infinity, np.int16(HALF_NAN), keys.reshape(-1))
        return keys
    if dtype == np.uint64:
        return (block ^ np.uint64(2**63)).view(np.int64)
    widened = {"int8": np.int16, "uint16": np.int32, "uint32": np.int64}.get(dtype.name)
    return block if widened is None else block.astype(widened)


def carrier_bits(tile: Array) -> tuple[Array, np.int64]:
    """Return a carrier's bits as integers, and the mask of a float's magnitude; 0 for integers, which are their keys."""
    if tile.dtype.kind != "f":
        return tile, np.int64(0)
    return tile.view(_BITS[tile.itemsize]), np.int64((1 << (8 * tile.itemsize - 1)) - 1)


def carrier_floor(key: int, dtype: np.dtype[Any]) -> Any:
    """Return the carrier value of a key in the dtype's range."""
    if dtype in (np.float32, np.float64):
        return decode(np.array([key]), dtype)[0]
    return carrier(np.zeros(1, dtype)).dtype.type(key)


def narrow_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the smaller of int32 and int64 that holds all keys of a dtype."""
    return np.dtype(np.int64 if dtype.itemsize == 8 or dtype == np.uint32 else np.int32)


def narrow_keys(scores: Array, dtype: np.dtype[Any]) -> Array:
    """Return the order keys of carrier values, in 32 bits if these suffice; NaN is the smallest integer."""
    bits, magnitude = carrier_bits(scores)
    narrow = narrow_dtype(dtype)
    if magnitude:
        keys = np.where(bits < 0, -(bits & narrow.type(magnitude)), bits)
        keys[scores != scores] = missing_key(dtype)
        return keys
    keys = scores.astype(narrow)
    if is_half(dtype):
        keys[scores == HALF_NAN] = missing_key(dtype)
    return keys


def missing_key(dtype: np.dtype[Any]) -> int:
    """Return the narrow key of NaN: the smallest integer."""
    return -(1 << 8 * narrow_dtype(dtype).itemsize - 1)


#: Bits of a tie's pseudo-random draw: the same for any number of keys, and enough for two million of them.
SPREAD_BITS = 40


def scatter(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a pseudo-random number for each number, by the finaliser of splitmix64, which is a bijection."""
    with np.errstate(over="ignore"):
        x = numbers + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def _spread_draws(rows: Ints, classes: Ints, n_classes: int) -> Ints:
    """Return a pseudo-random draw for each score."""
    numbers = rows.astype(np.uint64) * np.uint64(n_classes) + classes.astype(np.uint64)
    return (scatter(numbers) >> np.uint64(64 - SPREAD_BITS)).astype(np.int64)


#: The orders of ties other than row-major, by their words in ``results.registry.TIES``. A function of the samples and classes of
#: ties, and of the number of classes, returns their draws: integers from 0 to before ``2**SPREAD_BITS``, the highest kept first.
TIE_DRAWS: dict[str, Callable[[Ints, Ints, int], Ints]] = {"spread": _spread_draws}


def refine_keys(keys: Ints, tied: Ints, first_row: int, first_class: int, n_classes: int, ties: str) -> Ints:
    """Refine the keys of a block that starts at this row and class: ties at some keys in an order of ``TIE_DRAWS``.

    The refined key of a score is ``level * 2**bits + draw``. The level is the place of the score between or at the ascending
    keys ``tied``. The draw, which depends on sample and class alone, is 0 between them. Selecting on refined keys breaks
    these ties in the order of their draws, the highest first and equal ones in row-major order, and changes nothing else.
    """
    bits = np.int64(64 - (2 * tied.size + 1).bit_length())  # the bits that 2 n + 1 levels leave
    flat = keys.reshape(-1)
    n_lower = np.searchsorted(tied, flat)
    equal = np.flatnonzero(tied[np.minimum(n_lower, tied.size - 1)] == flat)
    level = 2 * n_lower
    level[equal] += 1
    refined = (level - tied.size) << bits
    row, column = np.divmod(equal, keys.shape[1])
    refined[equal] += TIE_DRAWS[ties](first_row + row, first_class + column, n_classes)
    return refined.reshape(keys.shape)


def sample_draws(seed: int, stream: int, samples: Ints) -> Floats:
    """Return a pseudo-random multiple of 2**-53 in [0, 1) for each sample, which depends on its number alone.

    Streams of one seed are independent.
    """
    start = scatter(scatter(np.array([seed], np.uint64)) + np.uint64(stream))
    numbers = scatter(np.asarray(samples, np.int64).astype(np.uint64))
    return (scatter(start ^ numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53
