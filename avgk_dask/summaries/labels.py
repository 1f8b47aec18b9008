"""Labels as a band's tally takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Ints = NDArray[np.int64]


def usable_labels(labels: Array | None, n_classes: int) -> tuple[Ints | None, NDArray[np.float64] | None, Ints]:
    """Give the hard or the soft labels, with the bad ones blanked, and the rows of those."""
    if labels is None:
        return None, None, np.zeros(0, np.int64)
    if labels.ndim == 2:
        soft = labels.astype(np.float64)
        bad = np.flatnonzero(~((soft >= 0) & (soft <= 1)).all(1))
        soft[bad] = 0
        return None, soft, bad
    bad = np.flatnonzero(labels >= n_classes)
    hard = labels.astype(np.int64)
    hard[bad] = -1
    return hard, None, bad
