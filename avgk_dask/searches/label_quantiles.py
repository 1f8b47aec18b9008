"""The cost of a rank among the costs of all labels, or of those of each group: what conformal thresholds are.

Costs are counted singly as long as they are few. Beyond, they are counted in bins, and a second read counts those in the one
bin of each group that holds its rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ..arrays import Ints
from ..exact.coverage_law import quantile_rank
from ..scans.band_pass import Pass
from ..scans.cost_scan import CostPlan, cost_pass
from ..states.cost_tally import CostTally


@dataclass(frozen=True)
class QuantileSearch:
    """What is known after some reads: the labels of each group, and the bin in which the cost of its rank lies."""

    plan: CostPlan
    n_samples: int
    n_groups: int
    alpha: Fraction
    #: Of each group the labels, the rank that is asked for, and the rank within the bin; 0 where it is beyond all labels.
    counts: Ints | None = None
    ranks: Ints | None = None
    left: Ints | None = None
    bins: Ints | None = None
    #: Bins are of ``2**shift`` costs.
    shift: int = 64
    first: CostTally | None = None

    def next_pass(self) -> Pass | None:
        """Return the next pass; none once bins are single costs."""
        if self.shift == 0 or (self.left is not None and not self.left.any()):
            return None
        if self.bins is None or self.left is None:
            return cost_pass(self.plan, self.n_samples)
        plan = replace(self.plan, shift=self.shift, bins=self.bins, is_open=self.left)
        return cost_pass(plan, self.n_samples)

    def advance(self, state: CostTally) -> QuantileSearch:
        """Take what a pass has found."""
        found = state.costs
        if self.left is None:
            counts = found.totals(self.n_groups)
            ranks = np.array([quantile_rank(n, self.alpha) for n in counts.tolist()], np.int64)
            known = replace(self, counts=counts, ranks=ranks, left=np.where(ranks <= counts, ranks, 0), first=state)
            return known.advance(state)
        bins, left = found.find(self.left)
        return replace(self, bins=bins, left=left, shift=found.shift)

    def levels(self) -> Ints:
        """Return of each group the cost of its rank; that of everything where it has too few labels, or it is NaN."""
        assert self.bins is not None
        assert self.left is not None
        most = self.plan.costs.everything
        return np.where(self.left > 0, np.minimum(self.bins, most), most)
