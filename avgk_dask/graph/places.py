"""Placing all scores among given keys, and the labels among all scores: one read each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import LabelsError, ScoresError
from ..selection.risk import RiskSearch
from ..summaries.checked import CheckedTally
from ..summaries.places import EdgeTable, LabelTally, PlaceTally
from .engine import Compute, refuse_bad_data, tally_task
from .memory import check_places_memory
from .source import Source

#: Bytes that the counts of all tasks together may take: more edges, fewer tasks.
_ALL_COUNTS = 1 << 30
#: Keys at which one read tells the risk: 16 bytes each, with soft labels 1200.
_HARD_EDGES = 1 << 16
_SOFT_EDGES = 1 << 13


@dataclass(frozen=True)
class _LabelPlan:
    dtype: np.dtype[Any]
    n_classes: int


@dataclass(frozen=True)
class _PlacePlan:
    dtype: np.dtype[Any]
    n_classes: int
    table: EdgeTable
    cost: float | None


def _tally_labels(slabs: Any, labels: Any, band: int, plan: _LabelPlan) -> LabelTally:
    return LabelTally.from_band(slabs, labels, band, plan.dtype, plan.n_classes)


def _tally_places(slabs: Any, labels: Any, band: int, plan: _PlacePlan) -> PlaceTally:
    return PlaceTally.from_band(slabs, labels, band, plan.dtype, plan.n_classes, plan.table, plan.cost)


def read_labels(source: Source, nan_policy: str, compute: Compute) -> LabelTally:
    """Read the scores of the hard labels and their ranks in their rows. One read."""
    check_places_memory(source, 0)
    plan = _LabelPlan(source.dtype, source.shape[1])
    (tally,) = compute([tally_task(source, "labels", _tally_labels, plan, LabelTally.merge)], "labels")
    _check(tally, source, nan_policy)
    return tally  # type: ignore[no-any-return]


def read_places(
    source: Source, edges: NDArray[np.int64], nan_policy: str, compute: Compute, cost: float | None = None
) -> PlaceTally:
    """Count all scores, and the label weight, between and at ascending keys. One read."""
    check_places_memory(source, edges.size)
    plan = _PlacePlan(source.dtype, source.shape[1], EdgeTable.from_edges(edges), cost)
    max_tasks = max(1, _ALL_COUNTS // (16 * plan.table.n_places))
    (tally,) = compute([tally_task(source, "places", _tally_places, plan, PlaceTally.merge, max_tasks)], "places")
    _check(tally, source, nan_policy)
    return tally  # type: ignore[no-any-return]


def least_risk(source: Source, cost: Fraction, nan_policy: str, compute: Compute) -> RiskSearch:
    """Find the threshold of least risk, exactly: usually two to four reads."""
    soft = source.labels.ndim == 2
    search = RiskSearch.begin(cost, source.dtype, _SOFT_EDGES if soft else _HARD_EDGES)
    while search.open:
        # A soft label is heavy if it exceeds the cost; rounding the cost down only keeps more intervals open.
        tally = read_places(source, search.edges(), nan_policy, compute, _below(cost))
        if not tally.n_labelled:
            raise LabelsError(
                "labels must name the class of one sample at least; got negative ones only. Label some samples."
            )
        search = search.advance(tally)
    return search


def _below(cost: Fraction) -> float:
    """Give a float that is not above the cost."""
    value = float(cost)
    return value if value <= cost else math.nextafter(value, -math.inf)


def _check(tally: CheckedTally, source: Source, nan_policy: str) -> None:
    refuse_bad_data(tally, source, nan_policy)
    if tally.n_rows != source.shape[0]:
        raise ScoresError(
            f"scores must have the {source.shape[0]} rows their metadata say; got {tally.n_rows} when read. "
            "Correct the shape and chunks of the array."
        )
