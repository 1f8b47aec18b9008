"""Compiled kernels that count: bits of numbers, the events that a scan holds, keys by group, and scores at given keys.

The docstrings are in ``kernels/numpy``. All kernels release the GIL and use one thread, since Dask uses the cores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic


@intrinsic
def _leading_zeros(typing_context: Any, word: Any) -> Any:
    """Return the number of leading zero bits of a word, 64 for zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], context.get_constant(types.boolean, False))

    return types.uint64(types.uint64), generate


@njit(nogil=True, cache=True)
def count_apart(bins: Any, counts: Any) -> None:
    for t in range(1, bins.size):
        counts[64 - _leading_zeros(np.uint64(np.int64(bins[t]) ^ np.int64(bins[t - 1])))] += 1


@njit(nogil=True, cache=True)
def join_bins(
    bins: Any, order: Any, sums: Any, old_shift: int, shift: int, low_bits: int, new_bins: Any, new_sums: Any
) -> int:
    n = -1
    mask = (np.int64(1) << low_bits) - 1
    for t in range(bins.size):
        first = np.int64(bins[t]) << old_shift
        bin_ = first >> shift
        moved = first - (bin_ << shift)
        if n < 0 or new_bins[n] != bin_:
            n += 1
            new_bins[n] = bin_
            new_sums[0, n] = new_sums[1, n] = new_sums[2, n] = 0
        count = np.int64(1)
        if order.size:
            mine = order[t]
            count = sums[0, mine]
            new_sums[1, n] += sums[1, mine]
            new_sums[2, n] += sums[2, mine]
        new_sums[0, n] += count
        new_sums[1, n] += (moved & mask) * count
        new_sums[2, n] += (moved >> low_bits) * count
    return n + 1


@njit(nogil=True, cache=True)
def half_keys(bits: Any, infinity: Any, nan: Any, keys: Any) -> None:
    for t in range(bits.size):
        magnitude = bits[t] & np.int16(0x7FFF)
        key = -magnitude if bits[t] < 0 else magnitude
        keys[t] = nan if magnitude > infinity else key


@njit(nogil=True, cache=True)
def count_bins(keys: Any, base: Any, shift: Any, histogram: Any) -> None:
    last = np.uint64(histogram.size - 1)
    for t in range(keys.size):
        if keys[t] < base:
            histogram[0] += 1
        else:
            bin_ = (np.uint64(keys[t]) - np.uint64(base)) >> np.uint64(shift)
            histogram[min(bin_, last)] += 1


@njit(nogil=True, cache=True)
def count_cells(above: Any, label_zones: Any, counts: Any) -> None:
    for i in range(above.shape[0]):
        for j in range(above.shape[1]):
            counts[j, 2 * above[i, j] + (label_zones[i] <= 2 * j)] += 1


@njit(nogil=True, cache=True)
def add_exact(bits: Any, groups: Any, limbs: Any) -> None:
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


#: Runs of a row up to this long are ordered by counting the greater ones, longer ones by sorting.
_COUNTED = 192


@njit(nogil=True, cache=True)
def step_events(starts: Any, keys: Any, rows: Any, bases: Any, hits: Any, steps: Any) -> None:
    for j in range(starts.size - 1):
        first = starts[j]
        while first < starts[j + 1]:
            last = first + 1
            tied = True
            while last < starts[j + 1] and rows[last] == rows[first]:
                tied &= keys[last] == keys[first]
                last += 1
            base = bases[first] >> 1
            if tied:
                for t in range(first, last):
                    steps[t] = base + 1 + t - first
            elif last - first > _COUNTED:
                order = np.argsort(~keys[first:last], kind="mergesort")
                for t in range(order.size):
                    steps[first + order[t]] = base + 1 + t
            else:
                for t in range(first, last):
                    size = base + 1
                    for u in range(first, last):
                        size += keys[u] > keys[t] or (keys[u] == keys[t] and u < t)
                    steps[t] = size
            hit_from = base if bases[first] & 1 else np.iinfo(np.int64).max
            for t in range(first, last):
                if hits[t]:
                    hit_from = steps[t]
            for t in range(first, last):
                steps[t] = 4 * steps[t] + 2 * (hits[t] != 0) + (steps[t] >= hit_from)
            first = last


@njit(nogil=True, cache=True)
def group_order(groups: Any, starts: Any, order: Any) -> None:
    starts[:] = 0
    for t in range(groups.size):
        starts[groups[t] + 1] += 1
    for g in range(1, starts.size):
        starts[g] += starts[g - 1]
    next_index = starts.copy()
    for t in range(groups.size):
        order[next_index[groups[t]]] = t
        next_index[groups[t]] += 1


@njit(nogil=True, cache=True)
def move_cells(keys: Any, rows_of: Any, bases: Any, hits: Any, key: int, n_ties: int, changes: Any) -> None:
    left = n_ties
    first = 0
    while first < keys.size:
        base = bases[first]
        cell = base
        t = first
        while t < keys.size and rows_of[t] == rows_of[first]:
            tie = keys[t] == key and left > 0
            left -= tie
            if tie or keys[t] > key:
                cell += 2 + (hits[t] != 0)
            t += 1
        if not 0 <= base <= cell < changes.size:  # the file is forged
            raise IndexError("a set has more labels than there are classes")
        changes[base] -= 1
        changes[cell] += 1
        first = t


@njit(nogil=True, cache=True)
def collect_near(keys: Any, base: Any, shift: Any, wanted: Any, near: Any) -> int:
    n = 0
    last = np.uint64(wanted.size - 1)
    for t in range(keys.size):
        key = np.int64(keys[t])
        stretch = (np.uint64(key) - np.uint64(base)) >> np.uint64(shift)
        near[n] = key
        n += wanted[min(stretch, last)] & np.uint8(key >= base)
    return n


@njit(nogil=True, cache=True)
def find_brackets(keys: Any, lengths: Any, groups: Any, samples: Any, starts: Any, bounds: Any, brackets: Any) -> None:
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
            brackets[t] = low if low >= first and key <= highs[low] and sample <= lasts[low] else -1
            t += 1


@njit(nogil=True, cache=True)
def scatter_rows(
    keys: Any, lengths: Any, label_indices: Any, groups: Any, nexts: Any, scattered: Any, places: Any
) -> None:
    t = 0
    for r in range(lengths.size):
        place = nexts[groups[r]]
        places[r] = place + label_indices[r] if label_indices[r] >= 0 else -1
        for j in range(lengths[r]):
            scattered[place + j] = keys[t + j]
        t += lengths[r]
        nexts[groups[r]] += lengths[r]


@njit(nogil=True, cache=True)
def _find_edge(edges: Any, starts: Any, shift: Any, key: Any) -> Any:
    """Return the number of ascending edges below a key; ``starts[i]`` is that below the i-th stretch of ``2**shift`` keys."""
    if key <= edges[0]:
        return 0
    stretch = (np.uint64(key) - np.uint64(edges[0])) >> shift
    if stretch >= np.uint64(starts.size - 1):
        low, high = starts[starts.size - 1], edges.size
    else:
        low, high = starts[stretch], starts[stretch + np.uint64(1)]
    while low < high:
        middle = (low + high) // 2
        if edges[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low


@njit(nogil=True, cache=True)
def count_at_edges(
    values: Any, bits: Any, magnitude: Any, edges: Any, starts: Any, shift: Any, labels: Any, counts: Any, orders: Any
) -> tuple[int, int]:
    n_rows, n_classes = values.shape
    n_nan = 0
    first_nan = -1
    last = edges.size - 1
    for i in range(n_rows):
        label = labels[i]
        for t in range(n_classes):
            if values[i, t] != values[i, t]:
                if n_nan == 0:
                    first_nan = i * n_classes + t
                n_nan += 1
                continue
            key = np.int64(bits[i, t])
            if key < 0 and magnitude != 0:
                key = -(key & magnitude)
            j = _find_edge(edges, starts, shift, key)
            cell = 2 * j
            if j <= last and edges[j] == key:
                cell += 1
            if t == label:
                orders[i] = counts[cell]
            counts[cell] += 1
    return n_nan, first_nan


@njit(nogil=True, cache=True)
def count_spaced(values: Any, bits: Any, magnitude: Any, ends: Any, spacing: Any, counts: Any) -> tuple[int, int]:
    n_rows, n_classes = values.shape
    first, last = np.int64(ends[0]), np.int64(ends[1])
    highest = counts.size - 1
    n_nan = 0
    first_nan = -1
    for i in range(n_rows):
        for t in range(n_classes):
            if values[i, t] != values[i, t]:
                if n_nan == 0:
                    first_nan = i * n_classes + t
                n_nan += 1
                continue
            key = np.int64(bits[i, t])
            if key < 0 and magnitude != 0:
                key = -(key & magnitude)
            if key < first:
                counts[0] += 1
            elif key >= last:
                counts[highest] += 1
            else:
                counts[np.uint64(1) + ((np.uint64(key) - np.uint64(first)) >> spacing)] += 1
    return n_nan, first_nan


@njit(nogil=True, cache=True)
def rank_in_row(values: Any, labels: Any, ranks: Any) -> tuple[int, int]:
    n_rows, n_classes = values.shape
    n_nan = 0
    first_nan = -1
    for i in range(n_rows):
        row = values[i]
        n_here = 0
        for t in range(n_classes):
            n_here += row[t] != row[t]
        if n_here > 0 and n_nan == 0:
            first_nan = 0
            while row[first_nan] == row[first_nan]:
                first_nan += 1
            first_nan += i * n_classes
        n_nan += n_here
        label = labels[i]
        if label < 0:
            ranks[i] = 0
            continue
        x = row[label]
        rank = 1
        for t in range(n_classes):
            rank += row[t] > x
        for t in range(label):
            rank += row[t] == x
        ranks[i] = rank if x == x else n_classes + 1
    return n_nan, first_nan
