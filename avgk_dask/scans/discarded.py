"""A band's last stored scores: none that was discarded is above them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Dtype
from ..kernels.keys import encode
from ..states.last_slots import LastSlots
from .band_pass import Pass
from .entries import checked_slabs


@dataclass(frozen=True)
class SlotPlan:
    """Which of the columns holds the last stored score."""

    dtype: Dtype
    n_columns: int
    last: int


def last_slot_pass(dtype: Dtype, n_columns: int, n_slots: int) -> Pass:
    """Return the pass that finds the highest of all rows' last stored scores."""
    return Pass("discarded", tally_last_slots, SlotPlan(dtype, n_columns, n_slots - 1), LastSlots)


def tally_last_slots(slabs: Iterable[Array], labels: Array | None, band: int, plan: SlotPlan) -> LastSlots:
    """Return the highest last stored score of one band."""
    first, highest = 0, []
    for slab in checked_slabs(slabs, plan.dtype, plan.n_columns, None):
        if first <= plan.last < first + slab.shape[1]:
            column = np.ascontiguousarray(slab[:, plan.last - first], plan.dtype)
            highest.append(int(encode(column).max()))
        first += slab.shape[1]
    return LastSlots(highest[0])
