"""Compiled kernels on listed keys and events: what a scan holds, grouped, sized and searched.

All release the GIL and none is parallel: Dask owns the cores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

#: Runs of a row up to this long are ordered by counting what is greater, longer ones by sorting.
_COUNTED = 192


@njit(nogil=True, cache=True)
def step_events(starts: Any, keys: Any, rows: Any, bases: Any, hits: Any, steps: Any) -> None:
    """Write for each event its step: four times the size of its row's set once it is in, 2 more if it is the label, and 1
    more if the label is in the set then.

    Higher keys come first, equal ones in order. The events of interval j are those from ``starts[j]`` to
    ``starts[j + 1]``, row by row; ``bases`` are the cells of their rows before them.
    """
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
    """Order items by their group, stably: ``starts[g]`` becomes where group g starts in ``order``."""
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
    """Take the events above ``key``, and the first ``n_ties`` at it, into the sets.

    The events of a row stand together: they are of one row. ``changes[cell]`` is what the number of sets
    of that cell changes by.
    """
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
        if not 0 <= base <= cell < changes.size:  # of a forged file
            raise IndexError("a set has more labels than there are classes")
        changes[base] -= 1
        changes[cell] += 1
        first = t


@njit(nogil=True, cache=True)
def collect_near(keys: Any, base: Any, shift: Any, wanted: Any, found: Any) -> int:
    """Collect the keys whose stretch of ``2**shift`` keys, counted from ``base``, is wanted; return their number.

    Keys beyond the last stretch belong to it, and keys below the base to none.
    """
    n = 0
    last = np.uint64(wanted.size - 1)
    for t in range(keys.size):
        key = np.int64(keys[t])
        stretch = (np.uint64(key) - np.uint64(base)) >> np.uint64(shift)
        found[n] = key
        n += wanted[min(stretch, last)] & np.uint8(key >= base)
    return n
