"""The pilot's sample: a few chunks of scores, sorted, from which brackets are guessed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np

from ..arrays import Ints
from ..records import OWN, State

Column = Annotated[Ints, OWN]


@dataclass(frozen=True)
class PilotSample(State):
    """Keys of sampled chunks in descending order, each standing for ``weight`` scores of its strip."""

    keys: Column
    weights: Column
    strips: Column
    #: Scores in each strip, and the chunk it belongs to.
    strip_scores: Column
    strip_chunks: Column
    lowest: Annotated[int, OWN]
    highest: Annotated[int, OWN]

    @classmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        """Return the union of the samples: strips in the order of their chunks, keys descending."""
        if len(states) == 1:
            return states[0]
        firsts = np.cumsum([0, *(s.strip_scores.size for s in states)])
        chunks = np.concatenate([s.strip_chunks for s in states])
        order = np.argsort(chunks, kind="stable")
        number = np.empty(order.size, np.int64)
        number[order] = np.arange(order.size)
        strips = number[np.concatenate([s.strips + first for s, first in zip(states, firsts[:-1], strict=True)])]
        keys = np.concatenate([s.keys for s in states])
        descending = np.lexsort((strips, keys))[::-1]
        return cls(
            keys[descending],
            np.concatenate([s.weights for s in states])[descending],
            strips[descending],
            np.concatenate([s.strip_scores for s in states])[order],
            chunks[order],
            min(s.lowest for s in states),
            max(s.highest for s in states),
        )

    def nothing(self) -> Self:
        """Return the sample of no chunk."""
        none = np.zeros(0, np.int64)
        return type(self)(none, none, none, none, none, 2**63 - 1, -(2**63))

    @property
    def n_scores(self) -> int:
        """How many scores the sampled chunks hold."""
        return int(self.strip_scores.sum())
