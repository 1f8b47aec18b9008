"""Settling thresholds of groups from what a read found inside their brackets: cells narrow a bracket, keys settle it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..arrays import Array, Ints
from ..kernels.chosen import scatter_rows
from ..states.cell_counts import CellCounts
from ..states.held_rows import HeldRows
from ..threads import in_threads
from .group_targets import Bracketed, Targets

#: Keys that are sorted at once.
_AT_ONCE = 1 << 20


def narrow_brackets(targets: Targets, wanted: Bracketed, cells: CellCounts, ends: tuple[int, int]) -> Targets:
    """Return the targets with the narrower brackets, or the outcomes, that the counts of cells tell; ``ends`` are the lowest and highest keys."""
    inside = _Cells(wanted, cells, *(np.concatenate([[0], np.cumsum(of)]) for of in (cells.scores, cells.labels)))
    wanted.refuse_others(inside.total(np.arange(wanted.sizes.size))[0], ends)
    which, mine, brackets = wanted.targets, targets.select(wanted.targets), wanted.brackets
    n_inside, n_hits = inside.total(wanted.which)
    short = ~mine.known & (n_inside < mine.ranks)
    single = ~mine.known & ~short & (mine.lows == mine.highs)
    found = targets.below(which[short], n_inside[short], n_hits[short], ends[0])
    ties = mine.lows, mine.left, mine.hits, n_inside, n_hits
    found = found.at_ties(which[single], *(of[single] for of in ties))
    wide = ~short & ~single
    place = inside.find(wanted.which[wide], np.where(mine.known, mine.left, mine.ranks)[wide])
    at = wanted.which[wide]
    return _narrowed(found, which[wide], place, brackets.are_samples[at], brackets.are_rows[at])


@dataclass(frozen=True)
class _Found:
    """Where the wanted scores are: the ends of their cells, keys or samples; what comes before in the bracket, and what is in the cell."""

    low: Ints
    high: Ints
    n_before: Ints
    hits_before: Ints
    n: Ints
    n_hits: Ints

    def only(self, mine: Array) -> tuple[Ints, ...]:
        """Return the columns for some of them."""
        columns = self.low, self.high, self.n_before, self.hits_before, self.n, self.n_hits
        return tuple(column[mine] for column in columns)


@dataclass(frozen=True)
class _Cells:
    """The cells that hold any scores, and the scores and the labels before each of them, and in all."""

    wanted: Bracketed
    cells: CellCounts
    scores: Ints
    labels: Ints

    def _first(self, brackets: Ints) -> Ints:
        """Return the place of the first cell of each bracket among those that hold any scores."""
        return np.searchsorted(self.cells.cells, self.wanted.brackets.cells[brackets])

    def total(self, brackets: Ints) -> tuple[Ints, Ints]:
        """Return how many scores and labels there are in brackets."""
        first, last = self._first(brackets), self._first(brackets + 1)
        return self.scores[last] - self.scores[first], self.labels[last] - self.labels[first]

    def find(self, which: Ints, ranks: Ints) -> _Found:
        """Find the scores of some ranks in brackets."""
        b, first = self.wanted.brackets, self._first(which)
        place = np.searchsorted(self.scores, self.scores[first] + ranks) - 1
        by_sample = b.are_samples[which]
        # Of cells of samples the ends follow from their number; of keys those that occur are known.
        samples = b.bases[which] + ((self.cells.cells[place] - b.cells[which]) << b.shifts[which])
        last = np.minimum(samples + (np.int64(1) << b.shifts[which]) - 1, b.last_samples[which])
        return _Found(
            np.where(by_sample, samples, self.cells.lows[place]),
            np.where(by_sample, last, self.cells.highs[place]),
            self.scores[place] - self.scores[first],
            self.labels[place] - self.labels[first],
            self.cells.scores[place],
            self.cells.labels[place],
        )


def _narrowed(targets: Targets, which: Ints, found: _Found, by_sample: Array, in_row: Array) -> Targets:
    """Return the targets whose wanted scores were found in cells; those of single samples are settled."""
    tied = by_sample | (found.low == found.high)
    at, key = which[~tied], which[tied & ~by_sample]
    low, high, before, hits, n, _ = found.only(~tied)
    targets = targets.changed(
        at,
        ranks=targets.ranks[at] - before,
        left=targets.left[at] - np.minimum(before, targets.left[at]),
        hits=targets.hits[at] + hits,
        lows=low,
        highs=high,
        sizes=n,
    )
    low, _, before, hits, n, n_hits = found.only(tied & ~by_sample)
    targets = targets.at_ties(key, low, targets.left[key] - before, targets.hits[key] + hits, n, n_hits)
    at = which[by_sample]
    low, high, before, hits, n, n_hits = found.only(by_sample)
    left, hits = targets.left[at] - before, targets.hits[at] + hits
    targets = targets.at_ties(at, targets.keys[at], left, hits, n, n_hits)
    # A label is the last of its cell: it is in only if the whole cell is.
    return targets.changed(at, firsts=low, lasts=high, open=targets.open[at] & ~in_row[by_sample])


def settle_keys(targets: Targets, wanted: Bracketed, rows: Sequence[HeldRows], ends: tuple[int, int]) -> Targets:
    """Return the targets with the outcomes that all keys inside their brackets tell; those below the brackets stay open."""
    keys = _Keys.gather(rows, wanted.sizes.size)
    wanted.refuse_others(np.diff(keys.starts), ends)
    which, mine = wanted.targets, targets.select(wanted.targets)
    n_inside, n_hits = np.diff(keys.starts)[wanted.which], np.diff(keys.label_starts)[wanted.which]
    short = ~mine.known & (n_inside < mine.ranks)
    found = targets.below(which[short], n_inside[short], n_hits[short], ends[0])
    there = ~short
    return keys.settle(found, which[there], wanted.which[there])


@dataclass(frozen=True)
class _Keys:
    """All keys by bracket, each bracket's in row-major order; and where the labels are among them, ascending."""

    keys: Array
    starts: Ints
    places: Ints
    label_starts: Ints

    @classmethod
    def gather(cls, rows: Sequence[HeldRows], n: int) -> _Keys:
        """Put the keys of rows, whose strata are brackets, together by bracket."""
        sizes = np.zeros(n, np.int64)
        for part in rows:
            sizes += np.bincount(part.strata, part.lengths, n).astype(np.int64)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        keys = np.empty(starts[-1], rows[0].keys.dtype if rows else np.int64)
        nexts, places = starts[:-1].copy(), [np.zeros(0, np.int64)]
        for part in rows:
            at = np.empty(part.lengths.size, np.int64)
            scatter_rows(part.keys, part.lengths, part.label_indices, part.strata, nexts, keys, at)
            places.append(at[at >= 0])
        ordered = np.sort(np.concatenate(places))
        return cls(keys, starts, ordered, np.searchsorted(ordered, starts))

    def settle(self, targets: Targets, which: Ints, brackets: Ints) -> Targets:
        """Return the targets of which some are settled: the brackets of those are given."""
        mine = targets.select(which)
        keys, n_above, n_ties = self._thresholds(brackets, np.where(mine.known, 1, mine.ranks))
        labels = self.keys[self.places].astype(np.int64)
        by_bracket = np.searchsorted(self.starts, self.places, side="right") - 1
        ordered = labels[np.lexsort((labels, by_bracket))]
        first, last = self.label_starts[brackets], self.label_starts[brackets + 1]
        low, high = (bisect(ordered, first, last, keys, right) for right in (False, True))
        left = mine.left - np.minimum(n_above, mine.left)
        found = targets.at_ties(which, keys, left, mine.hits + last - high, n_ties, high - low)
        return self._with_cuts(found, which, brackets)

    def _thresholds(self, brackets: Ints, ranks: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the keys of some ranks in brackets, and how many keys are above and at each."""
        keys, above, ties = np.zeros((3, ranks.size), np.int64)
        by_bracket = np.argsort(brackets, kind="stable")
        edges = np.searchsorted(brackets[by_bracket], np.arange(self.starts.size))

        def look(stretch: tuple[int, int]) -> None:
            first, last = stretch
            mine, begin = by_bracket[edges[first] : edges[last]], self.starts[first]
            if not mine.size:
                return
            ordered = self.keys[begin : self.starts[last]].copy()
            for a, b in pairwise((self.starts[first : last + 1] - begin).tolist()):
                ordered[a:b].sort()
            low, high = (self.starts[brackets[mine] + n] - begin for n in (0, 1))
            keys[mine] = ordered[high - ranks[mine]]
            left, right = (bisect(ordered, low, high, keys[mine], side) for side in (False, True))
            above[mine], ties[mine] = high - right, right - left

        in_threads(look, self._stretches())
        return keys, above, ties

    def _stretches(self) -> list[tuple[int, int]]:
        """Return stretches of brackets that are sorted at once."""
        numbers = self.starts[:-1] // _AT_ONCE
        return list(pairwise([0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), self.starts.size - 1]))

    def _with_cuts(self, targets: Targets, which: Ints, brackets: Ints) -> Targets:
        """Return the targets with the labels among the first ties, where those are to be taken."""
        hits = []
        cut = targets.open[which]
        for t, b in zip(which[cut].tolist(), brackets[cut].tolist(), strict=True):
            first, key, n = int(self.starts[b]), targets.keys[t], int(targets.left[t])
            end = first + np.flatnonzero(self.keys[first : self.starts[b + 1]] == key)[n - 1]
            places = self.places[self.label_starts[b] : self.label_starts[b + 1]]
            hits.append(int(np.count_nonzero(self.keys[places[places <= end]] == key)))
        at = which[cut]
        return targets.changed(at, hits=targets.hits[at] + np.array(hits, np.int64), open=False)


def bisect(values: Array, first: Ints, last: Ints, keys: Ints, right: bool) -> Ints:
    """Return where keys belong among stretches of ascending values, as ``numpy.searchsorted`` does for one.

    Examples
    --------
    >>> bisect(np.array([1, 3, 3, 2, 5]), np.array([0, 3]), np.array([3, 5]), np.array([3, 3]), right=False).tolist()
    [1, 4]

    """
    low, high = first.copy(), last.copy()
    while (going := low < high).any():
        middle = (low + high) // 2
        value = values[np.where(going, middle, 0)]
        up = going & ((value <= keys) if right else (value < keys))
        low, high = np.where(up, middle + 1, low), np.where(going & ~up, middle, high)
    return low
