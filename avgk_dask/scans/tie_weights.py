"""The label weights of a band's ties."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Dtype
from ..kernels.keys import encode
from ..states.key_histogram import KeyHistogram
from ..states.weight_tally import WeightTally
from .entries import checked_slabs
from .usable_labels import UsableLabels


@dataclass(frozen=True)
class TieWindow:
    """The ties at one key whose label weight, as an order key, lies from ``low`` to ``high``."""

    key: int
    low: int
    high: int


@dataclass(frozen=True)
class WeightPlan:
    """The windows to look into, and the most_bins of the histogram of each."""

    dtype: Dtype
    n_classes: int
    windows: tuple[TieWindow, ...]
    most_bins: int


def tally_weights(slabs: Iterable[Array], labels: Array, band: int, plan: WeightPlan) -> WeightTally:
    """Return the tally of one band with soft labels."""
    soft = UsableLabels.of(labels, plan.n_classes).soft
    assert soft is not None
    found = [[KeyHistogram.empty(plan.most_bins)] for _ in plan.windows]
    first_class = 0
    for slab in checked_slabs(slabs, plan.dtype, plan.n_classes, soft):
        keys = encode(np.ascontiguousarray(slab, plan.dtype))
        weights = soft[:, first_class : first_class + slab.shape[1]]
        first_class += slab.shape[1]
        for key in {window.key for window in plan.windows}:
            mine = encode(weights[keys == key])
            for window, parts in zip(plan.windows, found, strict=True):
                inside = mine[(mine >= window.low) & (mine <= window.high)] if window.key == key else mine[:0]
                if inside.size:
                    parts.append(KeyHistogram.from_keys(inside, plan.most_bins))
    return WeightTally(tuple(KeyHistogram.merge(parts) for parts in found))
