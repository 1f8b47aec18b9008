"""From a band's blocks to the scores worth attention: those at or above a floor, row by row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import compiled
from ..kernels.keys import HALF_NAN, Keys, carrier, carrier_floor, carrier_keys, is_half

Array = NDArray[Any]
Ints = NDArray[np.int64]

NO_PLACE = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Entries:
    """The listed scores of a run of rows: those of row i are ``offsets[i]:offsets[i + 1]``."""

    first_row: int
    offsets: Ints
    classes: Ints
    keys: Keys


@dataclass
class BandReading:
    """What reading a band row by row leaves behind besides its entries."""

    n_nan: int = 0
    #: Row and class of the band's first NaN in row-major order.
    first_nan: tuple[int, int] = (NO_PLACE, NO_PLACE)

    def note_nan(self, n: int, row: int, class_: int) -> None:
        """Count NaN met in a tile, and keep the first place."""
        if n:
            self.n_nan += n
            self.first_nan = min(self.first_nan, (row, class_))


class TileReader:
    """Reads blocks of scores in tiles that stay in cache, through buffers used again and again."""

    def __init__(self, floor: int, dtype: np.dtype[Any], tile_scores: int) -> None:
        self.floor = carrier_floor(floor, dtype)
        self.dtype = dtype
        self.tile_scores = tile_scores
        self.reading = BandReading()
        self._buffers: tuple[Array, Array, Array] | None = None

    def tiles(self, block: Array) -> Iterator[tuple[int, Array]]:
        """Give (first row, tile) for runs of rows of the block, as carriers."""
        step = max(1, self.tile_scores // block.shape[1])
        for first in range(0, block.shape[0], step):
            yield first, carrier(block[first : first + step])

    def gather(self, tile: Array, first_row: int, first_class: int) -> tuple[Ints, Ints, Keys]:
        """Give row (in the tile), class and key of the tile's scores from the floor up."""
        if self._buffers is None or self._buffers[0].size < tile.size:
            self._buffers = (
                np.empty(tile.size, np.int32),
                np.empty(tile.size, np.int32),
                np.empty(tile.size, tile.dtype),
            )
        rows, classes, found = self._buffers
        n, n_nan, first_nan = compiled.gather_above(tile, self.floor, rows, classes, found)
        if is_half(self.dtype):
            nan = np.flatnonzero(tile == HALF_NAN)
            n_nan, first_nan = nan.size, int(nan[0]) if nan.size else -1
        row, class_ = divmod(first_nan, tile.shape[1])
        self.reading.note_nan(n_nan, first_row + row, first_class + class_)
        keys = carrier_keys(found[:n])
        return rows[:n].astype(np.int64), classes[:n] + np.int64(first_class), keys


def whole_rows(reader: TileReader, block: Array) -> Iterator[tuple[Array, Entries]]:
    """Give each tile of a block of whole rows, with its entries."""
    for first, tile in reader.tiles(block):
        rows, classes, keys = reader.gather(tile, first, 0)
        yield tile, Entries(first, _offsets(rows, tile.shape[0]), classes, keys)


def streamed_rows(reader: TileReader, slabs: Iterable[Array], top: TopRanks | None) -> Iterator[Entries]:
    """Read a band slab by slab along the classes, then give the entries of runs of its rows."""
    parts: list[tuple[Ints, Ints, Keys]] = []
    first_class = n_rows = 0
    for slab in slabs:
        n_rows = slab.shape[0]
        for first, tile in reader.tiles(slab):
            rows, classes, keys = reader.gather(tile, first, first_class)
            parts.append((rows + first, classes, keys))
            if top is not None:
                top.insert(tile, first, first_class)
        first_class += slab.shape[1]
    rows, classes, keys = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(rows, kind="stable")
    rows, classes, keys = rows[order], classes[order], keys[order]
    offsets = _offsets(rows, n_rows)
    step = max(1, reader.tile_scores // max(first_class, 1))
    for first in range(0, n_rows, step):
        part = offsets[first : first + step + 1]
        span = slice(int(part[0]), int(part[-1]))
        yield Entries(first, part - part[0], classes[span], keys[span])


def _offsets(rows: Ints, n_rows: int) -> Ints:
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_rows))])


class TopRanks:
    """The classes of each row's highest scores, in rank order, filled tile by tile."""

    def __init__(self, n_rows: int, n_ranks: int, dtype: np.dtype[Any]) -> None:
        self.scores = np.empty((n_rows, n_ranks), carrier(np.empty((0, 0), dtype)).dtype)
        self.classes = np.full((n_rows, n_ranks), -1, np.int64)
        self.n_filled = np.zeros(n_rows, np.int64)
        self._half = is_half(dtype)

    def insert(self, tile: Array, first_row: int, first_class: int) -> None:
        """Take in a tile of the rows from ``first_row`` and the classes from ``first_class``."""
        rows = slice(first_row, first_row + tile.shape[0])
        compiled.rank_top(tile, first_class, self.scores[rows], self.classes[rows], self.n_filled[rows])
        if self._half:  # the key of NaN is a number to the kernel: take it out again
            self.classes[rows][self.scores[rows] == HALF_NAN] = -1

    def ranks_of(self, labels: Ints) -> Ints:
        """Give each label's rank, one past the list where it is not in it, 0 for no label."""
        n_ranks = self.classes.shape[1]
        is_it = self.classes == labels[:, None]
        ranks = np.where(is_it.any(1), is_it.argmax(1) + 1, n_ranks + 1)
        return np.where(labels < 0, 0, ranks)
