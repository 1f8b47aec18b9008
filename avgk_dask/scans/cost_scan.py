"""What a band's labels cost: all that a conformal threshold is found from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Dtype, Ints
from ..states.cost_tally import CostHistogram, CostTally
from .band_pass import Pass
from .costs import Costs
from .label_columns import SampleGroups
from .whole_rows import RowChecks

#: Scores that are worked on at once.
_TILE = 1 << 17
#: Bytes of a bin of a histogram of costs.
_BIN_BYTES = 24


@dataclass(frozen=True)
class CostPlan:
    """What is common to all bands: what labels cost, how they are grouped, and which costs are counted.

    ``by`` is ``""`` for one group, ``"class"`` for one a class, ``"group"`` where the labels' column tells it.
    """

    dtype: Dtype
    n_classes: int
    costs: Costs
    by: str
    most_bins: int
    first_rows: tuple[int, ...]
    #: Costs of a group are counted that are in its bin of ``2**shift``; all of them where there are no bins.
    shift: int = 0
    bins: Ints | None = None
    #: Of which groups they are.
    is_open: Ints | None = None

    def within(self, groups: Ints, costs: Ints) -> tuple[Ints, Ints]:
        """Return those that are counted."""
        if self.bins is None or self.is_open is None:
            return groups, costs
        mine = (self.is_open[groups] > 0) & ((costs >> self.shift) == self.bins[groups])
        return groups[mine], costs[mine]


def cost_pass(plan: CostPlan, n_samples: int) -> Pass:
    """Return the pass that counts the costs of labels, of so many samples."""
    most = _BIN_BYTES * min(plan.most_bins, n_samples)
    return Pass("conformal", tally_costs, plan, CostTally, holds_rows=True, state_bytes=most)


def tally_costs(slabs: Iterable[Array], labels: Array, band: int, plan: CostPlan) -> CostTally:
    """Return the costs of one band's labels."""
    hard, groups = SampleGroups(plan.n_classes, plan.by == "group").split(labels)
    checks = RowChecks.of(slabs, hard, band, plan.dtype, plan.n_classes)
    mine = checks.labels.hard
    assert mine is not None
    rows = np.flatnonzero(mine >= 0)
    costs = np.zeros(len(mine), np.int64)
    for first, scores in checked_tiles(checks, plan.costs):
        part = rows[np.searchsorted(rows, first) : np.searchsorted(rows, first + len(scores))]
        costs[part] = plan.costs.of_labels(scores[part - first], mine[part], plan.first_rows[band] + part)
    of = np.zeros(rows.size, np.int64) if plan.by == "" else (mine if groups is None else groups)[rows]
    found = CostHistogram.of(*plan.within(of, costs[rows]), plan.most_bins)
    return CostTally(**checks.fields(), costs=found)


def checked_tiles(checks: RowChecks, costs: Costs) -> Iterator[tuple[int, Array]]:
    """Return (first row, scores) of stretches of a band's rows, which are looked at first; none once any are refused."""
    step = max(1, _TILE // checks.rows.shape[1])
    for first in range(0, len(checks.rows), step):
        scores = checks.rows[first : first + step]
        checks.note_nan(scores, first)
        if costs.sums_probabilities and not checks.n_nan:
            checks.refuse(first + costs.bad_rows(scores))
        if not (costs.sums_probabilities and (checks.n_nan or checks.n_refused)):
            yield first, scores
