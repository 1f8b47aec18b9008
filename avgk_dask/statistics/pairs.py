"""Pairs of classes that are in a set together, counted sparsely for a known rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np

from ..arrays import Array, Bools, Dtype, Ints
from ..bands.passes import NOWHERE, CheckedTally, Pass, UsableLabels
from ..bands.rows import Rule, whole_rows
from ..engine.strata import add_up
from ..kernels.keys import is_float
from ..records import JOINED, Counts

Column = Annotated[Ints, JOINED]
#: Pairs counted at once, and the bytes per pair in the tally.
_AT_ONCE = 1 << 20
_ENTRY = 16


@dataclass(frozen=True)
class PairTally(CheckedTally):
    """The number of sets that contain each class, and each pair of classes a < b, coded as ``a * C + b``."""

    codes: Column
    counts: Column
    n_sets: Counts

    def settled(self) -> Self:
        """Return the tally with equal pairs counted together."""
        (codes,), counts = add_up((self.codes,), self.counts)
        return replace(self, codes=codes, counts=counts)


def count_codes(sets: Bools) -> tuple[Ints, Ints]:
    """Return the code of each pair of classes in some sets, and the number of sets that contain it."""
    n_classes, rows = sets.shape[1], np.nonzero(sets)
    sizes = np.bincount(rows[0], minlength=len(sets))
    codes, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    waiting: list[Ints] = []

    def add_waiting() -> tuple[Ints, Ints]:
        together = np.concatenate([codes, *waiting])
        waiting.clear()
        ones = np.ones(together.size - codes.size, np.int64)
        (distinct,), sums = add_up((together,), np.concatenate([counts, ones]))
        return distinct, sums

    for size in np.unique(sizes[sizes > 1]).tolist():
        members = rows[1][np.repeat(sizes == size, sizes)].reshape(-1, size).astype(np.int64)
        for i in range(size - 1):
            waiting.append((members[:, i : i + 1] * n_classes + members[:, i + 1 :]).reshape(-1))
            if sum(part.size for part in waiting) > _AT_ONCE:
                codes, counts = add_waiting()
    return add_waiting()


@dataclass(frozen=True)
class PairPlan:
    """The rule, and the first rows of the bands."""

    dtype: Dtype
    n_classes: int
    rule: Rule
    first_rows: tuple[int, ...]
    tile_scores: int


def pair_pass(plan: PairPlan, n_pairs: int) -> Pass:
    """Return the pass that counts at most ``n_pairs`` distinct pairs."""
    return Pass("pairs", count_pairs, plan, PairTally, holds_rows=True, state_bytes=_ENTRY * n_pairs)


def count_pairs(slabs: Iterable[Array], labels: Array | None, band: int, plan: PairPlan) -> PairTally:
    """Count the pairs in the sets of one band, with its whole rows in memory."""
    scores = np.ascontiguousarray(whole_rows(slabs, plan.dtype, plan.n_classes, None), plan.dtype)
    nan = np.flatnonzero(scores != scores) if is_float(plan.dtype) else np.zeros(0, np.int64)
    codes, counts, n_sets = list[Ints](), list[Ints](), np.zeros(plan.n_classes, np.int64)
    step = max(1, plan.tile_scores // plan.n_classes)
    for first in range(0, len(scores), step):
        sets = plan.rule.choose(scores[first : first + step], plan.first_rows[band] + first, 0, plan.n_classes)
        for column, part in zip((codes, counts), count_codes(sets), strict=True):
            column.append(part)
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
