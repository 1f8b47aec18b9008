"""From a band's blocks to the scores worth attention: those at or above a floor, row by row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import compiled
from ..kernels.keys import HALF_NAN, Keys, carrier, carrier_bits, carrier_floor, is_half

Array = NDArray[Any]
Ints = NDArray[np.int64]

NO_PLACE = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Entries:
    """The listed scores of a run of rows: those of row i are ``offsets[i]:offsets[i + 1]``."""

    first_row: int
    offsets: Ints
    classes: NDArray[np.int32]
    keys: Keys

    @property
    def n_rows(self) -> int:
        """Number of rows in the run."""
        return self.offsets.size - 1

    def rows(self) -> Ints:
        """Give the row of each entry, counted from the band's first row."""
        return self.first_row + np.repeat(np.arange(self.n_rows), np.diff(self.offsets))


class TileReader:
    """Reads blocks of scores in tiles that stay in cache, through buffers used again and again.

    An ``Entries`` it gives is only good until the next tile is read.
    """

    def __init__(self, floor: int, dtype: np.dtype[Any], tile_scores: int) -> None:
        self.floor = carrier_floor(floor, dtype)
        self.dtype = dtype
        self.tile_scores = tile_scores
        self.n_nan = 0
        #: Row and class of the first NaN in row-major order.
        self.first_nan = (NO_PLACE, NO_PLACE)
        self._classes = np.empty(0, np.int32)
        self._keys = np.empty(0, np.int64)

    def tiles(self, block: Array) -> Iterator[tuple[int, Array]]:
        """Give (first row, tile) for runs of rows of the block, as carriers."""
        step = max(1, self.tile_scores // block.shape[1])
        for first in range(0, block.shape[0], step):
            yield first, carrier(block[first : first + step])

    def gather(self, tile: Array, first_row: int, first_class: int = 0) -> Entries:
        """Give the tile's scores from the floor up, their classes counted from the tile's first."""
        if self._keys.size < tile.size:
            self._classes, self._keys = np.empty(tile.size, np.int32), np.empty(tile.size, np.int64)
        offsets = np.empty(tile.shape[0] + 1, np.int64)
        n_nan, first_nan = compiled.gather_above(
            tile, *carrier_bits(tile), self.floor, offsets, self._classes, self._keys
        )
        if is_half(self.dtype):
            nan = np.flatnonzero(tile == HALF_NAN)
            n_nan, first_nan = nan.size, int(nan[0]) if nan.size else -1
        if n_nan:
            row, class_ = divmod(first_nan, tile.shape[1])
            self.n_nan += n_nan
            self.first_nan = min(self.first_nan, (first_row + row, first_class + class_))
        n = int(offsets[-1])
        return Entries(first_row, offsets, self._classes[:n], self._keys[:n])


def whole_rows(reader: TileReader, block: Array) -> Iterator[tuple[Array, Entries]]:
    """Give each tile of a block of whole rows, with its entries."""
    for first, tile in reader.tiles(block):
        yield tile, reader.gather(tile, first)


def streamed_rows(reader: TileReader, slabs: Iterable[Array], top: TopRanks | None) -> Iterator[Entries]:
    """Read a band slab by slab along the classes, then give the entries of runs of its rows."""
    parts: list[tuple[Ints, Array, Keys]] = []
    first_class = n_rows = 0
    for slab in slabs:
        n_rows = slab.shape[0]
        for first, tile in reader.tiles(slab):
            entries = reader.gather(tile, first, first_class)
            parts.append((entries.rows(), entries.classes + np.int32(first_class), entries.keys.copy()))
            if top is not None:
                top.insert(tile, first, first_class)
        first_class += slab.shape[1]
    rows, classes, keys = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(rows, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_rows))])
    step = max(1, reader.tile_scores // first_class)
    for first in range(0, n_rows, step):
        part = offsets[first : first + step + 1]
        mine = order[part[0] : part[-1]]
        yield Entries(first, part - part[0], classes[mine], keys[mine])


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
