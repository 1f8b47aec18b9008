"""Plain twins of the kernels of ``row_scans``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .plain_bits import count_bins
from .plain_gathering import find_labels, gather_above, rank_labels


def _zones_of(keys: Any, zones: Any) -> Any:
    """Return the zone of each key, an even number beyond all for those below the last."""
    floors, _, starts, _ = zones
    return np.maximum(starts[-1], floors.size - np.searchsorted(floors[::-1], keys, side="right"))


def _count_zones(keys: Any, zone_of: Any, zones: Any, histogram: Any) -> None:
    """Add keys to the histograms of their zones."""
    for zone in np.unique(zone_of).tolist():
        count_bins(keys[zone_of == zone], zones[0][zone], zones[1][zone], histogram[zone])


def split_rows(
    offsets: Any,
    keys: Any,
    classes: Any,
    zones: Any,
    above: Any,
    histogram: Any,
    labels: Any,
    label_zones: Any,
    first_row: int,
    n_events: int,
    events: Any,
) -> int:
    """Split each row's listed scores by intervals of keys into counts, bins and events; return the number of events."""
    n = n_events
    for i in range(offsets.size - 1):
        mine = slice(offsets[i], offsets[i + 1])
        zone_of, is_label = _zones_of(keys[mine], zones), classes[mine] == labels[i]
        _count_zones(keys[mine], zone_of, zones, histogram)
        label_zones[i] = zone_of[is_label][-1] if is_label.any() else zones[0].size
        above[i] = np.searchsorted(np.sort(zone_of), 2 * np.arange(above.shape[1]), side="right")
        inside = np.flatnonzero(zone_of % 2)
        j = zone_of[inside] // 2
        found = (
            j,
            keys[mine][inside],
            first_row + i,
            2 * above[i, j] + (label_zones[i] <= 2 * j),
            classes[mine][inside],
            is_label[inside],
        )
        for column, part in zip(events, found, strict=True):
            column[n : n + inside.size] = part
        n += inside.size
    return n


def scan_rows(
    tile: Any, first_row: int, listing: Any, events: Any, zones: Any, labels: Any, tallies: Any, ranking: Any
) -> tuple[int, int, int, int]:
    """Gather, rank and split the rows from ``first_row`` on, as many as their events have space."""
    values, bits, magnitude, floor = tile
    offsets, classes, keys, scratch = listing
    hard, indices, ranks, n_ranks = labels
    above, label_zones, histogram = tallies
    ranked, width, missing = ranking
    row, n_nan, first_nan, n_events = first_row, 0, -1, 0
    while row < values.shape[0] and n_events + keys.size <= events[0].size:
        stop, more_nan, nan = gather_above(
            values, bits, magnitude, floor, row, offsets, classes, keys, ranked, width, missing, scratch
        )
        first_nan = first_nan if n_nan else nan
        n_nan += more_nan
        listed, mine = offsets[: stop - row + 1], slice(row, stop)
        if n_ranks > 0:
            find_labels(hard, row, listed, classes, indices)
            rank_labels(values, hard, indices, row, listed, keys, n_ranks, ranks)
        n_events = split_rows(
            listed, keys, classes, zones, above[mine], histogram, hard[mine], label_zones[mine], row, n_events, events
        )
        row = stop
    return row, n_nan, first_nan, n_events


def hold_rows(
    tile: Any, first_row: int, listing: Any, held: Any, zones: Any, labels: Any, histogram: Any, ranking: Any
) -> tuple[int, int, int, int]:
    """Gather and rank the rows from ``first_row`` on, and keep the keys of all that is listed, while there is space."""
    values, bits, magnitude, floor = tile
    offsets, classes, keys, scratch = listing
    held_keys, lengths = held
    hard, indices, ranks, n_ranks = labels
    ranked, width, missing = ranking
    row, n_nan, first_nan, n = first_row, 0, -1, 0
    while row < values.shape[0] and n + keys.size <= held_keys.size:
        stop, more_nan, nan = gather_above(
            values, bits, magnitude, floor, row, offsets, classes, keys, ranked, width, missing, scratch
        )
        first_nan = first_nan if n_nan else nan
        n_nan += more_nan
        listed = offsets[: stop - row + 1]
        find_labels(hard, row, listed, classes, indices)
        if n_ranks > 0:
            rank_labels(values, hard, indices, row, listed, keys, n_ranks, ranks)
        lengths[row:stop] = np.diff(listed)
        found = keys[: listed[-1]]
        held_keys[n : n + found.size] = found
        _count_zones(found, _zones_of(found, zones), zones, histogram)
        n += found.size
        row = stop
    return row, n_nan, first_nan, n


def count_sets(
    keys: Any,
    lengths: Any,
    label_indices: Any,
    zones: Any,
    thresholds: Any,
    ties_left: Any,
    cells: Any,
    hits: Any,
    strata: Any,
    stratum_sizes: Any,
    stratum_hits: Any,
) -> None:
    """Count the sets of several budgets by cell and by stratum; the intervals of ``zones`` are the thresholds, one key each."""
    ends = np.cumsum(lengths)
    rows = zip(np.split(keys, ends[:-1]), label_indices.tolist(), strata.tolist(), strict=True)
    for row, index, stratum in rows:
        zone_of = _zones_of(row, zones)
        if index >= 0 and zone_of[index] < zones[0].size:
            hits[zone_of[index]] += 1
        for b, j in enumerate(thresholds.tolist()):
            taken = np.flatnonzero(zone_of == 2 * j + 1)[: ties_left[b]]
            ties_left[b] -= taken.size
            size = np.count_nonzero(zone_of <= 2 * j) + taken.size
            hit = index in taken.tolist() or (index >= 0 and zone_of[index] <= 2 * j)
            cells[b, 2 * size + hit] += 1
            stratum_sizes[stratum, b] += size
            stratum_hits[stratum, b] += hit


def add_strata(above: Any, label_zones: Any, strata: Any, sizes: Any, hits: Any) -> None:
    """Add up the scores above each interval, and the labels there, by the stratum of each row."""
    np.add.at(sizes, strata, above)
    np.add.at(hits, strata, label_zones[:, None] <= 2 * np.arange(above.shape[1]))


def tell_sets(
    keys: Any, lengths: Any, label_indices: Any, thresholds: Any, ties_left: Any, sizes: Any, hits: Any
) -> None:
    """Write the size of each row's set for each threshold, a key, and whether it holds the row's label."""
    for i, (row, index) in enumerate(zip(np.split(keys, np.cumsum(lengths)[:-1]), label_indices.tolist(), strict=True)):
        for b, key in enumerate(thresholds.tolist()):
            inside = row > key
            ties = np.flatnonzero(row == key)[: ties_left[b]]
            ties_left[b] -= ties.size
            inside[ties] = True
            sizes[i, b], hits[i, b] = inside.sum(), index >= 0 and inside[index]
