"""The pilot's look at one chunk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Dtype, Ints
from ..kernels.keys import HALF_NAN, carrier, check_dtype, encode, is_half
from ..states.pilot_sample import PilotSample
from .promised import promised_block

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
    (block,) = slabs
    return sample_block(promised_block(block, plan.dtype, plan.shapes[number]), number, plan.fraction)


def sample_block(block: Array, number: int, fraction: float) -> PilotSample:
    """Return the sample of a block: of each strip of rows the top ``fraction``, thinned if many."""
    keys, weights, strips, scores = [], [], [], []
    lowest, highest = 2**63 - 1, -(2**63)
    for strip, rows in enumerate(np.array_split(block, min(_STRIPS, block.shape[0]))):
        values = rows.reshape(-1)
        n_top = min(values.size, int(fraction * values.size) + 64)
        low, ordered = _lowest_and_top(values, n_top)
        if ordered.size:
            lowest, highest = min(lowest, low), max(highest, int(ordered[0]))
        step = max(1, n_top * _STRIPS // _TAKEN)
        top = ordered[::step]
        keys.append(top)
        weights.append(np.full(top.size, step))
        strips.append(np.full(top.size, strip))
        scores.append(values.size)
    all_keys, all_strips = np.concatenate(keys), np.concatenate(strips)
    descending = np.lexsort((all_strips, all_keys))[::-1]
    return PilotSample(
        all_keys[descending],
        np.concatenate(weights)[descending],
        all_strips[descending],
        np.array(scores),
        np.full(len(scores), number),
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
