"""Stores of sets, written band by band as a boolean matrix or as ragged class indices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...arrays import Bools
from ..read.grids import LABEL_ROWS, codecs
from ..where.addresses import Options, Writable, writing
from .drafts import ChunkWriter, Draft
from .targets import writable

SET_FORMATS = ("booleans", "indices")
#: Number of scores of a band whose bits are unpacked together.
_STRIP_SCORES = 1 << 20


def pack_block(block: Bools) -> NDArray[np.uint8]:
    """Pack the booleans of each row into bits, which take an eighth of the bytes."""
    return np.packbits(block, axis=1)


@dataclass(frozen=True)
class SetBand:
    """The sets of consecutive rows, packed into bits per chunk of classes."""

    first: int
    n_rows: int
    columns: tuple[int, ...]
    bits: tuple[NDArray[np.uint8], ...]

    def block(self, column: int, rows: slice = slice(None)) -> Bools:
        """Return the booleans of one chunk of classes."""
        width = self.columns[column + 1] - self.columns[column]
        return np.unpackbits(self.bits[column][rows], axis=1, count=width).view(np.bool_)

    def strips(self) -> Iterator[Bools]:
        """Return the booleans of whole rows, a few rows at a time."""
        step = max(1, _STRIP_SCORES // self.columns[-1])
        for first in range(0, self.n_rows, step):
            rows = slice(first, first + step)
            yield np.concatenate([self.block(j, rows) for j in range(len(self.bits))], axis=1)


@dataclass(frozen=True)
class SetGrid:
    """The shape and chunks of a boolean matrix of sets, equal to the shape and chunks of the scores."""

    shape: tuple[int, int]
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None = None


class SetsWriter:
    """Writes sets, band after band, into a new store that is incomplete until ``finish``."""

    def __init__(
        self, path: Writable, grid: SetGrid, form: str, *, overwrite: bool = False, options: Options | None = None
    ) -> None:
        self._secret = path, options
        store, self._location = writable(path, options)
        with writing(self._location, *self._secret):
            self._draft = Draft.create(store, self._location, overwrite=overwrite)
            self._form = (_BooleanSets if form == "booleans" else _IndexSets)(self._draft, grid)
        self.n_labels = 0

    def write(self, band: SetBand) -> None:
        """Write the next band."""
        with writing(self._location, *self._secret):
            self._draft.check()
            self.n_labels += self._form.write(band)

    def finish(self, **attributes: object) -> None:
        """Write the manifest and the attributes, and mark the store complete."""
        with writing(self._location, *self._secret):
            self._form.finish()
            self._draft.digests |= self._draft.group.store.digests
            self._draft.finish(**attributes, n_labels=self.n_labels)


class _BooleanSets:
    """``sets (sample, class)``, chunked like the scores."""

    def __init__(self, draft: Draft, grid: SetGrid) -> None:
        self._array = draft.group.create_array(
            "sets", shape=grid.shape, dtype=bool, chunks=grid.chunks, shards=grid.shards,
            compressors=codecs("blosc", 1), dimension_names=("sample", "class"), config={"write_empty_chunks": True},
        )  # fmt: skip

    def write(self, band: SetBand) -> int:
        n_labels, rows = 0, slice(band.first, band.first + band.n_rows)
        for column, (first, last) in enumerate(pairwise(band.columns)):
            block = band.block(column)
            self._array[rows, first:last] = block
            n_labels += int(np.count_nonzero(block))
        return n_labels

    def finish(self) -> None:
        """Do nothing: ``write`` has written every band already."""


class _IndexSets:
    """``offsets (sample + 1)`` and ``classes``: the set of sample i is ``classes[offsets[i]:offsets[i + 1]]``."""

    def __init__(self, draft: Draft, grid: SetGrid) -> None:
        n_samples, n_classes = grid.shape
        dtype = np.int32 if n_classes <= np.iinfo(np.int32).max else np.int64
        offset_array = draft.add_column("offsets", n_samples + 1, dimension="bound")
        self._class_array = draft.add_column("classes", 0, dtype, LABEL_ROWS, dimension="label")
        self._offsets = ChunkWriter(draft, offset_array, 0, offset_array.chunks[0])
        self._classes = ChunkWriter(draft, self._class_array, 0, LABEL_ROWS)
        self._offsets.append(np.zeros(1, np.int64))

    def write(self, band: SetBand) -> int:
        n_before = self._classes.n_rows
        for strip in band.strips():
            offsets = self._classes.n_rows + np.cumsum(np.count_nonzero(strip, axis=1), dtype=np.int64)
            self._classes.append(np.nonzero(strip)[1].astype(self._class_array.dtype))
            self._offsets.append(offsets)
        return self._classes.n_rows - n_before

    def finish(self) -> None:
        self._class_array.resize((self._classes.n_rows,))
        self._offsets.finish()
        self._classes.finish()
