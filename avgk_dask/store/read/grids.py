"""Grids: how an array is split into stored chunks (or shards) along each axis. Nothing else assumes that they are alike."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate

from ..where.array_kinds import StoredArray
from ..where.zarr_calls import is_uneven, uneven_sizes


@dataclass(frozen=True)
class Axis:
    """One axis of a grid: its length, the size of its chunks (of uneven ones the largest), and where uneven ones end."""

    n: int
    size: int
    ends: tuple[int, ...] | None = None

    @property
    def count(self) -> int:
        """Number of chunks."""
        return -(-self.n // self.size) if self.ends is None else len(self.ends)

    def span(self, index: int) -> tuple[int, int]:
        """Return where the chunk of an index begins and ends, clipped at the array's edge."""
        if self.ends is None:
            return index * self.size, min((index + 1) * self.size, self.n)
        return self.ends[index - 1] if index else 0, self.ends[index]

    def indices(self, first: int, last: int) -> range:
        """Return the indices of the chunks that values from ``first`` to before ``last`` lie in.

        Examples
        --------
        >>> Axis(10, 4).indices(3, 9), Axis(10, 6, (1, 7, 10)).indices(1, 8)
        (range(0, 3), range(1, 3))

        """
        if self.ends is None:
            return range(first // self.size, -(-last // self.size))
        return range(bisect_right(self.ends, first), bisect_left(self.ends, last) + 1)

    def bounds(self) -> list[int]:
        """Return where the chunks begin, and where the last one ends."""
        return [*range(0, self.n, self.size), self.n] if self.ends is None else [0, *self.ends]

    def joined(self, most: float) -> list[int]:
        """Return the bounds of stretches of whole chunks, of at most so many values each unless a chunk has more.

        Examples
        --------
        >>> Axis(10, 2).joined(5), Axis(10, 6, (1, 3, 9, 10)).joined(4)
        ([0, 4, 8, 10], [0, 3, 9, 10])

        """
        if self.ends is None:
            step = self.size * max(1, int(most // self.size))
            return [*range(0, self.n, step), self.n]
        bounds, last = [0], 0
        for end in self.ends:
            if end - bounds[-1] > most and last > bounds[-1]:
                bounds.append(last)
            last = end
        return [*bounds, last]


Grid = tuple[Axis, ...]


def grid_of(array: StoredArray) -> Grid:
    """Return the axes of an array's grid of stored chunks (or shards)."""
    uneven = uneven_sizes(array)
    if uneven is None:
        return tuple(Axis(n, size) for n, size in zip(array.shape, array.shards or array.chunks, strict=True))
    return tuple(Axis(n, max(sizes), tuple(accumulate(sizes))) for n, sizes in zip(array.shape, uneven, strict=True))


def outer_sizes(array: StoredArray) -> tuple[int, ...]:
    """Return the size of the stored chunks (or shards) along each axis; of uneven ones the largest."""
    return tuple(axis.size for axis in grid_of(array))


def shards_of(array: StoredArray) -> tuple[int, ...] | None:
    """Return the sizes of an array's shards; None where there are none."""
    return None if is_uneven(array) or array.shards is None else tuple(array.shards)


def chunks_of(array: StoredArray) -> tuple[int, ...]:
    """Return the sizes of an array's chunks, inside of shards if there are any; of uneven ones the largest."""
    return outer_sizes(array) if is_uneven(array) else tuple(array.chunks)
