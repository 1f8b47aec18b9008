"""The threshold of least risk: error plus cost times set size, minimised over all thresholds, exactly.

Between two edges the risk can only fall below that at the upper one by what the scores between them could gain at most:
those whose label weight exceeds its cost. Intervals that cannot beat the best edge are settled; the others are split again
and read once more, until single keys are left. Of equal risks the highest key is the best, whose sets are the smallest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ..arrays import Array, Dtype, Ints
from ..bands.passes import Pass
from ..engine.run import Run, drive
from ..errors import LabelsError
from ..exact.sums import error_of
from ..kernels.keys import KEY_MAX, is_float, key_range
from .label_ranks import EdgeTally, edge_pass, from_top

#: Keys at which one read finds the risk: 16 bytes each, with soft labels 1200.
_HARD_EDGES = 1 << 16
_SOFT_EDGES = 1 << 13


@dataclass(frozen=True)
class Risk:
    """The risk of the sets {key >= first_key}, which hold ``n_labels`` labels in all."""

    first_key: int
    risk: Fraction
    error: Fraction
    n_labels: int


@dataclass(frozen=True)
class RiskCurve:
    """The risk at ascending edges, and behind the last one: that of empty sets.

    All in integers, of which ``unit`` make 1. ``gains`` bounds how far the risk may fall below that
    at the next edge anywhere between an edge and the next.
    """

    risks: Array
    gains: Array
    weights: Array
    n_labels: Ints
    unit: int
    weight_unit: int

    @classmethod
    def from_tally(cls, tally: EdgeTally, cost: Fraction) -> RiskCurve:
        """Return the curve at the edges of a read."""
        weights = heavy = n_heavy = tally.hits.astype(object)
        whole = 1
        if len(tally.weights):  # of soft labels
            (weights, whole), (heavy, _) = tally.weights.integers(), tally.heavy_weights.integers()
            n_heavy = tally.heavy_counts.astype(object)
        n, n_labelled = tally.n_rows, tally.n_labelled
        per_weight, per_label = n * cost.denominator, cost.numerator * n_labelled * whole
        unit = n * n_labelled * cost.denominator * whole
        # The sums at and above each edge, and 0 behind the last.
        inside, labels = (np.append(from_top(by_cell)[1::2], 0) for by_cell in (weights, tally.counts))
        gain = heavy * per_weight - n_heavy * per_label
        gains = np.maximum(gain[1::2] + gain[2::2], 0)  # from each edge to the next
        # Probabilities that sum to more than 1, by rounding, make no negative error.
        risks = np.maximum(unit - inside * per_weight, 0) + labels.astype(object) * per_label
        return cls(risks, gains, inside, labels, unit, n_labelled * whole)

    def at(self, index: int, edges: Ints) -> Risk:
        """Return the risk at an edge."""
        return Risk(
            int(edges[index]),
            Fraction(int(self.risks[index]), self.unit),
            error_of(Fraction(int(self.weights[index])), self.weight_unit),
            int(self.n_labels[index]),
        )


@dataclass(frozen=True)
class RiskSearch:
    """What is known between two reads: the best key so far, and the intervals that may hold a better one."""

    cost: Fraction
    dtype: Dtype
    n_classes: int
    max_edges: int
    #: Intervals of keys [first, last] that are still open; none once the minimum is found.
    open: tuple[tuple[int, int], ...]
    best: Risk

    @classmethod
    def begin(cls, cost: Fraction, dtype: Dtype, n_classes: int, *, soft: bool) -> RiskSearch:
        """Begin with all keys, and the empty sets as the best known."""
        low, high = key_range(dtype)
        low += is_float(dtype)  # no threshold lets -inf in
        most = _SOFT_EDGES if soft else _HARD_EDGES
        return cls(cost, dtype, n_classes, most, ((low, high),), Risk(high + 1, Fraction(1), Fraction(1), 0))

    def next_pass(self) -> Pass | None:
        """Return the pass that finds the risk at the next edges; None once the minimum is found."""
        if not self.open:
            return None
        # A soft label is heavy if it exceeds the cost; rounding the cost down only keeps more intervals open.
        cost = float(self.cost)
        cost = cost if cost <= self.cost else math.nextafter(cost, -math.inf)
        return edge_pass(self.dtype, self.n_classes, self.edges(), cost)

    def parts(self) -> list[tuple[int, int]]:
        """Cut the open intervals into as many parts as there is space for."""
        space = max(2, self.max_edges // len(self.open))
        cut = []
        for first, last in self.open:
            step = -(-(last - first + 1) // space)
            cut += [(key, min(key + step - 1, last)) for key in range(first, last + 1, step)]
        return cut

    def edges(self) -> Ints:
        """Return the keys at which the next read should know the risk: where parts begin, and behind their ends."""
        parts = self.parts()
        behind = {last + 1 for _, last in parts if last < KEY_MAX}
        return np.array(sorted({first for first, _ in parts} | behind), np.int64)

    def advance(self, state: EdgeTally) -> RiskSearch:
        """Take a read at the edges: keep the best of them, and the parts that may hold a better one."""
        if not state.n_labelled:
            raise LabelsError(
                "labels must name the class of one sample at least; got negative ones only. Label some samples."
            )
        edges, curve = self.edges(), RiskCurve.from_tally(state, self.cost)
        index = int(np.argmin(curve.risks[::-1][1:]))
        best = min(self.best, curve.at(edges.size - 1 - index, edges), key=lambda r: (r.risk, -r.first_key))
        lowest = best.risk * curve.unit
        still = []
        for first, last in self.parts():
            i = int(np.searchsorted(edges, first))
            least = curve.risks[i + 1] - curve.gains[i]
            # Smaller sets of the same risk count as better, unless it is those at the next edge.
            as_good = least == lowest and curve.gains[i] > 0 and last > best.first_key
            if first < last and (least < lowest or as_good):
                still.append((first + 1, last))
        return replace(self, open=tuple(still), best=best)


def least_risk(run: Run, cost: Fraction) -> RiskSearch:
    """Find the threshold of least risk, exactly: usually two to four reads."""
    source = run.source
    return drive(RiskSearch.begin(cost, source.dtype, source.shape[1], soft=source.has_soft_labels), run)
