"""Kernels that list the scores of rows from a floor up, find the labels, and count by zones of keys.

They ignore the scratch space that their compiled twins take.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .ranks import order_rows


def keys_from_bits(bits: Any, magnitude: Any) -> Any:
    """Return the keys of scores given by their bits: the integers themselves, or sign and magnitude of floats."""
    keys = bits.astype(np.int64)
    return np.where((keys < 0) & (magnitude != 0), -(keys & magnitude), keys)


def gather_above(tile: Any, first_row: int, listing: Any, ranking: Any) -> tuple[int, int, int]:
    """List the scores that are at least ``floor``, row by row, for as many rows as there is space.

    ``tile`` is (values, bits, magnitude, floor). The order key of an integer is the integer itself, and ``magnitude``
    is 0; that of a float is its sign and magnitude, and ``magnitude`` is the mask of all its bits but the sign.
    ``listing`` is (offsets, classes, keys, scratch): class and key of each listed score are written, those of the i-th
    row that is read from ``offsets[i]`` to ``offsets[i + 1]``. Stops before a row that might not fit. Returns the row
    it stopped at, the number of NaN met, and the flat index of the first one (-1 for none).

    ``ranking`` is (ranked, width, missing). Each row of ``ranked`` (rows x r, r may be 0) becomes the row's r highest
    scores in descending order, ``missing`` where NaN leave too few; ``width`` is the number of lanes for them.
    """
    (values, bits, magnitude, floor), (offsets, classes, keys, _), (ranked, _, missing) = tile, listing, ranking
    n_rows, n_classes = values.shape
    last = min(n_rows, first_row + offsets.size - 1)
    offsets[0] = n = n_nan = 0
    first_nan, row = -1, first_row
    while row < last and n + n_classes <= keys.size:
        # As many rows as would fit if all of their scores were listed.
        span = slice(row, min(last, row + (keys.size - n) // n_classes))
        listed_rows, listed = np.nonzero(values[span] >= floor)
        space = slice(n, n + listed.size)
        classes[space], keys[space] = listed, keys_from_bits(bits[span][listed_rows, listed], magnitude)
        counts = np.bincount(listed_rows, minlength=span.stop - row)
        offsets[row + 1 - first_row : span.stop + 1 - first_row] = n + np.cumsum(counts)
        if ranked.shape[1]:
            order_rows(values[span], missing, ranked[span])
        more_nan, nan = count_nan(values[span])
        first_nan = row * n_classes + nan if more_nan and not n_nan else first_nan
        n, n_nan, row = space.stop, n_nan + more_nan, span.stop
    return row, n_nan, first_nan


def count_nan(values: Any) -> tuple[int, int]:
    """Return the number of NaN and the flat index of the first one, -1 for none."""
    nan = np.flatnonzero(values != values)
    return nan.size, int(nan[0]) if nan.size else -1


def rows_of(offsets: Any) -> Any:
    """Return the row of each listed score."""
    return np.repeat(np.arange(offsets.size - 1), np.diff(offsets))


def find_labels(labels: Any, first_row: int, offsets: Any, classes: Any, indices: Any) -> None:
    """Write the index of each row's label among the listed scores of its row, -1 where it is not listed."""
    span = slice(first_row, first_row + offsets.size - 1)
    rows = rows_of(offsets)
    hits = np.flatnonzero(classes[offsets[0] : offsets[-1]] == labels[span][rows])
    indices[span] = -1
    indices[span][rows[hits]] = hits + offsets[0] - offsets[rows[hits]]


def ranks_in_rows(values: Any, labels: Any) -> tuple[Any, Any]:
    """Return how many scores of its row rank before each label, and whether its score is NaN."""
    own = np.take_along_axis(values, np.maximum(labels, 0).astype(np.int64)[:, None], 1)
    before = (values == own) & (np.arange(values.shape[1]) < labels[:, None])
    higher = np.count_nonzero(values > own, axis=1) + np.count_nonzero(before, axis=1)
    return higher, (own != own)[:, 0]


def rank_labels(
    values: Any, labels: Any, indices: Any, first_row: int, offsets: Any, keys: Any, n_ranks: int, ranks: Any
) -> None:
    """Write the rank of each row's label in its row: 1 for the highest score, ties by class index.

    It is ``n_ranks`` + 1 for all beyond ``n_ranks`` and for a label whose score is NaN, and 0 for a negative label. The
    scores of the rows from ``first_row`` on are listed down to some floor, with the labels at their ``indices``.
    """
    span = slice(first_row, first_row + offsets.size - 1)
    higher, is_nan = ranks_in_rows(values[span], labels[span])
    beyond = is_nan | (higher > n_ranks)
    ranks[span] = np.where(labels[span] < 0, 0, 1 + np.where(beyond, n_ranks, higher))


#: Numbers that are counted at a time.
_COUNTED = 1 << 18


def _zones_of(keys: Any, zones: Any) -> Any:
    """Return the zone of each key, an even number beyond all for those below the last."""
    floors, _, starts, _ = zones
    return np.maximum(starts[-1], floors.size - np.searchsorted(floors[::-1], keys, side="right"))


def _count_zones(keys: Any, zone_of: Any, zones: Any, histogram: Any) -> None:
    """Add keys to the histograms of their zones."""
    floors, shifts, _, _ = zones
    distances = keys.astype(np.int64).view(np.uint64) - floors.view(np.uint64)[zone_of]
    bins = np.minimum(distances >> shifts[zone_of], np.uint64(histogram.shape[1] - 1))
    np.add.at(histogram, (zone_of, bins.view(np.int64)), 1)


def split_rows(listed: Any, zones: Any, tallies: Any, labels: Any, first_row: int, n_events: int, events: Any) -> int:
    """Split each row's ``listed`` scores (keys, classes, offsets) by intervals of keys, which descend and are disjoint.

    ``zones`` are the arrays of a ``ZoneTable``: zone 2 j is the gap above interval j, zone 2 j + 1 the interval itself.
    ``tallies`` is (above, label_zones, histogram). ``above[i, j]`` becomes the number of scores of row i above interval
    j, ``label_zones[i]`` the zone of row i's label, one past the last where it is not listed, and every score is
    counted in the histogram of its zone. A score inside an interval becomes an event, written after the ``n_events``
    there are: its interval, its key, its row (counted from ``first_row``), the cell of the row's set above the interval
    (twice its size, and one more if the label is in it), its class, and whether that is the row's own label (negative:
    none). Returns the number of events.
    """
    (keys, classes, offsets), (above, label_zones, histogram) = listed, tallies
    span, n_zones = slice(offsets[0], offsets[-1]), zones[0].size
    zone_of, rows = _zones_of(keys[span], zones), rows_of(offsets)
    is_label = classes[span] == labels[rows]
    _count_zones(keys[span], zone_of, zones, histogram)
    label_zones[:] = n_zones
    label_zones[rows[is_label]] = zone_of[is_label]
    for part, counts in _zone_counts(offsets, zone_of, n_zones):
        above[part] = np.cumsum(counts, axis=1)[:, 0::2]
    inside = np.flatnonzero(zone_of % 2)
    row, j = rows[inside], zone_of[inside] // 2
    bases = 2 * above[row, j] + (label_zones[row] <= 2 * j)
    columns = j, keys[span][inside], first_row + row, bases, classes[span][inside], is_label[inside]
    for column, values in zip(events, columns, strict=True):
        column[n_events : n_events + inside.size] = values
    return n_events + int(inside.size)


def scan_rows(
    tile: Any, first_row: int, listing: Any, events: Any, zones: Any, labels: Any, tallies: Any, ranking: Any
) -> tuple[int, int, int, int]:
    """Gather, rank and split the rows from ``first_row`` on, while there is space for their events, in one call.

    Returns the row it stopped at, the number of NaN met, the flat index of the first (-1 for none), and the number of
    events.
    """
    values, (offsets, classes, keys, _) = tile[0], listing
    hard, indices, ranks, n_ranks = labels
    above, label_zones, histogram = tallies
    row, n_nan, first_nan, n_events = first_row, 0, -1, 0
    while row < values.shape[0] and n_events + keys.size <= events[0].size:
        stop, more_nan, nan = gather_above(tile, row, listing, ranking)
        first_nan = first_nan if n_nan else nan
        n_nan += more_nan
        listed, span = offsets[: stop - row + 1], slice(row, stop)
        if n_ranks > 0:
            find_labels(hard, row, listed, classes, indices)
            rank_labels(values, hard, indices, row, listed, keys, n_ranks, ranks)
        to = above[span], label_zones[span], histogram
        n_events = split_rows((keys, classes, listed), zones, to, hard[span], row, n_events, events)
        row = stop
    return row, n_nan, first_nan, n_events


def hold_rows(
    tile: Any, first_row: int, listing: Any, held: Any, zones: Any, labels: Any, histogram: Any, ranking: Any
) -> tuple[int, int, int, int]:
    """Gather and rank the rows from ``first_row`` on, and keep the keys of all that is listed, while there is space.

    The arrays of ``held`` take the keys, row after row, and the number of keys of each row; the second and third one of
    ``labels`` take the index of each row's label among its keys, and its rank. Returns the row it stopped at, the
    number of NaN met, the flat index of the first (-1 for none), and the number of keys.
    """
    values, (offsets, classes, keys, _) = tile[0], listing
    held_keys, lengths = held
    hard, indices, ranks, n_ranks = labels
    row, n_nan, first_nan, n = first_row, 0, -1, 0
    while row < values.shape[0] and n + keys.size <= held_keys.size:
        stop, more_nan, nan = gather_above(tile, row, listing, ranking)
        first_nan = first_nan if n_nan else nan
        n_nan += more_nan
        listed = offsets[: stop - row + 1]
        find_labels(hard, row, listed, classes, indices)
        if n_ranks > 0:
            rank_labels(values, hard, indices, row, listed, keys, n_ranks, ranks)
        lengths[row:stop] = np.diff(listed)
        listed_keys = keys[: listed[-1]]
        held_keys[n : n + listed_keys.size] = listed_keys
        _count_zones(listed_keys, _zones_of(listed_keys, zones), zones, histogram)
        n += listed_keys.size
        row = stop
    return row, n_nan, first_nan, n


def count_sets(rows: Any, zones: Any, thresholds: Any, ties_left: Any, cells: Any, hits: Any, by_stratum: Any) -> None:
    """Count the sets of several budgets by cell and stratum; the intervals of ``zones`` are the thresholds.

    The threshold of budget b is interval ``thresholds[b]``; these numbers ascend. A row's set holds its scores
    above the threshold and, from the first on, those at it, as long as ``ties_left[b]`` is not used up.
    ``cells[b, c]`` counts the rows of cell c: twice the size of the set, and one more if the label is in it. ``hits``
    counts the labels in each zone. Row i is of stratum ``strata[i]``: ``stratum_sizes[stratum, b]`` adds up the sizes
    of its rows' sets, ``stratum_hits[stratum, b]`` counts those with the label.
    """
    (keys, lengths, label_indices), (strata, stratum_sizes, stratum_hits) = rows, by_stratum
    offsets, n_zones = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), zones[0].size
    zone_of = _zones_of(keys, zones)
    label_zones, before = _label_zones(offsets, keys, zone_of, label_indices, n_zones)
    hits += np.bincount(label_zones, minlength=n_zones + 1)[:n_zones]
    gap = 2 * thresholds
    budgets = np.arange(thresholds.size)
    for part, counts in _zone_counts(offsets, zone_of, n_zones, thresholds.size):
        through, ties = np.cumsum(counts, axis=1)[:, gap], counts[:, gap + 1]
        used = np.cumsum(ties, axis=0)
        taken = np.clip(ties_left - (used - ties), 0, ties)
        ties_left -= taken.sum(0)
        zone = label_zones[part, None]
        hit = (zone <= gap) | ((zone == gap + 1) & (before[part, None] < taken))
        sizes = through + taken
        np.add.at(cells, (np.broadcast_to(budgets, sizes.shape), 2 * sizes + hit), 1)
        np.add.at(stratum_sizes, strata[part], sizes)
        np.add.at(stratum_hits, strata[part], hit)


def _label_zones(offsets: Any, keys: Any, zone_of: Any, label_indices: Any, n_zones: int) -> tuple[Any, Any]:
    """Return the zone of each row's label, one past the last if in none, and the equal keys before it in its row."""
    rows = np.flatnonzero(label_indices >= 0)
    places = offsets[rows] + label_indices[rows]
    label_zones = np.full(label_indices.size, n_zones)
    label_zones[rows] = np.minimum(zone_of[places], n_zones)
    row = rows_of(offsets)
    own, place = np.zeros(label_indices.size, keys.dtype), np.zeros(label_indices.size, np.int64)
    own[rows], place[rows] = keys[places], places
    equal = (keys == own[row]) & (np.arange(keys.size) < place[row])
    return label_zones, np.bincount(row[equal], minlength=label_indices.size)


def _zone_counts(offsets: Any, zone_of: Any, n_zones: int, n_more: int = 0) -> Iterator[tuple[slice, Any]]:
    """Yield stretches of rows, and how many scores each of their rows has in each zone."""
    n_rows = offsets.size - 1
    step = max(1, _COUNTED // (n_zones + n_more))
    for first in range(0, n_rows, step):
        part = offsets[first : first + step + 1]
        zone = zone_of[part[0] - offsets[0] : part[-1] - offsets[0]]
        n, inside = part.size - 1, zone < n_zones
        places = (rows_of(part) * n_zones + zone)[inside]
        yield slice(first, first + n), np.bincount(places, minlength=n * n_zones).reshape(n, n_zones)


def add_strata(above: Any, label_zones: Any, strata: Any, sizes: Any, hits: Any) -> None:
    """Add up the scores above each interval, and the labels there, by the stratum of each row.

    ``above`` and ``label_zones`` are as ``split_rows`` writes them; ``sizes[stratum, j]`` and ``hits[stratum, j]``
    grow.
    """
    np.add.at(sizes, strata, above)
    np.add.at(hits, strata, label_zones[:, None] <= 2 * np.arange(above.shape[1]))


def measure_sets(
    keys: Any, lengths: Any, label_indices: Any, thresholds: Any, ties_left: Any, sizes: Any, hits: Any
) -> None:
    """Write the size of each row's set for each threshold, a key, and whether it holds the row's label.

    A set holds the scores above the threshold and, from the first on, those at it, as long as ``ties_left[b]`` is not
    used up. ``sizes`` and ``hits`` have a row for each row, and a column for each threshold.
    """
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    rows, labelled = rows_of(offsets), np.flatnonzero(label_indices >= 0)
    hits[:] = False
    for b, key in enumerate(thresholds.tolist()):
        inside = keys > key
        ties = np.flatnonzero(keys == key)[: ties_left[b]]
        ties_left[b] -= ties.size
        inside[ties] = True
        sizes[:, b] = np.bincount(rows[inside], minlength=lengths.size)
        hits[labelled, b] = inside[offsets[labelled] + label_indices[labelled]]
