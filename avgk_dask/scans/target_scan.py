"""Where one score lies, that of a label: how many scores are above it, and which of its ties come first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Dtype
from ..kernels.keys import HALF_NAN, NAN_KEY, carrier, carrier_floor, is_half
from ..states.target_tally import TargetTally
from .band_pass import Pass
from .edge_scan import carrier_keys
from .entries import checked_slabs
from .usable_labels import UsableLabels

#: Scores that are looked at together.
_TILE = 1 << 18


@dataclass(frozen=True)
class TargetPlan:
    """The key to count at, and which of a band's labels at it the place is asked of, from 1; 0 for none."""

    dtype: Dtype
    n_classes: int
    key: int
    wanted: int = 0


def target_pass(plan: TargetPlan, bands: Sequence[int] | None = None) -> Pass:
    """Return the pass that counts at a key, of all bands or some."""
    return Pass("target", tally_target, plan, TargetTally, None if bands is None else tuple(bands))


def tally_target(slabs: Iterable[Array], labels: Array, band: int, plan: TargetPlan) -> TargetTally:
    """Return the tally of one band with hard labels."""
    hard = UsableLabels.of(labels, plan.n_classes).hard
    assert hard is not None
    value, first_class, n_above, below = carrier_floor(plan.key, plan.dtype), 0, 0, NAN_KEY
    # Of each row: the ties, those before its label, and whether that is one.
    ties, before, hits = np.zeros(hard.size, np.int64), np.zeros(hard.size, np.int64), np.zeros(hard.size, bool)
    for slab in checked_slabs(slabs, plan.dtype, plan.n_classes, hard):
        step = max(1, _TILE // slab.shape[1])
        for first in range(0, len(slab), step):
            rows, tile = slice(first, first + step), carrier(slab[first : first + step])
            n_above += int(np.count_nonzero(tile > value))
            below = max(below, _highest_below(tile, value, plan.dtype))
            equal, own = tile == value, hard[rows] - first_class
            ties[rows] += equal.sum(1)
            inside = np.flatnonzero((own >= 0) & (own < tile.shape[1]))
            hits[first + inside] = equal[inside, own[inside]]
            if plan.wanted:
                before[rows] += (equal & (np.arange(tile.shape[1]) < own[:, None])).sum(1)
        first_class += slab.shape[1]
    place = 0
    if plan.wanted:
        row = int(np.flatnonzero(hits)[plan.wanted - 1])
        place = int(ties[:row].sum() + before[row]) + 1
    n_ties = int(ties.sum())
    mine = np.array([[band], [n_ties], [hits.sum()]], np.int64)[:, :n_ties]  # nothing of a band without ties
    return TargetTally(n_above, below, mine[0], mine[1], mine[2], place)


def _highest_below(tile: Array, value: object, dtype: Dtype) -> int:
    """Return the highest key below a value; that of NaN where there is none."""
    lowest = -np.inf if tile.dtype.kind == "f" else np.iinfo(tile.dtype).min
    inside = tile < value
    if is_half(dtype):
        inside &= tile != HALF_NAN
    if not inside.any():
        return NAN_KEY
    return int(carrier_keys(np.where(inside, tile, lowest).max(keepdims=True).reshape(-1), dtype)[0])
