"""Counts between label scores: the rank of every label, and the threshold of least risk.

A label's rank in its row determines all top-K errors, its rank among all scores all average-K errors. One read finds the
scores of the labels and their ranks in their rows; a second one counts all scores between those.

The risk is the error plus a cost times the set size. Between two edges it can only fall below that at the upper one by what
the scores between them could gain at most: those whose label weight exceeds its cost. Intervals that cannot beat the best edge
are settled; the others are split and read once more, until single keys are left. Of equal risks the highest key is the best,
whose sets are the smallest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np

from ..arrays import Array, Bools, Dtype, Floats, Ints
from ..bands.passes import NOWHERE, CheckedTally, Pass, UsableLabels
from ..bands.rows import checked_slabs
from ..engine.strata import add_up
from ..errors import LabelsError
from ..exact.sums import ExactSums, error_of
from ..kernels.dispatch import count_at_edges, rank_in_row
from ..kernels.keys import HALF_NAN, KEY_MAX, NAN_KEY, carrier, carrier_bits, encode, is_float, is_half, key_range
from ..kernels.zones import EdgeTable
from ..records import BY_BAND, JOINED, Counts, Record

if TYPE_CHECKING:  # they bring Dask arrays and xarray, which workers do without
    from ..engine.run import Run

#: Scores that are looked up at a time.
_TILE = 1 << 18
#: Bytes that the counts of all tasks together may take: more edges, fewer tasks.
_ALL_COUNTS = 1 << 30


@dataclass(frozen=True)
class LabelTally(CheckedTally):
    """The labels of the bands read so far: how many have each score, NaN left out, and each rank in their row."""

    rank_counts: Counts
    #: Ascending.
    keys: Annotated[Ints, JOINED]
    key_counts: Annotated[Ints, JOINED]

    def settled(self) -> Self:
        """Return the tally with labels of equal scores counted together."""
        (keys,), counts = add_up((self.keys,), self.key_counts)
        return replace(self, keys=keys, key_counts=counts)


@dataclass(frozen=True)
class BandLabels(Record):
    """Where the labels of one band lie: at which edge, and how many of the band's scores at that edge come before.

    ``equal`` are the edges that scores of the band equal, and ``n_equal`` how many do.
    """

    band: int
    edges: Ints
    orders: Ints
    equal: Ints
    n_equal: Ints


@dataclass(frozen=True)
class EdgeTally(CheckedTally):
    """Counts of all scores by cell, label weight by cell, and where each label lies."""

    counts: Counts
    #: Hard labels by cell; exact sums of soft labels by cell.
    hits: Counts
    weights: ExactSums
    #: How many soft labels exceed the cost, and their exact sums, by cell.
    heavy_counts: Counts
    heavy_weights: ExactSums
    bands: Annotated[tuple[BandLabels, ...], BY_BAND]

    def n_from(self) -> Ints:
        """Return, for each edge, how many scores are at it or above."""
        return from_top(self.counts)[1::2]

    def hits_from(self) -> Ints:
        """Return, for each edge, how many hard labels' scores are at it or above."""
        return from_top(self.hits)[1::2]

    def label_ranks(self) -> Ints:
        """Return the rank among all scores of every label whose score is an edge: ties in row-major order.

        The bands' ties come one after the other, so their labels' orders are carried on from band to band.
        """
        above = from_top(self.counts)[2::2]
        so_far = np.zeros(above.size, np.int64)
        ranks = []
        for band in self.bands:
            ranks.append(above[band.edges] + so_far[band.edges] + band.orders + 1)
            so_far[band.equal] += band.n_equal
        return np.concatenate(ranks)


def from_top(by_cell: Array) -> Array:
    """Return the sum of each cell and all above it."""
    return np.asarray(np.cumsum(by_cell[::-1])[::-1])


@dataclass(frozen=True)
class LabelPlan:
    """What is common to all bands when the labels' own scores are read."""

    dtype: Dtype
    n_classes: int


@dataclass(frozen=True)
class EdgePlan:
    """The keys to count scores at and between; with a ``cost`` soft labels above it are tallied apart, too.

    Where each hard label lies is told only if asked for: it grows with the number of samples.
    """

    dtype: Dtype
    n_classes: int
    table: EdgeTable
    cost: float | None = None
    with_labels: bool = False


def label_pass(dtype: Dtype, n_classes: int) -> Pass:
    """Return the pass that reads the scores of hard labels and their ranks in their rows."""
    return Pass("labels", tally_labels, LabelPlan(dtype, n_classes), LabelTally, holds_rows=True, sum_bytes=16)


def edge_pass(
    dtype: Dtype, n_classes: int, edges: Ints, cost: float | None = None, *, with_labels: bool = False
) -> Pass:
    """Return the pass that counts all scores, and the label weight, between and at ascending keys."""
    plan = EdgePlan(dtype, n_classes, EdgeTable.from_edges(edges), cost, with_labels)
    most, per_row = max(1, _ALL_COUNTS // (16 * plan.table.n_cells)), 32 if with_labels else 0
    n = edges.size
    return Pass("edges", tally_edges, plan, EdgeTally, max_tasks=most, holds_rows=True, n_edges=n, sum_bytes=per_row)


def tally_labels(slabs: Iterable[Array], labels: Array, band: int, plan: LabelPlan) -> LabelTally:
    """Return the tally of one band with hard labels."""
    dtype, usable = plan.dtype, UsableLabels.of(labels, plan.n_classes)
    hard = usable.hard
    assert hard is not None
    tile = _whole_rows(slabs, dtype, plan.n_classes, hard)
    ranks = np.empty(hard.size, np.int64)
    nan = rank_in_row(tile, hard, ranks)
    labelled = np.flatnonzero(hard >= 0)
    own = tile[labelled, hard[labelled]]
    if is_half(dtype):
        ranks[labelled[own == HALF_NAN]] = plan.n_classes + 1
    rank_counts = np.bincount(ranks, minlength=plan.n_classes + 2)
    keys, counts = np.unique(_real(carrier_keys(own, dtype), dtype)[0], return_counts=True)
    return LabelTally(**_checks(tile, dtype, nan, usable, band), rank_counts=rank_counts, keys=keys, key_counts=counts)


def tally_edges(slabs: Iterable[Array], labels: Array | None, band: int, plan: EdgePlan) -> EdgeTally:
    """Return the tally of one band."""
    dtype, table, usable = plan.dtype, plan.table, UsableLabels.of(labels, plan.n_classes)
    tile = _whole_rows(slabs, dtype, plan.n_classes, usable.given)
    hard = np.full(len(tile), -1, np.int64) if usable.hard is None else usable.hard
    counts, orders = np.zeros(table.n_cells, np.int64), np.zeros(len(tile), np.int64)
    arguments = (tile, *carrier_bits(tile), table.edges, table.starts, table.shift, hard, counts, orders)
    checks = _checks(tile, dtype, count_at_edges(*arguments), usable, band)
    if is_half(dtype):  # whose NaN the kernel counts as the lowest scores
        counts[0] -= checks["n_nan"]
    labelled = np.flatnonzero(hard >= 0)
    own, real = _real(carrier_keys(tile[labelled, hard[labelled]], dtype), dtype)
    cells, at = _cells_of(own, table)
    equal, orders = np.flatnonzero(counts[1::2]), orders[labelled[real][at]]
    mine = BandLabels(band, cells[at] // 2, orders, equal, counts[1::2][equal])
    none = ExactSums.zeros(0), np.zeros(0, np.int64), ExactSums.zeros(0)
    soft = none if usable.soft is None else _weigh_cells(tile, usable.soft, dtype, table, plan.cost)
    return EdgeTally(
        **checks,
        counts=counts,
        hits=np.bincount(cells, minlength=table.n_cells),
        weights=soft[0],
        heavy_counts=soft[1],
        heavy_weights=soft[2],
        bands=(mine,) if plan.with_labels else (),
    )


def _whole_rows(slabs: Iterable[Array], dtype: Dtype, n_classes: int, labels: Array | None) -> Array:
    """Return a band's rows in one piece, as carriers."""
    whole, first = None, 0
    for slab in checked_slabs(slabs, dtype, n_classes, labels):
        part = carrier(slab)
        if part.shape[1] == n_classes:
            return part
        whole = np.empty((part.shape[0], n_classes), part.dtype) if whole is None else whole
        whole[:, first : first + part.shape[1]] = part
        first += part.shape[1]
    assert whole is not None
    return whole


def _checks(tile: Array, dtype: Dtype, nan: tuple[int, int], usable: UsableLabels, band: int) -> dict[str, Any]:
    """Return the fields of a checked tally, given the number of NaN and the flat index of the first."""
    n_nan, first = nan
    if is_half(dtype):  # whose NaN are numbers to the kernels
        places = np.flatnonzero(tile == HALF_NAN)
        n_nan, first = places.size, int(places[0]) if places.size else -1
    n_labelled = len(tile) if usable.soft is not None else 0 if usable.hard is None else int((usable.hard >= 0).sum())
    first_nan = (band, *divmod(first, tile.shape[1])) if n_nan else NOWHERE
    return {
        "n_rows": len(tile), "n_nan": n_nan, "first_nan": first_nan, **usable.faults(band), "n_labelled": n_labelled
    }  # fmt: skip


def carrier_keys(values: Array, dtype: Dtype) -> Ints:
    """Return the keys of carrier values."""
    if values.dtype.kind == "f":
        return encode(values)
    keys = values.astype(np.int64)
    return np.where(keys == HALF_NAN, NAN_KEY, keys) if is_half(dtype) else keys


def _real(keys: Ints, dtype: Dtype) -> tuple[Ints, Bools]:
    """Return the keys that are not of NaN, and which they are; among integers the key of NaN is an ordinary one."""
    real = keys != NAN_KEY if is_float(dtype) else np.ones(keys.shape, bool)
    return keys[real], real


def _cells_of(keys: Ints, table: EdgeTable) -> tuple[Ints, Bools]:
    """Return the cell of each key among the edges, and whether it is an edge."""
    n_lower = np.searchsorted(table.edges, keys)
    at = table.edges[np.minimum(n_lower, table.edges.size - 1)] == keys
    return 2 * n_lower + at, at


def _weigh_cells(
    tile: Array, soft: Floats, dtype: Dtype, table: EdgeTable, cost: float | None
) -> tuple[ExactSums, Ints, ExactSums]:
    """Add up the soft labels by the cell of their score, exactly, and those above a cost apart; NaN is in none."""
    sums, n_heavy = ExactSums.zeros(table.n_cells), np.zeros(0 if cost is None else table.n_cells, np.int64)
    heavy_sums = ExactSums.zeros(n_heavy.size)
    step = max(1, _TILE // tile.shape[1])
    for first in range(0, len(tile), step):
        rows = slice(first, first + step)
        keys, real = _real(carrier_keys(tile[rows].reshape(-1), dtype), dtype)
        cell, _ = _cells_of(keys, table)
        weights = soft[rows].reshape(-1)[real]
        sums.add(weights, cell)
        if cost is not None:
            heavy = weights > cost
            heavy_sums.add(weights[heavy], cell[heavy])
            n_heavy += np.bincount(cell[heavy], minlength=table.n_cells)
    return sums.settled(), n_heavy, heavy_sums.settled()


@dataclass(frozen=True)
class LabelRankSearch:
    """What is known of hard labels after each read: their own scores first, then all scores between those."""

    dtype: Dtype
    n_classes: int
    labels: LabelTally | None = None
    counts: EdgeTally | None = None

    def next_pass(self) -> Pass | None:
        """Return the next pass; the second only where a label has a score that is no NaN."""
        if self.labels is None:
            return label_pass(self.dtype, self.n_classes)
        edges = self.labels.keys
        if not edges.size or self.counts is not None:
            return None
        return edge_pass(self.dtype, self.n_classes, edges, with_labels=True)

    def advance(self, state: LabelTally | EdgeTally) -> LabelRankSearch:
        """Take what a pass has found."""
        return replace(self, counts=state) if isinstance(state, EdgeTally) else replace(self, labels=state)

    def row_ranks(self) -> Ints:
        """Return how many labels have each rank 1..C in their row."""
        assert self.labels is not None
        return self.labels.rank_counts[1 : self.n_classes + 1]

    def ranks(self) -> Ints:
        """Return the rank among all scores of every label whose score is no NaN."""
        return np.zeros(0, np.int64) if self.counts is None else self.counts.label_ranks()


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
    from ..engine.run import drive

    source = run.source
    return drive(RiskSearch.begin(cost, source.dtype, source.shape[1], soft=source.has_soft_labels), run)
