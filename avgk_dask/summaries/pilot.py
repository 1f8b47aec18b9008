"""The pilot's sample: a few chunks of scores, sorted, from which brackets are guessed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.keys import HALF_NAN, carrier, check_dtype, encode, is_half

Ints = NDArray[np.int64]

#: Strips a chunk is cut into, to learn how much counts vary from one run of rows to the next.
_STRIPS = 8
#: Keys kept of a chunk at most; above that every n-th is kept.
_KEPT = 1 << 13


@dataclass(frozen=True)
class PilotSample:
    """Keys of sampled chunks in descending order, each standing for ``weight`` scores of its strip."""

    keys: Ints
    weights: Ints
    strips: Ints
    #: Scores in each strip, and the chunk it belongs to.
    strip_scores: Ints
    strip_chunks: Ints
    lowest: int
    highest: int

    @classmethod
    def from_chunk(cls, block: NDArray[Any], chunk: int, fraction: float) -> PilotSample:
        """Give the sample of one chunk: of each strip of rows the top ``fraction``, thinned if many."""
        keys, weights, strips, scores = [], [], [], []
        lowest, highest = 2**63 - 1, -(2**63)
        for strip, rows in enumerate(np.array_split(block, min(_STRIPS, block.shape[0]))):
            values = rows.reshape(-1)
            n_top = min(values.size, int(fraction * values.size) + 64)
            low, ordered = _lowest_and_top(values, n_top)
            if ordered.size:
                lowest, highest = min(lowest, low), max(highest, int(ordered[0]))
            step = max(1, n_top * _STRIPS // _KEPT)
            top = ordered[::step]
            keys.append(top)
            weights.append(np.full(top.size, step))
            strips.append(np.full(top.size, strip))
            scores.append(values.size)
        return cls(
            np.concatenate(keys),
            np.concatenate(weights),
            np.concatenate(strips),
            np.array(scores),
            np.full(len(scores), chunk),
            lowest,
            highest,
        )

    @classmethod
    def merge(cls, samples: list[PilotSample]) -> PilotSample:
        """Give the union of the samples, sorted."""
        offsets = np.cumsum([0] + [s.strip_scores.size for s in samples])
        keys = np.concatenate([s.keys for s in samples])
        order = np.argsort(keys, kind="stable")[::-1]
        return cls(
            keys[order],
            np.concatenate([s.weights for s in samples])[order],
            np.concatenate([s.strips + o for s, o in zip(samples, offsets[:-1], strict=True)])[order],
            np.concatenate([s.strip_scores for s in samples]),
            np.concatenate([s.strip_chunks for s in samples]),
            min(s.lowest for s in samples),
            max(s.highest for s in samples),
        )

    @property
    def n_scores(self) -> int:
        """How many scores the sampled chunks hold."""
        return int(self.strip_scores.sum())


def _lowest_and_top(values: NDArray[Any], n_top: int) -> tuple[int, Ints]:
    """Give the key of the lowest number, and those of the ``n_top`` highest, descending; NaN left out."""
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
