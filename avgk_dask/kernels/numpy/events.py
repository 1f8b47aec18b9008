"""Kernels that count: bits, bins, cells, the events that a scan holds, keys by group, and scores at given keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from .ranks import runs_of
from .rows import count_nan, keys_from_bits, ranks_in_rows

#: The least numbers of 1, 2, 3 ... bits.
_POWERS = np.uint64(1) << np.arange(64, dtype=np.uint64)


def count_apart(bins: Any, counts: Any) -> None:
    """Count the neighbours among ascending numbers by the number of bits up to the highest in which they differ."""
    wide = bins.astype(np.int64).view(np.uint64)
    counts += np.bincount(np.searchsorted(_POWERS, wide[1:] ^ wide[:-1], side="right"), minlength=counts.size)


def join_bins(
    bins: Any, order: Any, sums: Any, old_shift: int, shift: int, low_bits: int, new_bins: Any, new_sums: Any
) -> int:
    """Join ascending bins of ``2**old_shift`` keys into bins of ``2**shift``; return their number.

    The three rows of ``sums`` are the number of keys in a bin, and the sums of the low bits and of the remaining
    bits of (key - first key of the bin); column ``order[t]`` is that of bin t. With an empty ``order``, each bin is
    one key.
    """
    first = bins.astype(np.int64) << np.int64(old_shift)
    joined = first >> np.int64(shift)
    moved = first - (joined << np.int64(shift))
    starts, _ = runs_of(joined)
    ordered = sums[:, order] if order.size else np.array([[1], [0], [0]]) * np.ones(bins.size, np.int64)
    more = np.stack([np.zeros_like(moved), moved & ((1 << low_bits) - 1), moved >> np.int64(low_bits)]) * ordered[0]
    n = int(starts.size)
    new_bins[:n] = joined[starts]
    if n:
        new_sums[:, :n] = np.add.reduceat(ordered + more, starts, axis=1)
    return n


def half_keys(bits: Any, infinity: Any, nan: Any, keys: Any) -> None:
    """Write the 16-bit keys of half floats, given by their bits: sign and magnitude, NaN as ``nan``."""
    magnitude = bits & np.int16(0x7FFF)
    keys[:] = np.where(magnitude > infinity, nan, np.where(bits < 0, -magnitude, magnitude))


def stretch_numbers(keys: Any, base: Any, shift: Any) -> Any:
    """Return in which stretch of ``2**shift`` keys from ``base`` up each key lies; those below ``base`` are in none."""
    distances = keys.astype(np.int64).view(np.uint64) - np.uint64(int(base) % 2**64)
    return distances >> np.uint64(shift)


def count_bins(keys: Any, base: Any, shift: Any, histogram: Any) -> None:
    """Add keys to a histogram of ``2**shift`` keys per bin, from ``base`` up; keys beyond an end go to the bin there."""
    bins = np.minimum(stretch_numbers(keys, base, shift), np.uint64(histogram.size - 1))
    np.add.at(histogram, np.where(keys < base, 0, bins).astype(np.int64), 1)


def count_cells(above: Any, label_zones: Any, counts: Any) -> None:
    """Count the cells of rows with their scores above each interval: ``counts[interval, cell]``.

    ``above`` and ``label_zones`` are as ``split_rows`` writes them. A cell is twice the size, and one more if the label
    is in.
    """
    for j, column in enumerate(above.T):
        counts[j] += np.bincount(2 * column + (label_zones <= 2 * j), minlength=counts.shape[1])


def add_exact(bits: Any, groups: Any, limbs: Any) -> None:
    """Add non-negative float64 values, given by their bits, to fixed-point sums of 32-bit limbs.

    ``limbs[g]`` counts units of 2**-1074 in base 2**32, least first; a limb takes 2**31 additions
    before it could overflow.
    """
    exponents = bits >> 52 & 0x7FF
    mantissas = (bits & 0xFFFFFFFFFFFFF) + (np.minimum(exponents, 1) << 52)  # without a leading bit if not normal
    first, shifts = np.divmod(np.maximum(exponents, 1) - 1, 32)
    low, high = (part.view(np.uint64) << shifts.view(np.uint64) for part in (mantissas & 0xFFFFFFFF, mantissas >> 32))
    half, by = np.uint64(0xFFFFFFFF), np.uint64(32)
    for limb, part in enumerate((low & half, (low >> by) + (high & half), high >> by)):
        np.add.at(limbs, (groups, first + limb), part.view(np.int64))


def step_events(starts: Any, keys: Any, rows: Any, bases: Any, hits: Any, steps: Any) -> None:
    """Write for each event its step: four times the size of its row's set once it is in, 2 more if it is the label, and 1
    more if the label is in the set then.

    Higher keys come first, equal ones in order. The events of interval j are those from ``starts[j]`` to
    ``starts[j + 1]``, row by row; ``bases`` are the cells of their rows before them.
    """
    intervals = np.repeat(np.arange(starts.size - 1), np.diff(starts))
    span = slice(starts[0], starts[-1])
    firsts, stretch = runs_of(rows[span], intervals)
    descending = np.lexsort((~keys[span], stretch))
    is_label = hits[span][descending] != 0
    n_labels, base = np.cumsum(is_label), bases[span][firsts][stretch]
    before = (n_labels[firsts] - is_label[firsts])[stretch]  # labels of earlier rows
    inside = (base & 1) | (n_labels > before)
    sizes = (base >> 1) + 1 + np.arange(stretch.size) - firsts[stretch]
    steps[span][descending] = 4 * sizes + 2 * is_label + inside


def group_order(groups: Any, starts: Any, order: Any) -> None:
    """Order items by their group, stably: ``starts[g]`` becomes where group g starts in ``order``."""
    order[:] = np.argsort(groups, kind="stable")
    starts[:] = np.concatenate([[0], np.cumsum(np.bincount(groups, minlength=starts.size - 1))])


def move_cells(keys: Any, rows_of: Any, bases: Any, hits: Any, key: int, n_ties: int, changes: Any) -> None:
    """Take the events above ``key``, and the first ``n_ties`` at it, into the sets.

    The events of a row are adjacent. ``changes[cell]`` is the change of the number of sets of that cell.
    """
    inside = keys > key
    inside[np.flatnonzero(keys == key)[:n_ties]] = True
    firsts, stretch = runs_of(rows_of)
    base = bases[firsts].astype(np.int64)
    moved = np.bincount(stretch[inside], minlength=firsts.size)
    hit = np.bincount(stretch[inside & (hits != 0)], minlength=firsts.size)
    np.add.at(changes, base, -1)
    np.add.at(changes, base + 2 * moved + hit, 1)


def collect_near(keys: Any, base: Any, shift: Any, wanted: Any, near: Any) -> int:
    """Collect the keys whose stretch of ``2**shift`` keys, counted from ``base``, is wanted; return their number.

    Keys beyond the last stretch belong to it, and keys below the base to none.
    """
    stretches = np.minimum(stretch_numbers(keys, base, shift), np.uint64(wanted.size - 1)).astype(np.int64)
    collected = keys[(keys >= base) & (wanted[stretches] != 0)]
    near[: collected.size] = collected
    return int(collected.size)


def find_brackets(keys: Any, lengths: Any, groups: Any, samples: Any, starts: Any, bounds: Any, brackets: Any) -> None:
    """Write the bracket of each listed key, or -1 if it is in none.

    Row r has ``lengths[r]`` of the keys, is of group ``groups[r]`` and has the number ``samples[r]``. The brackets of
    group g are those from ``starts[g]`` to ``starts[g + 1]``, ascending. ``bounds`` are their lowest and highest keys,
    and their first and last samples.
    """
    lows, highs, firsts, lasts = bounds
    brackets[:] = -1
    rows = np.repeat(np.arange(lengths.size), lengths)
    first, last, sample = starts[groups][rows], starts[groups + 1][rows], samples[rows]
    for step in range(int((last - first).max(initial=0))):
        b = np.minimum(first + step, lows.size - 1)
        inside = (first + step < last) & (lows[b] <= keys) & (keys <= highs[b])
        inside &= (firsts[b] <= sample) & (sample <= lasts[b])
        brackets[inside] = b[inside]


def scatter_rows(
    keys: Any, lengths: Any, label_indices: Any, groups: Any, nexts: Any, scattered: Any, places: Any
) -> None:
    """Append the keys of each row to those of its group, which end at ``nexts``; write the place of its label."""
    wide = lengths.astype(np.int64)
    order = np.argsort(groups, kind="stable")
    before = np.cumsum(wide[order]) - wide[order]  # keys of all rows before, by group and row
    begins = np.searchsorted(groups[order], groups[order])
    row_places = np.empty(lengths.size, np.int64)
    row_places[order] = nexts[groups[order]] + before - before[begins]
    places[:] = np.where(label_indices >= 0, row_places + label_indices, -1)
    within = np.arange(keys.size) - np.repeat(np.cumsum(wide) - wide, wide)
    scattered[np.repeat(row_places, wide) + within] = keys
    np.add.at(nexts, groups, wide)


def count_at_edges(
    values: Any, bits: Any, magnitude: Any, edges: Any, starts: Any, shift: Any, labels: Any, counts: Any, orders: Any
) -> tuple[int, int]:
    """Count the scores between and at ascending edges: ``counts[2 j]`` before edge j, ``counts[2 j + 1]`` at it.

    ``orders[i]`` becomes the number of scores counted so far, row by row, that equal the score of row
    i's label (negative: none), where that is an edge. ``bits`` and ``magnitude`` are those of
    ``gather_above``. Returns the number of NaN met, which are not counted, and the first one's flat index.
    """
    keys = keys_from_bits(bits, magnitude)
    n_lower = np.searchsorted(edges, keys)
    cells = 2 * n_lower + (edges[np.minimum(n_lower, edges.size - 1)] == keys)
    cells[values != values] = counts.size  # a cell that is not counted
    earlier = _equal_before(cells.reshape(-1)).reshape(cells.shape)
    rows = np.flatnonzero(labels >= 0)
    own = cells[rows, labels[rows]]
    rows, own = rows[own < counts.size], own[own < counts.size]
    orders[rows] = counts[own] + earlier[rows, labels[rows]]
    counts += np.bincount(cells.reshape(-1), minlength=counts.size + 1)[:-1]
    return count_nan(values)


def _equal_before(numbers: Any) -> Any:
    """Return how many numbers before each one equal it."""
    order, before = np.argsort(numbers, kind="stable"), np.empty(numbers.size, np.int64)
    firsts, run = runs_of(numbers[order])
    before[order] = np.arange(numbers.size) - firsts[run]
    return before


def count_spaced(values: Any, bits: Any, magnitude: Any, ends: Any, spacing: Any, counts: Any) -> tuple[int, int]:
    """Count the scores by edges ``2**spacing`` keys apart: ``counts[0]`` before all edges, ``counts[j + 1]`` from edge j on.

    ``ends`` are the first and the last edge; scores from that on are in the last entry. Returns the number of NaN met,
    which are not counted, and the flat index of the first one.
    """
    keys = keys_from_bits(bits, magnitude)[values == values]
    cells = 1 + stretch_numbers(keys, ends[0], spacing).astype(np.int64)
    cells = np.where(keys < ends[0], 0, np.where(keys >= ends[1], counts.size - 1, cells))
    counts += np.bincount(cells, minlength=counts.size)
    return count_nan(values)


def rank_in_row(values: Any, labels: Any, ranks: Any) -> tuple[int, int]:
    """Write each label's rank in its row: 1 for the highest score, ties by class index.

    0 for a negative label, one past the last for a label whose score is NaN. Returns the number of NaN
    and the flat index of the first one.
    """
    higher, is_nan = ranks_in_rows(values, labels)
    ranks[:] = np.where(labels < 0, 0, np.where(is_nan, values.shape[1], higher) + 1)
    return count_nan(values)
