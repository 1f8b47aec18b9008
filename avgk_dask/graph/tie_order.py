"""Other orders of ties than the first ones: a search on keys refined so that the order decides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from ..kernels.keys import check_dtype, encode
from ..kernels.order import spread_keys, weigh_keys
from ..selection.search import Search, Selection
from .source import BlockSource, Source

Array = NDArray[Any]


def spread_source(source: Source, chosen: Iterable[int]) -> Source:
    """Give the matrix of keys in which the ties at the chosen keys are in a fixed pseudo-random order."""
    keys = source.dask_array().map_blocks(
        _spread, _ascending(chosen), source.shape[1], dtype=np.int64, meta=np.empty((0, 0), np.int64)
    )
    return BlockSource(keys, source.labels, source.location)


def _spread(block: Array, chosen: Array, n_classes: int, block_info: Any = None) -> Array:
    first_row, first_class = (int(first) for first, _ in block_info[0]["array-location"])
    return spread_keys(_keys(block), chosen, first_row, first_class, n_classes)


def _weighed_source(source: Source, key: int, heaviest: bool) -> Source:
    """Give the matrix of keys in which the ties at a key are ordered by their soft labels."""
    scores = source.dask_array()
    labels = source.labels
    soft = labels.rechunk(scores.chunks) if isinstance(labels, da.Array) else da.from_array(labels, scores.chunks)
    meta = np.empty((0, 0), np.int64)
    keys = da.map_blocks(_weigh, scores, soft, _ascending([key]), heaviest, dtype=np.int64, meta=meta)
    return BlockSource(keys, labels, source.location)


def _weigh(block: Array, weights: Array, chosen: Array, heaviest: bool) -> Array:
    return weigh_keys(_keys(block), chosen, np.ascontiguousarray(weights, np.float64), heaviest=heaviest)


def _keys(block: Array) -> Array:
    return encode(np.ascontiguousarray(block, check_dtype(block.dtype)))


def _ascending(keys: Iterable[int]) -> NDArray[np.int64]:
    return np.array(sorted(set(keys)), np.int64)


def spread_ties(source: Source, search: Search, run: Any) -> Search:
    """Give the search with its cut ties kept in the pseudo-random order: one more search for those budgets."""
    cut = {i: s for i, s in search.found.items() if s.is_cut}
    if not cut:
        return search
    again = run(spread_source(source, (s.key for s in cut.values())), [s.budget for s in cut.values()])
    found = dict(search.found)
    for (i, selection), other in zip(cut.items(), _in_order(again), strict=True):
        found[i] = replace(selection, set_sizes=other.set_sizes, weight=other.weight, cut=None)
    return replace(search, found=found, n_scans=search.n_scans + again.n_scans)


def settle_extremes(source: Source, search: Search, run: Any) -> Search:
    """Find the least and the most weight of kept ties where a scan knows only their sum: two searches for each key."""
    found, n_scans = dict(search.found), search.n_scans
    for key in {s.key for s in found.values() if s.extremes is None}:
        mine = [i for i, s in found.items() if s.extremes is None and s.key == key]
        weights: list[list[Fraction]] = []
        for heaviest in (False, True):
            again = run(_weighed_source(source, key, heaviest), [found[i].budget for i in mine])
            weights.append([s.weight for s in _in_order(again)])
            n_scans += again.n_scans
        for i, low, high in zip(mine, *weights, strict=True):
            above = found[i].weight_above
            found[i] = replace(found[i], extremes=(low - above, high - above))
    return replace(search, found=found, n_scans=n_scans)


def _in_order(search: Search) -> list[Selection]:
    return [search.found[i] for i in range(len(search.budgets))]
