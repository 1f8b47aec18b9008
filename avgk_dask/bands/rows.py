"""The blocks of a band: checked against the metadata, then searched for candidates, or joined to whole rows.

Blocks come from stores and from users' own Dask arrays. ``TileReader`` lists the *candidates* of each row, the scores at or
above a floor, with their classes and keys; ``TopRanks`` finds each row's highest scores; ``RowChecks`` counts NaN, bad labels
and refused rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, Bools, Dtype, Ints
from ..errors import LabelsError, ScoresError, label_hint
from ..kernels import lanes_for, row_scratch
from ..kernels.dispatch import gather_above, rank_top
from ..kernels.keys import HALF_NAN, Keys, carrier, carrier_bits, carrier_floor, is_float, is_half
from ..masks import block_to_ndarray, labels_to_ndarray, with_unlabelled
from ..records import BEYOND
from .passes import NOWHERE, UsableLabels

#: Candidates listed at a time, to stay in cache; from slabs, enough to be worth a call of the kernel.
LISTED = 1 << 12
_STREAMED = 1 << 17
#: Rows listed at a time.
_ROWS = 1 << 10
_HINT = "Correct the dtype and chunks of the array."


def checked_block(block: Any, dtype: Dtype, shape: tuple[int, ...] | None = None, what: str = "scores") -> Array:
    """Return a block as a plain array in native byte order; refuse another dtype, or shape if it is known."""
    plain = block_to_ndarray(block, what)
    if plain.dtype.newbyteorder("=") != dtype or plain.ndim != 2 or shape not in (None, plain.shape):
        raise ScoresError(
            f"{what} must be {dtype}{'' if shape is None else f' of shape {shape}'}, as in their metadata; "
            f"got a block of {plain.dtype} and shape {plain.shape}. {_HINT}"
        )
    return plain.astype(dtype, copy=False)  # bytes in the other order would be other numbers


def check_block(block: Any, dtype: Dtype, what: str, block_info: Any = None) -> Array:
    """Call ``checked_block`` in ``map_blocks``."""
    return checked_block(block, dtype, _shape(block_info), what)


def check_labels(block: Any, block_info: Any = None) -> Array:
    """Return a block of labels as a plain array; hard ones are int64, with -1 for masked and missing ones."""
    shape = _shape(block_info)
    hard = len(shape) == 1
    labels = labels_to_ndarray(block) if hard else block_to_ndarray(block, "labels", LabelsError)
    if labels.shape != shape:
        raise LabelsError(
            f"labels must be of shape {shape}, as in their metadata; got a block of shape {labels.shape}. {_HINT}"
        )
    if labels.dtype.kind not in ("iu" if hard else "iufb") or labels.dtype.itemsize > 8:
        kind = "integers" if hard else "real numbers of up to 64 bits"
        hint = f"{_HINT} {label_hint(labels.dtype)}" if hard else _HINT
        raise LabelsError(f"labels must be {kind}, as in their metadata; got a block of {labels.dtype}. {hint}")
    return with_unlabelled(labels, np.zeros(shape, bool)) if hard else labels


def check_where(block: Any, block_info: Any = None) -> Array:
    """Return a block of ``where`` as a plain array; refuse one of another dtype or shape."""
    plain, shape = block_to_ndarray(block, "where"), _shape(block_info)
    if plain.dtype != bool or plain.shape != shape:
        raise ScoresError(
            f"where must be bool of shape {shape}, as in its metadata; got a block of {plain.dtype} and shape "
            f"{plain.shape}. {_HINT}"
        )
    return plain


def _shape(block_info: Any) -> tuple[int, ...]:
    return tuple(int(stop) - int(start) for start, stop in block_info[0]["array-location"])


@dataclass(frozen=True)
class Candidates:
    """The candidates of consecutive rows. The candidates of row i are ``offsets[i]:offsets[i + 1]``."""

    first_row: int
    offsets: Ints
    classes: NDArray[np.int32]
    keys: Keys

    @property
    def n_rows(self) -> int:
        """Number of rows in the stretch."""
        return self.offsets.size - 1

    def at_least(self, key: int) -> Candidates:
        """Return the candidates from a key up."""
        keep = self.keys >= key
        offsets = np.concatenate([[0], np.cumsum(keep)])[self.offsets]
        return Candidates(self.first_row, offsets, self.classes[keep], self.keys[keep])

    def rows(self) -> Ints:
        """Return the row of each candidate, counted from the band's first row."""
        return self.first_row + np.repeat(np.arange(self.n_rows), np.diff(self.offsets))


class Listing:
    """Space for the candidates of a stretch of rows, reused for every stretch; by default it stays in cache."""

    def __init__(self, n_classes: int, width: int, dtype: Dtype, n_listed: int = LISTED, n_rows: int = _ROWS) -> None:
        self.offsets = np.empty(n_rows + 1, np.int64)
        self.classes = np.empty(n_listed + n_classes, np.int32)
        self.keys = np.empty(n_listed + n_classes, np.int64)
        self.scratch = row_scratch(n_classes, width, carrier(np.empty((0, 0), dtype)).dtype)

    def arrays(self) -> tuple[Any, ...]:
        """Return the space as the kernels take it."""
        return self.offsets, self.classes, self.keys, self.scratch

    def candidates(self, first_row: int, n_rows: int) -> Candidates:
        """Return the candidates of these rows, valid until the space is used again."""
        offsets = self.offsets[: n_rows + 1]
        n = int(offsets[-1])
        return Candidates(first_row, offsets, self.classes[:n], self.keys[:n])


class TileReader:
    """Reads blocks of scores in tiles, lists their candidates, and counts their NaN."""

    def __init__(self, floor: int, dtype: Dtype, tile_scores: int) -> None:
        self.floor = carrier_floor(floor, dtype)
        self.dtype = dtype
        self.tile_scores = tile_scores
        self.n_nan = 0
        #: Row and class of the first NaN in row-major order.
        self.first_nan = (BEYOND, BEYOND)

    def tiles(self, block: Array) -> Iterator[tuple[int, Array]]:
        """Return (first row, tile) of a block: the whole block, or stretches of rows if it must be converted."""
        is_whole = carrier(block[:0]).dtype == block.dtype
        step = block.shape[0] if is_whole else max(1, self.tile_scores // block.shape[1])
        for first in range(0, block.shape[0], step):
            yield first, carrier(block[first : first + step])

    def as_arguments(self, tile: Array) -> tuple[Any, ...]:
        """Return a tile as the kernels take it."""
        return (tile, *carrier_bits(tile), self.floor)

    def note_nan(self, tile: Array, n_nan: int, first_nan: int, first_row: int, first_class: int = 0) -> None:
        """Add the NaN that a kernel counted in a tile, and keep the first place."""
        if n_nan:
            row, class_ = divmod(first_nan, tile.shape[1])
            self.n_nan += n_nan
            self.first_nan = min(self.first_nan, (first_row + row, first_class + class_))

    def note_half_nan(self, tile: Array, first_row: int, first_class: int = 0) -> None:
        """Count the NaN in a tile of half floats, whose keys are numbers to the kernels."""
        if is_half(self.dtype) and tile.min() == HALF_NAN:
            nan = np.flatnonzero(tile == HALF_NAN)
            self.note_nan(tile, nan.size, int(nan[0]), first_row, first_class)

    def stretches(self, block: Array, first_class: int = 0) -> Iterator[Candidates]:
        """Return the candidates of stretches of rows, each valid until the next one is read."""
        for first, tile in self.tiles(block):
            self.note_half_nan(tile, first, first_class)
            n_rows, n_classes = tile.shape
            listing = Listing(n_classes, 0, self.dtype, min(_STREAMED, n_rows * n_classes), n_rows)
            no_ranking, row = ranking_space(tile.shape, 0, self.dtype), 0
            while row < n_rows:
                stop, n_nan, first_nan = gather_above(self.as_arguments(tile), row, listing.arrays(), no_ranking)
                self.note_nan(tile, n_nan, first_nan, first, first_class)
                yield listing.candidates(first + row, stop - row)
                row = stop


def checked_slabs(slabs: Iterable[Array], dtype: Dtype, n_classes: int, labels: Array | None) -> Iterator[Array]:
    """Return the slabs of a band; refuse those that differ from their metadata."""
    n_rows, first_class = None if labels is None else len(labels), 0
    for block in slabs:
        slab = checked_block(block, dtype)
        first_class += slab.shape[1]
        n_rows = slab.shape[0] if n_rows is None else n_rows
        if slab.shape[0] != n_rows or not n_rows or first_class > n_classes:
            raise ScoresError(
                f"scores must have {n_rows or 'some'} rows of {n_classes} classes, as in their metadata; got a block of shape "
                f"{slab.shape}. Correct the chunks of the array."
            )
        yield slab
    if first_class != n_classes:
        raise ScoresError(
            f"scores must have {n_classes} classes, as in their metadata; got {first_class} when read. Correct the "
            "shape and chunks of the array."
        )


def streamed_rows(reader: TileReader, slabs: Iterable[Array], top: TopRanks | None) -> Iterator[Candidates]:
    """Read a band slab by slab along the classes, then return the candidates of stretches of its rows."""
    parts: list[tuple[Ints, Array, Keys]] = []
    first_class = n_rows = 0
    for slab in slabs:
        n_rows = slab.shape[0]
        for listed in reader.stretches(slab, first_class):
            parts.append((listed.rows(), listed.classes + np.int32(first_class), listed.keys.copy()))
        if top is not None:
            for first, tile in reader.tiles(slab):
                top.insert(tile, first, first_class)
        first_class += slab.shape[1]
    rows, classes, keys = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(rows, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_rows))])
    step = max(1, reader.tile_scores // first_class)
    for first in range(0, n_rows, step):
        part = offsets[first : first + step + 1]
        taken = order[part[0] : part[-1]]
        yield Candidates(first, part - part[0], classes[taken], keys[taken])


def no_ranked(n_rows: int, n_ranks: int, dtype: Dtype) -> Array:
    """Return space for the highest scores of some rows, as carriers, filled with NaN or, for integers, 0."""
    empty = carrier(np.empty((0, 0), dtype))
    return np.full((n_rows, n_ranks), np.nan if empty.dtype.kind == "f" else 0, empty.dtype)


def ranking_space(shape: tuple[int, ...], n_ranks: int, dtype: Dtype) -> tuple[Array, int, Any]:
    """Return the arguments with which ``gather_above`` finds each row's highest scores: space, lanes, missing score."""
    return no_ranked(shape[0], n_ranks, dtype), lanes_for(n_ranks, shape[1]), no_ranked(1, 1, dtype)[0, 0]


class TopRanks:
    """The highest scores of each row and their classes, in rank order, filled tile by tile."""

    def __init__(self, n_rows: int, n_ranks: int, dtype: Dtype) -> None:
        self.scores = no_ranked(n_rows, n_ranks, dtype)
        self.classes = np.full((n_rows, n_ranks), -1, np.int64)
        self.n_filled = np.zeros(n_rows, np.int64)
        self._half = is_half(dtype)

    def insert(self, tile: Array, first_row: int, first_class: int) -> None:
        """Add a tile that begins at this row and class."""
        rows = slice(first_row, first_row + tile.shape[0])
        width = lanes_for(self.scores.shape[1], tile.shape[1])
        rank_top(tile, first_class, self.scores[rows], self.classes[rows], self.n_filled[rows], width)
        if self._half:  # the key of NaN is a number to the kernel: remove it
            self.classes[rows][self.scores[rows] == HALF_NAN] = -1

    def ranks_of(self, labels: Ints, n_ranks: int) -> Ints:
        """Return each label's rank; ``n_ranks`` + 1 for all beyond, and 0 without a label."""
        is_it = self.classes[:, :n_ranks] == labels[:, None]
        ranks = np.where(is_it.any(1), is_it.argmax(1) + 1, n_ranks + 1)
        return np.where(labels < 0, 0, ranks)


#: Scores of a strip, which as float64 stay in a core's cache.
_STRIP = 1 << 16


def whole_rows(slabs: Iterable[Array], dtype: Dtype, n_classes: int, labels: Array | None) -> Array:
    """Return the rows of a band as one array, valid until the next band is read."""
    each = checked_slabs(slabs, dtype, n_classes, labels)
    first = next(each)
    if first.shape[1] == n_classes:
        return first
    rows = np.empty((len(first), n_classes), dtype)
    rows[:, : first.shape[1]], done = first, first.shape[1]
    for slab in each:  # a slab is valid until the next one is read
        rows[:, done : done + slab.shape[1]] = slab
        done += slab.shape[1]
    return rows


def row_strips(rows: Array, n_scores: int = 1 << 18) -> Iterator[slice]:
    """Return strips of rows of about this many scores, for work that copies them: a band may be as large as a chunk."""
    step = max(1, n_scores // max(1, rows.shape[1]))
    return (slice(first, first + step) for first in range(0, max(1, len(rows)), step))


@dataclass
class RowChecks:
    """The labels and the rows of a band, with growing counts of bad data."""

    rows: Array
    labels: UsableLabels
    band: int
    n_nan: int = 0
    first_nan: tuple[int, int, int] = NOWHERE
    n_refused: int = 0
    first_refused: tuple[int, int, int] = NOWHERE

    @classmethod
    def from_slabs(
        cls, slabs: Iterable[Array], labels: Array | None, band: int, dtype: Dtype, n_classes: int
    ) -> RowChecks:
        """Return the rows of a band, none of them checked."""
        usable = UsableLabels.from_labels(labels, n_classes)
        return cls(whole_rows(slabs, dtype, n_classes, usable.array), usable, band)

    def strips(
        self, n_scores: int = _STRIP, n_rows: int = 1 << 16, *, in_one: bool = False, find_nan: bool = True
    ) -> Iterator[tuple[int, Array, Array | None]]:
        """Return (first row, scores, labels) of strips of rows; count their NaN unless ``find_nan`` is false.

        The scores become float32 if that holds them exactly, else float64; with ``in_one``, rows of this dtype are one strip.
        """
        labels, rows = self.labels.array, self.rows
        is_narrow = rows.dtype.itemsize < 4 or rows.dtype == np.float32
        dtype = np.dtype(np.float32 if is_narrow else np.float64)
        whole = in_one and rows.dtype == dtype and rows.flags.c_contiguous
        step = len(rows) if whole else max(1, min(n_rows, n_scores // rows.shape[1]))
        for first in range(0, len(rows), step):
            block, strip_labels = rows[first : first + step], None if labels is None else labels[first : first + step]
            if find_nan:
                self.note_nan(block, first)
            yield first, np.ascontiguousarray(block, dtype), strip_labels

    def note_nan(self, block: Array, first: int) -> None:
        """Count the NaN of a block that begins at this row of the band."""
        if not is_float(block.dtype):
            return
        nan = block != block
        if nan.any():
            row, class_ = divmod(int(nan.argmax()), block.shape[1])
            self.n_nan += int(nan.sum())
            self.first_nan = min(self.first_nan, (self.band, first + row, class_))

    def refuse(self, rows: Array) -> None:
        """Count rows with unsuitable scores, given their numbers in the band."""
        if rows.size:
            self.n_refused += rows.size
            self.first_refused = min(self.first_refused, (self.band, int(rows[0]), 0))

    def fields(self) -> dict[str, Any]:
        """Return the fields of a tally of probabilities, by name."""
        return {
            **self.labels.faults(self.band),
            "n_rows": len(self.rows),
            "n_nan": self.n_nan,
            "first_nan": self.first_nan,
            "n_labelled": self.labels.n_labelled,
            "n_refused": self.n_refused,
            "first_refused": self.first_refused,
        }


class Rule(Protocol):
    """Decides which scores are in the sets."""

    @property
    def needs_rows(self) -> bool:
        """Whether it needs whole rows; otherwise it takes any block of the matrix."""

    def choose(self, scores: Array, first_row: int, first_class: int, n_classes: int) -> Bools:
        """Return the members in a block of scores that starts at this row and class of a matrix with ``n_classes``."""
