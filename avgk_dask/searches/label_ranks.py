"""The ranks of the labels: each in its row, and among all scores."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..arrays import Dtype, Ints
from ..scans.band_pass import Pass
from ..scans.places import label_pass, place_pass
from ..states.place_tally import LabelTally, PlaceTally


@dataclass(frozen=True)
class LabelRankSearch:
    """What is known of hard labels after no, one or two reads: their own scores first, then all scores between those."""

    dtype: Dtype
    n_classes: int
    labels: LabelTally | None = None
    places: PlaceTally | None = None

    def next_pass(self) -> Pass | None:
        """Return the next pass; the second only where a label has a score that is no NaN."""
        if self.labels is None:
            return label_pass(self.dtype, self.n_classes)
        edges = self.labels.edges()
        return place_pass(self.dtype, self.n_classes, edges) if edges.size and self.places is None else None

    def advance(self, state: LabelTally | PlaceTally) -> LabelRankSearch:
        """Take what a pass has found."""
        return replace(self, places=state) if isinstance(state, PlaceTally) else replace(self, labels=state)

    def row_ranks(self) -> Ints:
        """Return how many labels have each rank 1..C in their row."""
        assert self.labels is not None
        return self.labels.rank_counts[1 : self.n_classes + 1]

    def ranks(self) -> Ints:
        """Return the rank among all scores of every label whose score is no NaN."""
        return np.zeros(0, np.int64) if self.places is None else self.places.label_ranks()
