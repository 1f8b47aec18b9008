"""Counting which classes are in sets together, once the rule of the sets is known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Dtype
from ..kernels.keys import is_float
from ..states.checks import NOWHERE
from ..states.pair_counts import PairTally, count_codes
from .band_pass import Pass
from .row_outcomes import Rule
from .usable_labels import UsableLabels
from .whole_rows import whole_rows

#: Bytes of an entry of the tally.
_ENTRY = 16


@dataclass(frozen=True)
class PairPlan:
    """The rule, and where the bands begin."""

    dtype: Dtype
    n_classes: int
    rule: Rule
    first_rows: tuple[int, ...]
    tile_scores: int


def pair_pass(plan: PairPlan, n_pairs: int) -> Pass:
    """Return the pass that counts pairs, of which there are at most so many."""
    return Pass("pairs", count_pairs, plan, PairTally, holds_rows=True, state_bytes=_ENTRY * n_pairs)


def count_pairs(slabs: Iterable[Array], labels: Array | None, band: int, plan: PairPlan) -> PairTally:
    """Count the pairs in the sets of one band, whose whole rows are held."""
    scores = np.ascontiguousarray(whole_rows(slabs, plan.dtype, plan.n_classes, None), plan.dtype)
    nan = np.flatnonzero(scores != scores) if is_float(plan.dtype) else np.zeros(0, np.int64)
    codes, counts, n_sets = [], [], np.zeros(plan.n_classes, np.int64)
    step = max(1, plan.tile_scores // plan.n_classes)
    for first in range(0, len(scores), step):
        sets = plan.rule.choose(scores[first : first + step], plan.first_rows[band] + first, 0, plan.n_classes)
        distinct, n = count_codes(sets)
        codes.append(distinct)
        counts.append(n)
        n_sets += sets.sum(0)
    return PairTally(
        n_rows=len(scores),
        n_nan=nan.size,
        first_nan=(band, *divmod(int(nan[0]), plan.n_classes)) if nan.size else NOWHERE,
        **UsableLabels().faults(band),
        n_labelled=0,
        codes=np.concatenate(codes),
        counts=np.concatenate(counts),
        n_sets=n_sets,
    ).settled()
