"""Where a band's scores lie among given keys, and where its labels' own scores lie."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Bools, Dtype, Floats, Ints
from ..exact.sums import ExactSums
from ..kernels.chosen import count_at_edges, rank_in_row
from ..kernels.edges import EdgeTable
from ..kernels.keys import HALF_NAN, NAN_KEY, carrier, carrier_bits, encode, is_float, is_half
from ..states.checks import NOWHERE
from ..states.edge_tally import BandLabels, EdgeTally, LabelTally
from .band_pass import Pass
from .entries import checked_slabs
from .usable_labels import UsableLabels

#: Scores that are looked up at a time.
_TILE = 1 << 18
#: Bytes that the counts of all tasks together may take: more edges, fewer tasks.
_ALL_COUNTS = 1 << 30


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
    most = max(1, _ALL_COUNTS // (16 * plan.table.n_cells))
    per_row = 32 if with_labels else 0
    return Pass(
        "edges", tally_edges, plan, EdgeTally, max_tasks=most, holds_rows=True, n_edges=edges.size, sum_bytes=per_row
    )


def tally_labels(slabs: Iterable[Array], labels: Array, band: int, plan: LabelPlan) -> LabelTally:
    """Return the tally of one band with hard labels."""
    dtype, n_classes = plan.dtype, plan.n_classes
    usable = UsableLabels.of(labels, n_classes)
    hard = usable.hard
    assert hard is not None
    tile = _whole_rows(slabs, dtype, n_classes, hard)
    ranks = np.empty(hard.size, np.int64)
    n_nan, first_nan = rank_in_row(tile, hard, ranks)
    labelled = np.flatnonzero(hard >= 0)
    own = tile[labelled, hard[labelled]]
    if is_half(dtype):
        n_nan, first_nan = _half_nan(tile)
        ranks[labelled[own == HALF_NAN]] = n_classes + 1
    keys, counts = np.unique(_real(carrier_keys(own, dtype), dtype)[0], return_counts=True)
    return LabelTally(
        n_rows=hard.size,
        n_nan=n_nan,
        first_nan=(band, *divmod(first_nan, n_classes)) if n_nan else NOWHERE,
        **usable.faults(band),
        n_labelled=labelled.size,
        rank_counts=np.bincount(ranks, minlength=n_classes + 2),
        keys=keys,
        key_counts=counts,
    )


def tally_edges(slabs: Iterable[Array], labels: Array | None, band: int, plan: EdgePlan) -> EdgeTally:
    """Return the tally of one band."""
    dtype, n_classes, table = plan.dtype, plan.n_classes, plan.table
    usable = UsableLabels.of(labels, n_classes)
    hard, soft = usable.hard, usable.soft
    tile = _whole_rows(slabs, dtype, n_classes, usable.given)
    wanted = np.full(len(tile), -1, np.int64) if hard is None else hard
    counts, orders = np.zeros(table.n_cells, np.int64), np.zeros(len(tile), np.int64)
    arguments = (tile, *carrier_bits(tile), table.edges, table.starts, table.shift, wanted, counts, orders)
    n_nan, first_nan = count_at_edges(*arguments)
    if is_half(dtype):
        n_nan, first_nan = _half_nan(tile)
        counts[0] -= n_nan
    labelled = np.flatnonzero(wanted >= 0)
    own, real = _real(carrier_keys(tile[labelled, wanted[labelled]], dtype), dtype)
    labelled = labelled[real]
    j = np.searchsorted(table.edges, own)
    at = table.edges[np.minimum(j, table.edges.size - 1)] == own
    none = ExactSums.zeros(0), np.zeros(0, np.int64), ExactSums.zeros(0)
    weights, heavy_counts, heavy_weights = none if soft is None else _weigh_cells(tile, soft, dtype, table, plan.cost)
    return EdgeTally(
        n_rows=len(tile),
        n_nan=n_nan,
        first_nan=(band, *divmod(first_nan, n_classes)) if n_nan else NOWHERE,
        **usable.faults(band),
        n_labelled=len(tile) if soft is not None else int((wanted >= 0).sum()),
        counts=counts,
        hits=np.bincount(2 * j + at, minlength=table.n_cells),
        weights=weights,
        heavy_counts=heavy_counts,
        heavy_weights=heavy_weights,
        bands=(_band_labels(band, j[at], orders[labelled[at]], counts),) if plan.with_labels else (),
    )


def _band_labels(band: int, edges: Ints, orders: Ints, counts: Ints) -> BandLabels:
    equal = np.flatnonzero(counts[1::2])
    return BandLabels(band, edges, orders, equal, counts[1::2][equal])


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


def _half_nan(tile: Array) -> tuple[int, int]:
    """Return the number of NaN among half floats, which are the smallest numbers to the kernels, and the first's flat index."""
    nan = np.flatnonzero(tile == HALF_NAN)
    return nan.size, int(nan[0]) if nan.size else -1


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
        j = np.searchsorted(table.edges, keys)
        cell = 2 * j + (table.edges[np.minimum(j, table.edges.size - 1)] == keys)
        weights = soft[rows].reshape(-1)[real]
        sums.add(weights, cell)
        if cost is not None:
            heavy = weights > cost
            heavy_sums.add(weights[heavy], cell[heavy])
            n_heavy += np.bincount(cell[heavy], minlength=table.n_cells)
    return sums.settled(), n_heavy, heavy_sums.settled()
