"""The lowest and highest error over all ways to keep as many ties, where a scan knows only sums of soft labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..selection.search import Search
from ..selection.ties import WeightSearch
from ..settings import setting
from ..summaries.histogram import LEAST_ROOM
from ..summaries.tie_weights import TieWindow, WeightTally
from .engine import Compute, tally_task
from .source import Source


@dataclass(frozen=True)
class _WeightPlan:
    dtype: np.dtype[Any]
    n_classes: int
    windows: tuple[TieWindow, ...]
    room: int


def _tally_weights(slabs: Any, labels: Any, band: int, plan: _WeightPlan) -> WeightTally:
    return WeightTally.from_band(slabs, labels, plan.dtype, plan.n_classes, list(plan.windows), plan.room)


def settle_extremes(source: Source, search: Search, compute: Compute) -> Search:
    """Find the least and the most weight of kept ties where they are not known: two more reads for all budgets."""
    searches = {
        (i, heaviest): WeightSearch.begin(s.key, s.n_kept, heaviest)
        for i, s in search.found.items()
        if s.extremes is None
        for heaviest in (False, True)
    }
    n_reads = 0
    while windows := tuple(dict.fromkeys(s.window for s in searches.values() if not s.done)):
        room = max(LEAST_ROOM, setting("ranked-bins") // len(windows))
        plan = _WeightPlan(source.dtype, source.shape[1], windows, room)
        (tally,) = compute([tally_task(source, "ties", _tally_weights, plan, WeightTally.merge)], "ties")
        found = dict(zip(windows, tally.histograms, strict=True))
        searches = {name: s if s.done else s.advance(found[s.window]) for name, s in searches.items()}
        n_reads += 1
    settled = {
        i: replace(search.found[i], extremes=(searches[i, False].total, searches[i, True].total)) for i, _ in searches
    }
    return replace(search, found={**search.found, **settled}, n_scans=search.n_scans + n_reads)
