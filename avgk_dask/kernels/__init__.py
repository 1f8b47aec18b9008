"""Loops over arrays: order keys, listed scores, ranks, counts and exponentials.

``compiled`` and ``numpy`` hold the same kernels, and ``dispatch`` chooses. This module holds the constants and the scratch
space that both share.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

#: 1 / ln 2, and ln 2 in two parts: the first has 42 bits, so that a small integer times it is exact.
LOG2_E = 1.4426950408889634
LN2_HIGH = float.fromhex("0x1.62e42fefa3800p-1")
LN2_LOW = float.fromhex("0x1.ef35793c76730p-45")
#: To round a number to an integer, add and subtract this constant. The last bits of the sum are the integer.
ROUNDING = 1.5 * 2.0**52
#: Times this, less the excess: the upper half of a float's bits.
SPLITTER = 2.0**27 + 1
#: Exponentials of smaller numbers are not normal numbers.
LEAST_EXPONENT = -708.0
#: Exponentials of smaller numbers are 0, whatever they are divided by.
LEAST_WIDE = -746.0
#: Minimum difference of logits, so that its square does not overflow; its probability is 0.
LEAST_DIFFERENCE = -1e150
#: Lanes of a sum: class c is added to lane c mod 8.
LANES = 8
#: Lanes if only sums are computed: enough that no addition waits for the last one.
SUM_LANES = 64
#: Classes, and rows, that are mixed at a time: they and their weights stay in the nearest cache.
MIXED_CLASSES = 128
MIXED_ROWS = 16
#: 1/n! from n = 2 on, for exp(r) = 1 + r + r**2 / 2! + ..., and 2/n for log((1 + s)/(1 - s)) = 2 s + (2/3) s**3 + ...
EXP_TERMS = tuple(1 / math.factorial(n) for n in range(2, 14))
LOG_TERMS = tuple(2 / n for n in range(3, 22, 2))
#: The bits of about sqrt(1/2): mantissas are taken from there to its double.
ROOT_BITS = 0x3FE6A09E00000000
#: Lanes that a row is folded into come in multiples of this: whole vector registers.
ROW_LANES = 32


def row_scratch(n_classes: int, width: int, dtype: Any) -> tuple[Any, ...]:
    """Return the space that ``gather_above`` works in, for rows of ``n_classes`` scores and ``width`` lanes."""
    n_words = (n_classes + 7) // 8
    return (
        np.zeros(8 * n_words, np.uint8),  # flags of the scores of interest, eight to a word
        np.empty(n_words, np.int64),  # the words with a flag
        np.empty(max(n_classes, 2 * width), dtype),  # lanes
        np.zeros(n_classes + ROW_LANES, dtype),  # scores that may be among the highest,
        np.empty(n_classes + ROW_LANES, np.int32),  # their ranks,
        np.empty(n_classes, dtype),  # and themselves in order
        np.zeros(n_classes, np.bool_),
    )


def lanes_for(n_ranks: int, n_classes: int) -> int:
    """Return the number of lanes for r ranks: about 1.5 r, or 0 if a row is not longer than that."""
    width = -(-3 * n_ranks // (2 * ROW_LANES)) * ROW_LANES
    return width if n_ranks and n_classes > width else 0
