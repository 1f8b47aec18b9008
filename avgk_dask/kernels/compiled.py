"""The compiled kernels: one pass over a tile of rows while it is in cache.

All release the GIL and none is parallel: Dask owns the cores. A first look compares a whole row
with the floor, vectorised, into a byte for each score, and then tests eight bytes at once: only
the few scores of interest are touched singly (12 GB/s a core, against 7 for a branch per score).
``not (x < floor)`` is true for NaN too, so finding NaN costs nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

#: Lists shorter than this are sorted by insertion, which is linear on ties already in order.
_INSERTION = 48


@njit(nogil=True, cache=True)
def half_keys(bits: Any, infinity: Any, nan: Any, keys: Any) -> None:
    """Write the 16-bit keys of half floats, given by their bits: sign and magnitude, NaN as ``nan``."""
    for t in range(bits.size):
        magnitude = bits[t] & np.int16(0x7FFF)
        key = -magnitude if bits[t] < 0 else magnitude
        keys[t] = nan if magnitude > infinity else key


@njit(nogil=True, cache=True)
def gather_above(
    values: Any, bits: Any, magnitude: Any, floor: Any, first_row: int, offsets: Any, classes: Any, keys: Any
) -> Any:
    """List the scores that are at least ``floor``, row by row, for as many rows as there is room.

    ``bits`` are the scores as integers, whose order key is the integer itself, or for floats (where
    ``magnitude`` is the mask of all bits but the sign, else 0) sign and magnitude. Writes class and
    key of each, those of the i-th row read from ``offsets[i]`` to ``offsets[i + 1]``; stops before
    a row that might not fit. Gives the row it stopped at, the number of NaN met and the flat place
    of the first one (-1 for none).
    """
    n_rows, n_classes = values.shape
    flags = np.zeros((n_classes + 7) // 8 * 8, np.uint8)
    words = flags.view(np.uint64)
    n = 0
    n_nan = 0
    first_nan = -1
    offsets[0] = 0
    for i in range(first_row, n_rows):
        if n + n_classes > keys.size:
            return i, n_nan, first_nan
        row = values[i]
        for t in range(n_classes):
            flags[t] = not (row[t] < floor)
        for word in range(words.size):
            if words[word] == 0:
                continue
            for t in range(8 * word, 8 * word + 8):
                if flags[t] == 0:
                    continue
                if row[t] != row[t]:
                    if n_nan == 0:
                        first_nan = i * n_classes + t
                    n_nan += 1
                    continue
                key = np.int64(bits[i, t])
                if key < 0 and magnitude != 0:
                    key = -(key & magnitude)
                classes[n] = t
                keys[n] = key
                n += 1
        offsets[i + 1 - first_row] = n
    return n_rows, n_nan, first_nan


@njit(nogil=True, cache=True)
def rank_labels(
    values: Any, labels: Any, first_row: int, offsets: Any, classes: Any, keys: Any, n_ranks: int, counts: Any
) -> None:
    """Count the labels by their rank in their row: 1 for the highest score, ties by class index.

    ``counts[r]`` grows for a label of rank r, its last place for all beyond ``n_ranks`` and for a
    label whose score is NaN, ``counts[0]`` for a negative label. The rows from ``first_row`` on have
    their scores down to some floor listed: all that rank before a listed label are listed, and
    where a label is not listed but ``n_ranks`` others are, nothing more need be known.
    """
    n_classes = values.shape[1]
    for i in range(offsets.size - 1):
        label = labels[first_row + i]
        if label < 0:
            counts[0] += 1
            continue
        first, last = offsets[i], offsets[i + 1]
        place = first
        while place < last and classes[place] != label:
            place += 1
        higher = 0
        if place < last:
            for t in range(first, last):
                higher += keys[t] > keys[place] or (keys[t] == keys[place] and t < place)
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
        counts[min(higher, n_ranks) + 1] += 1


@njit(nogil=True, cache=True)
def rank_top(values: Any, first_class: int, top: Any, classes: Any, n_top: Any) -> None:
    """Insert a slab's scores into each row's running list of its highest ones, in rank order.

    ``top`` and ``classes`` are rows x r; ``n_top`` counts the places filled. Slabs must come in
    class order, so that among equals the lowest class stays first. NaN never enters.
    """
    n_rows, n_classes = values.shape
    r = top.shape[1]
    for i in range(n_rows):
        row = values[i]
        n = n_top[i]
        for t in range(n_classes):
            x = row[t]
            if x != x or (n == r and not (x > top[i, r - 1])):
                continue
            place = n if n < r else r - 1
            while place > 0 and x > top[i, place - 1]:
                top[i, place] = top[i, place - 1]
                classes[i, place] = classes[i, place - 1]
                place -= 1
            top[i, place] = x
            classes[i, place] = first_class + t
            if n < r:
                n += 1
        n_top[i] = n


@njit(nogil=True, cache=True)
def _sort_descending(keys: Any, classes: Any) -> None:
    """Sort a short list by key, highest first, in place and stably."""
    if keys.size > _INSERTION:
        order = np.argsort(~keys, kind="mergesort")
        keys[:] = keys[order]
        classes[:] = classes[order]
        return
    for a in range(1, keys.size):
        key = keys[a]
        c = classes[a]
        b = a
        while b > 0 and keys[b - 1] < key:
            keys[b] = keys[b - 1]
            classes[b] = classes[b - 1]
            b -= 1
        keys[b] = key
        classes[b] = c


@njit(nogil=True, cache=True)
def count_bins(keys: Any, base: Any, shift: Any, histogram: Any) -> None:
    """Add the keys to a histogram of ``2**shift`` keys a bin from ``base`` up, ends clipped."""
    last = np.uint64(histogram.size - 1)
    for t in range(keys.size):
        if keys[t] < base:
            histogram[0] += 1
        else:
            bin_ = (np.uint64(keys[t]) - np.uint64(base)) >> np.uint64(shift)
            histogram[min(bin_, last)] += 1


@njit(nogil=True, cache=True)
def split_rows(
    offsets: Any,
    keys: Any,
    classes: Any,
    zones: Any,
    above: Any,
    histogram: Any,
    labels: Any,
    hits: Any,
    event_keys: Any,
    event_rows: Any,
    event_sizes: Any,
    event_classes: Any,
) -> int:
    """Split each row's listed scores by intervals of keys, which descend and are disjoint.

    ``zones`` are the arrays of a ``ZoneTable``: zone 2 j is the gap above interval j, zone 2 j + 1
    the interval itself. ``above[i, j]`` becomes the number of scores of row i above interval j. A
    score inside an interval becomes an event: its key, its row, its class, and the size the row's
    set has once that score is in it. Every score is counted in the histogram of its zone; ``hits``
    counts those of the rows' own labels (negative: none). Gives the number of events.
    """
    floors, shifts, starts, table_shift = zones
    n_zones = floors.size
    lowest = np.uint64(floors[n_zones - 1])
    last_start = np.uint64(starts.size - 1)
    last_bin = np.uint64(histogram.shape[1] - 1)
    counts = np.zeros(n_zones, np.int32)
    n = 0
    for i in range(offsets.size - 1):
        first = n
        label = labels[i]
        counts[:] = 0
        for t in range(offsets[i], offsets[i + 1]):
            key = keys[t]
            start = (np.uint64(key) - lowest) >> table_shift
            zone = starts[min(start, last_start)]
            while key < floors[zone]:
                zone += 1
            counts[zone] += 1
            bin_ = (np.uint64(key) - np.uint64(floors[zone])) >> shifts[zone]
            histogram[zone, min(bin_, last_bin)] += 1
            if classes[t] == label:
                hits[zone] += 1
            if zone & 1:
                event_keys[n] = key
                event_classes[n] = classes[t]
                n += 1
        running = 0
        for zone in range(n_zones):
            running += counts[zone]
            if zone & 1 == 0:
                above[i, zone >> 1] = running
        if n == first:
            continue
        if n - first > 1:
            _sort_descending(event_keys[first:n], event_classes[first:n])
        # Sorted by key, the events of the first interval come first, and so on down.
        place = first
        for zone in range(1, n_zones, 2):
            size = above[i, zone >> 1]
            for _ in range(counts[zone]):
                size += 1
                event_rows[place] = i
                event_sizes[place] = size
                place += 1
    return n


@njit(nogil=True, cache=True)
def scan_rows(tile: Any, first_row: int, buffers: Any, zones: Any, labels: Any, tallies: Any) -> Any:
    """Gather, rank and split as many rows as fit the buffers, in one call.

    Every return to Python waits for its lock while other threads decode chunks, so there is one.
    """
    values, bits, magnitude, floor = tile
    offsets, classes, keys, event_keys, event_rows, event_sizes, event_classes = buffers
    hard, n_ranks = labels
    rank_counts, above, histogram, hits = tallies
    stop, n_nan, first_nan = gather_above(values, bits, magnitude, floor, first_row, offsets, classes, keys)
    offsets = offsets[: stop - first_row + 1]
    if n_ranks > 0:
        rank_labels(values, hard, first_row, offsets, classes, keys, n_ranks, rank_counts)
    mine = hard[first_row:stop]
    n_events = split_rows(
        offsets, keys, classes, zones, above, histogram, mine, hits, event_keys, event_rows, event_sizes, event_classes
    )
    return stop, n_nan, first_nan, n_events


@njit(nogil=True, cache=True)
def add_exact(bits: Any, groups: Any, limbs: Any) -> None:
    """Add non-negative float64 values, given by their bits, to fixed-point sums of 32-bit limbs.

    ``limbs[g]`` counts units of 2**-1074 in base 2**32, least first; a limb takes 2**31 additions
    before it could overflow.
    """
    for t in range(bits.size):
        exponent = (bits[t] >> 52) & 0x7FF
        mantissa = np.uint64(bits[t] & 0xFFFFFFFFFFFFF)
        if exponent == 0:
            exponent = 1
        else:
            mantissa |= np.uint64(1) << np.uint64(52)
        limb = (exponent - 1) >> 5
        shift = np.uint64((exponent - 1) & 31)
        low = (mantissa & np.uint64(0xFFFFFFFF)) << shift
        high = (mantissa >> np.uint64(32)) << shift
        g = groups[t]
        limbs[g, limb] += np.int64(low & np.uint64(0xFFFFFFFF))
        limbs[g, limb + 1] += np.int64((low >> np.uint64(32)) + (high & np.uint64(0xFFFFFFFF)))
        limbs[g, limb + 2] += np.int64(high >> np.uint64(32))
