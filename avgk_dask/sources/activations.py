"""Logits as probabilities: what a softmax or a sigmoid makes of the scores that are read, inside the tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..arrays import Array, Dtype, Floats
from ..errors import ScoresError
from ..kernels.constants import LANES
from ..kernels.dispatch import sigmoid_narrow, sigmoid_wide, softmax_narrow, softmax_norms, softmax_part, softmax_wide

if TYPE_CHECKING:
    from .source import Source

#: Scores that are turned at once: so many stay in a core's cache.
_STRIP = 1 << 17


def probability_dtype(stored: Dtype) -> Dtype:
    """Return the dtype of probabilities made of scores: float64 for those of 64 bits, else float32."""
    return np.dtype(np.float64 if stored.itemsize == 8 else np.float32)


def _is_narrow(stored: Dtype) -> bool:
    """Return whether float32 holds each value of a dtype."""
    return stored.itemsize < 4 or stored == np.float32


def _strips(block: Array) -> Iterator[tuple[slice, Array]]:
    """Yield rows of a block, as float32 where that holds them exactly, else as float64, and where they stand."""
    dtype = np.float32 if _is_narrow(block.dtype) else np.float64
    step = max(1, _STRIP // max(1, block.shape[1]))
    for first in range(0, len(block), step):
        rows = slice(first, first + step)
        yield rows, np.ascontiguousarray(block[rows], dtype)


def _row_space(n_classes: int) -> Floats:
    """Return what the kernels write the exponentials of a row to."""
    return np.empty(-(-n_classes // LANES) * LANES)


def _below_largest(rows: Array) -> Array:
    """Return integers of 64 bits less the largest of their row, as float64: all that a softmax needs, and more exact."""
    largest = rows.max(1, keepdims=True).astype(np.uint64)
    below: Array = (largest - rows.astype(np.uint64)).astype(np.float64)
    return -below


@dataclass(frozen=True)
class Softmax:
    """Turns rows of logits into probabilities: exp(z / T) over the sum of its row."""

    temperature: float
    stored: Dtype
    location: str = ""
    #: Whether rows are counted of those samples alone that exist.
    of_existing: bool = False
    #: Whether rows that have no softmax are NaN, instead of being refused.
    is_lenient: bool = False
    #: The dtype that probabilities are rounded to; None for that of the logits' own.
    rounded_to: Dtype | None = None
    name: ClassVar[str] = "softmax"

    @classmethod
    def of(cls, logits: Source, temperature: float) -> Softmax:
        """Return the softmax of the logits of a source."""
        return cls(temperature, logits.dtype, logits.location, logits.mask is not None)

    @property
    def dtype(self) -> Dtype:
        """The dtype of the probabilities."""
        return probability_dtype(self.stored) if self.rounded_to is None else self.rounded_to

    @property
    def needs_rows(self) -> bool:
        """Whether it must see whole rows: yes."""
        return True

    @property
    def is_narrow(self) -> bool:
        """Whether float64 is exact enough without what is rounded off it: of float32 logits, or to float32 probabilities."""
        return _is_narrow(self.stored) or (self.stored.kind == "f" and self.dtype == np.float32)

    @property
    def told(self) -> str:
        """What it does, in words."""
        return f"softmax, temperature {self.temperature!r}"

    def width(self, n_stored: int) -> int:
        """Return the number of columns: the same."""
        return n_stored

    @property
    def gives_slabs(self) -> bool:
        """Whether it can give whole rows slab by slab: if they need no more than float64."""
        return self.is_narrow

    def apply(self, block: Array, first_row: int, first_class: int) -> Array:
        """Return the probabilities of whole rows."""
        found, n_classes = np.empty(block.shape, self.dtype), block.shape[1]
        narrow = _row_space(n_classes)
        wide = np.empty((2, 0 if self.is_narrow else n_classes))
        for rows, scores in self._taken(block):
            if self.is_narrow:
                bad = softmax_narrow(scores, self.temperature, found[rows], narrow)
            else:
                bad = softmax_wide(scores, self.temperature, found[rows], wide)
            self._refuse(bad, first_row + rows.start, scores)
        return found

    def slabs(self, block: Array, first_row: int, classes: Sequence[int]) -> Iterator[Array]:
        """Return the probabilities of whole rows in slabs between some classes, the same bits: less memory, and more work."""
        norms, space = np.empty((len(block), 2)), _row_space(block.shape[1])
        for rows, scores in self._taken(block):
            bad = softmax_norms(scores, self.temperature, norms[rows], space)
            self._refuse(bad, first_row + rows.start, scores)
        for first, last in pairwise(classes):
            part = block[:, first:last]
            found = np.empty(part.shape, self.dtype)
            for rows, scores in _strips(part):
                softmax_part(scores, self.temperature, norms[rows], found[rows])
            yield found

    def _taken(self, block: Array) -> Iterator[tuple[slice, Array]]:
        """Yield rows of a block as the kernels take them, and where they stand."""
        for rows, scores in _strips(block):
            if block.dtype.kind in "iu" and block.itemsize == 8:
                scores = _below_largest(block[rows])
            if self.is_lenient:
                scores = np.where(np.isinf(np.fmax.reduce(scores, axis=1, keepdims=True)), np.nan, scores)
            yield rows, scores

    def _refuse(self, bad: int, first_row: int, scores: Array) -> None:
        """Refuse the row of a number, of those from ``first_row`` on; -1 is none."""
        if bad < 0:
            return
        sample, row = first_row + bad, scores[bad]
        largest = "infinite" if (row == np.inf).any() else "-inf in every class"
        raise ScoresError(
            f"scores must have a finite largest value in each row for a softmax; those of sample {sample}"
            f"{' (of those that exist)' * self.of_existing}{self.location and f' of {self.location}'} are {largest}. Leave such samples out with where=, "
            "or correct them."
        )


@dataclass(frozen=True)
class Sigmoid:
    """Turns each logit into a probability of its own: 1 / (1 + exp(-z / T))."""

    temperature: float
    stored: Dtype
    name: ClassVar[str] = "sigmoid"

    @classmethod
    def of(cls, logits: Source, temperature: float) -> Sigmoid:
        """Return the sigmoid of the logits of a source."""
        return cls(temperature, logits.dtype)

    @property
    def dtype(self) -> Dtype:
        """The dtype of the probabilities."""
        return probability_dtype(self.stored)

    @property
    def needs_rows(self) -> bool:
        """Whether it must see whole rows: any block will do."""
        return False

    @property
    def told(self) -> str:
        """What it does, in words."""
        return f"sigmoid, temperature {self.temperature!r}"

    def width(self, n_stored: int) -> int:
        """Return the number of columns: the same."""
        return n_stored

    def apply(self, block: Array, first_row: int, first_class: int) -> Array:
        """Return the probabilities of a block."""
        found, space = np.empty(block.shape, self.dtype), np.empty(block.shape[1])
        for rows, scores in _strips(block):
            if scores.dtype == np.float32:
                sigmoid_narrow(scores, self.temperature, found[rows], space)
            else:
                sigmoid_wide(scores, self.temperature, found[rows])
        return found


#: The activations by the names that users give; ``bands.probabilities`` has the losses of each, from its logits.
Activation = Softmax | Sigmoid
ACTIVATIONS: dict[str, type[Activation]] = {kind.name: kind for kind in (Softmax, Sigmoid)}


# Scores divided by the frequency of their class, inside the tasks that read them.


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
