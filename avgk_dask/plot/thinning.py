"""What is drawn of many points: some of them, each where it is, so that a picture stays small whatever N and C are."""

from __future__ import annotations

import numpy as np

from ..arrays import Array, Floats, Ints

__all__ = ["MOST_BINS", "binned", "thinned"]

#: Points of a curve are kept this many to the width and as many to the height.
_PER_SIDE = 400
#: Counts up to which each has a bar, and bars for those between a power of ten and the next where there are more.
MOST_BINS, _PER_DECADE = 400, 10


def thinned(x: Array, *curves: Floats) -> Ints:
    """Return the places of the points to draw of curves over ascending x: all of them where they are few.

    Else so many that between two neighbours no rising or falling curve leaves a box of 1/400 of the width or of the
    height. Both ends are kept.
    """
    if x.size <= 2 * _PER_SIDE:
        return np.arange(x.size)
    kept = [np.searchsorted(x, np.linspace(x[0], x[-1], _PER_SIDE)), np.array([0, x.size - 1])]
    for curve in curves:
        # How far the curve has gone, up or down: one point for each 1/400 of that.
        gone = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(np.nan_to_num(curve))))])
        kept.append(np.searchsorted(gone, np.linspace(0, gone[-1], _PER_SIDE)))
    return np.unique(np.concatenate(kept).clip(0, x.size - 1))


def binned(counts: Ints) -> tuple[Ints, Ints]:
    """Return counts and the edges between them; where there are too many, sums over bins that grow with what they count."""
    if counts.size <= MOST_BINS:
        return counts, np.arange(counts.size + 1)
    edges = np.unique(np.append(0, np.geomspace(1, counts.size, _PER_DECADE * len(str(counts.size))).round()))
    return np.add.reduceat(counts, edges[:-1].astype(np.int64)), edges.astype(np.int64)
