"""Sources: a score matrix with its labels, as bands of whole rows that tasks read.

A source is data: a reader, labels, a mask of the samples that exist, and the transforms of the scores. Tasks read bands
(``Reader``), leave out the samples that do not exist (``SampleMask``), and apply the transforms one after the other
(``Preparation``). Everything above sees only the result: its shape, its dtype, and its own numbers of bands and rows.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import dask.array as da
import numpy as np
from dask.tokenize import tokenize

from ..arrays import Array, Dtype
from ..errors import ScoresError
from ..settings import setting
from ..store.read.listing import hash_rows
from ..threads import cluster_client, n_task_threads
from .readers import Reader
from .reading import Argument
from .row_values import Condition, Labels, RowValues, SampleMask, blank, fit_rows
from .transforms import Preparation, SpreadTies, Transform

#: Bytes of a band that a transform makes whole, although it could make slabs; and classes of a long row. Slabs take more
#: time, and less memory only if rows are long: scans hold more of each row then.
_WHOLE_BYTES, _LONG_ROW = 64 << 20, 1 << 12


@dataclass(frozen=True, eq=False)
class Source:
    """A score matrix with its labels, as bands of rows; ``with_labels`` and the like make others of the same scores."""

    reader: Reader
    #: Labels of all samples, also of those that do not exist; slots if rows are truncated.
    labels: Labels = None
    #: Which of the samples exist, or None if all do. Bands without any are left out.
    mask: SampleMask | None = None
    #: What happens to the scores after they are read, one after the other.
    transforms: tuple[Transform, ...] = ()
    #: What is left of each row, or None if all is stored.
    truncation: Truncation | None = None

    def with_labels(self, labels: Labels) -> Source:
        """Return the same scores with other labels: any matrix or column with a row for each sample."""
        return replace(self, labels=fit_rows(labels, self.reader.rows))

    def with_conditions(self, conditions: Sequence[Condition]) -> Source:
        """Return the samples that meet all conditions; the source itself if there are none.

        One pass over the conditions, and over nothing else, counts the samples of each band.
        """
        assert not self.transforms  # samples are left out before anything else happens to them
        return replace(self, mask=_mask_of(conditions, self.reader)) if conditions else self

    def with_transform(self, transform: Transform) -> Source:
        """Return the scores with one more transform: whole rows from then on, if it needs these."""
        return replace(self, transforms=(*self.transforms, transform), truncation=None)

    def with_rows(self, rows: Sequence[int]) -> Source:
        """Return the same scores and labels in other bands."""
        reader = self.reader.with_rows(rows)
        mask = None if self.mask is None else _mask_of(self.mask.conditions, reader)
        return replace(self, reader=reader, labels=fit_rows(self.labels, reader.rows), mask=mask)

    @property
    def whole(self) -> Source:
        """The source with all samples, whether they exist or not, as they are read."""
        return Source(self.reader, self.labels)

    # What it looks like.

    @property
    def location(self) -> str:
        """Where the scores are stored."""
        return self.reader.location

    @property
    def lead(self) -> tuple[int, ...]:
        """The shape of the samples, as they were given."""
        return self.reader.lead

    @cached_property
    def rows(self) -> Sequence[int]:
        """Bounds of the bands, in samples that exist."""
        if self.mask is None:
            return self.reader.rows
        return [0, *np.cumsum(self.mask.counts[self.mask.places, 1]).tolist()]

    @property
    def n_bands(self) -> int:
        """Number of bands."""
        return len(self.rows) - 1

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Number of samples that exist, and of columns."""
        n_columns = self.reader.shape[1]
        for transform in self.transforms:
            n_columns = transform.width(n_columns)
        return self.rows[-1], n_columns

    @property
    def n_classes(self) -> int:
        """Number of classes, also of those whose scores were discarded."""
        return self.shape[1] if self.truncation is None else self.truncation.n_classes

    @property
    def dtype(self) -> Dtype:
        """The dtype that is ranked; that which is read is the reader's."""
        return self.transforms[-1].dtype if self.transforms else self.reader.dtype

    @property
    def columns(self) -> Sequence[int]:
        """Bounds of the class chunks."""
        return self.preparations[-1].columns if self.transforms else self.reader.columns

    @property
    def classes(self) -> Sequence[int]:
        """Bounds of the slabs that a band comes in."""
        return self.preparations[-1].classes if self.transforms else self.reader.classes

    @property
    def has_soft_labels(self) -> bool:
        """Whether the labels are probabilities."""
        return self.labels is not None and self.labels.ndim == 2

    @property
    def made_by(self) -> str:
        """What was done to the scores after they were read, in words; empty if they are as they are stored."""
        return "; ".join(filter(None, (self.reader.made_by, *(transform.made_by for transform in self.transforms))))

    @property
    def is_made(self) -> bool:
        """Whether scores are made of those that are read, which takes memory of its own."""
        return bool(self.reader.made_by or self.transforms)

    @cached_property
    def token(self) -> str:
        """A name of the scores and labels, the same only where both are the same."""
        token = f"{self.reader.token} {self._row_labels.token}"
        if self.mask is not None:
            token = str(tokenize(token, self.mask.token))
        for transform in self.transforms:
            token = str(tokenize(token, transform))
        return token

    def row_stamps(self) -> Array:
        """Return a hash of each band that distinguishes its scores from any others, without reading them.

        Raises
        ------
        OptionError
            If nothing distinguishes them.

        """
        stamps = self.reader.row_stamps()
        if self.mask is None:
            return stamps
        pairs = np.stack([stamps, self.mask.counts[:, 2].view(np.uint64)], axis=1)
        return np.array([hash_rows(pair) for pair in pairs[self.mask.places]], np.uint64)

    # How samples and bands are numbered where some do not exist.

    @property
    def places(self) -> Sequence[int]:
        """The number, among the bands of the reader, of each band."""
        return range(self.n_bands) if self.mask is None else self.mask.places

    def places_of(self, bands: Sequence[int]) -> Sequence[int]:
        """Return the numbers of some bands among those of the reader."""
        return bands if self.mask is None else [self.mask.places[band] for band in bands]

    def sample(self, band: int, row: int) -> int:
        """Return the number, among all samples, of a row of a band."""
        if self.mask is not None:
            band = self.mask.places[band]
            row = int(np.flatnonzero(self.mask.band(band))[row])
        return self.reader.sample(band, row)

    # What tasks read: arguments, and the collections whose tasks the keys among them name.

    def bands(self, numbers: Sequence[int]) -> Argument:
        """Return some bands, as an argument of a task."""
        return self.reader.bands(self.places_of(numbers))

    def chunk(self, band: int, column: int) -> Argument:
        """Return one chunk, as an argument of a task; whole rows of a band if a transform needs them."""
        return self.reader.chunk(self.places[band], None if self._needs_rows else column)

    def labels_of(self, bands: Sequence[int]) -> Argument:
        """Return the labels of some bands, as an argument of a task: the key of what reads them, the keys of blocks, or arrays."""
        return self._row_labels.of(self.places_of(bands))

    def masks_of(self, bands: Sequence[int]) -> Argument:
        """Return which rows of some bands exist, as an argument of a task, or None if all do."""
        return None if self.mask is None else self.mask.of(self.places_of(bands))

    def collections(self) -> list[Any]:
        """Return the Dask collections whose tasks the keys of bands, chunks, labels and masks name."""
        masks = [] if self.mask is None else self.mask.collections()
        return [*self.reader.collections, *self._row_labels.collections(), *masks]

    @cached_property
    def _row_labels(self) -> RowValues:
        return RowValues(self.labels, self.reader.rows)

    @cached_property
    def preparations(self) -> tuple[Preparation, ...]:
        """The transforms, each in its place: for the tasks."""
        preparations, rows = [], tuple(self.rows)
        dtype, n_columns = self.reader.dtype, self.reader.shape[1]
        columns, classes = tuple(self.reader.columns), tuple(self.reader.classes)
        for transform in self.transforms:
            n_stored, n_columns = n_columns, transform.width(n_columns)
            if transform.needs_rows:
                columns = (0, n_columns)
                classes = self._slab_bounds(transform, n_columns)
            preparations.append(Preparation(transform, dtype, n_stored, rows, columns, classes))
            dtype = transform.dtype
        return tuple(preparations)

    def _slab_bounds(self, transform: Transform, n_columns: int) -> tuple[int, ...]:
        """Return the bounds of the slabs that a transform makes of whole rows: several of large bands, if it can."""
        n_bytes = self._most_rows * n_columns * transform.dtype.itemsize
        if not transform.gives_slabs or n_bytes <= _WHOLE_BYTES or n_columns < _LONG_ROW:
            return 0, n_columns
        n_slabs = -(-n_bytes // setting("slab-bytes"))
        return *range(0, n_columns, -(-n_columns // n_slabs)), n_columns

    @property
    def _needs_rows(self) -> bool:
        return any(transform.needs_rows for transform in self.transforms)

    def chunk_names(self, rows: tuple[int, int], classes: tuple[int, int]) -> str:
        """Return the first and the last of the stored chunks that contain rows and classes; empty if none are stored."""
        return self.reader.chunk_names(rows, (0, self.reader.shape[1]) if self._needs_rows else classes)

    def dask_array(self) -> da.Array:
        """Return all rows as a Dask array with blocks of its own, with zeros before transforms in those that do not exist."""
        array = self.reader.dask_array()
        array = array if self.mask is None else blank(array, self.mask)
        for transform in self.transforms:
            chunks = array.chunks
            if transform.needs_rows:
                array = array.rechunk({1: -1})
                chunks = array.chunks[0], (transform.width(array.shape[1]),)
            dtype = transform.dtype
            array = array.map_blocks(_apply, transform, dtype=dtype, chunks=chunks, meta=np.empty((0, 0), dtype))
        return array

    # What it takes in memory.

    @cached_property
    def _most_rows(self) -> int:
        return int(np.diff(self.rows).max())

    def band_bytes(self) -> int:
        """Return the bytes of the largest band."""
        return self._most_rows * self.shape[1] * self.dtype.itemsize

    def slab_bytes(self) -> int:
        """Return the bytes of the largest piece of a band that is in memory at once."""
        if self.mask is None and not self.transforms:
            return self.reader.slab_bytes()
        return self._slab_bytes(self.classes, self.dtype)

    def _slab_bytes(self, classes: Sequence[int], dtype: Dtype) -> int:
        return self._most_rows * int(np.diff(classes).max()) * dtype.itemsize

    def held_bytes(self) -> int:
        """Return the bytes that a task holds of the scores at once, stored and decoded, apart from what is read ahead."""
        held = self.reader.held_bytes()
        if self.mask is not None:
            held += self._slab_bytes(self.reader.classes, self.reader.dtype) + int(np.diff(self.reader.rows).max())
        for made in self.preparations:
            joined = self._most_rows * made.n_stored * made.dtype.itemsize if made.transform.needs_rows else 0
            norms = 16 * self._most_rows if len(made.classes) > 2 else 0
            held += joined + norms + 2 * self._slab_bytes(made.classes, made.transform.dtype)
        return held

    @property
    def is_far(self) -> bool:
        """Whether tasks read from a store whose answers take time."""
        return self.reader.ahead_bytes() > 0

    # Chunks, as a pilot reads them.

    @property
    def n_pieces(self) -> int:
        """Number of pieces along the samples, each of which is as much as a pilot reads of a band."""
        if self.mask is None:
            return self.reader.n_pieces
        return max(self.n_bands, self.reader.n_pieces * self.n_bands // self.reader.n_bands)

    @property
    def n_chunks(self) -> int:
        """Number of chunks, or of pieces of several small ones, that a pilot can choose from."""
        return self.n_pieces * (len(self.columns) - 1)

    def piece_end(self, band: int) -> int:
        """Return the row up to which a pilot reads a band."""
        if self.mask is None:
            return self.reader.piece_end(band)
        return self.rows[band] + int(self.mask.counts[self.mask.places[band], 0])

    def chunk_shape(self, band: int, column: int) -> tuple[int, int]:
        """Return the shape of one chunk, as a pilot reads it."""
        return self.piece_end(band) - self.rows[band], self.columns[column + 1] - self.columns[column]


def _mask_of(conditions: Sequence[Condition], reader: Reader) -> SampleMask:
    """Return the mask of the samples of a reader that meet all conditions; refuse one that leaves none."""
    mask = SampleMask(conditions, reader.rows, [reader.piece_end(band) for band in range(reader.n_bands)])
    if not mask.places:
        raise ScoresError(
            f"where must be True for at least one sample; got {reader.shape[0]:,} of them that do not exist. "
            "Check the mask, or the label to be ignored."
        )
    return mask


def _apply(block: Any, transform: Transform, block_info: Any = None) -> Any:
    first_row, first_class = (int(first) for first, _ in block_info[0]["array-location"])
    return transform.apply(block, first_row, first_class)


def spread_source(source: Source, chosen: Iterable[int]) -> Source:
    """Return the matrix of keys in which the ties at the chosen keys are in a fixed pseudo-random order."""
    return source.with_transform(SpreadTies(tuple(sorted(set(chosen))), source.shape[1], source.dtype))


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


def scatter_slots(sets: da.Array, truncation: Truncation, *, by_threshold: bool) -> da.Array:
    """Return sets over the slots as sets over the classes.

    Sets above a threshold must not reach a row's last slot: what was discarded might then be in, too.
    """
    rows = sets.rechunk({1: -1})
    index = truncation.class_index.rechunk({0: rows.chunks[0], 1: -1})
    numbers = da.arange(sets.shape[0], chunks=(rows.chunks[0],))[:, None]
    checked = by_threshold and not truncation.is_whole
    return da.map_blocks(
        _scatter, rows, index, numbers, truncation.n_classes, truncation.location if checked else None,
        chunks=(rows.chunks[0], (truncation.n_classes,)), dtype=bool, meta=np.empty((0, 0), bool),
    )  # fmt: skip


def _scatter(sets: Array, index: Array, numbers: Array, n_classes: int, location: str | None) -> Array:
    n_slots = index.shape[1]
    if location is not None and sets[:, n_slots - 1].any():
        first = int(numbers[sets[:, n_slots - 1]][0, 0])
        raise ScoresError(
            f"threshold must exceed every row's last stored score to be certain from {location}, which keeps {n_slots} of "
            f"{n_classes} scores of each row; got one that sample {first} has more scores above. "
            "Use a higher threshold, or a store with more of them."
        )
    members = np.zeros((len(sets), n_classes), bool)
    rows, slots = np.nonzero(sets[:, :n_slots])
    members[rows, index[rows, slots]] = True
    return members


#: Bytes of a chunk of which the pilot takes no more than a fifth.
_LARGE_PIECE = 64 << 20
#: How many times larger tasks are of which each costs more than a call; and how many of those there should be, at least.
_LARGER, _LEAST_TASKS, _STEADY_TASKS = 8, 64, 256
#: Bytes of a task that reads ahead, in those that may be ahead.
_AHEADS = 4


def group_bands(
    source: Source, max_tasks: int | None = None, bands: Sequence[int] | None = None, *, steady: bool = False
) -> list[Sequence[int]]:
    """Return the bands that each task reads: enough to be worth a task, and not too many tasks.

    Steady ones are the same for any number of threads or workers.
    """
    mine = range(source.n_bands) if bands is None else bands
    per_band = max(1, source.shape[0] * source.shape[1] * source.dtype.itemsize // source.n_bands)
    least = math.ceil(len(mine) / setting("max-tasks"))
    size = max(math.ceil(setting("task-bytes") / per_band), least)
    # A small matrix still gives every core something to do.
    size = max(1, min(size, len(mine) // 8 if len(mine) > 8 else 1))
    if steady or cluster_client() is not None:  # a file, or a message, for each
        n_tasks = _STEADY_TASKS if steady else max(_LEAST_TASKS, 4 * n_task_threads())
        size = max(size, min(math.ceil(_LARGER * setting("task-bytes") / per_band), len(mine) // n_tasks))
    if source.is_far and not steady:
        # Reading ahead begins anew with each task: as few as there are threads, or a multiple of those.
        most = max(1, _AHEADS * source.reader.ahead_bytes() // per_band)
        n_threads = n_task_threads()
        size = max(math.ceil(len(mine) / (n_threads * math.ceil(len(mine) / (n_threads * most)))), least)
    size = max(size, math.ceil(len(mine) / max_tasks)) if max_tasks else size
    return [mine[i : i + size] for i in range(0, len(mine), size)]


def choose_pilot_chunks(source: Source) -> list[tuple[int, int]]:
    """Choose (band, class chunk) of the chunks the pilot reads, spread over the matrix; none that has no samples."""
    n = source.n_chunks
    share = max(setting("pilot-least"), min(int(setting("pilot-share") * n), setting("pilot-most")))
    n_columns = len(source.columns) - 1
    n_places = source.n_bands * n_columns
    # Of few large ones, fewer: they would be a good part of a read.
    n_read = min(n_places, share, max(1, n // (5 if _piece_bytes(source) > _LARGE_PIECE else 2)))
    numbers = [(2 * i + 1) * n_places // (2 * n_read) for i in range(n_read)]
    # Shifted by the band, so that they do not all fall into the same columns.
    chosen = [(number // n_columns, (number + number // n_columns) % n_columns) for number in numbers]
    return chosen if source.mask is None else _with_samples(source, chosen)


def _piece_bytes(source: Source) -> int:
    """Return the bytes of the largest chunk that a pilot might read."""
    return source.band_bytes() * int(np.diff(source.columns).max()) // source.shape[1]


def _with_samples(source: Source, chunks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return chunks, the next ones instead of those that have no samples; none where no piece of a band has any."""
    usable = [band for band in range(source.n_bands) if source.piece_end(band) > source.rows[band]]
    if not usable:
        return []
    near = [usable[min(bisect_left(usable, band), len(usable) - 1)] for band, _ in chunks]
    return list(dict.fromkeys((band, column) for band, (_, column) in zip(near, chunks, strict=True)))


def group_chunks(source: Source, n_chunks: int, *, steady: bool = False) -> list[Sequence[int]]:
    """Return which of the pilot's chunks each task reads: one, or several whose requests wait together."""
    size = math.ceil(n_chunks / n_task_threads()) if source.is_far and not steady else 1
    return [range(first, min(first + size, n_chunks)) for first in range(0, n_chunks, size)]
