"""Sources: a score matrix with its labels, as bands of whole rows that tasks read.

A source is data: a reader, labels, a mask of the samples that exist, and the transforms of the scores. Tasks read bands
(``Reader``), leave out the samples that do not exist (``SampleMask``), and apply the transforms in order (``Preparation``).
The engine sees only the result: its shape, its dtype, and its own numbering of bands and rows.
"""

from __future__ import annotations

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
from .readers import Reader
from .reading import Argument
from .row_values import Condition, Labels, RowValues, SampleMask, blank, fit_rows
from .transforms import Preparation, ReorderTies, Transform

#: A transform returns a band in slabs if the band has more bytes than this and rows at least this many classes. Slabs
#: take more time, and save memory only if rows are long, because scans hold more of each row then.
_WHOLE_BYTES, _LONG_ROW = 64 << 20, 1 << 12


@dataclass(frozen=True, eq=False)
class Source:
    """A score matrix with its labels, as bands of rows. The ``with_*`` methods return other sources of the same scores."""

    reader: Reader
    #: Labels of all samples, also of those that do not exist; slots if rows are truncated.
    labels: Labels = None
    #: Which of the samples exist, or None if all do. Bands without any are left out.
    mask: SampleMask | None = None
    #: What happens to the scores after they are read, in order.
    transforms: tuple[Transform, ...] = ()
    #: What a truncated store kept of each row, or None if all scores are stored.
    truncation: Truncation | None = None

    def with_labels(self, labels: Labels) -> Source:
        """Return the same scores with other labels: any matrix or column with a row for each sample."""
        return replace(self, labels=fit_rows(labels, self.reader.rows))

    def with_conditions(self, conditions: Sequence[Condition]) -> Source:
        """Return the samples that meet all conditions, which are counted without reading scores."""
        assert not self.transforms  # samples are left out before transforms
        return replace(self, mask=_mask_of(conditions, self.reader)) if conditions else self

    def with_transform(self, transform: Transform) -> Source:
        """Return the scores with one more transform."""
        return replace(self, transforms=(*self.transforms, transform), truncation=None)

    def with_rows(self, rows: Sequence[int]) -> Source:
        """Return the same scores and labels in bands with these bounds."""
        reader = self.reader.with_rows(rows)
        mask = None if self.mask is None else _mask_of(self.mask.conditions, reader)
        return replace(self, reader=reader, labels=fit_rows(self.labels, reader.rows), mask=mask)

    @property
    def unfiltered(self) -> Source:
        """The stored scores of all samples, without mask and transforms."""
        return Source(self.reader, self.labels)

    @property
    def location(self) -> str:
        """Where the scores are stored."""
        return self.reader.location

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of the sample axes."""
        return self.reader.sample_shape

    @cached_property
    def rows(self) -> Sequence[int]:
        """Bounds of the bands, in samples that exist."""
        if self.mask is None:
            return self.reader.rows
        return [0, *np.cumsum(self.mask.counts[self.mask.nonempty_bands, 1]).tolist()]

    @property
    def n_bands(self) -> int:
        """Number of bands."""
        return len(self.rows) - 1

    @cached_property
    def band_rows(self) -> int:
        """Number of rows of the largest band."""
        return int(np.diff(self.rows).max())

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Number of samples that exist, and of columns."""
        n_columns = self.reader.shape[1]
        for transform in self.transforms:
            n_columns = transform.width(n_columns)
        return self.rows[-1], n_columns

    @property
    def n_classes(self) -> int:
        """Number of classes, including those whose scores were discarded."""
        return self.shape[1] if self.truncation is None else self.truncation.n_classes

    @property
    def dtype(self) -> Dtype:
        """The dtype that is ranked, after transforms."""
        return self.transforms[-1].dtype if self.transforms else self.reader.dtype

    @property
    def columns(self) -> Sequence[int]:
        """Bounds of the class chunks."""
        return self.preparations[-1].columns if self.transforms else self.reader.columns

    @property
    def classes(self) -> Sequence[int]:
        """Bounds of the slabs of a band."""
        return self.preparations[-1].classes if self.transforms else self.reader.classes

    @property
    def has_soft_labels(self) -> bool:
        """Whether the labels are probabilities."""
        return self.labels is not None and self.labels.ndim == 2

    @property
    def provenance(self) -> str:
        """How the scores were computed from those that are read, in words; empty if they are read unchanged."""
        return "; ".join(filter(None, (self.reader.provenance, *(step.provenance for step in self.transforms))))

    @cached_property
    def token(self) -> str:
        """A name that distinguishes these scores and labels from any others."""
        token = f"{self.reader.token} {self._row_labels.token}"
        if self.mask is not None:
            token = str(tokenize(token, self.mask.token))
        for transform in self.transforms:
            token = str(tokenize(token, transform))
        return token

    def row_stamps(self) -> Array:
        """Return a hash of each band, as ``Reader.row_stamps``, that also depends on the mask."""
        stamps = self.reader.row_stamps()
        if self.mask is None:
            return stamps
        pairs = np.stack([stamps, self.mask.counts[:, 2].view(np.uint64)], axis=1)
        return np.array([hash_rows(pair) for pair in pairs[self.mask.nonempty_bands]], np.uint64)

    # The reader's numbers of bands and samples, which differ if some samples do not exist.

    @property
    def stored_bands(self) -> Sequence[int]:
        """The reader's number of each band."""
        return range(self.n_bands) if self.mask is None else self.mask.nonempty_bands

    def stored_bands_of(self, bands: Sequence[int]) -> Sequence[int]:
        """Return the reader's numbers of some bands."""
        return bands if self.mask is None else [self.mask.nonempty_bands[band] for band in bands]

    def sample_number(self, band: int, row: int) -> int:
        """Return the number, among all samples, of a row of a band."""
        if self.mask is not None:
            band = self.mask.nonempty_bands[band]
            row = int(np.flatnonzero(self.mask.band(band))[row])
        return self.reader.sample_number(band, row)

    # Arguments of tasks, and the collections whose tasks the keys among them name.

    def bands(self, numbers: Sequence[int]) -> Argument:
        """Return some bands, as an argument of a task."""
        return self.reader.bands(self.stored_bands_of(numbers))

    def chunk(self, band: int, column: int) -> Argument:
        """Return one chunk, or whole rows of a band if a transform needs them, as an argument of a task."""
        needs_rows = any(transform.needs_rows for transform in self.transforms)
        return self.reader.chunk(self.stored_bands[band], None if needs_rows else column)

    def labels_of(self, bands: Sequence[int]) -> Argument:
        """Return the labels of some bands, as an argument of a task."""
        return self._row_labels.argument(self.stored_bands_of(bands))

    def masks_of(self, bands: Sequence[int]) -> Argument:
        """Return which rows of some bands exist, as an argument of a task, or None if all do."""
        return None if self.mask is None else self.mask.argument(self.stored_bands_of(bands))

    def collections(self) -> list[Any]:
        """Return the Dask collections whose tasks the keys of bands, chunks, labels and masks name."""
        masks = [] if self.mask is None else self.mask.collections()
        return [*self.reader.collections, *self._row_labels.collections(), *masks]

    @cached_property
    def _row_labels(self) -> RowValues:
        return RowValues(self.labels, self.reader.rows)

    @cached_property
    def preparations(self) -> tuple[Preparation, ...]:
        """The transforms with the bounds of the bands and slabs that each gets, for the tasks."""
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
        """Return the bounds of the slabs that a transform makes of whole rows: several if bands are large, if it can."""
        n_bytes = self.band_rows * n_columns * transform.dtype.itemsize
        if not transform.gives_slabs or n_bytes <= _WHOLE_BYTES or n_columns < _LONG_ROW:
            return 0, n_columns
        n_slabs = -(-n_bytes // setting("slab-bytes"))
        return *range(0, n_columns, -(-n_columns // n_slabs)), n_columns

    def dask_array(self) -> da.Array:
        """Return all rows as a Dask array, with zeros (before transforms) in the rows of samples that do not exist."""
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


def _mask_of(conditions: Sequence[Condition], reader: Reader) -> SampleMask:
    """Return the mask of the samples of a reader that meet all conditions; raise ScoresError if it excludes all."""
    mask = SampleMask(conditions, reader.rows, [reader.piece_end(band) for band in range(reader.n_bands)])
    if not mask.nonempty_bands:
        raise ScoresError(
            f"where and ignore_index exclude all {reader.shape[0]:,} samples. Correct the mask or the label to ignore."
        )
    return mask


def _apply(block: Any, transform: Transform, block_info: Any = None) -> Any:
    first_row, first_class = (int(first) for first, _ in block_info[0]["array-location"])
    return transform.apply(block, first_row, first_class)


def reorder_ties(source: Source, tied_keys: Iterable[int], ties: str) -> Source:
    """Return the matrix of keys in which the ties at the given keys are in an order of ``TIE_DRAWS``."""
    return source.with_transform(ReorderTies(tuple(sorted(set(tied_keys))), source.shape[1], source.dtype, ties))


@dataclass(frozen=True)
class Truncation:
    """What a truncated store keeps of each row: the number of its largest scores, and their classes."""

    n_slots: int
    n_classes: int
    location: str
    #: The class of each slot, in the same blocks as the scores.
    class_index: da.Array

    @property
    def is_whole(self) -> bool:
        """Whether nothing was discarded."""
        return self.n_slots == self.n_classes


def scatter_slots(sets: da.Array, truncation: Truncation, *, by_threshold: bool) -> da.Array:
    """Return sets over the slots as sets over the classes.

    Raises ScoresError if a set above a threshold reaches a row's last slot: discarded scores might belong to it.
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
            f"{location} keeps only {n_slots} of {n_classes} scores per row, and sample {first} may have more of them "
            "above the threshold. Use a higher threshold, or a store that keeps more scores per row."
        )
    members = np.zeros((len(sets), n_classes), bool)
    rows, slots = np.nonzero(sets[:, :n_slots])
    members[rows, index[rows, slots]] = True
    return members
