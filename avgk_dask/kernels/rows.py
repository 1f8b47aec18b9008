"""Compiled kernels on rows: one pass over a tile of rows while it is in cache.

All release the GIL and none is parallel: Dask owns the cores. They are in one file because numba's
cache on disk notices changes of that file only, not of what is imported from another.

A first look compares a whole row with the floor, vectorised, into a byte for each score, and then
tests eight bytes at once: only the few scores of interest are touched singly. ``not (x < floor)`` is
true for NaN too, so finding NaN costs nothing. The r-th highest of a row's *lane maxima* (maxima of
interleaved groups) is a value that at least r scores reach, and few more: one vectorised fold of the
row finds it. Indices that are sums are unsigned, since a test for negative ones keeps the compiler
from using vector instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

#: Lanes come in multiples of this: whole vector registers.
LANES = 32
#: Lists up to this long are ordered by counting what is greater, longer ones by sorting.
_COUNTED = 192
#: Rows up to this long are looked at score by score: a first look would not save what it costs.
_SHORT = 32
_U = np.uint64


@intrinsic
def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """Give the number of trailing zero bits of a word that is not zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

    return types.uint64(types.uint64), generate


def row_scratch(n_classes: int, width: int, dtype: Any) -> tuple[Any, ...]:
    """Give the room that ``gather_above`` works in, for rows of so many classes and so many lanes."""
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
    """Give the number of lanes that serve r ranks: about 1.5 r; 0 where a row is hardly longer than that."""
    width = -(-3 * n_ranks // (2 * LANES)) * LANES
    return width if n_ranks and n_classes > width else 0


@njit(nogil=True, cache=True, fastmath={"nsz"})
def _fold(row: Any, width: int, lanes: Any) -> None:
    """Write the maxima of ``width`` interleaved groups of a longer row; NaN only where all are."""
    n = row.size
    w = width
    while 2 * w < n:
        w *= 2
    rest = n - w
    for t in range(rest):
        lanes[t] = np.fmax(row[t], row[_U(w + t)])
    for t in range(rest, w):
        lanes[t] = row[t]
    while w > width:
        w //= 2
        for t in range(w):
            lanes[t] = np.fmax(lanes[t], lanes[_U(w + t)])


@njit(nogil=True, cache=True)
def _count_greater(values: Any, n: int, ranks: Any) -> None:
    """Write, for each of n values, how many of them are greater.

    Works in whole registers: what lies behind the n values up to a multiple of ``LANES`` gets some
    rank, too, which means nothing.
    """
    padded = (n + LANES - 1) // LANES * LANES
    for t in range(padded):
        ranks[t] = 0
    whole = n - n % 4
    for j in range(whole, n):
        a = values[j]
        for t in range(padded):
            ranks[t] += np.int32(a > values[t])
    for j in range(0, whole, 4):
        a, b, c, d = values[j], values[_U(j + 1)], values[_U(j + 2)], values[_U(j + 3)]
        for t in range(padded):
            x = values[t]
            ranks[t] += np.int32(a > x) + np.int32(b > x) + np.int32(c > x) + np.int32(d > x)


@njit(nogil=True, cache=True)
def row_floor(row: Any, n_ranks: int, width: int, lanes: Any, ranks: Any) -> Any:
    """Give a score that at least ``n_ranks`` scores of the row reach, and whether there is one.

    There is none to be had where NaN fills whole lanes, or where there are no lanes (width 0).
    """
    if width == 0:
        return row[0], False
    _fold(row, width, lanes)
    _count_greater(lanes, width, ranks)
    n_real = 0
    last = -1
    for t in range(width):
        real = lanes[t] == lanes[t]
        n_real += real
        # Equal lanes share a rank: the highest rank below r is that of the r-th.
        place = ranks[t] * width + t if real and ranks[t] < n_ranks else -1
        last = place if place > last else last
    return lanes[last % width], n_real >= n_ranks


@njit(nogil=True, cache=True)
def order_top(near: Any, n: int, rest: Any, ranks: Any, ordered: Any, taken: Any, top: Any, i: int) -> None:
    """Write the highest of n scores to row i of ``top`` in descending order, and ``rest`` behind them.

    ``taken`` is all False, and left so.
    """
    r = top.shape[1]
    if n > _COUNTED:
        ordered[:n] = np.sort(near[:n])[::-1]
        for p in range(r):
            top[i, p] = ordered[p] if p < n else rest
        return
    _count_greater(near, n, ranks)
    rank_sum = 0
    for t in range(n):
        rank_sum += ranks[t]
    if 2 * rank_sum == n * (n - 1):  # no two are equal
        for t in range(n):
            ordered[ranks[t]] = near[t]
        for p in range(r):
            top[i, p] = ordered[p] if p < n else rest
        return
    # Equal scores share a rank: the places behind it, never written, are theirs too.
    for t in range(n):
        ordered[ranks[t]] = near[t]
        taken[ranks[t]] = True
    x = rest
    for p in range(r):
        if p < n and taken[p]:
            x = ordered[p]
            taken[p] = False
        top[i, p] = x if p < n else rest
    for p in range(r, n):
        taken[p] = False


@njit(nogil=True, cache=True, inline="always")
def _gather_short(row: Any, bits: Any, magnitude: Any, floor: Any, classes: Any, keys: Any, n: int, near: Any) -> Any:
    """List the scores of a short row that are at least ``floor`` behind n others; give their number and that of numbers."""
    n_near = 0
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
def gather_above(
    values: Any,
    bits: Any,
    magnitude: Any,
    floor: Any,
    first_row: int,
    offsets: Any,
    classes: Any,
    keys: Any,
    ranked: Any,
    width: int,
    missing: Any,
    scratch: Any,
) -> Any:
    """List the scores that are at least ``floor``, row by row, for as many rows as there is room.

    ``bits`` are the scores as integers, whose order key is the integer itself, or for floats (where
    ``magnitude`` is the mask of all bits but the sign, else 0) sign and magnitude. Writes class and
    key of each, those of the i-th row read from ``offsets[i]`` to ``offsets[i + 1]``; stops before
    a row that might not fit. Gives the row it stopped at, the number of NaN met and the flat place
    of the first one (-1 for none).

    Each row of ``ranked`` (rows x r, r may be 0) becomes the row's r highest scores in descending
    order, ``missing`` where NaN leave too few; ``width`` is the number of lanes for them.
    """
    n_rows, n_classes = values.shape
    flags, busy, lanes, near, ranks, ordered, taken = scratch
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
        if n_classes <= _SHORT:
            n, n_near = _gather_short(row, bits[i], magnitude, floor, classes, keys, n, near)
            if n_near < n_classes:
                for t in range(n_classes):
                    if row[t] != row[t] and n_nan == 0:
                        first_nan = i * n_classes + t
                    n_nan += row[t] != row[t]
            offsets[i + 1 - first_row] = n
            if r > 0:
                order_top(near, n_near, missing, ranks, ordered, taken, ranked, i)
            continue
        least, sure = row_floor(row, r, width, lanes, ranks)
        if r > 0 and not sure:
            flags[:n_classes] = 1
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
        n_near = 0
        for p in range(n_busy):
            word = busy[p]
            left = words[word]
            while left != 0:
                t = 8 * word + np.int64(trailing_zeros(left) >> np.uint64(3))
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
            order_top(near, n_near, least if sure else missing, ranks, ordered, taken, ranked, i)
    return n_rows, n_nan, first_nan


@njit(nogil=True, cache=True)
def rank_top(values: Any, first_class: int, top: Any, classes: Any, n_top: Any, width: int) -> None:
    """Insert a slab's scores into each row's running list of its highest ones, in rank order.

    ``top`` and ``classes`` are rows x r; ``n_top`` counts the places filled. Slabs must come in
    class order, so that among equals the lowest class stays first. NaN never enters. ``width`` is
    the number of lanes for a first look, 0 for none.
    """
    n_rows, n_classes = values.shape
    if n_classes == 0:
        return
    r = top.shape[1]
    lanes = np.empty(max(n_classes, 2 * width), values.dtype)
    ranks = np.empty(max(width, 1), np.int32)
    for i in range(n_rows):
        row = values[i]
        n = n_top[i]
        floor, sure = row_floor(row, r, width, lanes, ranks)
        for t in range(n_classes):
            x = row[t]
            if x != x or (sure and x < floor) or (n == r and not (x > top[i, r - 1])):
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
def find_labels(labels: Any, first_row: int, offsets: Any, classes: Any, places: Any) -> None:
    """Write the place of each row's label among the listed scores of its row, -1 where it is not listed."""
    for i in range(offsets.size - 1):
        first = offsets[i]
        label = labels[first_row + i]
        place = np.int32(-1)
        for t in range(offsets[i + 1] - first):
            place = np.int32(t) if classes[_U(first + t)] == label else place
        places[first_row + i] = place


@njit(nogil=True, cache=True)
def rank_labels(
    values: Any, labels: Any, places: Any, first_row: int, offsets: Any, keys: Any, n_ranks: int, counts: Any
) -> None:
    """Count the labels by their rank in their row: 1 for the highest score, ties by class index.

    ``counts[r]`` grows for a label of rank r, its last place for all beyond ``n_ranks`` and for a
    label whose score is NaN, ``counts[0]`` for a negative label. The rows from ``first_row`` on have
    their scores down to some floor listed, with the labels at their ``places``: all that rank before a
    listed label are listed, and where a label is not listed but ``n_ranks`` others are, nothing more
    need be known.
    """
    n_classes = values.shape[1]
    for i in range(offsets.size - 1):
        label = labels[first_row + i]
        if label < 0:
            counts[0] += 1
            continue
        first, last = offsets[i], offsets[i + 1]
        place = places[first_row + i]
        higher = 0
        if place >= 0:
            mine = keys[first:last]
            key = mine[place]
            for t in range(mine.size):
                higher += mine[t] > key
            for t in range(place):
                higher += mine[t] == key
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


@njit(nogil=True, cache=True, inline="always")
def _find_zone(key: Any, floors: Any, starts: Any, lowest: Any, table_shift: Any) -> Any:
    """Give the zone of a key that is not below the last one."""
    start = (np.uint64(key) - lowest) >> table_shift
    zone = _U(starts[min(start, _U(starts.size - 1))])
    zone += _U(key < floors[zone])  # most often this, or not even this: no need to guess
    while key < floors[zone]:
        zone += _U(1)
    return zone


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
    first_row: int,
    n_events: int,
    events: Any,
) -> int:
    """Split each row's listed scores by intervals of keys, which descend and are disjoint.

    ``zones`` are the arrays of a ``ZoneTable``: zone 2 j is the gap above interval j, zone 2 j + 1
    the interval itself. ``above[i, j]`` becomes the number of scores of row i above interval j. A
    score inside an interval becomes an event, written behind the ``n_events`` there are: its
    interval, its key, its row (counted from ``first_row``), the number of the row's scores above the
    interval, its class, and whether that is the row's own label (negative: none). Every score is counted
    in the histogram of its zone; ``hits`` counts those of the labels. Gives the number of events.
    """
    floors, shifts, starts, table_shift = zones
    lowest = np.uint64(floors[-1])
    event_intervals, event_keys, event_rows, event_bases, event_classes, event_hits = events
    n_zones = floors.size
    last_bin = np.uint64(histogram.shape[1] - 1)
    counts = np.zeros(n_zones, np.int32)
    n = n_events
    for i in range(offsets.size - 1):
        label = labels[i]
        first = n
        for t in range(offsets[i], offsets[i + 1]):
            key = keys[_U(t)]
            zone = _find_zone(key, floors, starts, lowest, table_shift)
            counts[zone] += 1
            bin_ = (np.uint64(key) - np.uint64(floors[zone])) >> shifts[zone]
            histogram[zone, min(bin_, last_bin)] += 1
            if classes[_U(t)] == label:
                hits[zone] += 1
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
        for p in range(first, n):
            event_bases[p] = above[i, event_intervals[p]]
    return n


@njit(nogil=True, cache=True)
def scan_rows(
    tile: Any, first_row: int, listing: Any, events: Any, zones: Any, labels: Any, tallies: Any, ranking: Any
) -> Any:
    """Gather, rank and split the rows from ``first_row`` on, as many as their events have room, in one call.

    Every return to Python waits for its lock while other threads decode chunks, so there is one. Rows
    are listed a few at a time: what is listed stays in cache. Gives the row it stopped at, the
    number of NaN met, the flat place of the first (-1 for none), and the number of events.
    """
    values, bits, magnitude, floor = tile
    offsets, classes, keys, scratch = listing
    hard, places, n_ranks = labels
    rank_counts, above, histogram, hits = tallies
    ranked, width, missing = ranking
    n_events = 0
    n_nan = 0
    first_nan = -1
    row = first_row
    while row < values.shape[0] and n_events + keys.size <= events[0].size:
        stop, more_nan, nan = gather_above(
            values, bits, magnitude, floor, row, offsets, classes, keys, ranked, width, missing, scratch
        )
        if n_nan == 0:
            first_nan = nan
        n_nan += more_nan
        listed = offsets[: stop - row + 1]
        if n_ranks > 0:
            find_labels(hard, row, listed, classes, places)
            rank_labels(values, hard, places, row, listed, keys, n_ranks, rank_counts)
        n_events = split_rows(
            listed, keys, classes, zones, above[row:stop], histogram, hard[row:stop], hits, row, n_events, events
        )
        row = stop
    return row, n_nan, first_nan, n_events


@njit(nogil=True, cache=True)
def keep_rows(
    tile: Any, first_row: int, listing: Any, kept: Any, zones: Any, labels: Any, tallies: Any, ranking: Any
) -> Any:
    """Gather and rank the rows from ``first_row`` on, and keep the keys of all that is listed, while there is room.

    ``kept`` takes the keys of the rows, one after the other, and for each row their number; the place of its
    label among them goes to the labels' own. Gives the row it stopped at, the number of NaN met, the flat place of
    the first (-1 for none), and the number of keys.
    """
    values, bits, magnitude, floor = tile
    offsets, classes, keys, scratch = listing
    kept_keys, lengths = kept
    hard, places, n_ranks = labels
    rank_counts, histogram = tallies
    ranked, width, missing = ranking
    floors, shifts = zones[0], zones[1]
    first_zone = np.int64(zones[2][-1])  # 1 where nothing can lie above the interval
    last_bin = np.uint64(histogram.shape[1] - 1)
    n = 0
    n_nan = 0
    first_nan = -1
    row = first_row
    while row < values.shape[0] and n + keys.size <= kept_keys.size:
        stop, more_nan, nan = gather_above(
            values, bits, magnitude, floor, row, offsets, classes, keys, ranked, width, missing, scratch
        )
        if n_nan == 0:
            first_nan = nan
        n_nan += more_nan
        listed = offsets[: stop - row + 1]
        find_labels(hard, row, listed, classes, places)
        if n_ranks > 0:
            rank_labels(values, hard, places, row, listed, keys, n_ranks, rank_counts)
        for i in range(row, stop):
            lengths[i] = offsets[i - row + 1] - offsets[i - row]
        for t in range(offsets[stop - row]):
            key = keys[t]
            kept_keys[_U(n + t)] = key
            zone = max(first_zone, np.int64(key < floors[0]))  # the gap above, or the one interval
            bin_ = (np.uint64(key) - np.uint64(floors[zone])) >> shifts[zone]
            histogram[zone, min(bin_, last_bin)] += 1
        n += offsets[stop - row]
        row = stop
    return row, n_nan, first_nan, n


@njit(nogil=True, cache=True)
def count_sets(
    keys: Any,
    lengths: Any,
    label_places: Any,
    zones: Any,
    thresholds: Any,
    ties_left: Any,
    sizes: Any,
    hits: Any,
    kept_hits: Any,
) -> None:
    """Count the sets of several budgets by size; the intervals of ``zones`` are the thresholds, one key each.

    Budget b has the threshold of interval ``thresholds[b]``, which ascend. A row's set holds its scores above
    that and, while ``ties_left[b]`` are left, those at it, the first ones first. ``sizes[b, size]`` counts the
    rows, ``hits`` the labels in each zone, ``kept_hits[b]`` those among the ties taken.
    """
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
        place = first + label_places[i]
        if place >= first and keys[place] >= floors[-1]:
            label_zone = np.int64(_find_zone(np.int64(keys[place]), floors, starts, lowest, table_shift))
            hits[label_zone] += 1
            for t in range(first, place):
                before += keys[t] == keys[place]
        running = np.int32(0)
        for zone in range(_U(n_zones)):
            running += counts[zone]
            through[zone] = running
        if any_ties == 0:
            for b in range(_U(thresholds.size)):
                sizes[b, _U(through[_U(2 * thresholds[b])])] += 1
        else:
            for b in range(thresholds.size):
                zone_of_ties = 2 * thresholds[b] + 1
                taken = min(counts[zone_of_ties], ties_left[b])
                ties_left[b] -= taken
                sizes[b, through[zone_of_ties - 1] + taken] += 1
                kept_hits[b] += label_zone == zone_of_ties and before < taken
        counts[:] = 0
        first = last
