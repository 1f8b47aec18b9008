"""Logits that are weighted, or mixed, and shifted inside the tasks that read them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Dtype, Floats
from ..scans.affine_rows import affine_logits


@dataclass(frozen=True)
class Affine:
    """Turns rows of logits z into w z + b, or W z + b, as float64; the same bits for any block."""

    weights: Floats
    bias: Floats

    @property
    def dtype(self) -> Dtype:
        """The dtype of the logits it gives."""
        return np.dtype(np.float64)

    @property
    def needs_rows(self) -> bool:
        """Whether it must see whole rows: where it mixes classes."""
        return self.weights.ndim == 2

    @property
    def told(self) -> str:
        """What it does, in words: with a hash that tells its weights from others."""
        found = hashlib.sha256(np.concatenate([self.weights.reshape(-1), self.bias]).astype("<f8").tobytes())
        return f"weighted by {found.hexdigest()[:16]}"

    def width(self, n_stored: int) -> int:
        """Return the number of columns: the same."""
        return n_stored

    def apply(self, block: Array, first_row: int, first_class: int) -> Array:
        """Return a block of weighted logits."""
        if self.needs_rows:
            return affine_logits(block, self.weights, self.bias)
        classes = slice(first_class, first_class + block.shape[1])
        return affine_logits(block, self.weights[classes], self.bias[classes])
