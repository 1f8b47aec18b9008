"""Shards: which of their inner chunks are absent, and reading the last, cut ones in one request."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec

#: Offset and length of a chunk that a shard does not hold.
_ABSENT = 2**64 - 1


@dataclass(frozen=True)
class ShardIndex:
    """Where the index of each of an array's shards lies, and which inner chunks belong to the array."""

    shape: tuple[int, ...]
    shard: tuple[int, ...]
    chunk: tuple[int, ...]

    @classmethod
    def of(cls, array: Any) -> ShardIndex | None:
        """Give the index of an array with ordinary shards; None for any other."""
        codecs: tuple[Any, ...] = getattr(array.metadata, "codecs", ())
        if len(codecs) != 1 or not isinstance(codecs[0], ShardingCodec):
            return None
        coding = codecs[0]
        plain = [type(codec) for codec in coding.index_codecs] == [BytesCodec, Crc32cCodec]
        if not plain or coding.index_location.value != "end":
            return None
        return cls(array.shape, array.shards, array.chunks)

    def n_absent(self, place: tuple[int, ...], data: Any) -> int:
        """Give the number of inner chunks that lie in the array, and not in the shard at this place."""
        grid = tuple(s // c for s, c in zip(self.shard, self.chunk, strict=True))
        n = int(np.prod(grid))
        table = np.frombuffer(memoryview(data).cast("B")[-16 * n - 4 : -4], "<u8")
        if table.size != 2 * n:
            return 0  # too short: decoding it fails
        absent = (table.reshape(*grid, 2) == _ABSENT).all(-1)
        inside = tuple(
            min(per, -(-max(0, size - i * shard) // chunk))
            for per, size, i, shard, chunk in zip(grid, self.shape, place, self.shard, self.chunk, strict=True)
        )
        return int(absent[tuple(map(slice, inside))].sum())


def whole_shards(array: Any) -> Any:
    """Give an array with its shape rounded up to whole shards.

    zarr reads a shard that the array's edge cuts by one request for its index and one for each inner
    chunk; of a whole shard it takes all in one.
    """
    shape = tuple(-(-n // size) * size for n, size in zip(array.shape, array.shards, strict=True))
    if shape == array.shape:
        return array
    metadata = dataclasses.replace(array.metadata, shape=shape)
    return zarr.Array(zarr.AsyncArray(metadata=metadata, store_path=array.store_path, config={"order": array.order}))


def places_within(array: Any, where: tuple[slice, ...]) -> list[tuple[int, ...]]:
    """Give the places in the chunk (or shard) grid that a part of an array touches."""
    sizes = array.shards or array.chunks
    return list(
        itertools.product(
            *(range(part.start // size, -(-part.stop // size)) for part, size in zip(where, sizes, strict=True))
        )
    )
