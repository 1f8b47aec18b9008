"""The compiled kernels again, in plain NumPy: the reference that the tests hold them to."""

from __future__ import annotations

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
) -> tuple[int, int, int]:
    """List the scores that are at least ``floor``, row by row, while there is room; rank the highest; count the NaN."""
    n_rows, n_classes = values.shape
    offsets[0] = n = n_nan = 0
    first_nan = -1
    for i in range(first_row, n_rows):
        if n + n_classes > keys.size:
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


def rank_labels(
    values: Any, labels: Any, first_row: int, offsets: Any, classes: Any, keys: Any, n_ranks: int, counts: Any
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
    event_keys: Any,
    event_rows: Any,
    event_sizes: Any,
    event_classes: Any,
) -> int:
    """Split each row's listed scores by descending, disjoint intervals into counts, bins and events."""
    floors, shifts = zones[0].tolist(), zones[1].tolist()
    n = 0
    for i in range(offsets.size - 1):
        row = keys[offsets[i] : offsets[i + 1]]
        names = classes[offsets[i] : offsets[i + 1]]
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
            mine = mine[np.argsort(~row[mine], kind="stable")]
            event = slice(n, n + mine.size)
            event_keys[event], event_classes[event] = row[mine], names[mine]
            event_rows[event] = i
            event_sizes[event] = above[i, zone // 2] + np.arange(1, mine.size + 1)
            n += mine.size
    return n


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


def add_exact(bits: Any, groups: Any, limbs: Any) -> None:
    """Add non-negative float64 values, given by their bits, to fixed-point sums of 32-bit limbs."""
    for value, group in zip(np.asarray(bits).view(np.float64).tolist(), groups, strict=True):
        numerator, denominator = value.as_integer_ratio()
        units = (numerator << 1074) // denominator
        exponent = max(int(np.float64(value).view(np.int64) >> 52) & 0x7FF, 1)
        limb = (exponent - 1) >> 5
        for step in range(3):
            limbs[group, limb + step] += (units >> (32 * (limb + step))) & 0xFFFFFFFF
