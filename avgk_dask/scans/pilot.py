"""The pilot's look at one chunk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..arrays import Array, Dtype, Ints
from ..kernels.keys import HALF_NAN, carrier, check_dtype, encode, is_half
from ..states.pilot_sample import PilotSample
from .entries import checked_slabs

#: Strips a chunk is split into, to learn how much counts vary from one stretch of rows to the next.
_STRIPS = 8
#: Keys taken of a chunk at most; of more, every n-th is.
_TAKEN = 1 << 13


@dataclass(frozen=True)
class PilotPlan:
    """The share of each strip's scores that is taken, from the top, and the shapes of the chunks by their number."""

    fraction: float
    dtype: Dtype
    shapes: tuple[tuple[int, int], ...]


def sample_chunk(slabs: Iterable[Array], labels: Array | None, number: int, plan: PilotPlan) -> PilotSample:
    """Return the sample of the chunk of a number."""
    n_rows, n_classes = plan.shapes[number]
    blocks = checked_slabs(slabs, plan.dtype, n_classes, np.empty(n_rows))
    return sample_slabs(blocks, (n_rows, n_classes), number, plan.fraction)


def sample_block(block: Array, number: int, fraction: float) -> PilotSample:
    """Return the sample of a block."""
    return sample_slabs([block], (block.shape[0], block.shape[1]), number, fraction)


def sample_slabs(slabs: Iterable[Array], shape: tuple[int, int], number: int, fraction: float) -> PilotSample:
    """Return the sample of slabs that make one block: of each strip of its rows the top ``fraction``, thinned if many."""
    n_rows, n_classes = shape
    bounds = np.linspace(0, n_rows, min(_STRIPS, n_rows) + 1).astype(np.int64)
    scores = np.diff(bounds) * n_classes
    n_top = np.minimum(scores, (fraction * scores).astype(np.int64) + 64)
    tops = [np.zeros(0, np.int64)] * scores.size
    lowest, highest = 2**63 - 1, -(2**63)
    for slab in slabs:
        for strip, (first, last) in enumerate(pairwise(bounds)):
            low, ordered = _lowest_and_top(slab[first:last].reshape(-1), int(n_top[strip]))
            if ordered.size:
                lowest, highest = min(lowest, low), max(highest, int(ordered[0]))
            if tops[strip].size:
                ordered = np.sort(np.concatenate([tops[strip], ordered]))[::-1][: n_top[strip]]
            tops[strip] = ordered
    steps = np.maximum(1, n_top * _STRIPS // _TAKEN)
    tops = [top[::step] for top, step in zip(tops, steps.tolist(), strict=True)]
    keys, sizes = np.concatenate(tops), [top.size for top in tops]
    strips = np.repeat(np.arange(scores.size), sizes)
    descending = np.lexsort((strips, keys))[::-1]
    return PilotSample(
        keys[descending],
        np.repeat(steps, sizes)[descending],
        strips[descending],
        scores,
        np.full(scores.size, number),
        lowest,
        highest,
    )


def _lowest_and_top(values: Array, n_top: int) -> tuple[int, Ints]:
    """Return the key of the lowest number, and those of the ``n_top`` highest, descending; NaN left out."""
    half = is_half(check_dtype(values.dtype))
    values = carrier(values)
    low = values.min()
    if low != low or (half and low == HALF_NAN):
        values = values[values != HALF_NAN] if half else values[~np.isnan(values)]
    if not values.size:
        return 0, np.zeros(0, np.int64)
    n_top = min(n_top, values.size)
    top = np.sort(np.partition(values, values.size - n_top)[values.size - n_top :])[::-1]
    keys = encode(top) if top.dtype.kind == "f" else top.astype(np.int64)
    return int(encode(values.min(keepdims=True))[0]), keys
