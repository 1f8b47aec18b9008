"""The ambiguity analysis of a scan's ranked scores, on the threads of this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask import threaded

from ..ambiguity.columns import Column, pairs_room, rank_column
from ..ambiguity.straddle import orders_of, ranks_of
from ..ambiguity.values import PairSum
from ..summaries.ranked import RankedTally


@dataclass(frozen=True)
class Ambiguity:
    """The columns of all ranks, their ends, and the sums over pairs for each budget and order."""

    columns: tuple[Column, ...]
    supports: tuple[tuple[int, int], ...]
    pairs: dict[int, dict[int, PairSum]]


def analyse(tally: RankedTally, budgets: Sequence[int], dtype: np.dtype[Any], n_classes: int) -> Ambiguity:
    """Sort the columns of all ranks, and sum over the pairs that integer budgets need.

    The columns have come together in this process: its threads share them without a copy.
    """
    n_ranks = len(tally.histograms) or len(tally.parts[0])
    graph: dict[Any, Any] = {("column", rank): (rank_column, tally, rank, dtype) for rank in range(1, n_ranks + 1)}
    for k in sorted(set(budgets), reverse=True):  # the longest first
        pairs = {order: tuple(("column", rank) for rank in ranks_of(k, order)) for order in orders_of(k, n_classes)}
        graph["pairs", k] = (_sum_pairs, list(pairs), [list(p) for p in pairs.values()])
    columns, sums = threaded.get(
        graph, [[("column", rank) for rank in range(1, n_ranks + 1)], [("pairs", k) for k in sorted(set(budgets))]]
    )
    supports = tuple(column.ends for column in columns)
    return Ambiguity(tuple(columns), supports, dict(zip(sorted(set(budgets)), sums, strict=True)))


def _sum_pairs(orders: list[int], columns: list[list[Any]]) -> dict[int, PairSum]:
    room = pairs_room(*(column for pair in columns for column in pair))
    return {order: a.pairs_above(b, room) for order, (a, b) in zip(orders, columns, strict=True)}
