"""Rules: which scores are in a set. A threshold with some of its ties, and the k highest of each row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Bools
from ..bands.candidates import TopRanks
from ..kernels.keys import KEY_MAX, NAN_KEY, carrier, encode, spread_keys


@dataclass(frozen=True)
class ThresholdRule:
    """Takes keys above ``key``, and those equal to it up to a row and class, in row-major order."""

    key: int
    last_row: int = -1
    last_class: int = -1
    everything: bool = False
    #: The score whose ties are spread, as a key: the rule is then one of refined keys.
    spread: int | None = None

    @classmethod
    def from_first_key(cls, first: int) -> ThresholdRule:
        """Return the rule of all keys from ``first`` up."""
        return cls(min(first - 1, KEY_MAX)) if first > NAN_KEY else cls(NAN_KEY, everything=True)

    @property
    def needs_rows(self) -> bool:
        """Whether it must see whole rows: any block will do."""
        return False

    def choose(self, scores: Array, first_row: int, first_class: int, n_classes: int) -> Bools:
        """Return the members among a block of scores that starts at this row and class of the matrix."""
        if self.everything:
            return np.ones(scores.shape, bool)
        keys = encode(scores)
        if self.spread is not None:
            keys = spread_keys(keys, np.array([self.spread], np.int64), first_row, first_class, n_classes)
        chosen = keys > self.key
        if first_row <= self.last_row:
            rows = first_row + np.arange(keys.shape[0])[:, None]
            classes = first_class + np.arange(keys.shape[1])
            kept = (rows < self.last_row) | ((rows == self.last_row) & (classes <= self.last_class))
            chosen |= (keys == self.key) & kept
        return chosen


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
