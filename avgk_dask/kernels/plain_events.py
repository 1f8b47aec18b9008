"""Plain twins of the kernels of ``events``."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from .plain_bits import stretch_numbers


def _equal_stretches(numbers: Any) -> Any:
    """Return the rows_of of each stretch of equal neighbours."""
    return np.split(np.arange(numbers.size), np.flatnonzero(np.diff(numbers)) + 1) if numbers.size else []


def step_events(starts: Any, keys: Any, rows: Any, bases: Any, hits: Any, steps: Any) -> None:
    """Write for each event its step: higher keys come first, equal ones in order."""
    for first, last in pairwise(starts.tolist()):
        for stretch in _equal_stretches(rows[first:last]):
            mine = first + stretch
            descending = mine[np.argsort(~keys[mine], kind="stable")]
            is_label = hits[descending] != 0
            inside = (bases[mine[0]] & 1) | (np.cumsum(is_label) > 0)
            steps[descending] = 4 * ((bases[mine[0]] >> 1) + 1 + np.arange(mine.size)) + 2 * is_label + inside


def group_order(groups: Any, starts: Any, order: Any) -> None:
    """Order items by their group, stably: ``starts[g]`` becomes where group g starts in ``order``."""
    order[:] = np.argsort(groups, kind="stable")
    starts[:] = np.concatenate([[0], np.cumsum(np.bincount(groups, minlength=starts.size - 1))])


def move_cells(keys: Any, rows_of: Any, bases: Any, hits: Any, key: int, n_ties: int, changes: Any) -> None:
    """Take the events above ``key``, and the first ``n_ties`` at it, into the sets."""
    inside = keys > key
    inside[np.flatnonzero(keys == key)[:n_ties]] = True
    for row in _equal_stretches(rows_of):
        base = bases[row[0]]
        changes[base] -= 1
        changes[base + 2 * np.count_nonzero(inside[row]) + np.count_nonzero(inside[row] & (hits[row] != 0))] += 1


def collect_near(keys: Any, base: Any, shift: Any, wanted: Any, found: Any) -> int:
    """Collect the keys whose stretch of ``2**shift`` keys, counted from ``base``, is wanted; return their number."""
    stretches = np.minimum(stretch_numbers(keys, base, shift), np.uint64(wanted.size - 1)).astype(np.int64)
    near = keys[(keys >= base) & (wanted[stretches] != 0)]
    found[: near.size] = near
    return int(near.size)
