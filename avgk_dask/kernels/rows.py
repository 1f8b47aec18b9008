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

#: Lists shorter than this are sorted by insertion, which is linear on ties already in order.
_INSERTION = 48
#: Lanes come in multiples of this: whole vector registers.
LANES = 32
#: Lists up to this long are ordered by counting what is greater, longer ones by sorting.
_COUNTED = 192
_U = np.uint64


@intrinsic
def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """Give the number of trailing zero bits of a word that is not zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

    return types.uint64(types.uint64), generate


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
    flags = np.zeros((n_classes + 7) // 8 * 8, np.uint8)
    words = flags.view(np.uint64)
    busy = np.empty(words.size, np.int64)
    r = ranked.shape[1]
    lanes = np.empty(max(n_classes, 2 * width), values.dtype)
    near = np.zeros(n_classes + LANES, values.dtype)
    ranks = np.empty(n_classes + LANES, np.int32)
    ordered = np.empty(n_classes, values.dtype)
    taken = np.zeros(n_classes, np.bool_)
    n = 0
    n_nan = 0
    first_nan = -1
    offsets[0] = 0
    for i in range(first_row, n_rows):
        if n + n_classes > keys.size:
            return i, n_nan, first_nan
        row = values[i]
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
def scan_rows(tile: Any, first_row: int, buffers: Any, zones: Any, labels: Any, tallies: Any, ranking: Any) -> Any:
    """Gather, rank and split as many rows as fit the buffers, in one call.

    Every return to Python waits for its lock while other threads decode chunks, so there is one.
    """
    values, bits, magnitude, floor = tile
    offsets, classes, keys, event_keys, event_rows, event_sizes, event_classes = buffers
    hard, n_ranks = labels
    rank_counts, above, histogram, hits = tallies
    ranked, width, missing = ranking
    stop, n_nan, first_nan = gather_above(
        values, bits, magnitude, floor, first_row, offsets, classes, keys, ranked, width, missing
    )
    offsets = offsets[: stop - first_row + 1]
    if n_ranks > 0:
        rank_labels(values, hard, first_row, offsets, classes, keys, n_ranks, rank_counts)
    mine = hard[first_row:stop]
    n_events = split_rows(
        offsets, keys, classes, zones, above, histogram, mine, hits, event_keys, event_rows, event_sizes, event_classes
    )
    return stop, n_nan, first_nan, n_events
