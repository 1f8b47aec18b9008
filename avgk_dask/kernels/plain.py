"""The compiled kernels again, in plain NumPy: the reference that the tests hold them to."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np


def half_keys(bits: Any, infinity: Any, nan: Any, keys: Any) -> None:
    """Write the 16-bit keys of half floats, given by their bits: sign and magnitude, NaN as ``nan``."""
    magnitude = bits & np.int16(0x7FFF)
    keys[:] = np.where(magnitude > infinity, nan, np.where(bits < 0, -magnitude, magnitude))


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
) -> tuple[int, int, int]:
    """List the scores that are at least ``floor``, row by row, while there is room; rank the highest; count the NaN."""
    n_rows, n_classes = values.shape
    offsets[0] = n = n_nan = 0
    first_nan = -1
    for i in range(first_row, n_rows):
        if n + n_classes > keys.size or i - first_row == offsets.size - 1:
            return i, n_nan, first_nan
        mine = np.flatnonzero(values[i] >= floor)
        found = bits[i, mine].astype(np.int64)
        classes[n : n + mine.size] = mine
        keys[n : n + mine.size] = np.where((found < 0) & (magnitude != 0), -(found & magnitude), found)
        n += mine.size
        offsets[i + 1 - first_row] = n
        real = np.sort(values[i][values[i] == values[i]])[::-1][: ranked.shape[1]]
        ranked[i, : real.size], ranked[i, real.size :] = real, missing
        nan = np.flatnonzero(values[i] != values[i])
        if nan.size and not n_nan:
            first_nan = i * n_classes + int(nan[0])
        n_nan += nan.size
    return n_rows, n_nan, first_nan


def find_labels(labels: Any, first_row: int, offsets: Any, classes: Any, places: Any) -> None:
    """Write the place of each row's label among the listed scores of its row, -1 where it is not listed."""
    for i, (first, last) in enumerate(pairwise(offsets.tolist()), first_row):
        found = np.flatnonzero(classes[first:last] == labels[i])
        places[i] = found[-1] if found.size else -1


def rank_labels(
    values: Any, labels: Any, places: Any, first_row: int, offsets: Any, keys: Any, n_ranks: int, counts: Any
) -> None:
    """Count the labels by their rank in their row; what is listed is not needed here."""
    for i in range(first_row, first_row + offsets.size - 1):
        if labels[i] < 0:
            counts[0] += 1
            continue
        row, x = values[i], values[i, labels[i]]
        higher = n_ranks if x != x else int((row > x).sum() + (row[: labels[i]] == x).sum())
        counts[min(higher, n_ranks) + 1] += 1


def rank_top(values: Any, first_class: int, top: Any, classes: Any, n_top: Any, width: int) -> None:
    """Insert a slab's scores into each row's running list of its highest ones, in rank order."""
    r = top.shape[1]
    for i, row in enumerate(values):
        real = np.flatnonzero(row == row)
        scores = np.concatenate([top[i, : n_top[i]], row[real]])
        names = np.concatenate([classes[i, : n_top[i]], first_class + real])
        ascending = np.argsort(scores[::-1], kind="stable")
        order = (scores.size - 1 - ascending[::-1])[:r]
        n_top[i] = order.size
        top[i, : order.size], classes[i, : order.size] = scores[order], names[order]


def count_bins(keys: Any, base: int, shift: int, histogram: Any) -> None:
    """Add the keys to a histogram of ``2**shift`` keys a bin from ``base`` up, ends clipped."""
    for key in keys.tolist():
        histogram[min(max(key - int(base), 0) >> int(shift), histogram.size - 1)] += 1


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
    """Split each row's listed scores by descending, disjoint intervals into counts, bins and events."""
    floors, shifts = zones[0].tolist(), zones[1].tolist()
    n = n_events
    for i in range(offsets.size - 1):
        row = keys[offsets[i] : offsets[i + 1]]
        names = classes[offsets[i] : offsets[i + 1]]
        zone_of = np.zeros(row.size, np.int64)
        ceiling = np.inf
        for zone, (low, shift) in enumerate(zip(floors, shifts, strict=True)):
            if zone < zones[2][-1]:  # no key starts in this zone
                above[i, zone // 2] = 0
                continue
            mine = np.flatnonzero([low <= key < ceiling for key in row.tolist()])
            ceiling = low
            count_bins(row[mine], low, shift, histogram[zone])
            hits[zone] += (names[mine] == labels[i]).sum()
            if zone % 2 == 0:
                above[i, zone // 2] = (row >= low).sum()
                continue
            zone_of[mine] = zone
        mine = np.flatnonzero(zone_of % 2)
        j = zone_of[mine] // 2
        found = j, row[mine], first_row + i, above[i, j], names[mine], names[mine] == labels[i]
        for column, part in zip(events, found, strict=True):
            column[n : n + mine.size] = part
        n += mine.size
    return n


def size_events(starts: Any, keys: Any, rows: Any, bases: Any, sizes: Any) -> None:
    """Give for each event the size of its row's set once it is in."""
    for first, last in pairwise(starts.tolist()):
        for t in range(first, last):
            row = np.flatnonzero(rows[first:last] == rows[t]) + first
            sizes[t] = bases[t] + 1 + (keys[row] > keys[t]).sum() + (keys[row[row < t]] == keys[t]).sum()


def group_order(groups: Any, starts: Any, order: Any) -> None:
    """Order items by their group, stably."""
    order[:] = np.argsort(groups, kind="stable")
    starts[:] = np.concatenate([[0], np.cumsum(np.bincount(groups, minlength=starts.size - 1))])


def move_sizes(keys: Any, places: Any, bases: Any, key: int, n_ties: int, changes: Any) -> None:
    """Take the events above ``key``, and the first ``n_ties`` at it, into the sets."""
    inside = keys > key
    inside[np.flatnonzero(keys == key)[:n_ties]] = True
    for place in np.unique(places):
        mine = places == place
        changes[bases[mine][0]] -= 1
        changes[bases[mine][0] + inside[mine].sum(dtype=int)] += 1


def collect_near(keys: Any, base: int, shift: int, wanted: Any, found: Any) -> int:
    """Collect the keys whose run of ``2**shift`` keys, counted from ``base``, is wanted; give how many they are."""
    runs = [(key - int(base)) >> int(shift) for key in keys.tolist()]
    mine = np.flatnonzero([run >= 0 and wanted[min(run, wanted.size - 1)] for run in runs])
    found[: mine.size] = keys[mine]
    return mine.size


def _zones_of(keys: Any, zones: Any) -> Any:
    """Give the zone of each key, an even number beyond all for those below the last."""
    floors = zones[0].tolist()
    return np.array([sum(key < floor for floor in floors) for key in keys.tolist()], np.int64)


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
    """Count the sets of several budgets by size; the intervals of ``zones`` are the thresholds, one key each."""
    ends = np.cumsum(lengths)
    for i, (first, last) in enumerate(zip(ends - lengths, ends, strict=True)):
        zone_of = _zones_of(keys[first:last], zones)
        place = label_places[i]
        if place >= 0 and zone_of[place] < zones[0].size:
            hits[zone_of[place]] += 1
        for b, j in enumerate(thresholds.tolist()):
            ties = np.flatnonzero(zone_of == 2 * j + 1)
            taken = ties[: ties_left[b]]
            ties_left[b] -= taken.size
            sizes[b, (zone_of < 2 * j + 1).sum() + taken.size] += 1
            kept_hits[b] += place in taken.tolist()


def count_lower(a: Any, b: Any, below: Any, above: Any) -> int:
    """Count, for two ascending columns, the b below each a and the a above each b; give the number of pairs."""
    below[:] = np.searchsorted(b, a, side="left")
    above[:] = a.size - np.searchsorted(a, b, side="right")
    return int(below.sum())


def add_products(keys: Any, counts: Any, mantissa_bits: int, base: int, runs: Any, sums: Any) -> int:
    """Sum mantissa times count over an ascending column of keys, exactly, by runs of one exponent."""
    found: dict[tuple[int, int], list[int]] = {}
    for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
        sign, exponent, mantissa = 1, 0, key - int(base)
        if mantissa_bits:
            sign = -1 if key < 0 else 1
            exponent, mantissa = divmod(abs(key), 1 << mantissa_bits)
            mantissa += (1 << mantissa_bits) if exponent else 0
        halves = found.setdefault((sign, exponent), [0, 0, 0, 0])
        for place, part in enumerate(((mantissa & 0xFFFFFFFF) * count, (mantissa >> 32) * count)):
            halves[2 * place] += part & 0xFFFFFFFF
            halves[2 * place + 1] += part >> 32
    for n, (run, halves) in enumerate(found.items()):
        runs[n], sums[n] = run, halves
    return len(found)


def place_scores(
    values: Any, bits: Any, magnitude: Any, edges: Any, starts: Any, shift: Any, labels: Any, counts: Any, orders: Any
) -> tuple[int, int]:
    """Count the scores between and at ascending edges, and how many equal ones come before each label's."""
    found = bits.astype(np.int64)
    keys = np.where((found < 0) & (magnitude != 0), -(found & magnitude), found)
    for i, row in enumerate(keys.tolist()):
        for t, key in enumerate(row):
            if values[i, t] != values[i, t]:
                continue
            j = int(np.searchsorted(edges, key))
            place = 2 * j + (j < edges.size and int(edges[j]) == key)
            if t == labels[i]:
                orders[i] = counts[place]
            counts[place] += 1
    return _nan_places(values)


def rank_in_row(values: Any, labels: Any, ranks: Any) -> tuple[int, int]:
    """Write each label's rank in its row; count the NaN."""
    for i, (row, label) in enumerate(zip(values, labels.tolist(), strict=True)):
        x = row[label]
        rank = values.shape[1] + 1 if x != x else 1 + int((row > x).sum() + (row[:label] == x).sum())
        ranks[i] = 0 if label < 0 else rank
    return _nan_places(values)


def _nan_places(values: Any) -> tuple[int, int]:
    nan = np.flatnonzero(values != values)
    return nan.size, int(nan[0]) if nan.size else -1


def count_apart(bins: Any, counts: Any) -> None:
    """Count the neighbours among ascending numbers by the number of bits up to the highest in which they differ."""
    for a, b in pairwise(bins.tolist()):
        counts[((a ^ b) & (2**64 - 1)).bit_length()] += 1


def join_bins(
    bins: Any, order: Any, sums: Any, old_shift: int, shift: int, low_bits: int, new_bins: Any, new_sums: Any
) -> int:
    """Join ascending bins of ``2**old_shift`` keys into bins of ``2**shift``; give their number."""
    firsts = [b << old_shift for b in bins.tolist()]
    names = sorted({first >> shift for first in firsts})
    for n, name in enumerate(names):
        mine = [t for t, first in enumerate(firsts) if first >> shift == name]
        new_bins[n], new_sums[:, n] = name, 0
        for t in mine:
            count, low, high = sums[:, order[t]].tolist() if order.size else (1, 0, 0)
            moved = firsts[t] - (name << shift)
            new_sums[:, n] += [count, low + moved % 2**low_bits * count, high + (moved >> low_bits) * count]
    return len(names)


def count_columns(numbers: Any, counts: Any) -> None:
    """Count the numbers in each column: ``counts[column, number]``."""
    for j, column in enumerate(numbers.T):
        counts[j] += np.bincount(column, minlength=counts.shape[1])


def add_exact(bits: Any, groups: Any, limbs: Any) -> None:
    """Add non-negative float64 values, given by their bits, to fixed-point sums of 32-bit limbs."""
    for value, group in zip(np.asarray(bits).view(np.float64).tolist(), groups, strict=True):
        numerator, denominator = value.as_integer_ratio()
        units = (numerator << 1074) // denominator
        exponent = max(int(np.float64(value).view(np.int64) >> 52) & 0x7FF, 1)
        limb = (exponent - 1) >> 5
        for step in range(3):
            limbs[group, limb + step] += (units >> (32 * (limb + step))) & 0xFFFFFFFF
