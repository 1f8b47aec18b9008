"""Sources: a score matrix with its labels, as bands of whole rows that tasks read."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dask.array as da
import numpy as np

from ..arrays import Array, Dtype
from ..errors import OptionError
from ..settings import setting
from ..store.where.addresses import StoredArray
from ..threads import cluster_client, n_task_threads
from .reading import Argument, Key, Preparation
from .row_values import Labels, RowValues, SampleMask

#: Bytes of a chunk of which the pilot takes no more than a fifth.
_LARGE_PIECE = 64 << 20
#: How many times larger tasks are of which each costs more than a call; and how many of those there should be, at least.
_LARGER, _LEAST_TASKS, _STEADY_TASKS = 8, 64, 256
#: Bytes of a task that reads ahead, in those that may be ahead.
_AHEADS = 4


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
    #: The shape of the samples, as they were given.
    lead: tuple[int, ...]
    #: Which of the samples exist; None where all do.
    mask: SampleMask | None = None

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
    def whole(self) -> Source:
        """The source with all samples, whether they exist or not."""
        return self

    @property
    def places(self) -> Sequence[int]:
        """The number, among the bands of the source with all samples, of each band."""
        return range(self.n_bands)

    def places_of(self, bands: Sequence[int]) -> Sequence[int]:
        """Return the numbers of some bands among those of the source with all samples."""
        places = self.places
        return bands if self.mask is None else [places[band] for band in bands]

    def sample(self, band: int, row: int) -> int:
        """Return the number, among all samples, of a row of a band."""
        return self.rows[band] + row

    def masks_of(self, bands: Sequence[int]) -> Argument:
        """Return which rows of some bands exist, as an argument of a task; None where all do."""
        return None

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

    @property
    def score_bytes(self) -> int:
        """Bytes that are read for each score."""
        return self.stored_dtype.itemsize

    @property
    def row_bounds(self) -> Sequence[int] | None:
        """Rows at which bands may begin without a chunk being read for two of them; None where that is any row."""
        return None

    @property
    def is_made(self) -> bool:
        """Whether scores are made of those that are read, which takes memory of its own."""
        return bool(self.preparations)

    def slab_bytes(self) -> int:
        """Return the bytes of the largest piece of a band that is in memory at once."""
        return int(np.diff(self.rows).max() * np.diff(self.classes).max()) * self.dtype.itemsize

    @abstractmethod
    def held_bytes(self) -> int:
        """Return the bytes that a task holds of the scores at once, as stored and decoded, apart from what is read ahead."""

    def ahead_bytes(self) -> int:
        """Return the bytes that a process may read ahead of its tasks."""
        return 0

    @property
    def is_far(self) -> bool:
        """Whether tasks read from a store whose answers take time."""
        return self.ahead_bytes() > 0

    def reading(self) -> AbstractContextManager[None]:
        """Return what holds while tasks read: where it ends with an error or an interrupt, none of this process goes on."""
        return nullcontext()

    def groups(
        self, max_tasks: int | None = None, bands: Sequence[int] | None = None, *, steady: bool = False
    ) -> list[Sequence[int]]:
        """Return the bands that each task reads: enough to be worth a task, and not too many tasks.

        Steady ones are the same for any number of threads or workers.
        """
        mine = range(self.n_bands) if bands is None else bands
        per_band = max(1, self.shape[0] * self.shape[1] * self.dtype.itemsize // self.n_bands)
        least = math.ceil(len(mine) / setting("max-tasks"))
        size = max(math.ceil(setting("task-bytes") / per_band), least)
        # A small matrix still gives every core something to do.
        size = max(1, min(size, len(mine) // 8 if len(mine) > 8 else 1))
        if steady or cluster_client() is not None:  # a file, or a message, for each
            n_tasks = _STEADY_TASKS if steady else max(_LEAST_TASKS, 4 * n_task_threads())
            size = max(size, min(math.ceil(_LARGER * setting("task-bytes") / per_band), len(mine) // n_tasks))
        if self.is_far and not steady:
            # Reading ahead begins anew with each task: as few as there are threads, or a multiple of those.
            most = max(1, _AHEADS * self.ahead_bytes() // per_band)
            n_threads = n_task_threads()
            size = max(math.ceil(len(mine) / (n_threads * math.ceil(len(mine) / (n_threads * most)))), least)
        size = max(size, math.ceil(len(mine) / max_tasks)) if max_tasks else size
        return [mine[i : i + size] for i in range(0, len(mine), size)]

    def pilot_chunks(self) -> list[tuple[int, int]]:
        """Choose (band, class chunk) of the chunks the pilot reads, spread over the matrix; none that has no samples."""
        n = self.n_chunks
        share = max(setting("pilot-least"), min(int(setting("pilot-share") * n), setting("pilot-most")))
        n_columns = len(self.columns) - 1
        n_places = self.n_bands * n_columns
        # Of few large ones, fewer: they would be a good part of a read.
        n_read = min(n_places, share, max(1, n // (5 if self._piece_bytes() > _LARGE_PIECE else 2)))
        numbers = [(2 * i + 1) * n_places // (2 * n_read) for i in range(n_read)]
        # Shifted by the band, so that they do not all fall into the same columns.
        chosen = [(number // n_columns, (number + number // n_columns) % n_columns) for number in numbers]
        return chosen if self.mask is None else self._with_samples(chosen)

    def _piece_bytes(self) -> int:
        """Return the bytes of the largest chunk that a pilot might read."""
        return self.band_bytes() * int(np.diff(self.columns).max()) // self.shape[1]

    def _with_samples(self, chunks: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return chunks, the next ones instead of those that have no samples; none where no piece of a band has any."""
        usable = [band for band in range(self.n_bands) if self.piece_end(band) > self.rows[band]]
        if not usable:
            return []
        near = [usable[min(bisect_left(usable, band), len(usable) - 1)] for band, _ in chunks]
        return list(dict.fromkeys((band, column) for band, (_, column) in zip(near, chunks, strict=True)))

    def chunk_groups(self, n_chunks: int, *, steady: bool = False) -> list[Sequence[int]]:
        """Return which of the pilot's chunks each task reads: one, or several whose requests wait together."""
        size = math.ceil(n_chunks / n_task_threads()) if self.is_far and not steady else 1
        return [range(first, min(first + size, n_chunks)) for first in range(0, n_chunks, size)]

    def piece_end(self, band: int) -> int:
        """Return the row up to which a pilot reads a band."""
        return self.rows[band + 1]

    def chunk_shape(self, band: int, column: int) -> tuple[int, int]:
        """Return the shape of one chunk, as a pilot reads it."""
        return self.piece_end(band) - self.rows[band], self.columns[column + 1] - self.columns[column]

    def chunk_names(self, rows: tuple[int, int], classes: tuple[int, int]) -> str:
        """Return the first and the last of the stored chunks that rows and classes lie in; nothing where none are stored."""
        return ""

    def labels_of(self, bands: Sequence[int]) -> Argument:
        """Return the labels of some bands, as an argument of a task: the key of what reads them, the keys of blocks, or arrays."""
        return self._row_labels.of(bands)

    @cached_property
    def _row_labels(self) -> RowValues:
        return RowValues(self.labels, self.rows)

    def collections(self) -> list[Any]:
        """Return the Dask collections whose tasks the keys of bands, chunks and labels name."""
        return self._row_labels.collections()

    @property
    @abstractmethod
    def token(self) -> str:
        """A name of the scores and labels, the same only where both are the same."""

    @property
    def made_by(self) -> str:
        """What was done to the scores after they were read, in words; nothing where they are as they are stored."""
        return ""

    @property
    def stored_array(self) -> StoredArray | None:
        """The stored scores, before anything is done to them; None where they are not stored."""
        return None

    @property
    def labels_token(self) -> str:
        """A name of the labels, the same only where they are."""
        return self._row_labels.token

    @abstractmethod
    def with_labels(self, labels: Labels) -> Source:
        """Return the same scores with other labels: any matrix or column with a row for each sample."""

    def with_slots(self, slots: Labels) -> Source:
        """Return the same scores with another column made of their labels, which are slots where rows are truncated."""
        return self.with_labels(slots)

    def row_stamps(self) -> Array:
        """Return for each band a hash that tells its scores from any others, without reading them.

        Raises
        ------
        OptionError
            Where nothing tells them apart.

        """
        raise OptionError(
            "checkpoint must be of scores in a store or file; got an array in memory or in blocks. Pass the path of one."
        )

    @abstractmethod
    def with_rows(self, rows: Sequence[int]) -> Source:
        """Return the same scores and labels in other bands."""

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
