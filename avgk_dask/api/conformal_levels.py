"""Levels of conformal sets: what users see of them, among scores of any dtype, and what a method asks of scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Bools, Dtype, Ints
from ..errors import OptionError
from ..kernels.keys import decode, first_key_from, key_range
from ..passes.certifying import refuse_truncated
from ..scans.costs import NEVER, Costs
from ..sources.source import Source
from .conformal_options import AskedSets


@dataclass(frozen=True)
class Told:
    """What a predictor was asked to be, and how it was found."""

    asked: AskedSets
    n_classes: int
    groups: Ints | None
    reads: int


def check_method_on(source: Source, method: str, by: str | None, nan_policy: str) -> None:
    """Refuse what a method cannot do with these scores."""
    if by is not None or method in ("aps", "raps"):
        what = f"thresholds by {by}" if by is not None else f"the method {method!r}"
        refuse_truncated(source, what)
    if method in ("aps", "raps") and nan_policy != "raise":
        raise OptionError(
            f"nan_policy must be 'raise' for the method {method!r}; got {nan_policy!r}. Correct the NaN, or leave those samples out."
        )


def are_everything(costs: Costs, levels: Ints, counts: Ints, ranks: Ints) -> Bools:
    """Return which thresholds let everything in that is a number: of too few samples, or at the score of a label that is NaN."""
    too_few: Bools = ranks > counts
    # The least integer of 64 bits costs as much as everything.
    return too_few if costs.everything == NEVER else levels == costs.everything


def levels_for(levels: Ints, every: Bools, costs: Costs, dtype: Dtype) -> tuple[Ints, Bools]:
    """Return the levels of the same thresholds among scores of another dtype, and which exceed all of those; exact, none is rounded."""
    highest, found = key_range(dtype)[1], {}
    for level in np.unique(levels[~every]).tolist():
        found[level] = first_key_from(decode([~level], costs.dtype)[0], dtype)
    both = zip(levels.tolist(), every.tolist(), strict=True)
    firsts = [~Costs(costs.method, dtype).everything if all_in else found[level] for level, all_in in both]
    exceed = np.array([first > highest for first in firsts], bool)
    return ~np.array([min(first, highest) for first in firsts], np.int64), exceed


def shown_thresholds(costs: Costs, levels: Ints, every: Bools, n_classes: int) -> Array:
    """Return levels in the units that users know."""
    if costs.method == "top_k":
        return np.minimum(levels, n_classes)
    if costs.method != "lac":
        return np.where(every, np.inf, levels / 2.0**costs.bits)
    values = decode(np.where(every, 0, ~levels), costs.dtype)
    wide = costs.dtype.kind in "iu" and costs.dtype.itemsize == 8  # float64 does not hold them all
    return np.where(every, -np.inf, values.astype(object if wide else np.float64))
