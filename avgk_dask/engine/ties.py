"""Ties: the outcome for one budget, the cut through its ties, and how much the label weight depends on the cut.

If only some ties are kept, these are the first in row-major order. Rows and single events are in this order. If ties are too many
to hold singly, equal events of a band are counted together or, in stores of more than ``avgk.tie-groups`` bands, those of a group
of bands. ``cut_band`` reads the group with the cut again to find the band, and that band to find the row. With soft labels and
very many ties, ``ExtremesSearch`` finds the least and the most label weight of any choice of kept ties in two more reads, from
histograms of their weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from typing import Annotated

import numpy as np

from ..arrays import Array, Dtype, Ints
from ..bands.passes import Pass, UsableLabels
from ..bands.rows import Candidates, TileReader, TopRanks, checked_slabs, streamed_rows
from ..exact.sums import ExactSums, smallest_unit
from ..kernels.dispatch import move_cells
from ..kernels.keys import KEY_MAX, encode
from ..records import BY_BAND, EACH, Record, State
from .events import Cut, label_weights, split_candidates
from .plan import ZoneTable
from .ranked import LEAST_BINS, KeyHistogram
from .strata import StrataSums

_DOUBLE = np.dtype(np.float64)
#: The order keys of the label weights 0 and 1.
_ZERO, _ONE = (int(key) for key in encode(np.array([0.0, 1.0])))


@dataclass(frozen=True)
class TieCut(Record):
    """The first ties of a band: their number, the place of the last one, and their gains."""

    band: int
    #: The position of the budget.
    budget: int
    n_taken: int
    row: int
    last_class: int
    #: The changes of the number of sets of each cell, and the gains of the strata.
    changes: Ints
    strata: StrataSums
    weight: ExactSums


@dataclass(frozen=True)
class TieCuts(State):
    """The cuts in all bands."""

    cuts: Annotated[tuple[TieCut, ...], BY_BAND]


@dataclass(frozen=True)
class WantedTies:
    """The ties to find for the budget at a position: the first ``n_ties`` scores of some bands that equal a key."""

    bands: range
    budget: int
    key: int
    n_ties: int


@dataclass(frozen=True)
class CutPlan:
    """The ties to find in all bands, with the ranks and strata of the scan."""

    wanted: tuple[WantedTies, ...]
    dtype: Dtype
    n_classes: int
    tile_scores: int
    n_ranks: int = 0
    strata: str = ""


def cut_band(slabs: Iterable[Array], labels: Array | None, band: int, plan: CutPlan) -> TieCuts:
    """Find the first scores of a band, in row-major order, that equal some keys."""
    usable = UsableLabels.of_column(labels, plan.n_classes, are_packed=plan.strata == "groups")
    takers = [_Taker(ties, plan.n_classes) for ties in plan.wanted if band in ties.bands]
    reader = TileReader(min(taker.ties.key for taker in takers), plan.dtype, plan.tile_scores)
    slabs = checked_slabs(slabs, plan.dtype, plan.n_classes, usable.array)
    first = next(slabs)
    by_rank = plan.strata == "ranks" and usable.hard is not None
    top = TopRanks(first.shape[0], plan.n_ranks, plan.dtype) if by_rank and plan.n_ranks else None
    if first.shape[1] == plan.n_classes and top is None:
        stretches = reader.stretches(first)
    else:
        stretches = streamed_rows(reader, chain([first], slabs), top)
    strata: Array | None = None
    for candidates in stretches:
        if strata is None:  # ranks are known after all slabs have been read
            strata = _strata_of(usable, top, plan, first.shape[0])
        for taker in takers:
            taker.take(candidates, usable, strata)
    return TieCuts(tuple(taker.cut(band) for taker in takers))


def _strata_of(labels: UsableLabels, top: TopRanks | None, plan: CutPlan, n_rows: int) -> Array:
    if labels.hard is None:
        return np.zeros(n_rows, np.int8)
    if top is not None:
        return top.ranks_of(labels.hard, plan.n_ranks)
    return (labels.hard >= 0).astype(np.int64) if plan.strata == "ranks" else labels.strata(plan.strata, n_rows)


class _Taker:
    """Takes the first ties at one key, stretch of rows by stretch of rows."""

    def __init__(self, ties: WantedTies, n_classes: int) -> None:
        self.ties, self.missing = ties, ties.n_ties
        self.zones = ZoneTable.from_intervals([(ties.key, ties.key)], KEY_MAX)
        self.row = self.last_class = -1
        self.changes, self.weight = np.zeros(2 * n_classes + 2, np.int64), ExactSums.zeros(1)
        self.strata = StrataSums.empty()

    def take(self, candidates: Candidates, labels: UsableLabels, strata: Array) -> None:
        if not self.missing:
            return
        candidates = candidates.at_least(self.ties.key)
        span = slice(candidates.first_row, candidates.first_row + candidates.n_rows)
        hard = None if labels.hard is None else labels.hard[span]
        _, _, split, n_events = split_candidates(candidates, self.zones, self.zones.no_histogram(), hard)
        taken = min(n_events, self.missing)
        if taken:
            _, keys, rows, bases, classes, hits = (column[:taken] for column in split.columns)
            rows = rows + candidates.first_row
            self.row, self.last_class = int(rows[-1]), int(classes[-1])
            move_cells(keys, rows, bases, hits, self.ties.key, taken, self.changes)
            self.weight.add(label_weights(labels.array, rows, classes), np.zeros(taken, np.int64))
            self.strata = StrataSums.merge([self.strata, StrataSums.added(strata[rows], hits)])
            self.missing -= taken

    def cut(self, band: int) -> TieCut:
        changes, n_taken = np.trim_zeros(self.changes, "b"), self.ties.n_ties - self.missing
        place = band, self.ties.budget, n_taken, self.row, self.last_class
        return TieCut(*place, changes, self.strata, self.weight.settled())


@dataclass(frozen=True)
class WeightTally(State):
    """A histogram of the label weights in each window."""

    histograms: Annotated[tuple[KeyHistogram, ...], EACH]


@dataclass(frozen=True)
class TieWindow:
    """The ties at one key whose label weight, as an order key, lies from ``low`` to ``high``."""

    key: int
    low: int
    high: int


@dataclass(frozen=True)
class WeightPlan:
    """The windows, and the maximum number of bins of each histogram."""

    dtype: Dtype
    n_classes: int
    windows: tuple[TieWindow, ...]
    most_bins: int


def tally_weights(slabs: Iterable[Array], labels: Array, band: int, plan: WeightPlan) -> WeightTally:
    """Return the tally of one band with soft labels."""
    soft = UsableLabels.from_labels(labels, plan.n_classes).soft
    assert soft is not None
    histograms = [[KeyHistogram.empty(plan.most_bins)] for _ in plan.windows]
    first_class = 0
    for slab in checked_slabs(slabs, plan.dtype, plan.n_classes, soft):
        keys = encode(np.ascontiguousarray(slab, plan.dtype))
        weights = soft[:, first_class : first_class + slab.shape[1]]
        first_class += slab.shape[1]
        for key in {window.key for window in plan.windows}:
            tied = encode(weights[keys == key])
            for window, parts in zip(plan.windows, histograms, strict=True):
                inside = tied[(tied >= window.low) & (tied <= window.high)] if window.key == key else tied[:0]
                if inside.size:
                    parts.append(KeyHistogram.from_keys(inside, plan.most_bins))
    return WeightTally(tuple(KeyHistogram.merge(parts) for parts in histograms))


@dataclass(frozen=True)
class Selection:
    """The exact outcome for one budget.

    ``cells[2 s]`` is the number of sets of size s without their label, ``cells[2 s + 1]`` the number of sets with it,
    and ``weight`` the exact label weight inside the sets. These and the strata lack the ties of the cut's band while
    the cut is pending.
    """

    budget: int
    key: int
    n_above: int
    n_ties: int
    n_kept: int
    cells: Ints
    weight: Fraction
    #: The cut, if only some ties are kept.
    cut: Cut | None
    #: The weight above the threshold, the weight of all ties, and the minimum and maximum weight of the kept ties, if
    #: known.
    weight_above: Fraction
    tie_weight: Fraction
    extremes: tuple[Fraction, Fraction] | None
    #: Sums of sizes, and hits, of the strata.
    strata: StrataSums
    #: Row (in the cut's band) and class of the last kept tie, after the band has been read again.
    last_tie: tuple[int, int] | None = None

    @property
    def set_sizes(self) -> Ints:
        """The number of sets of each size."""
        return np.asarray(self.cells[0::2] + self.cells[1::2])

    @property
    def hit_sizes(self) -> Ints:
        """The number of sets of each size with their hard label."""
        return self.cells[1::2]

    @property
    def expected_weight(self) -> Fraction:
        """The mean label weight inside the sets over all ways to keep ``n_kept`` of the ties."""
        return self.weight_above + (self.tie_weight * self.n_kept / self.n_ties if self.n_kept else 0)

    @property
    def is_cut(self) -> bool:
        """Whether only some ties are kept."""
        return 0 < self.n_kept < self.n_ties

    def with_ties(self, cuts: Iterable[TieCut]) -> Selection:
        """Return the outcome with the kept ties, given the first ties of each of the cut's bands, in order.

        If a band returned more ties than are left, it must be read again, for fewer.
        """
        assert self.cut is not None
        taken, left = self, self.cut.n_ties
        for ties in cuts:
            if ties.n_taken > left:
                return replace(taken, cut=Cut(ties.band, left, pending=True))
            left -= ties.n_taken
            taken = replace(
                taken,
                cells=changed_cells(taken.cells, ties.changes),
                strata=StrataSums.merge([taken.strata, ties.strata]),
                weight=taken.weight + ties.weight[0],
                last_tie=(ties.row, ties.last_class),
            )
            if left == 0:
                return replace(taken, cut=Cut(ties.band, ties.n_taken, pending=False))
        raise AssertionError("fewer ties than were counted before")


def changed_cells(counts: Ints, changes: Ints) -> Ints:
    """Return the number of sets of each cell after a change, up to the largest size."""
    cells = np.zeros(max(counts.size, changes.size) + 1, np.int64)
    cells[: counts.size] += counts
    cells[: changes.size] += changes
    return trimmed_cells(cells)


def trimmed_cells(counts: Ints) -> Ints:
    """Return the number of sets of each cell, up to the largest size."""
    return counts[: 2 * (int(np.flatnonzero(counts)[-1]) // 2 + 1)]


def extreme_weights(n_ties: int, n_kept: int, total: Fraction, soft: Array | None = None) -> tuple[Fraction, Fraction]:
    """Return the least and the most label weight of any ``n_kept`` of the ties.

    ``total`` is the weight of all ties: a number of hits, or the sum of their ``soft`` weights.
    """
    if n_kept in (0, n_ties) or total == 0:
        return (total, total) if n_kept else (Fraction(0), Fraction(0))
    if soft is None:
        n_hits = int(total)
        return Fraction(max(0, n_kept - (n_ties - n_hits))), Fraction(min(n_kept, n_hits))
    weights = np.sort(soft[soft > 0])
    n_zero = n_ties - weights.size
    return ExactSums.from_values(weights[: max(0, n_kept - n_zero)])[0], ExactSums.from_values(weights[::-1][:n_kept])[
        0
    ]


@dataclass(frozen=True)
class WeightSearch:
    """The search for the sum of the ``n_left`` lightest or heaviest weights of the ties in a window.

    From a histogram of the window, whole bins are in or out, with their exact sums. The search goes on inside the one bin that is
    cut, until it has a single weight.
    """

    window: TieWindow
    n_left: int
    heaviest: bool
    total: Fraction = Fraction(0)

    @property
    def done(self) -> bool:
        """Whether the sum is complete."""
        return self.n_left == 0

    def advance(self, histogram: KeyHistogram) -> WeightSearch:
        """Return the search after a read, given the histogram of the window."""
        step = -1 if self.heaviest else 1
        counts, sums = histogram.counts[::step], histogram.value_sums(_DOUBLE)[0][::step]
        through = np.cumsum(counts)
        n_whole = int(np.searchsorted(through, self.n_left, side="right"))
        total = self.total + sum(sums[:n_whole].tolist()) * smallest_unit(_DOUBLE)
        left = self.n_left - (int(through[n_whole - 1]) if n_whole else 0)
        if not left:
            return replace(self, n_left=0, total=total)
        if histogram.shift == 0:
            weight = smallest_unit(_DOUBLE) * (sums[n_whole] // int(counts[n_whole]))
            return replace(self, n_left=0, total=total + weight * left)
        first = int(histogram.bins[::step][n_whole]) << histogram.shift
        inside = replace(self.window, low=first, high=first + (1 << histogram.shift) - 1)
        return replace(self, window=inside, n_left=left, total=total)


@dataclass(frozen=True)
class ExtremesSearch:
    """The search for the minimum and maximum weight of kept ties, for budgets whose scan only summed soft labels."""

    dtype: Dtype
    n_classes: int
    #: Bins of all histograms of a read together.
    n_bins: int
    searches: Mapping[tuple[int, bool], WeightSearch]

    @classmethod
    def begin(cls, dtype: Dtype, n_classes: int, n_bins: int, selections: Mapping[int, Selection]) -> ExtremesSearch:
        """Begin with the budgets whose extremes are unknown."""
        searches = {
            (i, heaviest): WeightSearch(TieWindow(s.key, _ZERO, _ONE), s.n_kept, heaviest)
            for i, s in selections.items()
            if s.extremes is None
            for heaviest in (False, True)
        }
        return cls(dtype, n_classes, n_bins, searches)

    def _windows(self) -> tuple[TieWindow, ...]:
        return tuple(dict.fromkeys(s.window for s in self.searches.values() if not s.done))

    def next_pass(self) -> Pass | None:
        """Return the pass over all open windows, or None if all sums are complete."""
        windows = self._windows()
        if not windows:
            return None
        most_bins = max(LEAST_BINS, self.n_bins // len(windows))
        return Pass("ties", tally_weights, WeightPlan(self.dtype, self.n_classes, windows, most_bins), WeightTally)

    def advance(self, state: WeightTally) -> ExtremesSearch:
        """Return the search after a read of all open windows."""
        histograms = dict(zip(self._windows(), state.histograms, strict=True))
        searches = {name: s if s.done else s.advance(histograms[s.window]) for name, s in self.searches.items()}
        return replace(self, searches=searches)

    def settle(self, selections: Mapping[int, Selection]) -> dict[int, Selection]:
        """Return the selections with their extremes."""
        pairs = {i: (self.searches[i, False].total, self.searches[i, True].total) for i, _ in self.searches}
        return {**selections, **{i: replace(selections[i], extremes=pair) for i, pair in pairs.items()}}
