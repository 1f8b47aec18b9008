"""The smallest budget whose error is at most a target, which is the rank of one label's score among all scores.

Labels enter the sets in the order of their scores, with ties in row-major order, and each lowers the error. So the labels'
scores alone determine the last label that is needed. A second read counts the scores above its score, and the ties by band.
A third read, of one band, finds its position among the ties there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated

import numpy as np

from ..arrays import Array, Dtype, Ints
from ..bands.passes import Pass, UsableLabels
from ..bands.rows import checked_slabs
from ..kernels.keys import HALF_NAN, NAN_KEY, carrier, carrier_floor, is_half
from ..records import JOINED, Count, State
from .label_ranks import LabelTally, carrier_keys, label_pass
from .truncated import HIGHEST

#: Scores per tile.
_TILE = 1 << 18


@dataclass(frozen=True)
class TargetTally(State):
    """The number of scores above a key, the highest key below it, and the scores and labels at the key by band."""

    n_above: Count
    highest_below: Annotated[int, HIGHEST]
    bands: Annotated[Ints, JOINED]
    n_ties: Annotated[Ints, JOINED]
    n_hits: Annotated[Ints, JOINED]
    #: The position (from 1) of the last needed label among the ties of its band, if that band is read.
    place: Count


@dataclass(frozen=True)
class TargetPlan:
    """The key to count at. In the third read ``wanted`` is the number (from 1) of a label at the key, else 0."""

    dtype: Dtype
    n_classes: int
    key: int
    wanted: int = 0


def tally_target(slabs: Iterable[Array], labels: Array, band: int, plan: TargetPlan) -> TargetTally:
    """Return the tally of one band with hard labels."""
    hard = UsableLabels.from_labels(labels, plan.n_classes).hard
    assert hard is not None
    value, first_class, n_above, below = carrier_floor(plan.key, plan.dtype), 0, 0, NAN_KEY
    # By row: the ties, the ties before the label, and whether the label is a tie.
    ties, before = np.zeros((2, hard.size), np.int64)
    hits = np.zeros(hard.size, bool)
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
    counts = np.array([[band], [n_ties], [hits.sum()]], np.int64)[:, :n_ties]  # no column for a band without ties
    return TargetTally(n_above, below, counts[0], counts[1], counts[2], place)


def _highest_below(tile: Array, value: object, dtype: Dtype) -> int:
    """Return the highest key below a value, or the key of NaN if no score is lower."""
    lowest = -np.inf if tile.dtype.kind == "f" else np.iinfo(tile.dtype).min
    inside = tile < value
    if is_half(dtype):
        inside &= tile != HALF_NAN
    if not inside.any():
        return NAN_KEY
    return int(carrier_keys(np.where(inside, tile, lowest).max(keepdims=True).reshape(-1), dtype)[0])


@dataclass(frozen=True)
class SmallestSearch:
    """The search for the smallest budget. The last read is of the band that contains the last needed label."""

    dtype: Dtype
    n_classes: int
    max_error: Fraction
    labels: LabelTally | None = None
    counts: TargetTally | None = None
    last: TargetTally | None = None

    def next_pass(self) -> Pass | None:
        """Return the next pass; None after the first if no label is needed, or more labels than have a score."""
        if self.labels is None:
            return label_pass(self.dtype, self.n_classes)
        if not 0 < self.n_needed <= self.n_reachable or self.last is not None:
            return None
        band, n_hits = (None, 0) if self.counts is None else self._cut[::2]
        plan = TargetPlan(self.dtype, self.n_classes, self.key, n_hits)
        return Pass("target", tally_target, plan, TargetTally, None if band is None else (band,))

    def advance(self, state: LabelTally | TargetTally) -> SmallestSearch:
        """Return the search after the state of its last pass."""
        if isinstance(state, LabelTally):
            return replace(self, labels=state)
        return replace(self, counts=state) if self.counts is None else replace(self, last=state)

    @property
    def n_needed(self) -> int:
        """Number of labels that must be in the sets."""
        assert self.labels is not None
        return math.ceil((1 - self.max_error) * self.labels.n_labelled)

    @property
    def n_reachable(self) -> int:
        """Number of labels that can be in the sets: those whose score is not NaN."""
        assert self.labels is not None
        return int(self.labels.key_counts.sum())

    @cached_property
    def _last_label(self) -> tuple[int, int]:
        """The key of the last needed label, and the number of labels above it."""
        assert self.labels is not None
        n_from = np.cumsum(self.labels.key_counts[::-1])
        index = int(np.searchsorted(n_from, self.n_needed))
        return int(self.labels.keys[::-1][index]), int(n_from[index - 1]) if index else 0

    @property
    def key(self) -> int:
        """The key of the last needed label."""
        return self._last_label[0]

    @cached_property
    def _cut(self) -> tuple[int, int, int]:
        """The band of the last needed label, the ties in earlier bands, and the label's number among those at its key."""
        assert self.counts is not None
        order = np.argsort(self.counts.bands)
        hits = np.cumsum(self.counts.n_hits[order])
        needed = self.n_needed - self._last_label[1]
        index = int(np.searchsorted(hits, needed))
        n_before = int(self.counts.n_ties[order][:index].sum())
        return int(self.counts.bands[order][index]), n_before, needed - (int(hits[index - 1]) if index else 0)

    @property
    def n_labels(self) -> int:
        """The smallest budget, as the total size of all sets: the rank of the last needed label among all scores."""
        if self.last is None:
            return 0
        assert self.counts is not None
        return self.counts.n_above + self._cut[1] + self.last.place

    @property
    def threshold_key(self) -> int:
        """The key of the highest score outside the sets (perhaps NaN), or of the lowest score if all are inside."""
        assert self.labels is not None
        assert self.counts is not None
        n_from = self.counts.n_above + int(self.counts.n_ties.sum())
        all_are_in = n_from == self.labels.n_rows * self.n_classes
        return self.key if self.n_labels < n_from or all_are_in else self.counts.highest_below

    def least_top(self) -> tuple[int, int]:
        """Return the least K whose top-K sets contain enough labels, and the number of labels they contain."""
        assert self.labels is not None
        inside = np.cumsum(self.labels.rank_counts[1 : self.n_classes + 1])
        index = int(np.searchsorted(inside, self.n_needed))
        return index + 1, int(inside[index])
