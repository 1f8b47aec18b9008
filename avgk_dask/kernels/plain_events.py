"""Plain twins of the kernels of ``events``."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from .plain_bits import run_numbers


def _equal_runs(numbers: Any) -> Any:
    """Return the places of each run of equal neighbours."""
    return np.split(np.arange(numbers.size), np.flatnonzero(np.diff(numbers)) + 1) if numbers.size else []


def size_events(starts: Any, keys: Any, rows: Any, bases: Any, sizes: Any) -> None:
    """Write for each event the size of its row's set once it is in: higher keys come first, equal ones in order."""
    for first, last in pairwise(starts.tolist()):
        for run in _equal_runs(rows[first:last]):
            mine = first + run
            descending = mine[np.argsort(~keys[mine], kind="stable")]
            sizes[descending] = bases[mine[0]] + 1 + np.arange(mine.size)


def group_order(groups: Any, starts: Any, order: Any) -> None:
    """Order items by their group, stably: ``starts[g]`` becomes where group g starts in ``order``."""
    order[:] = np.argsort(groups, kind="stable")
    starts[:] = np.concatenate([[0], np.cumsum(np.bincount(groups, minlength=starts.size - 1))])


def move_sizes(keys: Any, places: Any, bases: Any, key: int, n_ties: int, changes: Any) -> None:
    """Take the events above ``key``, and the first ``n_ties`` at it, into the sets."""
    inside = keys > key
    inside[np.flatnonzero(keys == key)[:n_ties]] = True
    for row in _equal_runs(places):
        base = bases[row[0]]
        changes[base] -= 1
        changes[base + np.count_nonzero(inside[row])] += 1


def collect_near(keys: Any, base: Any, shift: Any, wanted: Any, found: Any) -> int:
    """Collect the keys whose run of ``2**shift`` keys, counted from ``base``, is wanted; return their number."""
    runs = np.minimum(run_numbers(keys, base, shift), np.uint64(wanted.size - 1)).astype(np.int64)
    near = keys[(keys >= base) & (wanted[runs] != 0)]
    found[: near.size] = near
    return int(near.size)
