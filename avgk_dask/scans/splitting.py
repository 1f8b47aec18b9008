"""Splitting entries by intervals of keys: counts above, histograms by zone, and events inside."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, Dtype, Ints
from ..kernels.chosen import split_rows
from ..kernels.zones import ZoneTable
from ..states.held_events import HeldEvents, row_numbers
from .entries import Entries


class Split:
    """Space for the events of a stretch of rows, used again for every stretch; their keys are of the given dtype."""

    def __init__(self, n: int, key_dtype: Dtype) -> None:
        dtypes = (np.int32, key_dtype, np.int32, np.int32, np.int32, np.uint8)
        self.columns = tuple(np.empty(n, dtype) for dtype in dtypes)

    def held(self, n: int, band: int, first_row: int, strata: Array, soft: Array | None = None) -> HeldEvents:
        """Return the first n events; their rows are counted from ``first_row`` on, and ``strata`` are those of the band's rows."""
        _, keys, rows, bases, classes, hits = (column[:n] for column in self.columns)
        mine = rows + np.int32(first_row)
        weights = hits.copy() if soft is None else soft[mine, classes]
        return HeldEvents(keys.copy(), row_numbers(band, mine), bases.copy(), weights, strata[mine])


def split_entries(
    entries: Entries, zones: ZoneTable, histogram: Array, labels: Ints | None = None
) -> tuple[NDArray[np.int32], NDArray[np.int32], Split, int]:
    """Split entries by the zones; adds to the histogram of each zone.

    Returns the number of scores of each row above each interval, the zone of its label, the events inside, and how many
    they are.
    """
    above = np.empty((entries.n_rows, zones.n_intervals), np.int32)
    label_zones = np.empty(entries.n_rows, np.int32)
    if labels is None:
        labels = np.full(entries.n_rows, -1, np.int64)
    split = Split(entries.keys.size, np.dtype(np.int64))
    n_events = split_rows(
        entries.offsets, entries.keys, entries.classes, zones.arrays(), above, histogram, labels, label_zones,
        0, 0, split.columns,
    )  # fmt: skip
    return above, label_zones, split, n_events


def label_weights(labels: Array | None, rows: Ints, classes: Ints) -> Array:
    """Return the weight that hard or soft labels put on each (row, class): 0 where there are none."""
    if labels is None:
        return np.zeros(rows.size, np.uint8)
    if labels.ndim == 2:
        return np.asarray(labels[rows, classes], np.float64)
    return np.asarray(labels[rows] == classes, np.uint8)
