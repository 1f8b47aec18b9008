"""Checks that results from truncated scores are certain: that no discarded score could change them.

All discarded scores are at most the highest of the last stored scores of all rows. Nothing is read if no scores were
discarded.
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
from ..results.registry import TIES
from .label_ranks import Risk, edge_pass

if TYPE_CHECKING:  # loads xarray, which workers do not need
    from ..engine.run import Run
    from ..sources.source import Source, Truncation

#: Merge keys, or arrays of keys, to the highest.
HIGHEST = Merging(max, lambda _: NAN_KEY)
HIGHEST_OF_EACH = Merging(np.maximum.reduce, lambda keys: np.full_like(keys, NAN_KEY))


@dataclass(frozen=True)
class LastSlots(State):
    """The highest key of any row's last stored score."""

    highest: Annotated[int, HIGHEST]


@dataclass(frozen=True)
class GroupSlots(State):
    """For each group, the highest key of its rows' last stored scores, and the number of scores above the group's key."""

    highest: Annotated[Ints, HIGHEST_OF_EACH]
    n_above: Counts


@dataclass(frozen=True)
class SlotPlan:
    """The column of the last stored score, and a key per group."""

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
    """Return the highest last stored score of each group in one band, and the number of scores above its key."""
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
    """Return the truncation of a source, or None if nothing was discarded."""
    truncation = source.truncation
    return None if truncation is None or truncation.is_whole else truncation


def _describe(truncation: Truncation) -> str:
    location = truncation.location or "truncated scores"
    return f"{location}, which keeps {truncation.n_slots} of {truncation.n_classes} scores per row"


def _highest_discarded(run: Run) -> int:
    """Return the highest key that a discarded score may have. One read."""
    return int(run.over(run.source.with_labels(None)).read(_slot_pass(run.source)).highest)


def _n_above(run: Run, key: int) -> int:
    """Return the number of stored scores above a key. One read, unless the key is the highest."""
    source = run.source
    if key >= key_range(source.dtype)[1]:
        return 0
    pass_ = edge_pass(source.dtype, source.shape[1], np.array([key + 1], np.int64))
    return int(run.over(source.with_labels(None)).read(pass_).n_from()[0])


def refuse_truncated(source: Source, result: str, *, in_any_order: bool = False) -> None:
    """Raise ScoresError if rows are truncated; with ``in_any_order``, only if scores were discarded."""
    truncation = source.truncation
    if truncation is not None and not (in_any_order and truncation.is_whole):
        raise ScoresError(
            f"scores must be whole rows for {result}; got truncated ones, {_describe(truncation)}. "
            "Write the store without top_m."
        )


def refuse_spread(source: Source, ties: str) -> None:
    """Raise OptionError if ties are spread in truncated rows, whose classes are not in order."""
    if source.truncation is not None and ties != "first":
        raise OptionError(
            f"ties must be 'first' for a truncated store; got {ties!r}. Leave it out, or store whole rows."
        )
    if ties not in TIES:
        raise OptionError(
            f"ties must be {' or '.join(map(repr, TIES))}; got {ties!r}. Leave it out to keep the first ones."
        )


def refuse_budgets(run: Run, budgets: Sequence[Fraction], *, straddle: bool = False) -> None:
    """Raise BudgetError if a budget exceeds the length of truncated rows, before anything else is read."""
    truncation = _truncation(run.source)
    if truncation is not None and max(budgets) > truncation.n_slots:
        n_sure = _n_above(run, _highest_discarded(run))
        raise BudgetError(_refusal(truncation, max(budgets), n_sure, run.source.shape[0], straddle))


def certify_budgets(
    run: Run, budgets: Sequence[Fraction], keys: Sequence[int], n_ranks: Sequence[int] | None = None
) -> None:
    """Raise BudgetError if discarded scores could change the result of a budget. One more read.

    ``keys`` are the keys of the thresholds, ``n_ranks`` the ranks that the straddle strengths of each budget need. The
    message has the largest budget that is certain.
    """
    truncation = _truncation(run.source)
    if truncation is None:
        return
    highest = _highest_discarded(run)
    for i, (budget, key) in enumerate(zip(budgets, keys, strict=True)):
        needed: Any = budget if n_ranks is None else n_ranks[i]
        if not (key > highest and needed <= truncation.n_slots):
            n_sure = _n_above(run, highest)
            raise BudgetError(_refusal(truncation, budget, n_sure, run.source.shape[0], n_ranks is not None))


def certify_groups(run: Run, budgets: Sequence[Fraction], keys: Ints, n_samples: Ints, groups: Ints) -> None:
    """Check, as ``certify_budgets``, the results of each group, given threshold keys by budget and group."""
    truncation = _truncation(run.source)
    if truncation is None:
        return
    highest = run.read(_slot_pass(run.source, np.full(keys.shape[1], KEY_MAX))).highest
    uncertain = (keys <= highest)[:, groups]
    if uncertain.any():
        group = groups[np.flatnonzero(uncertain.any(0))[0]]
        budget = budgets[int(np.flatnonzero(keys[:, group] <= highest[group])[0])]
        n_sure = int(run.read(_slot_pass(run.source, highest)).n_above[group])
        raise BudgetError(_refusal(truncation, budget, n_sure, int(n_samples[group])))


def _refusal(truncation: Truncation, budget: Fraction, n_sure: int, n_samples: int, straddle: bool = False) -> str:
    """Return the message for an uncertain budget if ``n_sure`` scores are above all discarded ones."""
    most = max(0, -(-n_sure // n_samples) - 1)  # budgets k with floor(N k) < n_sure
    most = min(most, truncation.n_slots // 2 if straddle else truncation.n_slots)
    hint = ""
    if straddle and truncation.n_slots // 2 == most:
        hint = " With straddle=False (on the command line --no-straddle) a larger k may be certain."
    if not most and (not n_sure or (straddle and truncation.n_slots < 2)):
        return (
            f"no k has an exact result from {_describe(truncation)}; got k = {show(budget)}. Use a store that keeps "
            f"more scores per row.{hint}"
        )
    rule = f"at most {most}" if most else f"below {show(Fraction(n_sure, n_samples))}"
    return (
        f"k must be {rule} for an exact result from {_describe(truncation)}; got {show(budget)}. Use a smaller k, or "
        f"a store that keeps more scores per row.{hint}"
    )


def certify_ranks(source: Source, n_ranks: int, argument: str) -> None:
    """Raise BudgetError if more ranks are needed than truncated rows have. Stored ranks are the same as in whole rows."""
    truncation = _truncation(source)
    if truncation is not None and n_ranks > truncation.n_slots:
        raise BudgetError(
            f"{argument} needs {n_ranks} ranks, which cannot be computed from {_describe(truncation)}. Use a smaller "
            "one, or a store that keeps more scores per row."
        )


def certify_thresholds(run: Run, thresholds: Sequence[Any], first_keys: Sequence[int]) -> None:
    """Raise OptionError if a discarded score could exceed a threshold, given the first key above each. One more read."""
    truncation = _truncation(run.source)
    if truncation is None:
        return
    highest = _highest_discarded(run)
    for threshold, first in zip(thresholds, first_keys, strict=True):
        if first <= highest:
            least = decode([highest], run.source.dtype)[0]
            raise OptionError(
                f"thresholds must be at least {least} for an exact result from {_describe(truncation)}; got "
                f"{threshold}. Use higher ones, or a store that keeps more scores per row."
            )


def certify_first_key(run: Run, first: int, argument: str) -> None:
    """Raise ScoresError if sets of all scores from a key up could contain discarded scores. One more read."""
    truncation = _truncation(run.source)
    if truncation is not None and first <= _highest_discarded(run):
        raise ScoresError(
            f"{argument} may be below scores that were discarded in {_describe(truncation)}. "
            "Use a larger alpha, or a store that keeps more scores per row."
        )


def certify_least_risk(run: Run, best: Risk, cost: Fraction) -> None:
    """Raise ScoresError if a threshold among the discarded scores might have less risk. Two more reads.

    Sets with a threshold that low contain all scores above the discarded ones, so their risk is at least the cost of those.
    """
    truncation = _truncation(run.source)
    if truncation is None:
        return
    highest = _highest_discarded(run)
    if best.first_key <= highest or cost * Fraction(_n_above(run, highest), run.source.shape[0]) < best.risk:
        raise ScoresError(
            f"cost is too low to find the best threshold in {_describe(truncation)}: got {show(cost)}. Use a higher "
            "one, or a store that keeps more scores per row."
        )
