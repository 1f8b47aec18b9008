"""Placing all scores among given keys, and the labels among all scores: one read each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ScoresError
from ..summaries.places import EdgeTable, LabelTally, PlaceTally
from .engine import Compute, refuse_bad_data, tally_task
from .memory import check_places_memory
from .source import Source

#: Bytes that the counts of all tasks together may take: more edges, fewer tasks.
_ALL_COUNTS = 1 << 30


@dataclass(frozen=True)
class _LabelPlan:
    dtype: np.dtype[Any]
    n_classes: int


@dataclass(frozen=True)
class _PlacePlan:
    dtype: np.dtype[Any]
    n_classes: int
    table: EdgeTable


def _tally_labels(slabs: Any, labels: Any, band: int, plan: _LabelPlan) -> LabelTally:
    return LabelTally.from_band(slabs, labels, band, plan.dtype, plan.n_classes)


def _tally_places(slabs: Any, labels: Any, band: int, plan: _PlacePlan) -> PlaceTally:
    return PlaceTally.from_band(slabs, labels, band, plan.dtype, plan.n_classes, plan.table)


def read_labels(source: Source, nan_policy: str, compute: Compute) -> LabelTally:
    """Read the scores of the hard labels and their ranks in their rows. One read."""
    check_places_memory(source, 0)
    plan = _LabelPlan(source.dtype, source.shape[1])
    (tally,) = compute([tally_task(source, "labels", _tally_labels, plan, LabelTally.merge)], "labels")
    return _checked(tally, source, nan_policy)


def read_places(source: Source, edges: NDArray[np.int64], nan_policy: str, compute: Compute) -> PlaceTally:
    """Count all scores, and the label weight, between and at ascending keys. One read."""
    check_places_memory(source, edges.size)
    plan = _PlacePlan(source.dtype, source.shape[1], EdgeTable.from_edges(edges))
    max_tasks = max(1, _ALL_COUNTS // (16 * plan.table.n_places))
    (tally,) = compute([tally_task(source, "places", _tally_places, plan, PlaceTally.merge, max_tasks)], "places")
    return _checked(tally, source, nan_policy)


def _checked(tally: Any, source: Source, nan_policy: str) -> Any:
    refuse_bad_data(tally, source, nan_policy)
    if tally.n_rows != source.shape[0]:
        raise ScoresError(
            f"scores must have the {source.shape[0]} rows their metadata say; got {tally.n_rows} when read."
        )
    return tally
