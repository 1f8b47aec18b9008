"""What is certain from truncated scores: what no discarded score could change. The rest is refused.

No score that was discarded is above the highest of the last stored scores of all rows. Sources that hold all scores are
certain: nothing is read for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from ..arrays import Array, Dtype, Ints
from ..bands.passes import Pass, SampleGroups
from ..bands.rows import checked_slabs
from ..errors import BudgetError, OptionError, ScoresError
from ..exact.budgets import show
from ..kernels.keys import KEY_MAX, NAN_KEY, decode, encode, key_range
from ..records import Counts, Merging, State
from .label_ranks import Risk, edge_pass

if TYPE_CHECKING:  # they bring Dask arrays and xarray, which workers do without
    from ..engine.run import Run
    from ..sources.source import Source, Truncation

#: Keys: the highest, and below all of them where there is none.
HIGHEST = Merging(max, lambda _: NAN_KEY)
#: The same of each of several.
HIGHEST_OF_EACH = Merging(np.maximum.reduce, lambda keys: np.full_like(keys, NAN_KEY))


@dataclass(frozen=True)
class LastSlots(State):
    """The highest key of any row's last stored score."""

    highest: Annotated[int, HIGHEST]


@dataclass(frozen=True)
class GroupSlots(State):
    """For each group the highest key of its rows' last stored scores, and the scores above a key of its own."""

    highest: Annotated[Ints, HIGHEST_OF_EACH]
    n_above: Counts


@dataclass(frozen=True)
class SlotPlan:
    """Which of the columns holds the last stored score, and a key for each group."""

    dtype: Dtype
    n_columns: int
    last: int
    keys: Ints | None = None


def _slot_pass(source: Source, keys: Ints | None = None) -> Pass:
    """Return the pass that finds the highest last stored score of all rows, or of each group."""
    assert source.truncation is not None
    plan = SlotPlan(source.dtype, source.shape[1], source.truncation.n_slots - 1, keys)
    if keys is None:
        return Pass("discarded", tally_last_slots, plan, LastSlots)
    return Pass("discarded", tally_group_slots, plan, GroupSlots, state_bytes=16 * keys.size)


def tally_last_slots(slabs: Iterable[Array], labels: Array | None, band: int, plan: SlotPlan) -> LastSlots:
    """Return the highest last stored score of one band."""
    first, highest = 0, NAN_KEY
    for slab in checked_slabs(slabs, plan.dtype, plan.n_columns, None):
        if first <= plan.last < first + slab.shape[1]:
            highest = int(encode(np.ascontiguousarray(slab[:, plan.last - first], plan.dtype)).max())
        first += slab.shape[1]
    return LastSlots(highest)


def tally_group_slots(slabs: Iterable[Array], labels: Array, band: int, plan: SlotPlan) -> GroupSlots:
    """Return the highest last stored score of each group in one band, and the scores above each group's key."""
    _, groups = SampleGroups(plan.n_columns).split(labels)
    assert groups is not None
    assert plan.keys is not None
    highest, n_above = np.full(plan.keys.size, NAN_KEY), np.zeros(plan.keys.size, np.int64)
    first = 0
    for slab in checked_slabs(slabs, plan.dtype, plan.n_columns, groups):
        keys = encode(np.ascontiguousarray(slab, plan.dtype))
        if first <= plan.last < first + slab.shape[1]:
            np.maximum.at(highest, groups, keys[:, plan.last - first])
        np.add.at(n_above, groups, (keys > plan.keys[groups, None]).sum(1))
        first += slab.shape[1]
    return GroupSlots(highest, n_above)


def _truncation(source: Source) -> Truncation | None:
    """Return how a source was truncated, or None if it discarded nothing."""
    what = source.truncation
    return None if what is None or what.is_whole else what


def _kept(what: Truncation) -> str:
    return f"{what.location or 'truncated scores'}, which keeps {what.n_slots} of {what.n_classes} scores of each row"


def _highest_discarded(run: Run) -> int:
    """Return the key up to which scores may have been discarded. One read."""
    return int(run.over(run.source.with_labels(None)).read(_slot_pass(run.source)).highest)


def _n_above(run: Run, key: int) -> int:
    """Return how many stored scores are above a key. One read, unless there are none."""
    source = run.source
    if key >= key_range(source.dtype)[1]:
        return 0
    wanted = edge_pass(source.dtype, source.shape[1], np.array([key + 1], np.int64))
    return int(run.over(source.with_labels(None)).read(wanted).n_from()[0])


def refuse_truncated(source: Source, what: str, *, in_any_order: bool = False) -> None:
    """Refuse truncated rows; ``in_any_order`` takes those of which nothing was discarded."""
    found = source.truncation
    if found is not None and not (in_any_order and found.is_whole):
        raise ScoresError(
            f"scores must be whole rows for {what}; got truncated ones, {_kept(found)}. Write the store without top_m."
        )


def refuse_spread(source: Source, ties: str) -> None:
    """Refuse another order of ties than the first ones of truncated rows, whose classes are not in order."""
    if source.truncation is not None and ties != "first":
        raise OptionError(
            f"ties must be 'first' for a truncated store; got {ties!r}. Leave it out, or store whole rows."
        )
    if ties not in ("first", "spread"):
        raise OptionError(f"ties must be 'first' or 'spread'; got {ties!r}. Leave it out to keep the first ones.")


def refuse_budgets(run: Run, budgets: Sequence[Fraction], *, straddle: bool = False) -> None:
    """Refuse budgets that are larger than the rows that are left, before anything else is read."""
    what = _truncation(run.source)
    if what is not None and max(budgets) > what.n_slots:
        n_sure = _n_above(run, _highest_discarded(run))
        raise BudgetError(_refusal(what, max(budgets), n_sure, run.source.shape[0], straddle))


def certify_budgets(
    run: Run, budgets: Sequence[Fraction], keys: Sequence[int], n_ranks: Sequence[int] | None = None
) -> None:
    """Refuse budgets whose answer the discarded scores could change, given the keys of their thresholds.

    ``n_ranks`` are the ranks that each budget's straddle strengths need. One more read.

    Raises
    ------
    BudgetError
        With the largest budget that is certain.

    """
    what = _truncation(run.source)
    if what is None:
        return
    highest = _highest_discarded(run)
    for i, (budget, key) in enumerate(zip(budgets, keys, strict=True)):
        needed: Any = budget if n_ranks is None else n_ranks[i]
        if not (key > highest and needed <= what.n_slots):
            n_sure = _n_above(run, highest)
            raise BudgetError(_refusal(what, budget, n_sure, run.source.shape[0], n_ranks is not None))


def certify_groups(run: Run, budgets: Sequence[Fraction], keys: Ints, n_samples: Ints, groups: Ints) -> None:
    """Refuse budgets whose answer for some group the discarded scores could change, given the keys of thresholds.

    These are by budget and group. One more read.

    Raises
    ------
    BudgetError
        With the largest budget that is certain for the first such group.

    """
    what = _truncation(run.source)
    if what is None:
        return
    highest = run.read(_slot_pass(run.source, np.full(keys.shape[1], KEY_MAX))).highest
    uncertain = (keys <= highest)[:, groups]
    if uncertain.any():
        group = groups[np.flatnonzero(uncertain.any(0))[0]]
        budget = budgets[int(np.flatnonzero(keys[:, group] <= highest[group])[0])]
        n_sure = int(run.read(_slot_pass(run.source, highest)).n_above[group])
        raise BudgetError(_refusal(what, budget, n_sure, int(n_samples[group])))


def _refusal(what: Truncation, budget: Fraction, n_sure: int, n_samples: int, straddle: bool = False) -> str:
    """Return why a budget is refused if ``n_sure`` scores of the samples are above all that were discarded."""
    most = max(0, -(-n_sure // n_samples) - 1)  # budgets k with floor(N k) < n_sure
    most = min(most, what.n_slots // 2 if straddle else what.n_slots)
    hint = ""
    if straddle and what.n_slots // 2 == most:
        hint = " With straddle=False (on the command line --no-straddle) a larger k may be certain."
    if not most and (not n_sure or (straddle and what.n_slots < 2)):
        return f"k must be certain; got {show(budget)}, and none is from {_kept(what)}. Use a store with more of them.{hint}"
    rule = f"at most {most}" if most else f"below {show(Fraction(n_sure, n_samples))}"
    return (
        f"k must be {rule} to be certain from {_kept(what)}; got {show(budget)}. "
        f"Use a smaller k, or a store with more of them.{hint}"
    )


def certify_ranks(source: Source, n_ranks: int, got: str) -> None:
    """Refuse ranks that are not stored of every row; those that are stored are the same as in whole rows."""
    what = _truncation(source)
    if what is not None and n_ranks > what.n_slots:
        raise BudgetError(
            f"{got} must need at most {what.n_slots} ranks to be certain from {_kept(what)}; got one that needs {n_ranks}. "
            "Use a smaller one, or a store with more of them."
        )


def certify_thresholds(run: Run, thresholds: Sequence[Any], first_keys: Sequence[int]) -> None:
    """Refuse thresholds that discarded scores could exceed, given the first key above each. One more read."""
    what = _truncation(run.source)
    if what is None:
        return
    highest = _highest_discarded(run)
    for threshold, first in zip(thresholds, first_keys, strict=True):
        if first <= highest:
            least = decode([highest], run.source.dtype)[0]
            raise OptionError(
                f"thresholds must be at least {least} to be certain from {_kept(what)}; got {threshold}. "
                "Use higher ones, or a store with more of them."
            )


def certify_first_key(run: Run, first: int, what: str) -> None:
    """Refuse sets of all scores from a key up that could hold discarded ones. One more read."""
    found = _truncation(run.source)
    if found is not None and first <= _highest_discarded(run):
        raise ScoresError(
            f"{what} must exceed every score that was discarded to be certain from {_kept(found)}; got one that does not. "
            "Use a larger alpha, or a store with more of them."
        )


def certify_least_risk(run: Run, best: Risk, cost: Fraction) -> None:
    """Refuse a least risk that a threshold among the discarded scores might beat. Two more reads.

    Sets of a lower threshold than all that is stored of every row hold at least what lies above that: their risk is at
    least its cost.
    """
    what = _truncation(run.source)
    if what is None:
        return
    highest = _highest_discarded(run)
    if best.first_key <= highest or cost * Fraction(_n_above(run, highest), run.source.shape[0]) < best.risk:
        raise ScoresError(
            f"cost must be high enough for the best threshold to be certain from {_kept(what)}; got {show(cost)}. "
            "Use a higher one, or a store with more of them."
        )
