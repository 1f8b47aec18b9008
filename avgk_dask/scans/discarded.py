"""A band's last stored scores: none that was discarded is above them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Dtype, Ints
from ..kernels.keys import NAN_KEY, encode
from ..states.last_slots import GroupSlots, LastSlots
from .band_pass import Pass
from .entries import checked_slabs
from .label_columns import SampleGroups


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


@dataclass(frozen=True)
class GroupSlotPlan:
    """Which of the columns holds the last stored score, and a key of each group."""

    dtype: Dtype
    n_columns: int
    last: int
    keys: Ints


def group_slot_pass(dtype: Dtype, n_columns: int, n_slots: int, keys: Ints) -> Pass:
    """Return the pass that finds the highest of the last stored scores of each group's rows, and counts scores above its key; groups come with labels."""
    plan = GroupSlotPlan(dtype, n_columns, n_slots - 1, keys)
    return Pass("discarded", tally_group_slots, plan, GroupSlots, state_bytes=16 * keys.size)


def tally_group_slots(slabs: Iterable[Array], labels: Array, band: int, plan: GroupSlotPlan) -> GroupSlots:
    """Return what one band's groups may have discarded."""
    _, groups = SampleGroups(plan.n_columns).split(labels)
    assert groups is not None
    highest, n_above = np.full(plan.keys.size, NAN_KEY), np.zeros(plan.keys.size, np.int64)
    first = 0
    for slab in checked_slabs(slabs, plan.dtype, plan.n_columns, groups):
        keys = encode(np.ascontiguousarray(slab, plan.dtype))
        if first <= plan.last < first + slab.shape[1]:
            np.maximum.at(highest, groups, keys[:, plan.last - first])
        np.add.at(n_above, groups, (keys > plan.keys[groups, None]).sum(1))
        first += slab.shape[1]
    return GroupSlots(highest, n_above)
