"""Plain twins of the kernels of ``events``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .plain_bits import stretch_numbers


def _stretches(*columns: Any) -> tuple[Any, Any]:
    """Return where the stretches of equal neighbours start, and the number of the stretch that each item is in."""
    n = columns[0].size
    starts = np.zeros(n, bool)
    starts[:1] = True
    for column in columns:
        starts[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(starts), np.cumsum(starts) - 1


def step_events(starts: Any, keys: Any, rows: Any, bases: Any, hits: Any, steps: Any) -> None:
    """Write for each event its step: higher keys come first, equal ones in order."""
    intervals = np.repeat(np.arange(starts.size - 1), np.diff(starts))
    mine = slice(starts[0], starts[-1])
    firsts, stretch = _stretches(rows[mine], intervals)
    descending = np.lexsort((~keys[mine], stretch))
    is_label = hits[mine][descending] != 0
    n_labels, base = np.cumsum(is_label), bases[mine][firsts][stretch]
    before = (n_labels[firsts] - is_label[firsts])[stretch]  # labels of earlier rows
    inside = (base & 1) | (n_labels > before)
    sizes = (base >> 1) + 1 + np.arange(stretch.size) - firsts[stretch]
    steps[mine][descending] = 4 * sizes + 2 * is_label + inside


def group_order(groups: Any, starts: Any, order: Any) -> None:
    """Order items by their group, stably: ``starts[g]`` becomes where group g starts in ``order``."""
    order[:] = np.argsort(groups, kind="stable")
    starts[:] = np.concatenate([[0], np.cumsum(np.bincount(groups, minlength=starts.size - 1))])


def move_cells(keys: Any, rows_of: Any, bases: Any, hits: Any, key: int, n_ties: int, changes: Any) -> None:
    """Take the events above ``key``, and the first ``n_ties`` at it, into the sets."""
    inside = keys > key
    inside[np.flatnonzero(keys == key)[:n_ties]] = True
    firsts, stretch = _stretches(rows_of)
    base = bases[firsts].astype(np.int64)
    moved = np.bincount(stretch[inside], minlength=firsts.size)
    hit = np.bincount(stretch[inside & (hits != 0)], minlength=firsts.size)
    np.add.at(changes, base, -1)
    np.add.at(changes, base + 2 * moved + hit, 1)


def collect_near(keys: Any, base: Any, shift: Any, wanted: Any, found: Any) -> int:
    """Collect the keys whose stretch of ``2**shift`` keys, counted from ``base``, is wanted; return their number."""
    stretches = np.minimum(stretch_numbers(keys, base, shift), np.uint64(wanted.size - 1)).astype(np.int64)
    near = keys[(keys >= base) & (wanted[stretches] != 0)]
    found[: near.size] = near
    return int(near.size)
