"""The ambiguity analysis of a scan's ranked scores, on the threads of this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..arrays import Dtype
from ..states.ranked_scores import RankedTally
from ..threads import in_threads
from .columns import Column, pairs_space, rank_column
from .pair_sums import PairSum
from .straddle import orders_of, ranks_of


@dataclass(frozen=True)
class Ambiguity:
    """The columns of all ranks, their ends, and the sums over pairs for each budget and order."""

    columns: tuple[Column, ...]
    supports: tuple[tuple[int, int], ...]
    pairs: dict[int, dict[int, PairSum]]


def analyse(tally: RankedTally, budgets: Sequence[int], dtype: Dtype, n_classes: int) -> Ambiguity:
    """Sort the columns of all ranks, and sum over the pairs that integer budgets need.

    The columns have come together in this process: its threads share them without a copy.
    """
    known = tally.binned() if tally.n_bins > 0 else tally
    columns = in_threads(lambda rank: rank_column(known, rank, dtype), range(1, tally.n_ranks + 1))

    def sum_pairs(k: int) -> dict[int, PairSum]:
        pairs = {order: [columns[rank - 1] for rank in ranks_of(k, order)] for order in orders_of(k, n_classes)}
        space = pairs_space(*(column for pair in pairs.values() for column in pair))
        return {order: _pairs_above(a, b, space) for order, (a, b) in pairs.items()}

    longest_first = sorted(set(budgets), reverse=True)
    sums = dict(zip(longest_first, in_threads(sum_pairs, longest_first), strict=True))
    return Ambiguity(tuple(columns), tuple(column.ends for column in columns), {k: sums[k] for k in sorted(sums)})


def _pairs_above(a: Any, b: Any, space: Any) -> PairSum:
    found: PairSum = a.pairs_above(b, space)
    return found
