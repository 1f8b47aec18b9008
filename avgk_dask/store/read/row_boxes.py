"""Arrays of more than two axes as matrices: all axes but the last are rows, in row-major order. Integers in, integers out."""

from __future__ import annotations

import math

from ..where.array_kinds import StoredArray
from .grids import Axis, grid_of

Box = tuple[slice, ...]


def row_boxes(lead: tuple[int, ...], first: int, last: int) -> list[Box]:
    """Return the boxes, in order, that the rows from ``first`` to before ``last`` are of axes of these lengths.

    Examples
    --------
    >>> row_boxes((10,), 2, 5)
    [(slice(2, 5, None),)]
    >>> [[(axis.start, axis.stop) for axis in box] for box in row_boxes((4, 3), 2, 11)]
    [[(0, 1), (2, 3)], [(1, 3), (0, 3)], [(3, 4), (0, 2)]]

    """
    if len(lead) == 1:
        return [(slice(first, last),)]
    inner = math.prod(lead[1:])
    here = first // inner
    if here == (last - 1) // inner and last - first < inner:  # inside of one index of the first axis
        return _within(lead, here, first - here * inner, last - here * inner)
    begin, end = -(-first // inner), last // inner
    head = _within(lead, here, first - here * inner, inner) if here < begin else []
    tail = _within(lead, end, 0, last - end * inner) if last > end * inner else []
    whole = [(slice(begin, end), *(slice(0, n) for n in lead[1:]))] if begin < end else []
    return head + whole + tail


def _within(lead: tuple[int, ...], index: int, first: int, last: int) -> list[Box]:
    return [(slice(index, index + 1), *box) for box in row_boxes(lead[1:], first, last)]


def matrix_boxes(array: StoredArray, part: Box) -> list[Box]:
    """Return the boxes of an array that a part of it as a matrix has: rows, and classes where they are named."""
    if array.ndim <= 2:
        return [(*part, *(slice(0, n) for n in array.shape[len(part) :]))]
    classes = part[1] if len(part) > 1 else slice(0, array.shape[-1])
    return [(*box, classes) for box in row_boxes(array.shape[:-1], part[0].start, part[0].stop)]


def row_axis(array: StoredArray, most_bytes: int) -> Axis:
    """Return how the rows of an array as a matrix are split, so that no chunk has to be read for two parts.

    A part is a chunk of the first axis and all of the others that are rows. Where it would have more than ``most_bytes``
    though it is a single index, the next axis is split instead.
    """
    *lead, classes = grid_of(array)
    row_bytes = classes.n * array.dtype.itemsize
    axis = 0
    while axis < len(lead) - 1 and lead[axis].size == 1 and _n_inner(lead, axis) * row_bytes > most_bytes:
        axis += 1
    inner, chunks = _n_inner(lead, axis), lead[axis]
    n_outer = math.prod(outer.n for outer in lead[:axis])
    n_rows = n_outer * chunks.n * inner
    if chunks.ends is None and (n_outer == 1 or chunks.n % chunks.size == 0):
        return Axis(n_rows, chunks.size * inner)
    ends = ((i * chunks.n + end) * inner for i in range(n_outer) for end in chunks.bounds()[1:])
    return Axis(n_rows, chunks.size * inner, tuple(ends))


def _n_inner(lead: list[Axis], axis: int) -> int:
    """Return the number of rows of one index of an axis."""
    return math.prod(inner.n for inner in lead[axis + 1 :])
