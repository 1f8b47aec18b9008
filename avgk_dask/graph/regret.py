"""The pass over probabilities and sets that the regret needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import delayed
from numpy.typing import NDArray

from ..kernels.keys import carrier
from ..summaries.entries import TopRanks
from ..summaries.regret import RegretTally
from .engine import Compute
from .source import BlockSource, Source

Array = NDArray[Any]


def labelled_by_itself(source: Source) -> Source:
    """Give probabilities with themselves as soft labels."""
    blocks = source.dask_array()
    return BlockSource(blocks, blocks, source.location)


def count_members(sets: da.Array, compute: Compute) -> int:
    """Give how many labels sets hold together."""
    (count,) = compute([delayed(int)(sets.sum(dtype=np.int64))], "count")
    return int(count)


def set_regret(source: Source, sets: da.Array, threshold: float, compute: Compute) -> RegretTally:
    """Tally sets against probabilities. One read of both."""
    eta = source.dask_array()
    blocks = zip(eta.to_delayed().reshape(-1), sets.rechunk(eta.chunks).to_delayed().reshape(-1), strict=True)
    tally = delayed(RegretTally.from_block, pure=False)
    return RegretTally.merge(compute([tally(a, b, threshold) for a, b in blocks], "regret"))


def top_regrets(source: Source, ks: Sequence[int], thresholds: Sequence[float], compute: Compute) -> list[RegretTally]:
    """Tally the top-k sets of several k against probabilities, each with its threshold. One read."""
    rows = source.dask_array().rechunk({1: -1})
    tally = delayed(_tally_tops, pure=False)
    parts = compute([tally(block, list(ks), list(thresholds)) for block in rows.to_delayed().reshape(-1)], "gain")
    return [RegretTally.merge(list(part)) for part in zip(*parts, strict=True)]


def _tally_tops(eta: Array, ks: list[int], thresholds: list[float]) -> list[RegretTally]:
    top = TopRanks(eta.shape[0], max(ks), eta.dtype)
    top.insert(carrier(np.ascontiguousarray(eta)), 0, 0)
    found = []
    for k, threshold in zip(ks, thresholds, strict=True):
        inside = np.zeros(eta.shape, bool)
        np.put_along_axis(inside, top.classes[:, :k], True, axis=1)
        found.append(RegretTally.from_block(eta, inside, threshold))
    return found
