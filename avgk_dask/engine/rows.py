"""Held rows: the keys of all listed scores, row by row, from which thresholds and sets follow without another read.

A held row takes 4 or 8 bytes per listed score, and 12 bytes more. Rows are held while they fit ``avgk.kept-bytes`` (about two
million samples with k up to 10); beyond, a scan holds only the events close to the thresholds (``events``). For k = 1..100 of few
samples, events were ten times as slow: the brackets of a hundred budgets contain nearly all of them.

``select_from_rows`` settles budgets: the keys near their brackets give the thresholds, and one pass over the rows, on several
threads, counts all sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, pairwise
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, Ints
from ..kernels.dispatch import collect_near, count_sets
from ..kernels.keys import KEY_MAX
from ..records import Counts, Merging, Record, State
from ..threads import in_threads
from .events import Cut
from .plan import ZoneTable, shift_to_fit
from .strata import StrataSums, local_strata
from .ties import Selection, extreme_weights, trimmed_cells

#: Stretches of keys from the lowest bracket up; no bracket touches the last one.
_STRETCHES = 1 << 14
#: Rows that a thread takes at a time.
_STRETCH_ROWS = 1 << 14
_ALL = np.iinfo(np.int64).max


@dataclass(frozen=True)
class HeldRows(Record):
    """The listed keys of some rows of a band in row-major order."""

    band: int
    keys: Array
    #: The number of keys of each row, and the index of the label among them: -1 without a listed label.
    lengths: NDArray[np.int32]
    label_indices: NDArray[np.int32]
    #: The stratum of each row.
    strata: Array

    def label_keys(self) -> Array:
        """Return the keys of the listed labels."""
        listed = self.label_indices >= 0
        places = (np.cumsum(self.lengths) - self.lengths)[listed] + self.label_indices[listed]
        return np.asarray(self.keys[places])


def _add_wide(tables: list[Array]) -> Array:
    total = np.zeros((tables[0].shape[0], max(table.shape[1] for table in tables)), np.int64)
    for table in tables:
        total[:, : table.shape[1]] += table
    return total


#: Tables of counts by cell, of different widths.
_WIDEST = Merging(_add_wide, lambda table: table[:, :0])


@dataclass(frozen=True)
class SetCounts(State):
    """For each budget, the sets by cell and the sums by stratum; and the labels in each zone."""

    cells: Annotated[Array, _WIDEST]
    hits: Counts
    strata: StrataSums

    @classmethod
    def count(cls, parts: Sequence[HeldRows], zones: ZoneTable, thresholds: Ints, ties: Ints) -> SetCounts:
        """Count the sets of some rows; ``ties[i]`` is the number of ties that each budget keeps in part i."""
        width = 1 + max(int(part.lengths.max(initial=0)) for part in parts)
        n = thresholds.size
        cells, hits = np.zeros((n, 2 * width), np.int32), np.zeros(zones.floors.size, np.int64)
        names, strata = local_strata(np.concatenate([part.strata for part in parts]))
        sums = np.zeros((2, names.size, n), np.int64)
        strata_of_parts = np.split(strata, np.cumsum([part.lengths.size for part in parts])[:-1])
        for part, left, of_rows in zip(parts, ties, strata_of_parts, strict=True):
            rows, by_stratum = (part.keys, part.lengths, part.label_indices), (of_rows, *sums)
            count_sets(rows, zones.arrays(), thresholds, left.copy(), cells, hits, by_stratum)
        return cls(cells, hits, StrataSums(names, *sums))


@dataclass(frozen=True)
class ThresholdBracket:
    """A budget whose threshold is at a rank among the keys from ``low`` to ``high``; ``n_above`` scores are higher."""

    budget: int
    low: int
    high: int
    n_above: int
    rank: int


@dataclass(frozen=True)
class SettledKey:
    """A budget's threshold, and the numbers of scores above and at it."""

    budget: int
    key: int
    n_above: int
    n_ties: int

    @property
    def n_kept(self) -> int:
        """The number of ties that are kept."""
        return min(self.budget - self.n_above, self.n_ties)


def select_from_rows(
    parts: Sequence[HeldRows], brackets: Sequence[ThresholdBracket], windows: Sequence[ThresholdBracket] = ()
) -> tuple[list[Selection], list[Fraction]]:
    """Return the selection of each budget, and for each window the mean label weight of its highest scores."""
    rows = _AllRows(parts, [*brackets, *windows])
    selections = rows.select([rows.threshold(bracket) for bracket in brackets]) if brackets else []
    return selections, rows.expected_weights([rows.threshold(bracket) for bracket in windows])


class _AllRows:
    """All held rows in row-major order, in stretches for a thread each, with the keys of each part near the thresholds."""

    def __init__(self, parts: Sequence[HeldRows], brackets: Sequence[ThresholdBracket]) -> None:
        self.parts = parts
        stretch_of = np.cumsum([part.lengths.size for part in parts]) // _STRETCH_ROWS
        edges = [0, *(np.flatnonzero(np.diff(stretch_of)) + 1).tolist(), len(parts)]
        self.stretches = [slice(*ends) for ends in pairwise(edges)]
        base, top = min(b.low for b in brackets), max(b.high for b in brackets)
        shift = shift_to_fit(top - base + 1, _STRETCHES - 1)
        touched = np.zeros(_STRETCHES, np.uint8)  # the stretches of 2**shift keys that brackets touch
        for b in brackets:
            touched[b.low - base >> shift : (b.high - base >> shift) + 1] = 1

        def collect(part: HeldRows) -> Array:
            keys = np.empty(part.keys.size, part.keys.dtype)
            return np.sort(keys[: collect_near(part.keys, base, shift, touched, keys)])

        near = in_threads(lambda stretch: [collect(part) for part in parts[stretch]], self.stretches)
        self.near = list(chain(*near))
        self.all_near = np.concatenate(self.near)
        self.all_near.sort()

    def threshold(self, b: ThresholdBracket) -> SettledKey:
        last = int(_span(self.all_near, b.low, b.high)[1])
        key = int(self.all_near[last - b.rank])
        lower, higher = (int(i) for i in _span(self.all_near, key, key))
        return SettledKey(b.budget, key, b.n_above + last - higher, higher - lower)

    def select(self, thresholds: Sequence[SettledKey]) -> list[Selection]:
        order = sorted(range(len(thresholds)), key=lambda i: -thresholds[i].key)
        ordered = [thresholds[i] for i in order]
        keys = sorted({t.key for t in ordered}, reverse=True)
        zones = ZoneTable.from_intervals([(key, key) for key in keys], KEY_MAX)
        interval_of = {key: j for j, key in enumerate(keys)}
        intervals = np.array([interval_of[t.key] for t in ordered], np.int64)
        ties, cuts = self._share_ties(ordered)

        def count(stretch: slice) -> SetCounts:
            return SetCounts.count(self.parts[stretch], zones, intervals, ties[stretch])

        counts = SetCounts.merge(in_threads(count, self.stretches))
        above, at = np.cumsum(counts.hits)[0::2].tolist(), counts.hits[1::2].tolist()
        selections = {}
        for b, (i, t, j) in enumerate(zip(order, ordered, intervals.tolist(), strict=True)):
            cells = trimmed_cells(counts.cells[b].astype(np.int64))
            numbers = t.budget, t.key, t.n_above, t.n_ties, t.n_kept, cells
            weight, n_at = Fraction(int(cells[1::2].sum())), Fraction(at[j])
            extremes, strata = extreme_weights(t.n_ties, t.n_kept, n_at), counts.strata.columns([b])
            selections[i] = Selection(*numbers, weight, cuts.get(b), Fraction(above[j]), n_at, extremes, strata)
        return [selections[i] for i in range(len(thresholds))]

    def expected_weights(self, thresholds: Sequence[SettledKey]) -> list[Fraction]:
        """Return the mean label weight of each threshold over all ways to keep ties."""
        if not thresholds:
            return []
        labels = np.concatenate([part.label_keys() for part in self.parts])
        weights = []
        for t in thresholds:
            key = labels.dtype.type(t.key)  # otherwise NumPy would convert all labels
            above, at = int(np.count_nonzero(labels > key)), int(np.count_nonzero(labels == key))
            weights.append(above + Fraction(at * t.n_kept, t.n_ties))
        return weights

    def _share_ties(self, thresholds: Sequence[SettledKey]) -> tuple[Ints, dict[int, Cut]]:
        """Return the number of ties that each part keeps at each threshold, and the cuts."""
        whole = np.array([_ALL if t.n_kept == t.n_ties else 0 for t in thresholds], np.int64)
        shares = np.tile(whole, (len(self.parts), 1))
        cut = [j for j, t in enumerate(thresholds) if 0 < t.n_kept < t.n_ties]
        keys = np.array([thresholds[j].key for j in cut], np.int64)
        n_equal = np.array([np.diff(_span(near, keys, keys), axis=0)[0] for near in self.near])
        bands = np.array([part.band for part in self.parts])
        cuts = {}
        for j, n_ties in zip(cut, n_equal.T, strict=True):
            before = np.cumsum(n_ties) - n_ties
            shares[:, j] = np.clip(thresholds[j].n_kept - before, 0, n_ties)
            band = int(bands[np.flatnonzero(shares[:, j])[-1]])
            cuts[j] = Cut(band, int(shares[bands == band, j].sum()), pending=False)
        return shares, cuts


def _span(keys: Array, low: Any, high: Any) -> tuple[Any, Any]:
    """Return the start and end of the keys from ``low`` to ``high`` among ascending ones."""
    low, high = (np.asarray(key).astype(keys.dtype) for key in (low, high))  # otherwise NumPy would convert all keys
    return np.searchsorted(keys, low, side="left"), np.searchsorted(keys, high, side="right")
