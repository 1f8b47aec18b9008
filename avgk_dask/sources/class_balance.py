"""Scores divided by the frequency of their class, inside the tasks that read them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Dtype, Floats
from .activations import probability_dtype

#: What such scores are told by: they are no probabilities, and not meant to be.
BALANCED = "divided by class frequencies"


@dataclass(frozen=True)
class Balance:
    """Divides each score by the frequency of its class, in float64, and rounds once; 0 for a class that does not occur."""

    frequencies: Floats
    stored: Dtype

    @property
    def dtype(self) -> Dtype:
        """The dtype of what it gives."""
        return probability_dtype(self.stored)

    @property
    def needs_rows(self) -> bool:
        """Whether it must see whole rows: any block will do."""
        return False

    @property
    def told(self) -> str:
        """What it does, in words."""
        return f"{BALANCED} {hashlib.sha256(self.frequencies.tobytes()).hexdigest()[:8]}"

    def width(self, n_stored: int) -> int:
        """Return the number of columns: the same."""
        return n_stored

    def apply(self, block: Array, first_row: int, first_class: int) -> Array:
        """Return a block of scores, divided."""
        mine = self.frequencies[first_class : first_class + block.shape[1]]
        found = block / np.where(mine > 0, mine, np.inf)  # NaN stays
        return np.asarray(found, self.dtype)

    def __dask_tokenize__(self) -> tuple[object, ...]:
        return type(self).__name__, self.frequencies.tobytes(), str(self.stored)
