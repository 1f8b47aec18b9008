"""The least budget whose error is at most a target: the place, among all scores, of one label's score.

The error falls with each label that enters the sets, and labels enter in the order of their scores, ties in row-major
order. So the last label that is needed is known from the labels' scores alone; a second read counts what comes before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from ..arrays import Dtype
from ..scans.band_pass import Pass
from ..scans.edge_scan import label_pass
from ..scans.target_scan import TargetPlan, target_pass
from ..states.edge_tally import LabelTally
from ..states.target_tally import TargetTally


@dataclass(frozen=True)
class SmallestSearch:
    """What is known after no, one or two reads, and after one more of the band in which the last needed label is a tie."""

    dtype: Dtype
    n_classes: int
    max_error: Fraction
    labels: LabelTally | None = None
    counts: TargetTally | None = None
    last: TargetTally | None = None

    def next_pass(self) -> Pass | None:
        """Return the next pass; none but the first where no label is needed, or so many cannot be had."""
        if self.labels is None:
            return label_pass(self.dtype, self.n_classes)
        if not 0 < self.n_needed <= self.n_reachable:
            return None
        if self.counts is None:
            return target_pass(TargetPlan(self.dtype, self.n_classes, self.key))
        band, _, n_hits = self._cut
        return (
            target_pass(TargetPlan(self.dtype, self.n_classes, self.key, n_hits), [band]) if self.last is None else None
        )

    def advance(self, state: LabelTally | TargetTally) -> SmallestSearch:
        """Take what a pass has found."""
        if isinstance(state, LabelTally):
            return replace(self, labels=state)
        return replace(self, counts=state) if self.counts is None else replace(self, last=state)

    @property
    def n_needed(self) -> int:
        """How many labels must be in the sets."""
        assert self.labels is not None
        return math.ceil((1 - self.max_error) * self.labels.n_labelled)

    @property
    def n_reachable(self) -> int:
        """How many labels can be: those whose score is no NaN."""
        assert self.labels is not None
        return int(self.labels.key_counts.sum())

    @cached_property
    def _last_label(self) -> tuple[int, int]:
        """The key of the last needed label, and the number of labels above it."""
        assert self.labels is not None
        from_top = np.cumsum(self.labels.key_counts[::-1])
        index = int(np.searchsorted(from_top, self.n_needed))
        return int(self.labels.keys[::-1][index]), int(from_top[index - 1]) if index else 0

    @property
    def key(self) -> int:
        """The key of the last needed label."""
        return self._last_label[0]

    @cached_property
    def _cut(self) -> tuple[int, int, int]:
        """The band of the last needed label, the ties in bands before it, and how many labels at its key are needed there."""
        assert self.counts is not None
        order = np.argsort(self.counts.bands)
        hits = np.cumsum(self.counts.n_hits[order])
        wanted = self.n_needed - self._last_label[1]
        index = int(np.searchsorted(hits, wanted))
        n_before = int(self.counts.n_ties[order][:index].sum())
        return int(self.counts.bands[order][index]), n_before, wanted - (int(hits[index - 1]) if index else 0)

    @property
    def n_labels(self) -> int:
        """The least budget, in labels of all sets together: the place of the last needed label among all scores."""
        if self.last is None:
            return 0
        assert self.counts is not None
        return self.counts.n_above + self._cut[1] + self.last.place

    @property
    def threshold_key(self) -> int:
        """The key of the highest score left out, NaN among them; of the lowest if none is. It is not known if no label is needed."""
        assert self.labels is not None
        assert self.counts is not None
        n_from = self.counts.n_above + int(self.counts.n_ties.sum())
        all_are_in = n_from == self.labels.n_rows * self.n_classes
        return self.key if self.n_labels < n_from or all_are_in else self.counts.highest_below

    def least_top(self) -> tuple[int, int]:
        """Return the least K whose top-K sets hold as many labels as are needed, and how many they hold."""
        assert self.labels is not None
        inside = np.cumsum(self.labels.rank_counts[1 : self.n_classes + 1])
        index = int(np.searchsorted(inside, self.n_needed))
        return index + 1, int(inside[index])
