"""Plain twins of the kernels of ``bracketing``."""

from __future__ import annotations

from typing import Any

import numpy as np


def find_brackets(keys: Any, lengths: Any, groups: Any, samples: Any, starts: Any, bounds: Any, found: Any) -> None:
    """Write the bracket of each listed key; -1 where it is in none."""
    lows, highs, firsts, lasts = bounds
    found[:] = -1
    rows = np.repeat(np.arange(lengths.size), lengths)
    first, last, sample = starts[groups][rows], starts[groups + 1][rows], samples[rows]
    for step in range(int((last - first).max(initial=0))):
        b = np.minimum(first + step, lows.size - 1)
        inside = (first + step < last) & (lows[b] <= keys) & (keys <= highs[b])
        inside &= (firsts[b] <= sample) & (sample <= lasts[b])
        found[inside] = b[inside]


def scatter_rows(
    keys: Any, lengths: Any, label_indices: Any, groups: Any, nexts: Any, scattered: Any, places: Any
) -> None:
    """Append the keys of each row to those of its group, which end at ``nexts``; write the place that its label has then, or -1."""
    wide = lengths.astype(np.int64)
    order = np.argsort(groups, kind="stable")
    before = np.cumsum(wide[order]) - wide[order]  # keys of all rows before, by group and row
    begins = np.searchsorted(groups[order], groups[order])
    row_places = np.empty(lengths.size, np.int64)
    row_places[order] = nexts[groups[order]] + before - before[begins]
    places[:] = np.where(label_indices >= 0, row_places + label_indices, -1)
    within = np.arange(keys.size) - np.repeat(np.cumsum(wide) - wide, wide)
    scattered[np.repeat(row_places, wide) + within] = keys
    np.add.at(nexts, groups, wide)
