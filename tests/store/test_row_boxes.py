"""Row boxes: the rows of arrays with more than two axes, as boxes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from avgk_dask.store.read.bands import read_matrix, row_axis, row_boxes
from avgk_dask.store.read.grids import grid_of
from avgk_dask.store.read.manifest import indices_within


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_row_boxes__are_the_rows_in_order(lead, data):
    numbers = np.arange(math.prod(lead)).reshape(lead)
    first = data.draw(st.integers(0, numbers.size - 1))
    last = data.draw(st.integers(first + 1, numbers.size))
    boxes = row_boxes(tuple(lead), first, last)
    assert np.concatenate([numbers[box].reshape(-1) for box in boxes]).tolist() == list(range(first, last))
    assert len(boxes) <= 2 * len(lead) - 1


@given(st.lists(st.integers(1, 6), min_size=3, max_size=4), st.sampled_from([0, 40, 1 << 20]), st.data())
def test_row_axis__splits_rows_so_that_no_chunk_is_in_two_parts(shape, most, data):
    chunks = tuple(data.draw(st.integers(1, n)) for n in shape)
    array = zarr.create_array({}, shape=shape, chunks=chunks, dtype="f4")
    axis = row_axis(array, most)
    assert axis.n == math.prod(shape[:-1])
    seen = []
    for i in range(axis.count):
        boxes = row_boxes(tuple(shape[:-1]), *axis.span(i))
        seen.append({index for box in boxes for index in indices_within(grid_of(array), (*box, slice(0, shape[-1])))})
    assert sum(map(len, seen)) == len(set().union(*seen)) == array.nchunks


@pytest.mark.parametrize(
    ("shape", "chunks", "most", "sizes"),
    [
        ((6, 7, 5), (2, 3, 5), 0, [14, 14, 14]),
        ((2, 7, 5), (1, 3, 5), 0, [3, 3, 1, 3, 3, 1]),
        ((2, 7, 5), (1, 3, 5), 1 << 20, [7, 7]),
        ((2, 2, 4, 5), (1, 1, 2, 5), 0, [2] * 8),
        ((2, 2, 4, 5), (1, 2, 2, 5), 0, [8, 8]),
    ],
)
def test_row_axis__splits_the_next_axis_where_single_indices_are_large(shape, chunks, most, sizes):
    axis = row_axis(zarr.create_array({}, shape=shape, chunks=chunks, dtype="f4"), most)
    assert [last - first for first, last in map(axis.span, range(axis.count))] == sizes


def test_read_matrix__reads_any_rows_and_classes():
    values = np.arange(4 * 3 * 5, dtype="f4").reshape(4, 3, 5)
    array = zarr.create_array({}, data=values, chunks=(2, 2, 2), config={"write_empty_chunks": True})
    for first, last in ((0, 12), (1, 2), (2, 8), (3, 6), (5, 12)):
        rows = read_matrix(array, (slice(first, last), slice(1, 4)))
        assert np.array_equal(rows, values.reshape(-1, 5)[first:last, 1:4])
