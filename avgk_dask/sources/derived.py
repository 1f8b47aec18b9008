"""What sources that are made of another one have from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask.tokenize import tokenize

from ..arrays import Array, Dtype, Ints
from ..errors import ScoresError
from ..kernels.keys import decode, is_float, key_range
from ..settings import setting
from ..store.read.listing import hash_rows
from ..store.where.addresses import StoredArray
from .reading import Argument, GivesSlabs, Key, Preparation, SpreadTies, Transform
from .row_values import Condition, Labels, SampleMask, blank
from .source import Source, Truncation
from .stored import BlockSource


class WrappedSource(Source):
    """A source whose scores are read as those of another one: from the same place, ahead of their use as far."""

    inner: Source

    def ahead_bytes(self) -> int:  # noqa: D102
        return self.inner.ahead_bytes()

    def reading(self) -> AbstractContextManager[None]:  # noqa: D102
        return self.inner.reading()

    def reader_key(self) -> Key | None:  # noqa: D102
        return self.inner.reader_key()

    @property
    def score_bytes(self) -> int:  # noqa: D102
        return self.inner.score_bytes

    @property
    def made_by(self) -> str:  # noqa: D102
        return self.inner.made_by

    @property
    def stored_array(self) -> StoredArray | None:  # noqa: D102
        return self.inner.stored_array


# Scores that are transformed after they are read: nothing of it is stored.


#: Bytes of a band that is given whole, where it could be given in slabs; and classes of a row that is long. Slabs take more
#: time, and less memory only where rows are long: scans hold more of each row then.
_WHOLE_BYTES, _LONG_ROW = 64 << 20, 1 << 12


class TransformedSource(WrappedSource):
    """The scores of another source, transformed inside the tasks that read them.

    Where the transform needs whole rows, a band is joined before it, and the pilot reads whole rows.
    """

    def __init__(self, inner: Source, transform: Transform) -> None:
        self.inner, self.transform = inner, transform
        self.shape = inner.shape[0], transform.width(inner.shape[1])
        self.rows, self.labels, self.location = inner.rows, inner.labels, inner.location
        self.dtype, self.stored_dtype = transform.dtype, inner.stored_dtype
        self.mask, self.lead = inner.mask, inner.lead
        self.classes, self.columns = inner.classes, inner.columns
        if transform.needs_rows:
            self.columns = [0, self.shape[1]]
            self.classes = self._slab_bounds()

    def _slab_bounds(self) -> Sequence[int]:
        """Return the bounds of the slabs in which whole rows are given: many of them in several, where that can be."""
        gives_slabs = isinstance(self.transform, GivesSlabs) and self.transform.gives_slabs
        if not gives_slabs or self.band_bytes() <= _WHOLE_BYTES or self.shape[1] < _LONG_ROW:
            return self.columns
        n_slabs = -(-self.band_bytes() // setting("slab-bytes"))
        return [*range(0, self.shape[1], -(-self.shape[1] // n_slabs)), self.shape[1]]

    @property
    def preparations(self) -> tuple[Preparation, ...]:  # noqa: D102
        stored = self.inner.dtype, self.inner.shape[1]
        own = Preparation(self.transform, *stored, tuple(self.rows), tuple(self.columns), tuple(self.classes))
        return (*self.inner.preparations, own)

    @property
    def whole(self) -> Source:  # noqa: D102
        return self.inner.whole

    @property
    def places(self) -> Sequence[int]:  # noqa: D102
        return self.inner.places

    def sample(self, band: int, row: int) -> int:  # noqa: D102
        return self.inner.sample(band, row)

    def masks_of(self, bands: Sequence[int]) -> Argument:  # noqa: D102
        return self.inner.masks_of(bands)

    def held_bytes(self) -> int:  # noqa: D102
        joined = self.inner.band_bytes() if self.transform.needs_rows else 0
        norms = 16 * int(np.diff(self.rows).max()) if len(self.classes) > 2 else 0
        return self.inner.held_bytes() + joined + norms + 2 * self.slab_bytes()

    @property
    def token(self) -> str:  # noqa: D102
        return str(tokenize(self.inner.token, self.transform))

    @property
    def made_by(self) -> str:  # noqa: D102
        return "; ".join(part for part in (self.inner.made_by, self.transform.told) if part)

    def over(self, inner: Source) -> TransformedSource:
        """Return the same transform of another source."""
        return TransformedSource(inner, self.transform)

    def with_labels(self, labels: Labels) -> TransformedSource:  # noqa: D102
        return TransformedSource(self.inner.with_labels(labels), self.transform)

    def row_stamps(self) -> Array:  # noqa: D102
        return self.inner.row_stamps()

    def with_rows(self, rows: Sequence[int]) -> TransformedSource:  # noqa: D102
        return TransformedSource(self.inner.with_rows(rows), self.transform)

    @property
    def row_bounds(self) -> Sequence[int] | None:  # noqa: D102
        return self.inner.row_bounds

    @property
    def n_pieces(self) -> int:  # noqa: D102
        return self.inner.n_pieces

    def piece_end(self, band: int) -> int:  # noqa: D102
        return self.inner.piece_end(band)

    def chunk_names(self, rows: tuple[int, int], classes: tuple[int, int]) -> str:  # noqa: D102
        return self.inner.chunk_names(rows, (0, self.inner.shape[1]) if self.transform.needs_rows else classes)

    def chunk(self, band: int, column: int | None) -> Argument:  # noqa: D102
        return self.inner.chunk(band, None if self.transform.needs_rows else column)

    def bands(self, numbers: Sequence[int]) -> Argument:  # noqa: D102
        return self.inner.bands(numbers)

    def labels_of(self, bands: Sequence[int]) -> Argument:  # noqa: D102
        return self.inner.labels_of(bands)

    def collections(self) -> list[Any]:  # noqa: D102
        return self.inner.collections()

    def dask_array(self) -> da.Array:  # noqa: D102
        array = self.inner.dask_array()
        blocks = array.rechunk({1: -1}) if self.transform.needs_rows else array
        meta = np.empty((0, 0), self.dtype)
        chunks = (blocks.chunks[0], (self.shape[1],)) if self.transform.needs_rows else blocks.chunks
        return blocks.map_blocks(_apply, self.transform, dtype=self.dtype, chunks=chunks, meta=meta)


def _apply(block: Any, transform: Transform, block_info: Any = None) -> Any:
    first_row, first_class = (int(first) for first, _ in block_info[0]["array-location"])
    return transform.apply(block, first_row, first_class)


def spread_source(source: Source, chosen: Iterable[int]) -> Source:
    """Return the matrix of keys in which the ties at the chosen keys are in a fixed pseudo-random order."""
    return TransformedSource(source, SpreadTies(tuple(sorted(set(chosen))), source.shape[1], source.dtype))


# Scores of which some samples do not exist: padding. Everything above sees the others alone.


class FilteredSource(WrappedSource):
    """The samples of another source that exist. Bands that have none are left out.

    When it is made, one pass over the mask, and over nothing else, counts the samples of each band.
    """

    mask: SampleMask

    def __init__(self, inner: Source, mask: SampleMask, counts: Ints | None = None) -> None:
        assert not inner.preparations  # samples are left out before anything else happens to them
        self.inner, self.mask = inner, mask
        ends = [inner.piece_end(band) for band in range(inner.n_bands)]
        self._counts = mask.count(ends) if counts is None else counts
        n_kept = self._counts[:, 1]
        if not n_kept.any():
            raise ScoresError(
                f"where must be True for at least one sample; got {inner.shape[0]:,} of them that do not exist. "
                "Check the mask, or the label to be ignored."
            )
        self._places = np.flatnonzero(n_kept).tolist()
        self.rows = [0, *np.cumsum(n_kept[self._places]).tolist()]
        self.shape = self.rows[-1], inner.shape[1]
        self.lead, self.labels, self.location = inner.lead, inner.labels, inner.location
        self.dtype, self.stored_dtype = inner.dtype, inner.stored_dtype
        self.classes, self.columns = inner.classes, inner.columns

    @property
    def whole(self) -> Source:  # noqa: D102
        return self.inner

    @property
    def places(self) -> Sequence[int]:  # noqa: D102
        return self._places

    def sample(self, band: int, row: int) -> int:  # noqa: D102
        place = self._places[band]
        return self.inner.sample(place, int(np.flatnonzero(self.mask.band(place))[row]))

    def masks_of(self, bands: Sequence[int]) -> Argument:  # noqa: D102
        return self.mask.of(self.places_of(bands))

    def held_bytes(self) -> int:  # noqa: D102
        return self.inner.held_bytes() + self.slab_bytes() + int(np.diff(self.inner.rows).max())

    @property
    def is_made(self) -> bool:  # noqa: D102
        return self.inner.is_made

    @property
    def token(self) -> str:  # noqa: D102
        return str(tokenize(self.inner.token, self.mask.token))

    def with_labels(self, labels: Labels) -> FilteredSource:  # noqa: D102
        return FilteredSource(self.inner.with_labels(labels), self.mask, self._counts)

    def row_stamps(self) -> Array:  # noqa: D102
        pairs = np.stack([self.inner.row_stamps(), self._counts[:, 2].view(np.uint64)], axis=1)
        return np.array([hash_rows(pair) for pair in pairs[self._places]], np.uint64)

    def with_rows(self, rows: Sequence[int]) -> FilteredSource:  # noqa: D102
        return FilteredSource(self.inner.with_rows(rows), self.mask.with_rows(rows))

    @property
    def n_pieces(self) -> int:  # noqa: D102
        return max(self.n_bands, self.inner.n_pieces * self.n_bands // self.inner.n_bands)

    def piece_end(self, band: int) -> int:  # noqa: D102
        return self.rows[band] + int(self._counts[self._places[band], 0])

    def chunk_names(self, rows: tuple[int, int], classes: tuple[int, int]) -> str:  # noqa: D102
        return self.inner.chunk_names(rows, classes)

    def chunk(self, band: int, column: int | None) -> Argument:  # noqa: D102
        return self.inner.chunk(self._places[band], column)

    def bands(self, numbers: Sequence[int]) -> Argument:  # noqa: D102
        return self.inner.bands(self.places_of(numbers))

    def labels_of(self, bands: Sequence[int]) -> Argument:  # noqa: D102
        return self.inner.labels_of(self.places_of(bands))

    def collections(self) -> list[Any]:  # noqa: D102
        return [*self.inner.collections(), *self.mask.collections()]

    def dask_array(self) -> da.Array:
        """Return all rows, with zeros in those that do not exist."""
        return blank(self.inner.dask_array(), self.mask)


def filtered_source(source: Source, conditions: Sequence[Condition]) -> Source:
    """Return the samples of a source that meet all conditions; the source where there are none."""
    return FilteredSource(source, SampleMask(conditions, source.rows)) if conditions else source


def labelled_by_itself(source: Source) -> Source:
    """Return probabilities with themselves as soft labels."""
    blocks = source.dask_array()
    whole = BlockSource(blocks, blocks, source.location)
    return whole if source.mask is None else filtered_source(whole, source.mask.conditions)


# Truncated scores: each row's largest ones, as a matrix of slots and one more column for all that was discarded.
#
# The last column holds the lowest value there is. Slots are in rank order, and equal scores by class, so that ranks, ties in
# row-major order and sets are those of the whole matrix, as long as no discarded score reaches the threshold: each is at
# most the row's last stored score (``statistics/truncated.py`` sees to that).


@dataclass(frozen=True)
class Slots:
    """Adds the column of what was discarded to rows of stored scores; refuses rows that do not descend."""

    dtype: Dtype
    n_slots: int
    n_classes: int
    location: str
    #: Whether the rows are known to descend.
    in_order: bool

    @property
    def needs_rows(self) -> bool:
        """Whether it must see whole rows: yes."""
        return True

    @property
    def told(self) -> str:
        """What it does, in words: nothing to the scores themselves."""
        return ""

    def width(self, n_stored: int) -> int:
        """Return the number of slots, and one more if anything was discarded."""
        return n_stored + (self.n_classes > n_stored)

    def apply(self, block: Array, first_row: int, first_class: int) -> Array:
        """Return rows of slots with what stands for the rest."""
        bad = np.zeros(0, bool) if self.in_order else (block[:, 1:] > block[:, :-1]).any(1)
        if bad.any():
            raise ScoresError(
                "the scores of a truncated store must descend; those of sample "
                f"{first_row + int(np.flatnonzero(bad)[0])} of {self.location or 'them'} do not. "
                "Write it with ScoreWriter(..., top_m=...)."
            )
        if self.n_classes == self.n_slots:
            return block
        if is_float(self.dtype) and (block != block).any():
            row = first_row + int(np.flatnonzero((block != block).any(1))[0])
            raise ScoresError(
                f"the scores of a truncated store must not hold NaN; those of sample {row} of {self.location or 'them'} do. "
                "Write it with ScoreWriter(..., top_m=...)."
            )
        lowest = decode([key_range(self.dtype)[0]], self.dtype)
        return np.concatenate([block, np.broadcast_to(lowest, (len(block), 1)).astype(block.dtype)], axis=1)


class TruncatedSource(TransformedSource):
    """The slots of a truncated store; labels are the slots of the labels."""

    def __init__(self, inner: Source, slots: Slots, class_index: da.Array) -> None:
        super().__init__(inner, slots)
        self.truncation = Truncation(slots.n_slots, slots.n_classes, inner.location, class_index)

    def with_labels(self, labels: Labels) -> TruncatedSource:  # noqa: D102
        if labels is not None:
            raise ValueError("labels of truncated rows are slots: make another source for others")
        assert self.truncation is not None
        assert isinstance(self.transform, Slots)
        return TruncatedSource(self.inner.with_labels(None), self.transform, self.truncation.class_index)

    def with_slots(self, slots: Labels) -> TruncatedSource:  # noqa: D102
        return self.over(self.inner.with_labels(slots))

    def over(self, inner: Source) -> TruncatedSource:  # noqa: D102
        assert self.truncation is not None
        assert isinstance(self.transform, Slots)
        return TruncatedSource(inner, self.transform, self.truncation.class_index)

    def with_rows(self, rows: Sequence[int]) -> TruncatedSource:  # noqa: D102
        assert self.truncation is not None
        assert isinstance(self.transform, Slots)
        return TruncatedSource(self.inner.with_rows(rows), self.transform, self.truncation.class_index)


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
