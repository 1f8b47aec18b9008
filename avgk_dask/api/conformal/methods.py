"""What conformal sets may be asked for: the options of ``conformal.calibrate``, checked."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...arrays import Array, Bools, Dtype, Ints, whole_number
from ...errors import BudgetError, OptionError
from ...exact.budgets import parse_budget
from ...kernels.keys import decode, first_key_from, key_range
from ...sources.source import Source
from ...statistics.costs import NEVER, Costs, cost_bits
from ...statistics.truncated import refuse_truncated
from ..options import BudgetLike, LabelsLike

METHODS = ("lac", "aps", "raps", "top_k")


@dataclass(frozen=True)
class AskedSets:
    """The options, checked."""

    alpha: Fraction
    method: str
    by: str | None
    seed: int | None
    penalty: Fraction
    k_reg: int

    @classmethod
    def of(
        cls, alpha: BudgetLike, method: str, by: LabelsLike, seed: int | None, penalty: BudgetLike | None, k_reg: int | None
    ) -> AskedSets:  # fmt: skip
        """Return the options, or refuse them."""
        if method not in METHODS:
            raise OptionError(f"method must be one of {', '.join(METHODS)}; got {method!r}. Leave it out for lac.")
        if isinstance(by, str) and by != "class":
            raise OptionError(
                f"by must be 'class', or an integer for each sample; got {by!r}. Leave it out for one threshold."
            )
        kind = None if by is None else "class" if isinstance(by, str) else "group"
        return cls(
            _check_alpha(alpha), method, kind, _check_seed(seed, method), *_check_penalty(penalty, k_reg, method)
        )

    def costs(self, dtype: Dtype, n_classes: int) -> Costs:
        """Return what classes cost."""
        if self.method in ("lac", "top_k"):
            return Costs(self.method, dtype)
        bits = cost_bits(self.penalty, self.k_reg, n_classes)
        if bits < 0 or self.penalty * 2**bits >= 1 << 63:  # also where no rank is beyond k_reg
            raise OptionError(
                f"penalty must be small enough for the sums of {n_classes} classes; got {float(self.penalty):g}. "
                "Use one such as 0.01."
            )
        return Costs(self.method, dtype, bits, round(self.penalty * 2**bits), self.k_reg, self.seed)


def _check_alpha(alpha: BudgetLike) -> Fraction:
    try:
        value = parse_budget(alpha)
    except BudgetError:
        value = Fraction(-1)
    if not 0 < value < 1:
        raise OptionError(
            f"alpha must be a number between 0 and 1; got {alpha!r}. Pass the error that is allowed, such as 0.1."
        )
    return value


def _check_seed(seed: int | None, method: str) -> int | None:
    if seed is None:
        return None
    if method in ("lac", "top_k"):
        raise OptionError(
            f"seed must be None for the method {method!r}; got {seed!r}. Only aps and raps have a random form."
        )
    if not 0 <= whole_number(seed) < 2**64:
        raise OptionError(f"seed must be an integer from 0 to 2**64 - 1; got {seed!r}. Pass one such as 0.")
    return int(seed)


def _check_penalty(penalty: BudgetLike | None, k_reg: int | None, method: str) -> tuple[Fraction, int]:
    """Return the penalty and the ranks that are free of it; those of RAPS by default, and none for others."""
    if method != "raps":
        for name, value in (("penalty", penalty), ("k_reg", k_reg)):
            if value is not None:
                raise OptionError(f"{name} must be None for the method {method!r}; got {value!r}. Use it with raps.")
        return Fraction(0), 0
    try:
        found = Fraction(1, 100) if penalty is None else parse_budget(penalty)
    except BudgetError:
        found = Fraction(-1)
    if found < 0:
        raise OptionError(f"penalty must be a number of at least 0; got {penalty!r}. Pass one such as 0.01.")
    if k_reg is not None and whole_number(k_reg) < 0:
        raise OptionError(f"k_reg must be an integer of at least 0; got {k_reg!r}. Pass the ranks without a penalty.")
    return found, 5 if k_reg is None else int(k_reg)


# Levels of conformal sets: what users see of them, among scores of any dtype, and what a method asks of scores.


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
