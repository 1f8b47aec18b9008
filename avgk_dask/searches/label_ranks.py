"""The ranks of the labels: each in its row, and among all scores."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..arrays import Dtype, Ints
from ..scans.band_pass import Pass
from ..scans.edge_scan import edge_pass, label_pass
from ..states.edge_tally import EdgeTally, LabelTally


@dataclass(frozen=True)
class LabelRankSearch:
    """What is known of hard labels after no, one or two reads: their own scores first, then all scores between those."""

    dtype: Dtype
    n_classes: int
    labels: LabelTally | None = None
    counts: EdgeTally | None = None

    def next_pass(self) -> Pass | None:
        """Return the next pass; the second only where a label has a score that is no NaN."""
        if self.labels is None:
            return label_pass(self.dtype, self.n_classes)
        edges = self.labels.keys
        if not edges.size or self.counts is not None:
            return None
        return edge_pass(self.dtype, self.n_classes, edges, with_labels=True)

    def advance(self, state: LabelTally | EdgeTally) -> LabelRankSearch:
        """Take what a pass has found."""
        return replace(self, counts=state) if isinstance(state, EdgeTally) else replace(self, labels=state)

    def row_ranks(self) -> Ints:
        """Return how many labels have each rank 1..C in their row."""
        assert self.labels is not None
        return self.labels.rank_counts[1 : self.n_classes + 1]

    def ranks(self) -> Ints:
        """Return the rank among all scores of every label whose score is no NaN."""
        return np.zeros(0, np.int64) if self.counts is None else self.counts.label_ranks()
