"""The label weights of ties: what is needed to know the lightest and the heaviest of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.keys import encode
from .entries import checked_slabs
from .histogram import KeyHistogram
from .labels import UsableLabels

Array = NDArray[Any]


@dataclass(frozen=True)
class TieWindow:
    """The ties at one key whose label weight, as an order key, lies from ``low`` to ``high``."""

    key: int
    low: int
    high: int


@dataclass(frozen=True)
class WeightTally:
    """A histogram of the weights in each window; None for an empty one."""

    histograms: tuple[KeyHistogram | None, ...]

    @classmethod
    def from_band(
        cls, slabs: Iterable[Array], labels: Array, dtype: Any, n_classes: int, windows: list[TieWindow], room: int
    ) -> WeightTally:
        """Give the tally of one band with soft labels."""
        soft = UsableLabels.of(labels, n_classes).soft
        assert soft is not None
        found: list[list[KeyHistogram]] = [[] for _ in windows]
        first_class = 0
        for slab in checked_slabs(slabs, dtype, n_classes, soft):
            keys = encode(np.ascontiguousarray(slab, dtype))
            weights = soft[:, first_class : first_class + slab.shape[1]]
            first_class += slab.shape[1]
            for key in {window.key for window in windows}:
                mine = encode(weights[keys == key])
                for window, parts in zip(windows, found, strict=True):
                    inside = mine[(mine >= window.low) & (mine <= window.high)] if window.key == key else mine[:0]
                    if inside.size:
                        parts.append(KeyHistogram.from_keys(inside, room))
        return cls(tuple(KeyHistogram.merge(parts) if parts else None for parts in found))

    @classmethod
    def merge(cls, tallies: list[WeightTally]) -> WeightTally:
        """Give the tally of all the bands together."""
        columns = ([h for h in column if h] for column in zip(*(t.histograms for t in tallies), strict=True))
        return cls(tuple(KeyHistogram.merge(column) if column else None for column in columns))
