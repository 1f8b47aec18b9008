"""Orders of ties: keys refined so that no ties at chosen scores are left.

The refined key of a score is ``level * 2**bits + draw``: the level says between which of the chosen
keys it lies or which of them it equals, and only there the draw, which orders the ties, counts.
Selecting on refined keys then breaks the ties in that order, and changes nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

#: Bits of a tie's pseudo-random draw: the same for any number of keys chosen, and enough for two million of them.
SPREAD_BITS = 40


def refine(keys: Ints, chosen: Ints, draw: Any) -> Ints:
    """Return the refined keys of a block of keys.

    ``chosen`` ascend. ``draw(where)`` returns, for the flat indices of the keys that are among them, the draws
    of these ties: integers of at most ``SPREAD_BITS`` bits, the highest for the tie to keep first.
    """
    bits = np.int64(draw_bits(chosen.size))
    flat = keys.reshape(-1)
    n_lower = np.searchsorted(chosen, flat)
    equal = np.flatnonzero(chosen[np.minimum(n_lower, chosen.size - 1)] == flat)
    level = 2 * n_lower
    level[equal] += 1
    refined = (level - chosen.size) << bits
    refined[equal] += draw(equal)
    return refined.reshape(keys.shape)


def draw_bits(n_chosen: int) -> int:
    """Return the number of bits that are left for draws beside the 2 n + 1 levels."""
    return 64 - (2 * n_chosen + 1).bit_length()


def scatter(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a pseudo-random number for each, different for different ones: the finaliser of splitmix64, a bijection."""
    with np.errstate(over="ignore"):
        x = numbers + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def spread_keys(keys: Ints, chosen: Ints, first_row: int, first_class: int, n_classes: int) -> Ints:
    """Refine a block that starts at this row and class of the matrix: ties in a fixed pseudo-random order of sample and class.

    The ties with the highest draws come first, and of equal ones the first in row-major order.
    """
    width = keys.shape[1]

    def draw(where: Ints) -> Ints:
        row, column = np.divmod(where, width)
        numbers = (first_row + row).astype(np.uint64) * np.uint64(n_classes) + (first_class + column).astype(np.uint64)
        return (scatter(numbers) >> np.uint64(64 - SPREAD_BITS)).astype(np.int64)

    return refine(keys, chosen, draw)
