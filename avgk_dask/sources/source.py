"""Sources: a score matrix with its labels, as bands of whole rows that tasks read."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import dask
import dask.array as da
import numpy as np
from dask.tokenize import tokenize

from ..arrays import Array, Dtype
from ..settings import setting
from ..store.read.opening import array_token
from ..store.where.array_kinds import StoredArray
from .reading import Argument, Key, Preparation, StoredLabels

#: Labels as a source has them: in memory, stored, or the blocks of a Dask array.
Labels: TypeAlias = "Array | StoredArray | da.Array | None"


class Source(ABC):
    """A score matrix with its labels, as bands of rows."""

    shape: tuple[int, int]
    #: The dtype that is ranked, and the one that is read.
    dtype: Dtype
    stored_dtype: Dtype
    #: Bounds of the bands, of the slabs each is read in, and of the class chunks.
    rows: Sequence[int]
    classes: Sequence[int]
    columns: Sequence[int]
    location: str
    labels: Labels
    #: What is left of each row, where not all is stored.
    truncation: Truncation | None = None

    @property
    def n_bands(self) -> int:
        """Number of bands."""
        return len(self.rows) - 1

    @property
    def n_pieces(self) -> int:
        """Number of pieces along the samples, each of which is as much as a pilot reads of a band."""
        return self.n_bands

    @property
    def n_chunks(self) -> int:
        """Number of chunks, or of pieces of several small ones, that a pilot can choose from."""
        return self.n_pieces * (len(self.columns) - 1)

    @property
    def n_classes(self) -> int:
        """Number of classes, also of those whose scores were discarded."""
        return self.shape[1] if self.truncation is None else self.truncation.n_classes

    @property
    def has_soft_labels(self) -> bool:
        """Whether the labels are probabilities."""
        return self.labels is not None and self.labels.ndim == 2

    def band_bytes(self) -> int:
        """Return the bytes of the largest band."""
        return int(np.diff(self.rows).max()) * self.shape[1] * self.dtype.itemsize

    @abstractmethod
    def slab_bytes(self) -> int:
        """Return the bytes of the largest piece of a band that is in memory at once."""

    @abstractmethod
    def held_bytes(self) -> int:
        """Return the bytes that a task holds of the scores at once: as stored, decoded, and read ahead."""

    def groups(self, max_tasks: int | None = None, bands: Sequence[int] | None = None) -> list[Sequence[int]]:
        """Return the bands that each task reads: enough to be worth a task, and not too many tasks."""
        mine = range(self.n_bands) if bands is None else bands
        per_band = max(1, self.shape[0] * self.shape[1] * self.dtype.itemsize // self.n_bands)
        size = max(math.ceil(setting("task-bytes") / per_band), math.ceil(len(mine) / setting("max-tasks")))
        # A small matrix still gives every core something to do.
        size = max(1, min(size, len(mine) // 8 if len(mine) > 8 else 1))
        size = max(size, math.ceil(len(mine) / max_tasks)) if max_tasks else size
        return [mine[i : i + size] for i in range(0, len(mine), size)]

    def pilot_chunks(self) -> list[tuple[int, int]]:
        """Choose (band, class chunk) of the chunks the pilot reads, spread over the matrix."""
        n = self.n_chunks
        share = max(setting("pilot-least"), min(int(setting("pilot-share") * n), setting("pilot-most")))
        n_columns = len(self.columns) - 1
        n_places = self.n_bands * n_columns
        n_read = min(n_places, share, max(1, n // 2))
        numbers = [(2 * i + 1) * n_places // (2 * n_read) for i in range(n_read)]
        # Shifted by the band, so that they do not all fall into the same columns.
        return [(number // n_columns, (number + number // n_columns) % n_columns) for number in numbers]

    def piece_end(self, band: int) -> int:
        """Return the row up to which a pilot reads a band."""
        return self.rows[band + 1]

    def chunk_shape(self, band: int, column: int) -> tuple[int, int]:
        """Return the shape of one chunk, as a pilot reads it."""
        return self.piece_end(band) - self.rows[band], self.columns[column + 1] - self.columns[column]

    def labels_of(self, band: int) -> Argument:
        """Return a band's labels: an array, what reads it inside a task, or the key of the block that is it."""
        first, last = self.rows[band], self.rows[band + 1]
        if self.labels is None:
            return None
        if isinstance(self.labels, da.Array):
            return Key((self.labels.name, band, *(0,) * (self.labels.ndim - 1)))
        if isinstance(self.labels, np.ndarray):
            return self.labels[first:last]
        return StoredLabels(self.labels, first, last)

    def collections(self) -> list[Any]:
        """Return the Dask collections whose tasks the keys of bands, chunks and labels name."""
        return [self.labels] if isinstance(self.labels, da.Array) else []

    @property
    @abstractmethod
    def token(self) -> str:
        """A name of the scores and labels, the same only where both are the same."""

    @cached_property
    def labels_token(self) -> str:
        """A name of the labels, the same only where they are."""
        labels = self.labels
        if isinstance(labels, da.Array):
            return str(labels.name)
        return str(tokenize(labels) if labels is None or isinstance(labels, np.ndarray) else array_token(labels))

    def _fit_labels(self, labels: Labels) -> Labels:
        """Return the labels, with one block for each band if they are a Dask array."""
        if not isinstance(labels, da.Array):
            return labels
        rows: Any = tuple(np.diff(self.rows).tolist())
        (fitted,) = dask.optimize(labels.rechunk((rows, *(-1,) * (labels.ndim - 1))))
        return fitted

    @abstractmethod
    def with_labels(self, labels: Labels) -> Source:
        """Return the same scores with other labels: any matrix or column with a row for each sample."""

    @abstractmethod
    def chunk(self, band: int, column: int | None) -> Argument:
        """Return one chunk (with None that of all classes), as an argument of a task: what reads it, or its blocks' keys."""

    @property
    def preparations(self) -> tuple[Preparation, ...]:
        """What happens to scores between reading and ordering, one after the other."""
        return ()

    def reader_key(self) -> Key | None:
        """Return the key of what reads chunks inside tasks; None where blocks come to them."""
        return None

    @abstractmethod
    def bands(self, numbers: Sequence[int]) -> Argument:
        """Return some bands, as an argument of a task."""

    @abstractmethod
    def dask_array(self) -> da.Array:
        """Return the scores as a Dask array with blocks of its own: no other call gives the same ones."""


@dataclass(frozen=True)
class Truncation:
    """A source of each row's largest scores: how many of how many classes, which ones, and where they are stored."""

    n_slots: int
    n_classes: int
    location: str
    #: The class of each slot, in blocks like those of the scores.
    class_index: da.Array

    @property
    def is_whole(self) -> bool:
        """Whether nothing was discarded."""
        return self.n_slots == self.n_classes
