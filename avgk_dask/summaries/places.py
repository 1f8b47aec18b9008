"""Places: how many scores lie between given keys, and where the labels' own scores lie among all.

A label's rank in its row tells all top-K errors, its rank among all scores all average-K errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.keys import HALF_NAN, NAN_KEY, carrier, carrier_bits, encode, is_float, is_half
from ..kernels.places import place_scores, rank_in_row
from .checked import NOWHERE, CheckedTally, join_tuples
from .entries import checked_slabs
from .exact import Limbs, add_limbs, add_weights, carry, zero_sums
from .labels import UsableLabels
from .split import shift_to_fit

Array = NDArray[Any]
Ints = NDArray[np.int64]

#: Runs of keys in the table that finds an edge.
_N_STARTS = 1 << 16
#: Scores whose places are looked up at a time.
_TILE = 1 << 18


@dataclass(frozen=True)
class EdgeTable:
    """Ascending, distinct keys (not none) that scores are placed among."""

    edges: Ints
    starts: Ints
    shift: np.uint64

    @classmethod
    def from_edges(cls, edges: Ints) -> EdgeTable:
        """Give the table of some keys."""
        low, high = int(edges[0]), int(edges[-1])
        shift = shift_to_fit(high - low + 1, _N_STARTS)
        n_runs = ((high - low) >> shift) + 1
        run_of = ((edges.view(np.uint64) - np.uint64(low % 2**64)) >> np.uint64(shift)).astype(np.int64)
        starts = np.searchsorted(run_of, np.arange(n_runs))
        return cls(edges, starts, np.uint64(shift))

    @property
    def n_places(self) -> int:
        """Number of places: before, at and behind the edges."""
        return 2 * self.edges.size + 1


@dataclass(frozen=True)
class LabelTally(CheckedTally):
    """The labels of the bands read so far: their scores' keys, and how many have each rank in their row."""

    rank_counts: Ints
    keys: tuple[Ints, ...]

    @classmethod
    def from_band(cls, slabs: Iterable[Array], labels: Array, band: int, dtype: Any, n_classes: int) -> LabelTally:
        """Give the tally of one band with hard labels."""
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
        return cls(
            n_rows=hard.size,
            n_nan=n_nan,
            first_nan=(band, *divmod(first_nan, n_classes)) if n_nan else NOWHERE,
            **usable.faults(band),
            n_labelled=labelled.size,
            rank_counts=np.bincount(ranks, minlength=n_classes + 2),
            keys=(np.unique(_real(_carrier_keys(own, dtype), dtype)[0]),),
        )

    @classmethod
    def mergers(cls) -> Mapping[str, Callable[[list[Any]], Any]]:  # noqa: D102
        return {**super().mergers(), "keys": join_tuples}

    def edges(self) -> Ints:
        """Give the distinct keys of the labels' scores, ascending; NaN left out."""
        return np.unique(np.concatenate(self.keys))


@dataclass(frozen=True)
class BandLabels:
    """Where the labels of one band lie: at which edge, and as the how-manieth of the band's scores there.

    ``equal`` are the edges that scores of the band equal, and ``n_equal`` how many do.
    """

    band: int
    edges: Ints
    orders: Ints
    equal: Ints
    n_equal: Ints


@dataclass(frozen=True)
class PlaceTally(CheckedTally):
    """Counts of all scores by place, label weight by place, and where each label lies."""

    counts: Ints
    #: Hard labels by place; exact sums of soft labels by place.
    hits: Ints
    weights: Limbs
    #: How many soft labels exceed the cost, and their exact sums, by place.
    heavy_counts: Ints
    heavy_weights: Limbs
    bands: tuple[BandLabels, ...]

    @classmethod
    def from_band(
        cls,
        slabs: Iterable[Array],
        labels: Array | None,
        band: int,
        dtype: Any,
        n_classes: int,
        table: EdgeTable,
        cost: float | None = None,
    ) -> PlaceTally:
        """Give the tally of one band; with a ``cost`` soft labels above it are tallied apart, too."""
        usable = UsableLabels.of(labels, n_classes)
        hard, soft = usable.hard, usable.soft
        tile = _whole_rows(slabs, dtype, n_classes, usable.given)
        wanted = np.full(len(tile), -1, np.int64) if hard is None else hard
        counts, orders = np.zeros(table.n_places, np.int64), np.zeros(len(tile), np.int64)
        arguments = (tile, *carrier_bits(tile), table.edges, table.starts, table.shift, wanted, counts, orders)
        n_nan, first_nan = place_scores(*arguments)
        if is_half(dtype):
            n_nan, first_nan = _half_nan(tile)
            counts[0] -= n_nan
        labelled = np.flatnonzero(wanted >= 0)
        own, real = _real(_carrier_keys(tile[labelled, wanted[labelled]], dtype), dtype)
        labelled = labelled[real]
        j = np.searchsorted(table.edges, own)
        at = table.edges[np.minimum(j, table.edges.size - 1)] == own
        equal = np.flatnonzero(counts[1::2])
        none = zero_sums(0), np.zeros(0, np.int64), zero_sums(0)
        weights, heavy_counts, heavy_weights = none if soft is None else _weigh_places(tile, soft, dtype, table, cost)
        return cls(
            n_rows=len(tile),
            n_nan=n_nan,
            first_nan=(band, *divmod(first_nan, n_classes)) if n_nan else NOWHERE,
            **usable.faults(band),
            n_labelled=len(tile) if soft is not None else int((wanted >= 0).sum()),
            counts=counts,
            hits=np.bincount(2 * j + at, minlength=table.n_places),
            weights=weights,
            heavy_counts=heavy_counts,
            heavy_weights=heavy_weights,
            bands=(BandLabels(band, j[at], orders[labelled[at]], equal, counts[1::2][equal]),),
        )

    @classmethod
    def mergers(cls) -> Mapping[str, Callable[[list[Any]], Any]]:  # noqa: D102
        return {**super().mergers(), "weights": add_limbs, "heavy_weights": add_limbs, "bands": join_tuples}

    def n_from(self) -> Ints:
        """Give, for each edge, how many scores are at it or above."""
        return _from_top(self.counts)[1::2]

    def hits_from(self) -> Ints:
        """Give, for each edge, how many hard labels' scores are at it or above."""
        return _from_top(self.hits)[1::2]

    def label_ranks(self) -> Ints:
        """Give the rank among all scores of every label whose score is an edge: ties in row-major order.

        The bands' ties come one after the other, so their labels' orders are carried on from band to band.
        """
        above = _from_top(self.counts)[2::2]
        so_far = np.zeros(above.size, np.int64)
        ranks = []
        for band in sorted(self.bands, key=lambda b: b.band):
            ranks.append(above[band.edges] + so_far[band.edges] + band.orders + 1)
            so_far[band.equal] += band.n_equal
        return np.concatenate(ranks)


def _from_top(counts: Ints) -> Ints:
    return np.cumsum(counts[::-1])[::-1]


def _whole_rows(slabs: Iterable[Array], dtype: Any, n_classes: int, labels: Array | None) -> Array:
    """Give a band's rows in one piece, as carriers."""
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
    """Give the number of NaN among half floats, which are the smallest numbers to the kernels, and the first's flat place."""
    nan = np.flatnonzero(tile == HALF_NAN)
    return nan.size, int(nan[0]) if nan.size else -1


def _carrier_keys(values: Array, dtype: Any) -> Ints:
    """Give the keys of carrier values."""
    if values.dtype.kind == "f":
        return encode(values)
    keys = values.astype(np.int64)
    return np.where(keys == HALF_NAN, NAN_KEY, keys) if is_half(dtype) else keys


def _real(keys: Ints, dtype: Any) -> tuple[Ints, NDArray[np.bool_]]:
    """Give the keys that are not of NaN, and which they are; among integers the key of NaN is an ordinary one."""
    real = keys != NAN_KEY if is_float(dtype) else np.ones(keys.shape, bool)
    return keys[real], real


def _weigh_places(
    tile: Array, soft: NDArray[np.float64], dtype: Any, table: EdgeTable, cost: float | None
) -> tuple[Limbs, Ints, Limbs]:
    """Add up the soft labels by the place of their score, exactly, and those above a cost apart; NaN has no place."""
    sums, n_heavy = zero_sums(table.n_places), np.zeros(0 if cost is None else table.n_places, np.int64)
    heavy_sums = zero_sums(n_heavy.size)
    step = max(1, _TILE // tile.shape[1])
    for first in range(0, len(tile), step):
        rows = slice(first, first + step)
        keys, real = _real(_carrier_keys(tile[rows].reshape(-1), dtype), dtype)
        j = np.searchsorted(table.edges, keys)
        place = 2 * j + (table.edges[np.minimum(j, table.edges.size - 1)] == keys)
        weights = soft[rows].reshape(-1)[real]
        add_weights(sums, weights, place)
        if cost is not None:
            heavy = weights > cost
            add_weights(heavy_sums, weights[heavy], place[heavy])
            n_heavy += np.bincount(place[heavy], minlength=table.n_places)
    return carry(sums), n_heavy, carry(heavy_sums)
