"""Space for the kernels that look at whole rows, and the number of lanes that they fold a row into."""

from __future__ import annotations

from typing import Any

import numpy as np

#: Lanes come in multiples of this: whole vector registers.
LANES = 32


def row_scratch(n_classes: int, width: int, dtype: Any) -> tuple[Any, ...]:
    """Return the space that ``gather_above`` works in, for rows of so many classes and so many lanes."""
    n_words = (n_classes + 7) // 8
    return (
        np.zeros(8 * n_words, np.uint8),  # flags of the scores of interest, eight to a word
        np.empty(n_words, np.int64),  # the words with a flag
        np.empty(max(n_classes, 2 * width), dtype),  # lanes
        np.zeros(n_classes + LANES, dtype),  # scores that may be among the highest,
        np.empty(n_classes + LANES, np.int32),  # their ranks,
        np.empty(n_classes, dtype),  # and themselves in order
        np.zeros(n_classes, np.bool_),
    )


def lanes_for(n_ranks: int, n_classes: int) -> int:
    """Return the number of lanes for r ranks: about 1.5 r; 0 where a row is not longer than that."""
    width = -(-3 * n_ranks // (2 * LANES)) * LANES
    return width if n_ranks and n_classes > width else 0
