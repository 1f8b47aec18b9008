"""Compiled kernels on the listed keys of rows that belong to groups: which bracket of the group each is in, and all keys by group.

All release the GIL and none is parallel: Dask owns the cores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def find_brackets(keys: Any, lengths: Any, groups: Any, samples: Any, starts: Any, bounds: Any, found: Any) -> None:
    """Write the bracket of each listed key; -1 where it is in none.

    Row r has ``lengths[r]`` of the keys, is of group ``groups[r]`` and has the number ``samples[r]``. The brackets of group g are those from
    ``starts[g]`` to ``starts[g + 1]``, ascending. ``bounds`` are their lowest and highest keys, and their first and last samples.
    """
    lows, highs, firsts, lasts = bounds
    t = 0
    for r in range(lengths.size):
        sample, first, last = samples[r], starts[groups[r]], starts[groups[r] + 1]
        for _ in range(lengths[r]):
            key = np.int64(keys[t])
            low, high = first, last
            while low < high:  # the first bracket that begins after the key
                middle = (low + high) >> 1
                if lows[middle] < key or (lows[middle] == key and firsts[middle] <= sample):
                    low = middle + 1
                else:
                    high = middle
            low -= 1
            found[t] = low if low >= first and key <= highs[low] and sample <= lasts[low] else -1
            t += 1


@njit(nogil=True, cache=True)
def scatter_rows(
    keys: Any, lengths: Any, label_indices: Any, groups: Any, nexts: Any, scattered: Any, places: Any
) -> None:
    """Append the keys of each row to those of its group, which end at ``nexts``; write the place that its label has then, or -1."""
    t = 0
    for r in range(lengths.size):
        place = nexts[groups[r]]
        places[r] = place + label_indices[r] if label_indices[r] >= 0 else -1
        for j in range(lengths[r]):
            scattered[place + j] = keys[t + j]
        t += lengths[r]
        nexts[groups[r]] += lengths[r]
