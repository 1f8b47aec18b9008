"""Compiled kernels that list the scores of rows from a floor up, find the labels, and count by zones of keys.

The docstrings are in ``kernels/numpy``. All kernels release the GIL and use one thread, since Dask uses the cores.

A vectorised comparison of a whole row with the floor writes one byte per score. These bytes are tested
eight at a time, so only the few scores above the floor are processed one by one. ``not (x < floor)`` is
also true for NaN, so finding NaN costs nothing. Computed indices are unsigned: for signed ones, numba
tests whether they are negative, and the compiler cannot use vector instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from . import notice_changes
from .ranks import _order_top, _row_floor

#: Rows up to this long are processed score by score, which is faster for them than the vectorised comparison.
_SHORT = 32
_U = np.uint64


@intrinsic
def _trailing_zeros(typing_context: Any, word: Any) -> Any:
    """Return the number of trailing zero bits of a word that is not zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

    return types.uint64(types.uint64), generate


@njit(nogil=True, cache=True, inline="always")
def _gather_short(row: Any, bits: Any, magnitude: Any, floor: Any, classes: Any, keys: Any, n: int, near: Any) -> Any:
    """Append the scores of a short row that are at least ``floor`` to the n listed ones; copy all but NaN to ``near``.

    Return the new number of listed scores, and the number of copied scores.
    """
    n_near = np.int64(0)
    for t in range(row.size):
        x = row[t]
        key = np.int64(bits[t])
        classes[_U(n)] = t
        keys[_U(n)] = -(key & magnitude) if key < 0 and magnitude != 0 else key
        n += x >= floor
        near[_U(n_near)] = x
        n_near += x == x
    return n, n_near


@njit(nogil=True, cache=True)
def gather_above(tile: Any, first_row: int, listing: Any, ranking: Any) -> tuple[int, int, int]:
    values, bits, magnitude, floor = tile
    offsets, classes, keys, (flags, busy, lanes, near, ranks, ordered, taken) = listing
    ranked, width, missing = ranking
    n_rows, n_classes = values.shape
    words = flags.view(np.uint64)
    r = ranked.shape[1]
    n = 0
    n_nan = 0
    first_nan = -1
    offsets[0] = 0
    for i in range(first_row, n_rows):
        if n + n_classes > keys.size or i - first_row == offsets.size - 1:
            return i, n_nan, first_nan
        row = values[i]
        n_near = np.int64(0)  # a literal would make numba compile its callee twice
        if n_classes <= _SHORT:
            n, n_near = _gather_short(row, bits[i], magnitude, floor, classes, keys, n, near)
            if n_near < n_classes:
                for t in range(n_classes):
                    if row[t] != row[t] and n_nan == 0:
                        first_nan = i * n_classes + t
                    n_nan += row[t] != row[t]
            offsets[i + 1 - first_row] = n
            if r > 0:
                _order_top(near, n_near, missing, ranks, ordered, taken, ranked, i)
            continue
        least, sure = _row_floor(row, r, width, lanes, ranks)
        if r > 0 and not sure:
            for t in range(n_classes):
                flags[t] = 1
        elif r > 0 and least < floor:
            for t in range(n_classes):
                flags[t] = not (row[t] <= least)
        else:
            for t in range(n_classes):
                flags[t] = not (row[t] < floor)
        n_busy = 0
        for word in range(words.size):
            busy[n_busy] = word
            n_busy += words[word] != 0
        for p in range(n_busy):
            word = busy[p]
            left = words[word]
            while left != 0:
                t = 8 * word + np.int64(_trailing_zeros(left) >> np.uint64(3))
                left &= left - np.uint64(1)
                x = row[t]
                if x != x:
                    if n_nan == 0:
                        first_nan = i * n_classes + t
                    n_nan += 1
                    continue
                near[n_near] = x
                n_near += not sure or x > least
                key = np.int64(bits[i, t])
                if key < 0 and magnitude != 0:
                    key = -(key & magnitude)
                classes[n] = t
                keys[n] = key
                n += x >= floor
        offsets[i + 1 - first_row] = n
        if r > 0:
            _order_top(near, n_near, least if sure else missing, ranks, ordered, taken, ranked, i)
    return n_rows, n_nan, first_nan


@njit(nogil=True, cache=True, inline="always")
def find_labels(labels: Any, first_row: int, offsets: Any, classes: Any, indices: Any) -> None:
    for i in range(offsets.size - 1):
        first = offsets[i]
        label = labels[first_row + i]
        index = np.int32(-1)
        for t in range(offsets[i + 1] - first):
            index = np.int32(t) if classes[_U(first + t)] == label else index
        indices[first_row + i] = index


@njit(nogil=True, cache=True, inline="always")
def rank_labels(
    values: Any, labels: Any, indices: Any, first_row: int, offsets: Any, keys: Any, n_ranks: int, ranks: Any
) -> None:
    """Write the rank of each row's label in its row, from the listed scores if these suffice.

    If the label is listed, so are all scores that rank before it. If it is not, it ranks after all listed scores: its rank
    exceeds ``n_ranks`` if at least ``n_ranks`` scores are listed, and otherwise the whole row is compared with it.
    """
    n_classes = values.shape[1]
    for i in range(offsets.size - 1):
        label = labels[first_row + i]
        if label < 0:
            ranks[first_row + i] = 0
            continue
        first, last = offsets[i], offsets[i + 1]
        index = indices[first_row + i]
        higher = 0
        if index >= 0:
            row_keys = keys[first:last]
            key = row_keys[index]
            for t in range(row_keys.size):
                higher += row_keys[t] > key
            for t in range(index):
                higher += row_keys[t] == key
        elif last - first >= n_ranks:
            higher = n_ranks
        else:
            row = values[first_row + i]
            x = row[label]
            for t in range(n_classes):
                higher += row[t] > x
            before = row[:label]
            for t in range(before.size):
                higher += before[t] == x
            if x != x:
                higher = n_ranks
        ranks[first_row + i] = min(higher, n_ranks) + 1


notice_changes(gather_above, _row_floor, _order_top)


@njit(nogil=True, cache=True, inline="always")
def _find_zone(key: Any, floors: Any, starts: Any, lowest: Any, table_shift: Any) -> Any:
    """Return the zone of a key; the key must not be below the lowest floor."""
    start = (np.uint64(key) - lowest) >> table_shift
    zone = _U(starts[min(start, _U(starts.size - 1))])
    zone += _U(key < floors[zone])  # usually at most one step is needed: this one has no branch
    while key < floors[zone]:
        zone += _U(1)
    return zone


@njit(nogil=True, cache=True)
def split_rows(listed: Any, zones: Any, tallies: Any, labels: Any, first_row: int, n_events: int, events: Any) -> int:
    keys, classes, offsets = listed
    above, label_zones, histogram = tallies
    floors, shifts, starts, table_shift = zones
    lowest = np.uint64(floors[-1])
    event_intervals, event_keys, event_rows, event_bases, event_classes, event_hits = events
    n_zones = floors.size
    last_bin = np.uint64(histogram.shape[1] - 1)
    counts = np.zeros(n_zones, np.int32)
    n = n_events
    for i in range(offsets.size - 1):
        label = labels[i]
        label_zone = _U(n_zones)
        first = n
        for t in range(offsets[i], offsets[i + 1]):
            key = keys[_U(t)]
            zone = _find_zone(key, floors, starts, lowest, table_shift)
            counts[zone] += 1
            bin_ = (np.uint64(key) - np.uint64(floors[zone])) >> shifts[zone]
            histogram[zone, min(bin_, last_bin)] += 1
            if classes[_U(t)] == label:
                label_zone = zone
            if zone & _U(1):
                event_intervals[n] = zone >> _U(1)
                event_keys[n] = key
                event_rows[n] = first_row + i
                event_classes[n] = classes[t]
                event_hits[n] = classes[t] == label
                n += 1
        running = 0
        for zone in range(0, n_zones, 2):
            running += counts[_U(zone)]
            above[i, _U(zone >> 1)] = running
            running += counts[_U(zone + 1)]
            counts[_U(zone)] = counts[_U(zone + 1)] = 0
        label_zones[i] = label_zone
        for p in range(first, n):
            j = event_intervals[p]
            event_bases[p] = 2 * above[i, j] + (label_zones[i] <= 2 * j)
    return n


@njit(nogil=True, cache=True)
def scan_rows(
    tile: Any, first_row: int, listing: Any, events: Any, zones: Any, labels: Any, tallies: Any, ranking: Any
) -> tuple[int, int, int, int]:
    # A return to Python must wait for the GIL while other threads decode chunks, so there is only one. Only a few rows are
    # listed at a time, so that the lists stay in the cache.
    values, (offsets, classes, keys, _) = tile[0], listing
    hard, indices, ranks, n_ranks = labels
    above, label_zones, histogram = tallies
    n_events = 0
    n_nan = 0
    first_nan = -1
    row = first_row
    while row < values.shape[0] and n_events + keys.size <= events[0].size:
        stop, more_nan, nan = gather_above(tile, row, listing, ranking)
        if n_nan == 0:
            first_nan = nan
        n_nan += more_nan
        listed = offsets[: stop - row + 1]
        if n_ranks > 0:
            find_labels(hard, row, listed, classes, indices)
            rank_labels(values, hard, indices, row, listed, keys, n_ranks, ranks)
        row_tallies = above[row:stop], label_zones[row:stop], histogram
        n_events = split_rows((keys, classes, listed), zones, row_tallies, hard[row:stop], row, n_events, events)
        row = stop
    return row, n_nan, first_nan, n_events


@njit(nogil=True, cache=True)
def hold_rows(
    tile: Any, first_row: int, listing: Any, held: Any, zones: Any, labels: Any, histogram: Any, ranking: Any
) -> tuple[int, int, int, int]:
    values, (offsets, classes, keys, _) = tile[0], listing
    held_keys, lengths = held
    hard, indices, ranks, n_ranks = labels
    floors, shifts = zones[0], zones[1]
    first_zone = np.int64(zones[2][-1])  # 1 if no key can be above the interval, else 0
    last_bin = np.uint64(histogram.shape[1] - 1)
    n = 0
    n_nan = 0
    first_nan = -1
    row = first_row
    while row < values.shape[0] and n + keys.size <= held_keys.size:
        stop, more_nan, nan = gather_above(tile, row, listing, ranking)
        if n_nan == 0:
            first_nan = nan
        n_nan += more_nan
        listed = offsets[: stop - row + 1]
        find_labels(hard, row, listed, classes, indices)
        if n_ranks > 0:
            rank_labels(values, hard, indices, row, listed, keys, n_ranks, ranks)
        for i in range(row, stop):
            lengths[i] = offsets[i - row + 1] - offsets[i - row]
        for t in range(offsets[stop - row]):
            key = keys[t]
            held_keys[_U(n + t)] = key
            zone = max(first_zone, np.int64(key < floors[0]))  # 0: the gap above the interval; 1: the interval
            bin_ = (np.uint64(key) - np.uint64(floors[zone])) >> shifts[zone]
            histogram[zone, min(bin_, last_bin)] += 1
        n += offsets[stop - row]
        row = stop
    return row, n_nan, first_nan, n


@njit(nogil=True, cache=True)
def count_sets(rows: Any, zones: Any, thresholds: Any, ties_left: Any, cells: Any, hits: Any, by_stratum: Any) -> None:
    keys, lengths, label_indices = rows
    strata, stratum_sizes, stratum_hits = by_stratum
    floors, _, starts, table_shift = zones
    lowest = np.uint64(floors[-1])
    n_zones = floors.size
    counts = np.zeros(n_zones, np.int32)
    through = np.empty(n_zones, np.int32)
    first = 0
    for i in range(lengths.size):
        last = first + lengths[i]
        any_ties = _U(0)
        for t in range(first, last):
            key = np.int64(keys[_U(t)])
            if key >= floors[-1]:
                zone = _find_zone(key, floors, starts, lowest, table_shift)
                counts[zone] += 1
                any_ties |= zone & _U(1)
        label_zone = n_zones
        before = 0
        index = first + label_indices[i]
        if index >= first and keys[index] >= floors[-1]:
            label_zone = np.int64(_find_zone(np.int64(keys[index]), floors, starts, lowest, table_shift))
            hits[label_zone] += 1
            for t in range(first, index):
                before += keys[t] == keys[index]
        running = np.int32(0)
        for zone in range(_U(n_zones)):
            running += counts[zone]
            through[zone] = running
        stratum = _U(strata[i])
        if any_ties == 0:
            for b in range(_U(thresholds.size)):
                size = np.int64(through[_U(2 * thresholds[b])])
                hit = np.int64(label_zone <= 2 * thresholds[b])
                cells[b, _U(2 * size + hit)] += 1
                stratum_sizes[stratum, b] += size
                stratum_hits[stratum, b] += hit
        else:
            for b in range(_U(thresholds.size)):
                zone_of_ties = 2 * thresholds[b] + 1
                taken = min(counts[zone_of_ties], ties_left[b])
                ties_left[b] -= taken
                size = np.int64(through[zone_of_ties - 1] + taken)
                hit = np.int64(label_zone < zone_of_ties or (label_zone == zone_of_ties and before < taken))
                cells[b, _U(2 * size + hit)] += 1
                stratum_sizes[stratum, b] += size
                stratum_hits[stratum, b] += hit
        counts[:] = 0
        first = last


@njit(nogil=True, cache=True)
def measure_sets(
    keys: Any, lengths: Any, label_indices: Any, thresholds: Any, ties_left: Any, sizes: Any, hits: Any
) -> None:
    first = 0
    for i in range(lengths.size):
        last = first + lengths[i]
        label = first + label_indices[i]
        for b in range(thresholds.size):
            key = thresholds[b]
            size = 0
            hit = False
            for t in range(first, last):
                inside = keys[t] > key
                if keys[t] == key and ties_left[b] > 0:
                    ties_left[b] -= 1
                    inside = True
                size += inside
                hit |= inside and t == label
            sizes[i, b] = size
            hits[i, b] = hit
        first = last


@njit(nogil=True, cache=True)
def add_strata(above: Any, label_zones: Any, strata: Any, sizes: Any, hits: Any) -> None:
    for i in range(above.shape[0]):
        stratum = _U(strata[i])
        for j in range(_U(above.shape[1])):
            sizes[stratum, j] += above[i, j]
            hits[stratum, j] += label_zones[i] <= 2 * np.int64(j)


notice_changes(scan_rows, gather_above, find_labels, rank_labels)
notice_changes(hold_rows, gather_above, find_labels, rank_labels)
