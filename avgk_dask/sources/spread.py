"""Other orders of ties than the first ones: a search on keys refined so that the order decides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.keys import check_dtype, encode
from ..kernels.order import spread_keys
from .blocks import BlockSource
from .source import Source

Array = NDArray[Any]


def spread_source(source: Source, chosen: Iterable[int]) -> Source:
    """Return the matrix of keys in which the ties at the chosen keys are in a fixed pseudo-random order."""
    keys = source.dask_array().map_blocks(
        _spread, _ascending(chosen), source.shape[1], dtype=np.int64, meta=np.empty((0, 0), np.int64)
    )
    return BlockSource(keys, source.labels, source.location)


def _spread(block: Array, chosen: Array, n_classes: int, block_info: Any = None) -> Array:
    first_row, first_class = (int(first) for first, _ in block_info[0]["array-location"])
    return spread_keys(_keys(block), chosen, first_row, first_class, n_classes)


def _keys(block: Array) -> Array:
    return encode(np.ascontiguousarray(block, check_dtype(block.dtype)))


def _ascending(keys: Iterable[int]) -> NDArray[np.int64]:
    return np.array(sorted(set(keys)), np.int64)
