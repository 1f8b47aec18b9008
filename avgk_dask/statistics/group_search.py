"""What is known of the thresholds of groups between two reads: a bracket for each, and what lies before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from ..arrays import Array, Bools, Ints
from ..bands.passes import Pass
from ..engine.pilot import PilotSample, generous_brackets, plan_rows
from ..engine.plan import ScanShape
from ..engine.rows import HeldRows
from ..engine.strata import StrataRanks, distinct
from ..errors import ScoresError
from ..exact.budgets import count_labels_of_each
from ..kernels.dispatch import scatter_rows
from ..kernels.keys import NAN_KEY, key_range
from ..threads import in_threads
from .group_scan import CellCounts, GroupBrackets, GroupPlan, GroupTally, group_pass

#: Cells that all brackets share, those that each has at least while there are no more brackets than so many, and at most.
_ALL_CELLS, _LEAST_CELLS, _MOST_CELLS = 1 << 20, 1 << 8, 1 << 16
MOST_GROUPS = 1 << 14
CHANGED = "scores must stay the same from one read to the next; got others. Store them first."


@dataclass(frozen=True)
class Targets:
    """Of each (group, budget), as columns: the bracket that holds its threshold or the last of its kept ties, and what came before.

    All that comes before a bracket is in the sets.
    """

    groups: Ints
    budgets: Ints
    #: The rank of the threshold among the scores of the bracket and below, and how many of those are still to be in the sets.
    ranks: Ints
    left: Ints
    #: The labels that are in the sets so far; all of them once the target is settled. And the threshold, once it is known: NaN's key before.
    hits: Ints
    keys: Ints
    known: Bools
    open: Bools
    #: The bracket, and how many scores it holds: at most so many where NaN may be among them.
    lows: Ints
    highs: Ints
    firsts: Ints
    lasts: Ints
    sizes: Ints

    @classmethod
    def begin(
        cls,
        groups: Ints,
        n_samples: Ints,
        n_classes: int,
        budgets: Sequence[Fraction],
        bracket: tuple[int, int],
        last: int,
    ) -> Targets:
        """Begin with one bracket for all; ``n_samples`` are those of each group, ``last`` is the last sample of all."""
        counts = np.stack([count_labels_of_each(budget, n_samples) for budget in budgets], axis=1).reshape(-1)
        scores, of_group = np.repeat(n_samples * n_classes, len(budgets)), np.repeat(groups, len(budgets))
        zero = np.zeros_like(counts)
        return cls(
            groups=of_group,
            budgets=np.tile(np.arange(len(budgets)), groups.size),
            ranks=np.minimum(counts + 1, scores),
            left=counts,
            hits=zero,
            keys=zero + NAN_KEY,
            known=zero > 0,
            open=zero == 0,
            lows=zero + bracket[0],
            highs=zero + bracket[1],
            firsts=zero,
            lasts=zero + last,
            sizes=scores,
        )

    def changed(self, which: Ints, **columns: Ints | Bools | int) -> Targets:
        """Return the targets with some columns of some rows replaced."""
        found = {}
        for name, values in columns.items():
            found[name] = getattr(self, name).copy()
            found[name][which] = values
        return replace(self, **found)

    def select(self, which: Ints | Bools) -> Targets:
        """Return some of them."""
        return Targets(*(getattr(self, field.name)[which] for field in fields(self)))

    @property
    def bounds(self) -> tuple[Ints, ...]:
        """The columns that tell brackets apart, in their order."""
        return self.groups, self.lows, self.firsts, self.highs, self.lasts

    def below(self, which: Ints, n_inside: Ints, n_hits: Ints, lowest: int) -> Targets:
        """Return the targets, some of which have fewer scores in their bracket than are needed: it is all that lies below it, if anything."""
        mine = self.select(which)
        more, taken = mine.lows > lowest, np.minimum(n_inside, mine.left)
        return self.changed(
            which,
            ranks=mine.ranks - n_inside,
            left=mine.left - taken,
            hits=mine.hits + n_hits,
            open=more,
            lows=np.where(more, lowest, mine.lows),
            highs=np.where(more, mine.lows - 1, mine.highs),
            sizes=mine.sizes - n_inside,
        )

    def at_ties(self, which: Ints, keys: Ints, left: Ints, hits: Ints, n_ties: Ints, n_tied_labels: Ints) -> Targets:
        """Return the targets, of some of which the thresholds are known: how many are left to be taken of how many ties, and the labels among those.

        Where the first ties are to be taken, and some of them are labels, their samples are looked at next.
        """
        n_kept = np.minimum(left, n_ties)
        hits = hits + np.where(n_kept == n_ties, n_tied_labels, 0)
        return self.changed(
            which,
            left=n_kept,
            hits=hits,
            keys=keys,
            known=True,
            open=(n_kept > 0) & (n_kept < n_ties) & (n_tied_labels > 0),
            lows=keys,
            highs=keys,
            sizes=n_ties,
        )


@dataclass(frozen=True)
class Bracketed:
    """The brackets of open targets, the targets in question, and which of the brackets each has."""

    brackets: GroupBrackets
    targets: Ints
    which: Ints
    #: How many scores each bracket may hold.
    sizes: Ints

    @classmethod
    def of(cls, targets: Targets, n_groups: int, usual: tuple[int, int], most_held: int) -> tuple[Bracketed, bool]:
        """Return the brackets of all open targets, and whether their keys can be held."""
        mine = np.flatnonzero(targets.open)
        (groups, lows, firsts, highs, lasts), which = distinct(targets.select(mine).bounds)
        sizes = np.zeros(groups.size, np.int64)
        sizes[which] = targets.sizes[mine]
        held = bool(sizes.sum() <= most_held)
        starts = np.searchsorted(groups, np.arange(n_groups + 1))
        cells = _cells(lows, highs, firsts, lasts, usual)
        return cls(GroupBrackets(starts, lows, highs, firsts, lasts, *cells), mine, which, sizes), held

    def refuse_others(self, found: Ints, ends: tuple[int, int]) -> None:
        """Refuse scores of which brackets do not hold as many as they did before.

        Brackets that reach up or down to the end of all keys may hold fewer: the first ones, and where there are NaN.
        """
        fewer = (found < self.sizes) & (self.brackets.lows > ends[0]) & (self.brackets.highs < ends[1])
        if (fewer | (found > self.sizes)).any():
            raise ScoresError(CHANGED)


def first_brackets(
    n_groups: int, groups: range, bracket: tuple[int, int], last: int, usual: tuple[int, int]
) -> GroupBrackets:
    """Return one bracket, the same, for each of some groups; ``last`` is the last sample of all."""
    zero = np.zeros(len(groups), np.int64)
    lows, highs, lasts = zero + bracket[0], zero + bracket[1], zero + last
    starts = np.clip(np.arange(n_groups + 1) - groups.start, 0, len(groups))
    return GroupBrackets(starts, lows, highs, zero, lasts, *_cells(lows, highs, zero, lasts, usual))


def _cells(lows: Ints, highs: Ints, firsts: Ints, lasts: Ints, usual: tuple[int, int]) -> tuple[Ints, Ints, Ints]:
    """Return where the cells of brackets begin to be counted, the bits of each, and the number of those before each bracket's.

    They lie between the lowest and the highest key that scores usually have, as far as there are any such in a bracket. Of a
    single sample there are two.
    """
    by_sample = lows == highs
    low, high = np.maximum(lows, usual[0]), np.minimum(highs, usual[1])
    low, high = np.where(low < high, (low, high), (lows, highs))
    base, top = np.where(by_sample, (firsts, lasts), (low, high))
    spans = np.maximum(top.view(np.uint64) - base.view(np.uint64), (by_sample & (firsts == lasts)).astype(np.uint64))
    most = min(_MOST_CELLS, max(_ALL_CELLS // lows.size, min(_LEAST_CELLS, _LEAST_CELLS * MOST_GROUPS // lows.size), 2))
    shifts = np.zeros(lows.size, np.uint64)
    while (wide := (spans >> shifts) >= most).any():
        shifts += wide
    n_cells = (spans >> shifts).astype(np.int64) + 1
    return base, shifts.view(np.int64), np.concatenate([[0], np.cumsum(n_cells)])


# Settling thresholds of groups from what a read found inside their brackets: cells narrow a bracket, keys settle it.


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


# The search for the thresholds of groups, each found on its own samples: all groups share the reads.
#
# The first scan lists all scores from a floor up that is probably below every threshold. As long as those fit, they are held, and
# tell everything. Else they are counted by group in cells, and the next scan looks only into the cell of each threshold.


#: Times as many scores as the largest budget has are listed, four times so many at most: thresholds of groups differ.
GENEROUS = 2
#: Scans no search can need: brackets shrink at least by half with each.
_MOST_SCANS = 200
#: Keys that a band may hold of all that are listed of it: those inside the brackets are fewer.
_ALL = 1 << 62


@dataclass(frozen=True)
class GroupSearch:
    """What is known between two passes: pilot, scan, scans inside the cells where thresholds lie."""

    shape: ScanShape
    budgets: tuple[Fraction, ...]
    first_rows: tuple[int, ...]
    #: How many groups there are, and those whose thresholds are sought.
    n_groups: int
    groups: range
    pilot: Pass | None
    #: The lowest key that the first scan lists, and the keys between which scores lie as far as known.
    floor: int
    usual: tuple[int, int]
    #: Whether the first scan holds keys; else, and where those are too many, it counts cells.
    holds: bool = True
    targets: Targets | None = None
    #: The ranks of the labels of each group, and the samples without a label.
    ranks: StrataRanks | None = None
    n_scans: int = 0

    @classmethod
    def begin(
        cls,
        shape: ScanShape,
        budgets: Sequence[Fraction],
        first_rows: Sequence[int],
        n_groups: int,
        groups: range,
        pilot: Pass | None = None,
    ) -> GroupSearch:
        """Begin with the pilot, where there is one; else with a scan of everything."""
        ends = key_range(shape.dtype)
        holds = shape.n_scores <= shape.max_held
        return cls(shape, tuple(budgets), tuple(first_rows), n_groups, groups, pilot, ends[0], ends, holds)

    def next_pass(self) -> Pass | None:
        """Return the next pass; None once all thresholds are known, and the labels in the sets."""
        if self.pilot is not None:
            return self.pilot
        if self.targets is None:
            return group_pass(self._plan(self._first_brackets(), self.shape.max_held if self.holds else 0))
        if not self.targets.open.any():
            return None
        wanted, held = self._bracketed()
        return group_pass(self._plan(wanted.brackets, max(int(wanted.sizes.sum()), 1) if held else 0))

    def advance(self, state: PilotSample | GroupTally) -> GroupSearch:
        """Take what the last pass found."""
        if isinstance(state, PilotSample):
            return self._after_pilot(state)
        if self.n_scans > _MOST_SCANS:
            raise ScoresError(CHANGED)
        before, wanted, held = self._before(state.strata_ranks)
        assert before.targets is not None
        found = before.targets
        if not held:
            found = narrow_brackets(found, wanted, state.cells, self._ends)
        elif not state.dropped.any():
            found = settle_keys(found, wanted, state.rows, self._ends)
        return replace(before, targets=found, n_scans=self.n_scans + 1)

    def _after_pilot(self, sample: PilotSample) -> GroupSearch:
        """Choose the floor of the first scan, and what it holds."""
        lowest, top = self._ends
        if not sample.keys.size:
            return replace(self, pilot=None)
        share = float(GENEROUS * max(self.budgets) / self.shape.n_classes)
        ((low, _),) = generous_brackets(sample, [share], self.shape.dtype)
        listed = int(sample.weights[sample.keys >= low].sum()) * self.shape.n_scores // sample.n_scores
        holds = (self.shape.n_scores if low == lowest else listed) <= self.shape.max_held
        # A bracket has more than one key: those of one are brackets of samples.
        floor, usual = min(low, top - 1), (sample.lowest, sample.highest)
        return replace(self, pilot=None, floor=floor, usual=usual, holds=holds)

    def _before(self, ranks: StrataRanks) -> tuple[GroupSearch, Bracketed, bool]:
        """Return the search as it asked for the last pass, its brackets, and whether their keys were held."""
        if self.targets is not None:
            return self, *self._bracketed()
        n_samples = np.zeros(self.n_groups, np.int64)
        np.add.at(n_samples, ranks.strata, ranks.counts)
        groups = self.groups.start + np.flatnonzero(n_samples[self.groups.start : self.groups.stop])
        bracket, last, n_classes = (self.floor, self._ends[1]), self.first_rows[-1] - 1, self.shape.n_classes
        targets = Targets.begin(groups, n_samples[groups], n_classes, self.budgets, bracket, last)
        sizes = n_samples[self.groups.start : self.groups.stop] * n_classes
        which = targets.groups - self.groups.start
        wanted = Bracketed(self._first_brackets(), np.arange(which.size), which, sizes)
        return replace(self, targets=targets, ranks=ranks), wanted, self.holds

    def _first_brackets(self) -> GroupBrackets:
        bracket, last = (self.floor, self._ends[1]), self.first_rows[-1] - 1
        return first_brackets(self.n_groups, self.groups, bracket, last, self.usual)

    def _bracketed(self) -> tuple[Bracketed, bool]:
        assert self.targets is not None
        return Bracketed.of(self.targets, self.n_groups, self.usual, self.shape.max_apart)

    def _plan(self, brackets: GroupBrackets, max_held: int) -> GroupPlan:
        """Return the plan of a scan; labels are ranked in the first."""
        is_first = self.targets is None
        shape = replace(self.shape, max_held=_ALL, n_ranks=self.shape.n_ranks if is_first else 0)
        scan = plan_rows(shape, int(brackets.lows.min()), *self.usual)
        return GroupPlan(scan, brackets, self.first_rows, max_held, is_first)

    @property
    def _ends(self) -> tuple[int, int]:
        """The lowest and the highest key there can be."""
        return key_range(self.shape.dtype)
