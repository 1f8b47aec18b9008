"""Counts between label scores: the rank of every label, and the threshold of least risk.

The rank of a label in its row determines all top-K errors; its rank among all scores determines all average-K errors.
The first read lists the scores of the labels and their ranks in their rows. The second read counts the scores between
them.

The risk is the error plus a cost times the set size. Between two edges, it is at least the risk at the upper edge minus
the largest possible gain, which comes from scores whose label weight exceeds the cost. Intervals that cannot beat the
best edge are dropped. The others are split and read again, until they are single keys. Among keys of equal risk the
highest is the best, because its sets are the smallest.
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
from ..bands.rows import whole_rows
from ..engine.plan import shift_to_fit
from ..engine.strata import add_up
from ..errors import LabelsError
from ..exact.sums import ExactSums, error_of
from ..kernels.dispatch import count_at_edges, count_spaced, rank_in_row
from ..kernels.keys import HALF_NAN, KEY_MAX, NAN_KEY, carrier, carrier_bits, encode, is_float, is_half, key_range
from ..records import BY_BAND, JOINED, Counts, Record

if TYPE_CHECKING:  # loads xarray, which workers do not need
    from ..engine.run import Run

#: Scores per tile.
_TILE = 1 << 18
#: Bytes for the counts of all tasks together, which limit the number of tasks if there are many edges.
_ALL_COUNTS = 1 << 30
#: Stretches of keys in the table that finds an edge.
_N_STARTS = 1 << 16


@dataclass(frozen=True)
class LabelTally(CheckedTally):
    """Numbers of labels by score (without NaN), and by rank in the row."""

    rank_counts: Counts
    #: The distinct keys of the labels' scores, ascending.
    keys: Annotated[Ints, JOINED]
    key_counts: Annotated[Ints, JOINED]

    def settled(self) -> Self:
        """Return the tally with labels of equal scores counted together."""
        (keys,), counts = add_up((self.keys,), self.key_counts)
        return replace(self, keys=keys, key_counts=counts)


@dataclass(frozen=True)
class BandLabels(Record):
    """For each label of a band, the index of its edge and the number of earlier scores of the band that equal the edge.

    ``equal`` has the indices of the edges that occur in the band, and ``n_equal`` the number of scores at each.
    """

    band: int
    edges: Ints
    orders: Ints
    equal: Ints
    n_equal: Ints


@dataclass(frozen=True)
class EdgeTally(CheckedTally):
    """Counts of scores and label weight by cell, and the position of each label."""

    counts: Counts
    #: Hard labels, or exact sums of soft labels, by cell.
    hits: Counts
    weights: ExactSums
    #: Number of soft labels that exceed the cost, and their exact sums, by cell.
    heavy_counts: Counts
    heavy_weights: ExactSums
    bands: Annotated[tuple[BandLabels, ...], BY_BAND]

    def n_from(self) -> Ints:
        """Return the number of scores at or above each edge."""
        return from_top(self.counts)[1::2]

    def hits_from(self) -> Ints:
        """Return the number of hard labels with scores at or above each edge."""
        return from_top(self.hits)[1::2]

    def label_ranks(self) -> Ints:
        """Return the rank among all scores of every label whose score is an edge; ties are in row-major order."""
        above = from_top(self.counts)[2::2]
        n_earlier = np.zeros(above.size, np.int64)  # ties in earlier bands
        ranks = []
        for band in self.bands:
            ranks.append(above[band.edges] + n_earlier[band.edges] + band.orders + 1)
            n_earlier[band.equal] += band.n_equal
        return np.concatenate(ranks)


def from_top(by_cell: Array) -> Array:
    """Return the sum over each cell and all cells above it."""
    return np.asarray(np.cumsum(by_cell[::-1])[::-1])


@dataclass(frozen=True)
class EdgeTable:
    """Ascending, distinct keys, at least one, that scores are placed among, in the form that the kernels take.

    ``starts`` holds the number of edges below each stretch of ``2**shift`` keys from the first edge up.
    """

    edges: Ints
    starts: Ints
    shift: np.uint64
    #: If neighbouring edges are ``2**spacing`` keys apart (the last two at most), that number of bits.
    spacing: int | None = None

    @classmethod
    def from_edges(cls, edges: Ints) -> EdgeTable:
        """Return the table of some keys."""
        low, high = int(edges[0]), int(edges[-1])
        shift = shift_to_fit(high - low + 1, _N_STARTS)
        n_stretches = ((high - low) >> shift) + 1
        stretch_of = ((edges.view(np.uint64) - np.uint64(low % 2**64)) >> np.uint64(shift)).astype(np.int64)
        starts = np.searchsorted(stretch_of, np.arange(n_stretches))
        gaps = np.diff(edges.view(np.uint64))
        gap = int(gaps[0]) if gaps.size and (gaps[:-1] == gaps[0]).all() and gaps[-1] <= gaps[0] else 0
        is_power = gap > 0 and not gap & (gap - 1)
        return cls(edges, starts, np.uint64(shift), gap.bit_length() - 1 if is_power else None)

    @property
    def n_cells(self) -> int:
        """Number of cells: before, at and after the edges."""
        return 2 * self.edges.size + 1


@dataclass(frozen=True)
class LabelPlan:
    """The dtype and number of classes."""

    dtype: Dtype
    n_classes: int


@dataclass(frozen=True)
class EdgePlan:
    """The edges of the cells in which scores are counted: one cell per edge, and one between each two.

    With a ``cost``, soft labels above it are also counted separately. The positions of hard labels are returned only if
    ``with_labels`` is set, because they need memory for each sample.
    """

    dtype: Dtype
    n_classes: int
    table: EdgeTable
    cost: float | None = None
    with_labels: bool = False


def label_pass(dtype: Dtype, n_classes: int) -> Pass:
    """Return the pass that lists the scores of hard labels and their ranks in their rows."""
    return Pass("labels", tally_labels, LabelPlan(dtype, n_classes), LabelTally, holds_rows=True, sum_bytes=16)


def edge_pass(
    dtype: Dtype, n_classes: int, edges: Ints, cost: float | None = None, *, with_labels: bool = False
) -> Pass:
    """Return the pass that counts scores and label weight at and between ascending edges."""
    plan = EdgePlan(dtype, n_classes, EdgeTable.from_edges(edges), cost, with_labels)
    most, per_row = max(1, _ALL_COUNTS // (16 * plan.table.n_cells)), 32 if with_labels else 0
    n = edges.size
    return Pass("edges", tally_edges, plan, EdgeTally, max_tasks=most, holds_rows=True, n_edges=n, sum_bytes=per_row)


def tally_labels(slabs: Iterable[Array], labels: Array, band: int, plan: LabelPlan) -> LabelTally:
    """Return the tally of one band with hard labels."""
    dtype, usable = plan.dtype, UsableLabels.from_labels(labels, plan.n_classes)
    hard = usable.hard
    assert hard is not None
    tile = carrier(whole_rows(slabs, dtype, plan.n_classes, hard))
    ranks = np.empty(hard.size, np.int64)
    nan = rank_in_row(tile, hard, ranks)
    labelled = np.flatnonzero(hard >= 0)
    own = tile[labelled, hard[labelled]]
    if is_half(dtype):
        ranks[labelled[own == HALF_NAN]] = plan.n_classes + 1
    rank_counts = np.bincount(ranks, minlength=plan.n_classes + 2)
    keys, counts = np.unique(_drop_nan(carrier_keys(own, dtype), dtype)[0], return_counts=True)
    return LabelTally(**_checks(tile, dtype, nan, usable, band), rank_counts=rank_counts, keys=keys, key_counts=counts)


def tally_edges(slabs: Iterable[Array], labels: Array | None, band: int, plan: EdgePlan) -> EdgeTally:
    """Return the tally of one band."""
    dtype, table, usable = plan.dtype, plan.table, UsableLabels.from_labels(labels, plan.n_classes)
    tile = carrier(whole_rows(slabs, dtype, plan.n_classes, usable.array))
    hard = np.full(len(tile), -1, np.int64) if usable.hard is None else usable.hard
    labelled = np.flatnonzero(hard >= 0)
    own = tile[labelled, hard[labelled]]
    positions: tuple[BandLabels, ...] = ()
    if table.spacing is not None and not plan.with_labels:
        (counts, nan), (hits, _) = _count_spaced(tile, table), _count_spaced(own[None], table)
    else:
        counts, orders = np.zeros(table.n_cells, np.int64), np.zeros(len(tile), np.int64)
        nan = count_at_edges(tile, *carrier_bits(tile), table.edges, table.starts, table.shift, hard, counts, orders)
        keys, real = _drop_nan(carrier_keys(own, dtype), dtype)
        cells, at = _cells_of(keys, table)
        hits = np.bincount(cells, minlength=table.n_cells)
        if plan.with_labels:
            equal = np.flatnonzero(counts[1::2])
            n_equal = counts[1::2][equal]
            positions = (BandLabels(band, cells[at] // 2, orders[labelled[real][at]], equal, n_equal),)
    checks = _checks(tile, dtype, nan, usable, band)
    if is_half(dtype):  # the kernel counts the NaN of half floats as the lowest scores
        counts[0] -= checks["n_nan"]
    empty = ExactSums.zeros(0), np.zeros(0, np.int64), ExactSums.zeros(0)
    soft = empty if usable.soft is None else _weigh_cells(tile, usable.soft, dtype, table, plan.cost)
    return EdgeTally(
        **checks,
        counts=counts,
        hits=hits,
        weights=soft[0],
        heavy_counts=soft[1],
        heavy_weights=soft[2],
        bands=positions,
    )


def _count_spaced(values: Array, table: EdgeTable) -> tuple[Ints, tuple[int, int]]:
    """Count scores by evenly spaced edges, those between an edge and the next as at the edge; and find NaN."""
    from_edge, cells = np.zeros(table.edges.size + 1, np.int64), np.zeros(table.n_cells, np.int64)
    nan = count_spaced(values, *carrier_bits(values), table.edges[[0, -1]], np.uint64(table.spacing or 0), from_edge)
    cells[0], cells[1::2] = from_edge[0], from_edge[1:]
    return cells, nan


def _checks(tile: Array, dtype: Dtype, nan: tuple[int, int], usable: UsableLabels, band: int) -> dict[str, Any]:
    """Return the fields of a checked tally, given the number of NaN and the flat index of the first."""
    n_nan, first = nan
    if is_half(dtype):  # to the kernels, the NaN of half floats are numbers
        indices = np.flatnonzero(tile == HALF_NAN)
        n_nan, first = indices.size, int(indices[0]) if indices.size else -1
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


def _drop_nan(keys: Ints, dtype: Dtype) -> tuple[Ints, Bools]:
    """Return the keys without the keys of NaN, and the mask that selects them. Integers have no NaN."""
    real = keys != NAN_KEY if is_float(dtype) else np.ones(keys.shape, bool)
    return keys[real], real


def _cells_of(keys: Ints, table: EdgeTable) -> tuple[Ints, Bools]:
    """Return the cell of each key among the edges, and whether the key is an edge."""
    n_lower = np.searchsorted(table.edges, keys)
    at = table.edges[np.minimum(n_lower, table.edges.size - 1)] == keys
    return 2 * n_lower + at, at


def _weigh_cells(
    tile: Array, soft: Floats, dtype: Dtype, table: EdgeTable, cost: float | None
) -> tuple[ExactSums, Ints, ExactSums]:
    """Sum soft labels exactly by the cell of their score, and soft labels above a cost separately; ignore NaN scores."""
    sums, n_heavy = ExactSums.zeros(table.n_cells), np.zeros(0 if cost is None else table.n_cells, np.int64)
    heavy_sums = ExactSums.zeros(n_heavy.size)
    step = max(1, _TILE // tile.shape[1])
    for first in range(0, len(tile), step):
        rows = slice(first, first + step)
        keys, real = _drop_nan(carrier_keys(tile[rows].reshape(-1), dtype), dtype)
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
    """The search for the ranks of hard labels: lists the scores of the labels, then counts all scores between them."""

    dtype: Dtype
    n_classes: int
    labels: LabelTally | None = None
    counts: EdgeTally | None = None

    def next_pass(self) -> Pass | None:
        """Return the next pass, or None after the second. If all labels have NaN scores, one pass is enough."""
        if self.labels is None:
            return label_pass(self.dtype, self.n_classes)
        edges = self.labels.keys
        if not edges.size or self.counts is not None:
            return None
        return edge_pass(self.dtype, self.n_classes, edges, with_labels=True)

    def advance(self, state: LabelTally | EdgeTally) -> LabelRankSearch:
        """Return the search updated with the state of its last pass."""
        return replace(self, counts=state) if isinstance(state, EdgeTally) else replace(self, labels=state)

    def ranks(self) -> Ints:
        """Return the rank among all scores of every label whose score is not NaN."""
        return np.zeros(0, np.int64) if self.counts is None else self.counts.label_ranks()


#: Maximum number of edges per read, which take 16 bytes each, or 1200 with soft labels.
_HARD_EDGES = 1 << 18
_SOFT_EDGES = 1 << 13


@dataclass(frozen=True)
class Risk:
    """The risk of the sets {key >= first_key}, which have ``n_labels`` members in total."""

    first_key: int
    risk: Fraction
    error: Fraction
    n_labels: int


@dataclass(frozen=True)
class RiskCurve:
    """The risk at ascending edges, followed by the risk of empty sets.

    Risks are integer multiples of 1 / ``unit``. Between two adjacent edges, the risk is at least the risk at the upper
    edge minus ``gains``.
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
        weights = heavy = n_heavy = tally.hits
        whole = 1
        if len(tally.weights):  # the labels are soft
            (weights, whole), (heavy, _) = tally.weights.integers(), tally.heavy_weights.integers()
            n_heavy = tally.heavy_counts
        n, n_labelled = tally.n_rows, tally.n_labelled
        per_weight, per_label = n * cost.denominator, cost.numerator * n_labelled * whole
        unit = n * n_labelled * cost.denominator * whole
        # Sums from each edge upwards, followed by 0 for empty sets.
        inside, labels = (np.append(from_top(by_cell)[1::2], 0) for by_cell in (weights, tally.counts))
        most = unit + max(per_weight, per_label) * (1 + int(inside.max()) + int(labels.max()))
        exact = np.int64 if most < 1 << 62 and not len(tally.weights) else object  # Python's integers have no limit
        heavy, n_heavy, total, n_inside = (a.astype(exact) for a in (heavy, n_heavy, inside, labels))
        gain = heavy * per_weight - n_heavy * per_label
        gains = np.maximum(gain[1::2] + gain[2::2], 0)  # from each edge to the next
        # If rounded probabilities sum to more than 1, the error is 0, not negative.
        risks = np.maximum(unit - total * per_weight, 0) + n_inside * per_label
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
    """The search for the key of least risk: the best key so far, and the intervals that may contain a better one."""

    cost: Fraction
    dtype: Dtype
    n_classes: int
    max_edges: int
    #: Intervals of keys [first, last] that are still open; empty once the minimum is known.
    open: tuple[tuple[int, int], ...]
    best: Risk

    @classmethod
    def begin(cls, cost: Fraction, dtype: Dtype, n_classes: int, *, soft: bool) -> RiskSearch:
        """Start with the interval of all keys, and with empty sets as the best so far."""
        low, high = key_range(dtype)
        low += is_float(dtype)  # -inf exceeds no threshold
        most = _SOFT_EDGES if soft else _HARD_EDGES
        return cls(cost, dtype, n_classes, most, ((low, high),), Risk(high + 1, Fraction(1), Fraction(1), 0))

    def next_pass(self) -> Pass | None:
        """Return the pass that computes the risk at the next edges, or None once the minimum is known."""
        if not self.open:
            return None
        # A soft label is heavy if it exceeds the cost; rounding the cost down only keeps more intervals open.
        cost = float(self.cost)
        cost = cost if cost <= self.cost else math.nextafter(cost, -math.inf)
        return edge_pass(self.dtype, self.n_classes, self.edges(), cost)

    def parts(self) -> tuple[Ints, Ints]:
        """Divide the open intervals into at most ``max_edges`` parts; return the first and the last key of each."""
        most = max(2, self.max_edges // len(self.open))
        firsts, lasts = [], []
        for first, last in self.open:
            shift = shift_to_fit(last - first + 1, most)
            offsets = np.arange((last - first >> shift) + 1, dtype=np.uint64) << np.uint64(shift)
            begins = (offsets + np.uint64(first % 2**64)).view(np.int64)
            firsts.append(begins)
            lasts.append(np.append(begins[1:] - 1, last))
        return np.concatenate(firsts), np.concatenate(lasts)

    def edges(self) -> Ints:
        """Return the keys at which the next read computes the risk: the first key of each part, and the key after it."""
        firsts, lasts = self.parts()
        return np.union1d(firsts, lasts[lasts < KEY_MAX] + 1)

    def advance(self, state: EdgeTally) -> RiskSearch:
        """Return the search after a read: the best key so far, and the intervals that may contain a better one."""
        if not state.n_labelled:
            raise LabelsError("at least one sample must be labelled; got only negative labels. Label some samples.")
        edges, curve = self.edges(), RiskCurve.from_tally(state, self.cost)
        index = int(np.argmin(curve.risks[::-1][1:]))
        best = min(self.best, curve.at(edges.size - 1 - index, edges), key=lambda r: (r.risk, -r.first_key))
        lowest = int(best.risk * curve.unit)
        firsts, lasts = self.parts()
        i = np.searchsorted(edges, firsts)
        least, gains = curve.risks[i + 1] - curve.gains[i], curve.gains[i]
        # Smaller sets with the same risk are better. Without gains, no key of the interval beats the next edge.
        as_good = (least == lowest) & (gains > 0) & (lasts > best.first_key)
        still_open = (firsts < lasts) & ((least < lowest) | as_good)
        intervals = zip((firsts[still_open] + 1).tolist(), lasts[still_open].tolist(), strict=True)
        return replace(self, open=tuple(intervals), best=best)


def least_risk(run: Run, cost: Fraction) -> RiskSearch:
    """Find the threshold of least risk exactly, usually in two to four reads."""
    from ..engine.run import drive

    source = run.source
    return drive(RiskSearch.begin(cost, source.dtype, source.shape[1], soft=source.has_soft_labels), run)
