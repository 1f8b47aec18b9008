"""Transforms of scores, applied inside tasks between reading and ranking.

A transform turns the stored slabs of a band into those that scans see, perhaps of another dtype. Workers import this
module. It does not import Dask arrays, which would load about 100 MB of xarray and pandas.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..arrays import Array, Dtype, Floats
from ..bands.rows import checked_block, whole_rows
from ..errors import ScoresError
from ..kernels import LANES
from ..kernels.dispatch import (
    mix_rows,
    sigmoid_narrow,
    sigmoid_wide,
    softmax_narrow,
    softmax_norms,
    softmax_part,
    softmax_wide,
)
from ..kernels.keys import decode, encode, is_float, key_range, refine_keys

if TYPE_CHECKING:
    from .source import Source


class Transform(ABC):
    """Turns stored scores into those that are ranked, block by block."""

    @property
    @abstractmethod
    def dtype(self) -> Dtype:
        """The dtype of the transformed scores."""

    @property
    def needs_rows(self) -> bool:
        """Whether it needs whole rows rather than any block of the matrix."""
        return False

    @property
    def gives_slabs(self) -> bool:
        """Whether it needs whole rows but can return them in slabs."""
        return False

    @property
    def provenance(self) -> str:
        """A description of the transform; empty if it only rearranges scores."""
        return ""

    def width(self, n_stored: int) -> int:
        """Return the number of columns after the transform, given the number before."""
        return n_stored

    @abstractmethod
    def apply(self, block: Array, first_row: int, first_class: int) -> Array:
        """Transform a block that starts at this row and class of the matrix."""

    def slabs(self, block: Array, first_row: int, classes: Sequence[int]) -> Iterator[Array]:
        """Yield whole rows, transformed, in slabs with these class bounds; only if ``gives_slabs``."""
        raise NotImplementedError


@dataclass(frozen=True)
class Preparation:
    """A transform with the layout of its input: dtype, number of columns, and the bounds of bands and class chunks."""

    transform: Transform
    dtype: Dtype
    n_stored: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    #: Bounds of the slabs that it makes of whole rows.
    classes: tuple[int, ...]

    def prepare(self, slabs: Iterable[Any], band: int, column: int = 0) -> Iterable[Array]:
        """Transform the slabs of a band, the first of which begins at a class chunk."""
        first_row = self.rows[band]
        if not self.transform.needs_rows:
            return self._apply_each(slabs, first_row, self.columns[column])
        block = whole_rows(slabs, self.dtype, self.n_stored, None)
        if len(self.classes) > 2:
            return self.transform.slabs(block, first_row, self.classes)
        return [self.transform.apply(block, first_row, 0)]

    def _apply_each(self, slabs: Iterable[Any], first_row: int, first_class: int) -> Iterator[Array]:
        for block in (checked_block(slab, self.dtype) for slab in slabs):
            yield self.transform.apply(block, first_row, first_class)
            first_class += block.shape[1]


@dataclass(frozen=True)
class ReorderTies(Transform):
    """Turns scores into keys that put the ties at some keys (ascending) into an order of ``TIE_DRAWS``."""

    chosen: tuple[int, ...]
    n_classes: int
    stored: Dtype
    ties: str

    dtype = np.dtype(np.int64)

    def apply(self, block: Array, first_row: int, first_class: int) -> Array:
        """Return the refined keys of a block."""
        keys = encode(np.ascontiguousarray(block, self.stored))
        return refine_keys(keys, np.array(self.chosen, np.int64), first_row, first_class, self.n_classes, self.ties)


@dataclass(frozen=True)
class Slots(Transform):
    """Adds a column for the discarded scores to the rows of a truncated store; raises an error if rows do not descend.

    This last column holds the lowest value of the dtype. Slots are sorted by rank, and equal scores by class. So ranks, ties
    in row-major order and sets are those of the full matrix, as long as no discarded score reaches the threshold. Discarded
    scores are at most the row's last stored score, which ``statistics/truncated.py`` compares with the threshold.
    """

    stored: Dtype
    n_slots: int
    n_classes: int
    location: str
    #: Whether the rows are known to descend.
    in_order: bool

    needs_rows = True

    @property
    def dtype(self) -> Dtype:
        """The dtype of the scores, unchanged."""
        return self.stored

    def width(self, n_stored: int) -> int:
        """Return the number of slots, plus one if any score was discarded."""
        return n_stored + (self.n_classes > n_stored)

    def apply(self, block: Array, first_row: int, first_class: int) -> Array:
        """Return rows of slots with the column of the discarded scores."""
        bad = np.zeros(0, bool) if self.in_order else (block[:, 1:] > block[:, :-1]).any(1)
        if bad.any():
            raise ScoresError(
                "each row of a truncated store must be in descending order; sample "
                f"{first_row + int(np.flatnonzero(bad)[0])}{self.location and f' of {self.location}'} is not. Write it "
                "with ScoreWriter(..., top_m=...)."
            )
        if self.n_classes == self.n_slots:
            return block
        if is_float(self.dtype) and (block != block).any():
            row = first_row + int(np.flatnonzero((block != block).any(1))[0])
            raise ScoresError(
                f"a truncated store must not contain NaN; sample {row}{self.location and f' of {self.location}'} does. "
                "Write it with ScoreWriter(..., top_m=...)."
            )
        lowest = decode([key_range(self.dtype)[0]], self.dtype)
        return np.concatenate([block, np.broadcast_to(lowest, (len(block), 1)).astype(block.dtype)], axis=1)


# Activations: probabilities from logits.


#: Scores transformed at once: they stay in a core's cache.
_STRIP = 1 << 17


def probability_dtype(stored: Dtype) -> Dtype:
    """Return the dtype of probabilities: float64 if scores have 64 bits, else float32."""
    return np.dtype(np.float64 if stored.itemsize == 8 else np.float32)


def _is_narrow(stored: Dtype) -> bool:
    """Return whether float32 holds each value of a dtype."""
    return stored.itemsize < 4 or stored == np.float32


def _strips(block: Array) -> Iterator[tuple[slice, Array]]:
    """Yield some rows of a block at a time: their slice, and their values as float32 if that is exact, else float64."""
    dtype = np.float32 if _is_narrow(block.dtype) else np.float64
    step = max(1, _STRIP // max(1, block.shape[1]))
    for first in range(0, len(block), step):
        rows = slice(first, first + step)
        yield rows, np.ascontiguousarray(block[rows], dtype)


def _row_space(n_classes: int) -> Floats:
    """Return work space for the exponentials of a row."""
    return np.empty(-(-n_classes // LANES) * LANES)


@dataclass(frozen=True)
class Softmax(Transform):
    """Turns rows of logits into probabilities: exp(z / T) over the sum of its row."""

    temperature: float
    stored: Dtype
    location: str = ""
    #: Whether row numbers count only samples that exist.
    of_existing: bool = False
    #: Whether rows without a finite maximum become NaN instead of an error.
    is_lenient: bool = False
    #: The dtype that probabilities are rounded to, or None for ``probability_dtype``.
    rounded_to: Dtype | None = None
    name: ClassVar[str] = "softmax"

    @classmethod
    def from_logits(cls, logits: Source, temperature: float) -> Softmax:
        """Return the softmax of the logits of a source."""
        return cls(temperature, logits.dtype, logits.location, logits.mask is not None)

    needs_rows = True

    @property
    def dtype(self) -> Dtype:
        """The dtype of the probabilities."""
        return probability_dtype(self.stored) if self.rounded_to is None else self.rounded_to

    @property
    def is_narrow(self) -> bool:
        """Whether plain float64 arithmetic is exact enough: for float32 logits, or for float32 probabilities."""
        return _is_narrow(self.stored) or (self.stored.kind == "f" and self.dtype == np.float32)

    @property
    def provenance(self) -> str:
        """A description of the transform."""
        return f"softmax, temperature {self.temperature!r}"

    @property
    def gives_slabs(self) -> bool:
        """Whether it can return whole rows in slabs: if plain float64 is exact enough."""
        return self.is_narrow

    def apply(self, block: Array, first_row: int, first_class: int) -> Array:
        """Return the probabilities of whole rows."""
        probabilities, n_classes = np.empty(block.shape, self.dtype), block.shape[1]
        narrow = _row_space(n_classes)
        wide = np.empty((2, 0 if self.is_narrow else n_classes))
        for rows, scores in self._logits(block):
            if self.is_narrow:
                bad = softmax_narrow(scores, self.temperature, probabilities[rows], narrow)
            else:
                bad = softmax_wide(scores, self.temperature, probabilities[rows], wide)
            self._check(bad, first_row + rows.start, scores)
        return probabilities

    def slabs(self, block: Array, first_row: int, classes: Sequence[int]) -> Iterator[Array]:
        """Yield the probabilities of whole rows in slabs: the same bits as ``apply``, with less memory and more work."""
        norms, space = np.empty((len(block), 2)), _row_space(block.shape[1])
        for rows, scores in self._logits(block):
            bad = softmax_norms(scores, self.temperature, norms[rows], space)
            self._check(bad, first_row + rows.start, scores)
        for first, last in pairwise(classes):
            part = block[:, first:last]
            slab = np.empty(part.shape, self.dtype)
            for rows, scores in _strips(part):
                softmax_part(scores, self.temperature, norms[rows], slab[rows])
            yield slab

    def _logits(self, block: Array) -> Iterator[tuple[slice, Array]]:
        """Yield some rows of a block at a time: their slice, and their logits in the form that kernels take."""
        for rows, scores in _strips(block):
            if block.dtype.kind in "iu" and block.itemsize == 8:
                # Without the row maximum, which no softmax depends on, float64 is more exact.
                logits = block[rows]
                below = logits.max(1, keepdims=True).astype(np.uint64) - logits.astype(np.uint64)
                scores = -below.astype(np.float64)
            if self.is_lenient:
                scores = np.where(np.isinf(np.fmax.reduce(scores, axis=1, keepdims=True)), np.nan, scores)
            yield rows, scores

    def _check(self, bad: int, first_row: int, scores: Array) -> None:
        """Raise ScoresError if ``bad``, the index of a row without a softmax, is not negative."""
        if bad < 0:
            return
        sample, row = first_row + bad, scores[bad]
        largest = "infinite" if (row == np.inf).any() else "-inf in every class"
        raise ScoresError(
            "scores must have a finite maximum in each row for a softmax; the scores of sample "
            f"{sample}{' (of the existing scores)' * self.of_existing}{self.location and f' of {self.location}'} are "
            f"{largest}. Leave such samples out with where=, or correct them."
        )


@dataclass(frozen=True)
class Sigmoid(Transform):
    """Turns each logit into a probability of its own: 1 / (1 + exp(-z / T))."""

    temperature: float
    stored: Dtype
    name: ClassVar[str] = "sigmoid"

    @classmethod
    def from_logits(cls, logits: Source, temperature: float) -> Sigmoid:
        """Return the sigmoid of the logits of a source."""
        return cls(temperature, logits.dtype)

    @property
    def dtype(self) -> Dtype:
        """The dtype of the probabilities."""
        return probability_dtype(self.stored)

    @property
    def provenance(self) -> str:
        """A description of the transform."""
        return f"sigmoid, temperature {self.temperature!r}"

    def apply(self, block: Array, first_row: int, first_class: int) -> Array:
        """Return the probabilities of a block."""
        probabilities, space = np.empty(block.shape, self.dtype), np.empty(block.shape[1])
        for rows, scores in _strips(block):
            if scores.dtype == np.float32:
                sigmoid_narrow(scores, self.temperature, probabilities[rows], space)
            else:
                sigmoid_wide(scores, self.temperature, probabilities[rows])
        return probabilities


#: The activations by the names that users give. ``bands.probabilities`` computes their losses from logits.
Activation = Softmax | Sigmoid
ACTIVATIONS: dict[str, type[Activation]] = {kind.name: kind for kind in (Softmax, Sigmoid)}


#: Begins the provenance of such scores, which are not probabilities.
BALANCED = "divided by class frequencies"


@dataclass(frozen=True)
class Balance(Transform):
    """Divides scores by the frequencies of their classes, in float64, and rounds once; 0 if a class does not occur."""

    frequencies: Floats
    stored: Dtype

    @property
    def dtype(self) -> Dtype:
        """The dtype of the quotients."""
        return probability_dtype(self.stored)

    @property
    def provenance(self) -> str:
        """A description of the transform, with a hash of the frequencies."""
        return f"{BALANCED} {hashlib.sha256(self.frequencies.tobytes()).hexdigest()[:8]}"

    def apply(self, block: Array, first_row: int, first_class: int) -> Array:
        """Return a block of scores, divided."""
        frequencies = self.frequencies[first_class : first_class + block.shape[1]]
        return np.asarray(block / np.where(frequencies > 0, frequencies, np.inf), self.dtype)  # NaN stays

    def __dask_tokenize__(self) -> tuple[object, ...]:
        return type(self).__name__, self.frequencies.tobytes(), str(self.stored)


@dataclass(frozen=True)
class Affine(Transform):
    """Turns rows of logits z into w z + b or W z + b, as float64. The bits do not depend on the blocks."""

    weights: Floats
    bias: Floats

    dtype = np.dtype(np.float64)

    @property
    def needs_rows(self) -> bool:
        """Whether it needs whole rows: if weights are a matrix."""
        return self.weights.ndim == 2

    @property
    def provenance(self) -> str:
        """A description of the transform, with a hash of its weights."""
        digest = hashlib.sha256(np.concatenate([self.weights.reshape(-1), self.bias]).astype("<f8").tobytes())
        return f"weighted by {digest.hexdigest()[:16]}"

    def apply(self, block: Array, first_row: int, first_class: int) -> Array:
        """Return a block of weighted logits."""
        if self.needs_rows:
            return affine_logits(block, self.weights, self.bias)
        classes = slice(first_class, first_class + block.shape[1])
        return affine_logits(block, self.weights[classes], self.bias[classes])


def affine_logits(scores: Array, weights: Floats, bias: Floats) -> Floats:
    """Return logits times a vector or a matrix of weights, plus the bias, summed in an order that does not depend on rows."""
    wide = np.ascontiguousarray(scores, np.float64)
    if weights.ndim == 1:
        with np.errstate(over="ignore", invalid="ignore"):
            return wide * weights + bias
    logits = np.empty((len(wide), len(weights)))
    mix_rows(wide, np.ascontiguousarray(weights.T), bias, logits)
    return logits
