"""The thresholds of groups, each found on its own samples: all groups share the reads.

The first scan lists all scores from a floor up that is probably below every threshold. While those fit, they are held,
and determine everything. Otherwise they are counted by group in cells, and the next scan looks only into the cell of
each threshold. Between two scans each (group, budget) is a target: a bracket of keys, or of samples at one key, and
what came before it.

All groups share the reads. No pilot sees every class of a store that is sorted by class, so there is one floor for all
groups, with two to four times as many scores above it as the largest budget has. While those fit, they are sorted by
group and settle everything. Otherwise scores and labels are counted by group in cells of 2**b keys, a million in all,
with the lowest and highest key in each. The next scan retains the keys of the cells that thresholds lie in, whose
number is known in advance.
"""

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

#: Times as many scores as the largest budget has are listed, four times that at most: thresholds of groups differ.
GENEROUS = 2
#: More scans than any search needs: brackets shrink at least by half with each.
_MOST_SCANS = 200
#: Keys that a band may hold of all that are listed of it: those inside the brackets are fewer.
_ALL = 1 << 62
#: Keys that are sorted at once.
_AT_ONCE = 1 << 20
_CHANGED = "scores must stay the same from one read to the next; got others. Store them first."


@dataclass(frozen=True)
class Targets:
    """The (group, budget) pairs, as columns: the bracket of the threshold or of the last kept tie.

    All scores above a bracket, or before it among ties, are in the sets.
    """

    groups: Ints
    budgets: Ints
    #: The rank of the threshold among the scores of the bracket and below, and how many of those are still to be in the
    #: sets.
    ranks: Ints
    left: Ints
    #: The labels in the sets so far; all of them once the target is settled. And the threshold: NaN's key until it is
    #: known.
    hits: Ints
    keys: Ints
    known: Bools
    open: Bools
    #: The bracket, and how many scores it holds: at most that many where NaN may be among them.
    lows: Ints
    highs: Ints
    firsts: Ints
    lasts: Ints
    sizes: Ints

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

    def below(self, which: Ints, n_inside: Ints, n_hits: Ints, lowest: int) -> Targets:
        """Return the targets, some of which had too few scores in their bracket: theirs is all that lies below it."""
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
        """Return the targets, some of which have these thresholds, with ``left`` of the ties to be taken.

        Where only the first ties are to be taken, and some ties are labels, their samples are looked at next.
        """
        n_kept = np.minimum(left, n_ties)
        hits = hits + np.where(n_kept == n_ties, n_tied_labels, 0)
        still = (n_kept > 0) & (n_kept < n_ties) & (n_tied_labels > 0)
        return self.changed(
            which, left=n_kept, hits=hits, keys=keys, known=True, open=still, lows=keys, highs=keys, sizes=n_ties
        )


@dataclass(frozen=True)
class Bracketed:
    """The brackets of open targets, the numbers of those targets, and which of the brackets each has."""

    brackets: GroupBrackets
    targets: Ints
    which: Ints
    #: How many scores each bracket may hold, and whether a scan holds their keys or counts them in cells.
    sizes: Ints
    held: bool

    @classmethod
    def of(cls, targets: Targets, n_groups: int, usual: tuple[int, int], most_held: int) -> Bracketed:
        """Return the brackets of all open targets."""
        mine = np.flatnonzero(targets.open)
        of = targets.select(mine)
        (groups, lows, firsts, highs, lasts), which = distinct((of.groups, of.lows, of.firsts, of.highs, of.lasts))
        sizes = np.zeros(groups.size, np.int64)
        sizes[which] = of.sizes
        starts = np.searchsorted(groups, np.arange(n_groups + 1))
        brackets = GroupBrackets.in_cells(starts, lows, highs, firsts, lasts, usual)
        return cls(brackets, mine, which, sizes, bool(sizes.sum() <= most_held))

    def refuse_others(self, found: Ints, ends: tuple[int, int]) -> None:
        """Refuse brackets that do not hold as many scores as they did before.

        Brackets that reach up or down to the end of all keys may hold fewer: the first ones, and where there are NaN.
        """
        fewer = (found < self.sizes) & (self.brackets.lows > ends[0]) & (self.brackets.highs < ends[1])
        if (fewer | (found > self.sizes)).any():
            raise ScoresError(_CHANGED)


def narrow_brackets(targets: Targets, wanted: Bracketed, counts: CellCounts, ends: tuple[int, int]) -> Targets:
    """Return the targets with the narrower brackets, or the outcomes, that follow from the counts of cells.

    ``ends`` are the lowest and the highest key.
    """
    b, which, mine = wanted.brackets, wanted.targets, targets.select(wanted.targets)
    scores, labels = (np.concatenate([[0], np.cumsum(of)]) for of in (counts.scores, counts.labels))
    starts = np.searchsorted(counts.cells, b.cells)  # the first cell of each bracket among those that hold any scores
    sizes = np.diff(scores[starts])
    wanted.refuse_others(sizes, ends)
    n_inside, n_hits = sizes[wanted.which], np.diff(labels[starts])[wanted.which]
    short = ~mine.known & (n_inside < mine.ranks)
    found = targets.below(which[short], n_inside[short], n_hits[short], ends[0])
    single = ~mine.known & ~short & (mine.lows == mine.highs)
    found = found.at_ties(which[single], *(of[single] for of in (mine.lows, mine.left, mine.hits, n_inside, n_hits)))
    # Of the others, the cell that holds the wanted score: its ends, keys or samples, and what comes before it.
    wide = ~short & ~single
    which, at, mine = which[wide], wanted.which[wide], mine.select(wide)
    cell = np.searchsorted(scores, scores[starts[at]] + np.where(mine.known, mine.left, mine.ranks)) - 1
    before, n, n_tied = scores[cell] - scores[starts[at]], counts.scores[cell], counts.labels[cell]
    hits, by_sample = mine.hits + labels[cell] - labels[starts[at]], b.are_samples[at]
    # The ends of cells of samples follow from their number; of cells of keys those that occur are known.
    samples = b.bases[at] + ((counts.cells[cell] - b.cells[at]) << b.shifts[at])
    last = np.minimum(samples + (np.int64(1) << b.shifts[at]) - 1, b.last_samples[at])
    low, high = np.where(by_sample, samples, counts.lows[cell]), np.where(by_sample, last, counts.highs[cell])
    tied = by_sample | (low == high)
    left = mine.left - np.minimum(before, mine.left)
    columns = {"ranks": mine.ranks - before, "left": left, "hits": hits, "lows": low, "highs": high, "sizes": n}
    found = found.changed(which[~tied], **{name: column[~tied] for name, column in columns.items()})
    ties = np.where(by_sample, mine.keys, low), mine.left - before, hits, n, n_tied
    found = found.at_ties(which[tied], *(column[tied] for column in ties))
    # A label is the last of its cell of a single sample: it is in only if the whole cell is.
    at_samples = which[by_sample]
    still = found.open[at_samples] & ~b.are_rows[at][by_sample]
    return found.changed(at_samples, firsts=low[by_sample], lasts=high[by_sample], open=still)


def settle_keys(targets: Targets, wanted: Bracketed, rows: Sequence[HeldRows], ends: tuple[int, int]) -> Targets:
    """Return the targets with the outcomes that follow from all keys inside their brackets."""
    held = _BracketKeys.gather(rows, wanted.sizes.size)
    sizes, n_labels = np.diff(held.starts), np.diff(held.label_starts)
    wanted.refuse_others(sizes, ends)
    which, brackets, mine = wanted.targets, wanted.which, targets.select(wanted.targets)
    short = ~mine.known & (sizes[brackets] < mine.ranks)
    few = brackets[short]
    found = targets.below(which[short], sizes[few], n_labels[few], ends[0])
    which, brackets, mine = which[~short], brackets[~short], mine.select(~short)
    keys, n_above, n_ties = held.thresholds(brackets, np.where(mine.known, 1, mine.ranks))
    labels = held.keys[held.places].astype(np.int64)
    ordered = labels[np.lexsort((labels, np.repeat(np.arange(n_labels.size), n_labels)))]
    first, last = held.label_starts[brackets], held.label_starts[brackets + 1]
    low, high = (bisect(ordered, first, last, keys, right) for right in (False, True))
    left = mine.left - np.minimum(n_above, mine.left)
    found = found.at_ties(which, keys, left, mine.hits + last - high, n_ties, high - low)
    cut = found.open[which]
    of_cuts = brackets[cut], keys[cut], found.left[which[cut]]
    hits = [held.labels_among_ties(*each) for each in zip(*(of.tolist() for of in of_cuts), strict=True)]
    at = which[cut]
    return found.changed(at, hits=found.hits[at] + np.array(hits, np.int64), open=False)


@dataclass(frozen=True)
class _BracketKeys:
    """All keys by bracket, each bracket's in row-major order; and where the labels are among them, ascending."""

    keys: Array
    starts: Ints
    places: Ints
    label_starts: Ints

    @classmethod
    def gather(cls, rows: Sequence[HeldRows], n: int) -> _BracketKeys:
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

    def thresholds(self, brackets: Ints, ranks: Ints) -> tuple[Ints, Ints, Ints]:
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

        cuts = np.flatnonzero(np.diff(self.starts[:-1] // _AT_ONCE)) + 1
        in_threads(look, list(pairwise([0, *cuts.tolist(), self.starts.size - 1])))
        return keys, above, ties

    def labels_among_ties(self, bracket: int, key: int, n_kept: int) -> int:
        """Return how many labels are among the first ties at a key in a bracket."""
        first, last = self.starts[bracket], self.starts[bracket + 1]
        end = first + np.flatnonzero(self.keys[first:last] == key)[n_kept - 1]
        places = self.places[self.label_starts[bracket] : self.label_starts[bracket + 1]]
        return int(np.count_nonzero(self.keys[places[places <= end]] == key))


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
        """Return the next pass, or None once all thresholds are known, and the labels in the sets."""
        if self.pilot is not None:
            return self.pilot
        if self.targets is None:
            brackets, max_held = self._first_brackets(), self.shape.max_held if self.holds else 0
        elif self.targets.open.any():
            wanted = self._bracketed(self.targets)
            brackets, max_held = wanted.brackets, max(int(wanted.sizes.sum()), 1) if wanted.held else 0
        else:
            return None
        is_first = self.targets is None
        shape = replace(self.shape, max_held=_ALL, n_ranks=self.shape.n_ranks if is_first else 0)
        scan = plan_rows(shape, int(brackets.lows.min()), *self.usual)
        return group_pass(GroupPlan(scan, brackets, self.first_rows, max_held, is_first))

    def advance(self, state: PilotSample | GroupTally) -> GroupSearch:
        """Take the state of the last pass."""
        if isinstance(state, PilotSample):
            return self._after_pilot(state)
        if self.n_scans > _MOST_SCANS:
            raise ScoresError(_CHANGED)
        targets, wanted = self._before(state.strata_ranks)
        if not wanted.held:
            targets = narrow_brackets(targets, wanted, state.cells, self._ends)
        elif not state.dropped.any():
            targets = settle_keys(targets, wanted, state.rows, self._ends)
        ranks = state.strata_ranks if self.ranks is None else self.ranks
        return replace(self, targets=targets, ranks=ranks, n_scans=self.n_scans + 1)

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

    def _before(self, ranks: StrataRanks) -> tuple[Targets, Bracketed]:
        """Return the targets and the brackets of the last pass; the first ones follow from the ranks of its labels."""
        if self.targets is not None:
            return self.targets, self._bracketed(self.targets)
        n_samples = np.zeros(self.n_groups, np.int64)
        np.add.at(n_samples, ranks.strata, ranks.counts)
        sizes = n_samples[self.groups.start : self.groups.stop] * self.shape.n_classes
        groups, n = self.groups.start + np.flatnonzero(sizes), len(self.budgets)
        labels = [count_labels_of_each(budget, n_samples[groups]) for budget in self.budgets]
        left, which = np.stack(labels, axis=1).reshape(-1), np.repeat(groups - self.groups.start, n)
        zero = np.zeros_like(left)
        targets = Targets(
            groups=np.repeat(groups, n),
            budgets=np.tile(np.arange(n), groups.size),
            ranks=np.minimum(left + 1, sizes[which]),
            left=left,
            hits=zero,
            keys=zero + NAN_KEY,
            known=zero > 0,
            open=zero == 0,
            lows=zero + self.floor,
            highs=zero + self._ends[1],
            firsts=zero,
            lasts=zero + self.first_rows[-1] - 1,
            sizes=sizes[which],
        )
        return targets, Bracketed(self._first_brackets(), np.arange(which.size), which, sizes, self.holds)

    def _first_brackets(self) -> GroupBrackets:
        """Return one bracket, the same, for each group."""
        zero = np.zeros(len(self.groups), np.int64)
        starts = np.clip(np.arange(self.n_groups + 1) - self.groups.start, 0, len(self.groups))
        lows, highs, lasts = zero + self.floor, zero + self._ends[1], zero + self.first_rows[-1] - 1
        return GroupBrackets.in_cells(starts, lows, highs, zero, lasts, self.usual)

    def _bracketed(self, targets: Targets) -> Bracketed:
        return Bracketed.of(targets, self.n_groups, self.usual, self.shape.max_apart)

    @property
    def _ends(self) -> tuple[int, int]:
        """The lowest and the highest key there can be."""
        return key_range(self.shape.dtype)
