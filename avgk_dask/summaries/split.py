"""Splitting entries by intervals of keys: counts above, histograms by zone, and events inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import compiled
from .entries import Entries

Array = NDArray[Any]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """The events of a run of rows; ``above[i, j]`` counts row i's scores above interval j."""

    above: NDArray[np.int32]
    keys: Ints
    rows: Ints
    sizes: Ints
    classes: Ints


def split_entries(
    entries: Entries,
    lows: Ints,
    highs: Ints,
    zone_bases: Ints,
    zone_shifts: Ints,
    histogram: Ints,
    labels: Ints | None = None,
    hits: Ints | None = None,
) -> Split:
    """Split entries by descending intervals; adds to the histogram of each zone, and to its hits."""
    n = entries.keys.size
    above = np.empty((entries.n_rows, lows.size), np.int32)
    keys, rows, sizes, classes = (np.empty(n, np.int64) for _ in range(4))
    if labels is None:
        labels = np.full(entries.n_rows, -1, np.int64)
    if hits is None:
        hits = np.zeros(zone_bases.size, np.int64)
    n_events = compiled.split_rows(
        entries.offsets, entries.keys, entries.classes, lows, highs, zone_bases, zone_shifts,
        above, histogram, labels, hits, keys, rows, sizes, classes,
    )  # fmt: skip
    rows = rows[:n_events] + entries.first_row
    return Split(above, keys[:n_events].copy(), rows, sizes[:n_events].copy(), classes[:n_events])


def label_weights(labels: Array | None, rows: Ints, classes: Ints) -> NDArray[np.float64] | None:
    """Give the weight that hard or soft labels put on each (row, class)."""
    if labels is None:
        return None
    if labels.ndim == 2:
        return labels[rows, classes].astype(np.float64)
    return (labels[rows] == classes).astype(np.float64)
