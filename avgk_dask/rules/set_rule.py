"""Rules: which scores are in a set, as a function of a block of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..kernels.keys import KEY_MAX, NAN_KEY
from ..kernels.order import spread_keys


@dataclass(frozen=True)
class SetRule:
    """Which scores are in: keys above ``key``, and those equal to it up to a place, row-major."""

    key: int
    last_row: int = -1
    last_class: int = -1
    everything: bool = False
    #: The score whose ties are spread, as a key: the rule is then one of refined keys.
    spread: int | None = None

    @classmethod
    def from_first_key(cls, first: int) -> SetRule:
        """Return the rule of all keys from ``first`` up."""
        return cls(min(first - 1, KEY_MAX)) if first > NAN_KEY else cls(NAN_KEY, everything=True)

    def choose(self, keys: NDArray[np.int64], first_row: int, first_class: int, n_classes: int) -> NDArray[np.bool_]:
        """Return the members among a block of keys that starts at this place of a matrix of so many classes."""
        if self.everything:
            return np.ones(keys.shape, bool)
        if self.spread is not None:
            keys = spread_keys(keys, np.array([self.spread], np.int64), first_row, first_class, n_classes)
        chosen = keys > self.key
        rows = first_row + np.arange(keys.shape[0])[:, None]
        if first_row <= self.last_row:
            classes = first_class + np.arange(keys.shape[1])
            kept = (rows < self.last_row) | ((rows == self.last_row) & (classes <= self.last_class))
            chosen |= (keys == self.key) & kept
        return chosen
