"""The rule of top-k: the k highest scores of each row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Bools
from ..kernels.keys import carrier
from ..scans.entries import TopRanks


@dataclass(frozen=True)
class TopRule:
    """Takes the k highest scores of each row, among equals the lowest class first; NaN never."""

    k: int

    @property
    def needs_rows(self) -> bool:
        """Whether it must see whole rows: it ranks them."""
        return True

    def choose(self, scores: Array, first_row: int, first_class: int, n_classes: int) -> Bools:
        """Return the members among whole rows of scores."""
        top = TopRanks(scores.shape[0], self.k, scores.dtype)
        top.insert(carrier(scores), 0, 0)
        chosen = np.zeros(scores.shape, bool)
        rows, ranks = np.nonzero(top.classes >= 0)
        chosen[rows, top.classes[rows, ranks]] = True
        return chosen
