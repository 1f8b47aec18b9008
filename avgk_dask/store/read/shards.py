"""Shards: which of their inner chunks are absent, and reading those at the array's edge in one request."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass

import numpy as np
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec

from ..where.array_kinds import StoredArray
from .grids import Grid
from .layout import configured
from .manifest import index_of

#: Offset and length of a chunk that a shard does not hold.
_ABSENT = 2**64 - 1


@dataclass(frozen=True)
class ShardIndex:
    """Where the index of each of an array's shards lies, and which inner chunks belong to the array."""

    array: str
    shape: tuple[int, ...]
    shard: tuple[int, ...]
    chunk: tuple[int, ...]
    at_end: bool

    @classmethod
    def of(cls, array: StoredArray) -> ShardIndex | None:
        """Return the index of an array with ordinary shards; None for any other."""
        codecs: tuple[object, ...] = getattr(array.metadata, "codecs", ())
        if len(codecs) != 1 or not isinstance(codecs[0], ShardingCodec):
            return None
        coding = codecs[0]
        plain = [type(codec) for codec in coding.index_codecs] == [BytesCodec, Crc32cCodec]
        if not plain:
            return None
        return cls(
            array.path, array.shape, array.shards or (), array.chunks, configured(coding, "index_location") == "end"
        )

    def n_absent(self, key: str, data: memoryview) -> tuple[int, bool]:
        """Return the number of inner chunks that lie in the array and not in the shard, and whether its index points outside of it."""
        index = index_of(self.array, key)
        if index is None:
            return 0, False
        grid = tuple(s // c for s, c in zip(self.shard, self.chunk, strict=True))
        n = int(np.prod(grid))
        view = data.cast("B")
        if view.nbytes < 16 * n + 4:
            return 0, True
        table = np.frombuffer(view[-16 * n - 4 : -4] if self.at_end else view[: 16 * n], "<u8")
        absent = (table.reshape(*grid, 2) == _ABSENT).all(-1)
        ends = table.reshape(*grid, 2).sum(-1, where=~absent[..., None])
        inside = tuple(
            min(per, -(-max(0, size - i * shard) // chunk))
            for per, size, i, shard, chunk in zip(grid, self.shape, index, self.shard, self.chunk, strict=True)
        )
        return int(absent[tuple(map(slice, inside))].sum()), bool(ends.max() > view.nbytes)


def whole_shards(array: StoredArray) -> StoredArray:
    """Return an array with its shape rounded up to whole shards.

    zarr reads a shard that reaches beyond the array's edge by one request for its index and one for each inner
    chunk; of a whole shard it takes all in one.
    """
    shape = tuple(-(-n // size) * size for n, size in zip(array.shape, array.shards or array.chunks, strict=True))
    if shape == array.shape:
        return array
    metadata = dataclasses.replace(array.metadata, shape=shape)
    return zarr.Array(zarr.AsyncArray(metadata=metadata, store_path=array.store_path, config={"order": array.order}))


def chunk_slices(grid: Grid, index: tuple[int, ...]) -> tuple[slice, ...]:
    """Return the part of an array that the stored chunk (or shard) at an index of its grid holds."""
    return tuple(slice(*axis.span(i)) for i, axis in zip(index, grid, strict=True))


def indices_within(grid: Grid, where: tuple[slice, ...]) -> list[tuple[int, ...]]:
    """Return the indices in the chunk (or shard) grid that a part of an array touches."""
    parts = zip(where, grid, strict=True)
    return list(itertools.product(*(axis.indices(part.start, part.stop) for part, axis in parts)))
