"""The thresholds of groups, each found on the group's own samples. All groups share the reads.

A pilot may miss classes in a store that is sorted by class, so one floor serves all groups. The number of scores above
it is two to four times the number of labels of the largest budget. If these scores fit in memory, the first scan
retains them, sorted by group, which settles every threshold. Otherwise it counts scores and labels by group in cells of
2**b keys, a million in total, with the lowest and highest key in each. The next scan retains the keys in the cells that
contain thresholds, since their number is then known. Each (group, budget) is a target. Between two scans, its state is
a bracket that contains the threshold, and the number of scores before the bracket. A bracket is an interval of keys or,
if the key of the threshold is known, an interval of samples with ties at it.
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

#: The first scan lists at least this multiple of the largest budget, usually twice that, since thresholds of groups differ.
GENEROUS = 2
#: More scans than any search needs, since each at least halves the brackets.
_MOST_SCANS = 200
#: A scan may list any number of keys in a band, since only those inside the brackets are retained.
_ALL = 1 << 62
#: Keys sorted at once.
_AT_ONCE = 1 << 20
_CHANGED = "the scores changed between two reads. Write them to a store first."


@dataclass(frozen=True)
class Targets:
    """The (group, budget) pairs, as columns: the bracket of the threshold or, once that is known, of the last kept tie.

    All scores above a bracket of keys, and all ties before a bracket of samples, are in the sets.
    """

    groups: Ints
    budgets: Ints
    #: Among the scores in and below the bracket: rank of the threshold, and number of scores that belong to the sets.
    ranks: Ints
    left: Ints
    #: Labels in the sets so far; final once the target is settled.
    hits: Ints
    #: Key of the threshold if it is known; the key of NaN otherwise.
    keys: Ints
    known: Bools
    open: Bools
    #: The bracket: lowest and highest key, first and last sample, and number of scores (an upper bound if some may be NaN).
    lows: Ints
    highs: Ints
    firsts: Ints
    lasts: Ints
    sizes: Ints

    def update(self, numbers: Ints, **columns: Ints | Bools | int) -> Targets:
        """Return the targets with some columns of some targets replaced."""
        changed = {}
        for name, values in columns.items():
            changed[name] = getattr(self, name).copy()
            changed[name][numbers] = values
        return replace(self, **changed)

    def select(self, numbers: Ints | Bools) -> Targets:
        """Return some of the targets."""
        return Targets(*(getattr(self, field.name)[numbers] for field in fields(self)))

    def move_below(self, numbers: Ints, n_inside: Ints, n_hits: Ints, lowest: int) -> Targets:
        """Move the brackets of some targets, which contain too few scores, to the keys below them; return all targets."""
        chosen = self.select(numbers)
        more, taken = chosen.lows > lowest, np.minimum(n_inside, chosen.left)
        return self.update(
            numbers,
            ranks=chosen.ranks - n_inside,
            left=chosen.left - taken,
            hits=chosen.hits + n_hits,
            open=more,
            lows=np.where(more, lowest, chosen.lows),
            highs=np.where(more, chosen.lows - 1, chosen.highs),
            sizes=chosen.sizes - n_inside,
        )

    def settle_ties(
        self, numbers: Ints, keys: Ints, left: Ints, hits: Ints, n_ties: Ints, n_tied_labels: Ints
    ) -> Targets:
        """Set the keys of the thresholds of some targets, with ``left`` of the ties in the sets; return all targets.

        If only some ties are kept, and some ties are labels, the target stays open: the last kept tie is searched next.
        """
        n_kept = np.minimum(left, n_ties)
        hits = hits + np.where(n_kept == n_ties, n_tied_labels, 0)
        stays_open = (n_kept > 0) & (n_kept < n_ties) & (n_tied_labels > 0)
        return self.update(
            numbers, left=n_kept, hits=hits, keys=keys, known=True, open=stays_open, lows=keys, highs=keys, sizes=n_ties
        )


@dataclass(frozen=True)
class OpenBrackets:
    """The brackets of open targets."""

    brackets: GroupBrackets
    #: Numbers of the open targets, and the bracket of each.
    targets: Ints
    indices: Ints
    #: Number of scores in each bracket (an upper bound); and whether the scan retains their keys (or counts them in cells).
    sizes: Ints
    held: bool

    @classmethod
    def from_targets(cls, targets: Targets, n_groups: int, usual: tuple[int, int], most_held: int) -> OpenBrackets:
        """Return the brackets of all open targets."""
        numbers = np.flatnonzero(targets.open)
        chosen = targets.select(numbers)
        columns = chosen.groups, chosen.lows, chosen.firsts, chosen.highs, chosen.lasts
        (groups, lows, firsts, highs, lasts), indices = distinct(columns)
        sizes = np.zeros(groups.size, np.int64)
        sizes[indices] = chosen.sizes
        starts = np.searchsorted(groups, np.arange(n_groups + 1))
        brackets = GroupBrackets.in_cells(starts, lows, highs, firsts, lasts, usual)
        return cls(brackets, numbers, indices, sizes, bool(sizes.sum() <= most_held))

    def check_sizes(self, sizes: Ints, ends: tuple[int, int]) -> None:
        """Raise ScoresError if the number of scores in a bracket has changed.

        It may be lower in a bracket that reaches the lowest or highest key, since the former number may include NaN.
        """
        fewer = (sizes < self.sizes) & (self.brackets.lows > ends[0]) & (self.brackets.highs < ends[1])
        if (fewer | (sizes > self.sizes)).any():
            raise ScoresError(_CHANGED)


def narrow_brackets(targets: Targets, previous: OpenBrackets, counts: CellCounts, ends: tuple[int, int]) -> Targets:
    """Narrow brackets, or settle their targets, using the counts of cells. ``ends`` are the lowest and the highest key."""
    b, numbers, chosen = previous.brackets, previous.targets, targets.select(previous.targets)
    scores, labels = (np.concatenate([[0], np.cumsum(column)]) for column in (counts.scores, counts.labels))
    starts = np.searchsorted(counts.cells, b.cells)  # the first nonempty cell of each bracket
    sizes = np.diff(scores[starts])
    previous.check_sizes(sizes, ends)
    n_inside, n_hits = sizes[previous.indices], np.diff(labels[starts])[previous.indices]
    short = ~chosen.known & (n_inside < chosen.ranks)
    targets = targets.move_below(numbers[short], n_inside[short], n_hits[short], ends[0])
    single = ~chosen.known & ~short & (chosen.lows == chosen.highs)
    ties = chosen.lows, chosen.left, chosen.hits, n_inside, n_hits
    targets = targets.settle_ties(numbers[single], *(column[single] for column in ties))
    # For the other targets, find the cell that contains the score at the rank, its bounds, and the number of scores before it.
    wide = ~short & ~single
    numbers, at, chosen = numbers[wide], previous.indices[wide], chosen.select(wide)
    cell = np.searchsorted(scores, scores[starts[at]] + np.where(chosen.known, chosen.left, chosen.ranks)) - 1
    before, n, n_tied = scores[cell] - scores[starts[at]], counts.scores[cell], counts.labels[cell]
    hits, by_sample = chosen.hits + labels[cell] - labels[starts[at]], b.are_samples[at]
    # The bounds of a cell of samples follow from its number; the scan recorded those of cells of keys.
    samples = b.bases[at] + ((counts.cells[cell] - b.cells[at]) << b.shifts[at])
    last = np.minimum(samples + (np.int64(1) << b.shifts[at]) - 1, b.last_samples[at])
    low, high = np.where(by_sample, samples, counts.lows[cell]), np.where(by_sample, last, counts.highs[cell])
    tied = by_sample | (low == high)
    left = chosen.left - np.minimum(before, chosen.left)
    columns = {"ranks": chosen.ranks - before, "left": left, "hits": hits, "lows": low, "highs": high, "sizes": n}
    targets = targets.update(numbers[~tied], **{name: column[~tied] for name, column in columns.items()})
    ties = np.where(by_sample, chosen.keys, low), chosen.left - before, hits, n, n_tied
    targets = targets.settle_ties(numbers[tied], *(column[tied] for column in ties))
    # If a bracket is a single sample, its first cell ends with the label: the label is kept only if the whole cell is.
    at_samples = numbers[by_sample]
    stays_open = targets.open[at_samples] & ~b.are_rows[at][by_sample]
    return targets.update(at_samples, firsts=low[by_sample], lasts=high[by_sample], open=stays_open)


def settle_keys(targets: Targets, previous: OpenBrackets, rows: Sequence[HeldRows], ends: tuple[int, int]) -> Targets:
    """Settle targets using all keys inside their brackets."""
    held = _BracketKeys.gather(rows, previous.sizes.size)
    sizes, n_labels = np.diff(held.starts), np.diff(held.label_starts)
    previous.check_sizes(sizes, ends)
    numbers, brackets, chosen = previous.targets, previous.indices, targets.select(previous.targets)
    short = ~chosen.known & (sizes[brackets] < chosen.ranks)
    short_brackets = brackets[short]
    targets = targets.move_below(numbers[short], sizes[short_brackets], n_labels[short_brackets], ends[0])
    numbers, brackets, chosen = numbers[~short], brackets[~short], chosen.select(~short)
    keys, n_above, n_ties = held.thresholds(brackets, np.where(chosen.known, 1, chosen.ranks))
    labels = held.keys[held.labels].astype(np.int64)
    ordered = labels[np.lexsort((labels, np.repeat(np.arange(n_labels.size), n_labels)))]
    first, last = held.label_starts[brackets], held.label_starts[brackets + 1]
    low, high = (bisect(ordered, first, last, keys, right) for right in (False, True))
    left = chosen.left - np.minimum(n_above, chosen.left)
    targets = targets.settle_ties(numbers, keys, left, chosen.hits + last - high, n_ties, high - low)
    cut = targets.open[numbers]
    cut_columns = brackets[cut], keys[cut], targets.left[numbers[cut]]
    hits = [held.labels_among_ties(*each) for each in zip(*(column.tolist() for column in cut_columns), strict=True)]
    at = numbers[cut]
    return targets.update(at, hits=targets.hits[at] + np.array(hits, np.int64), open=False)


@dataclass(frozen=True)
class _BracketKeys:
    """The keys of each bracket, in row-major order; and the indices of the labels among all keys, ascending."""

    keys: Array
    starts: Ints
    labels: Ints
    label_starts: Ints

    @classmethod
    def gather(cls, rows: Sequence[HeldRows], n: int) -> _BracketKeys:
        """Sort keys by bracket. The strata of the rows are the numbers of their brackets."""
        sizes = np.zeros(n, np.int64)
        for part in rows:
            sizes += np.bincount(part.strata, part.lengths, n).astype(np.int64)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        keys = np.empty(starts[-1], rows[0].keys.dtype if rows else np.int64)
        nexts, labels = starts[:-1].copy(), [np.zeros(0, np.int64)]
        for part in rows:
            indices = np.empty(part.lengths.size, np.int64)
            scatter_rows(part.keys, part.lengths, part.label_indices, part.strata, nexts, keys, indices)
            labels.append(indices[indices >= 0])
        ordered = np.sort(np.concatenate(labels))
        return cls(keys, starts, ordered, np.searchsorted(ordered, starts))

    def thresholds(self, brackets: Ints, ranks: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the keys at some ranks in brackets, and the numbers of keys above and at each."""
        keys, above, ties = np.zeros((3, ranks.size), np.int64)
        by_bracket = np.argsort(brackets, kind="stable")
        edges = np.searchsorted(brackets[by_bracket], np.arange(self.starts.size))

        def sort_brackets(ends: tuple[int, int]) -> None:
            first, last = ends
            numbers, start = by_bracket[edges[first] : edges[last]], self.starts[first]
            if not numbers.size:
                return
            ordered = self.keys[start : self.starts[last]].copy()
            for a, b in pairwise((self.starts[first : last + 1] - start).tolist()):
                ordered[a:b].sort()
            low, high = (self.starts[brackets[numbers] + n] - start for n in (0, 1))
            keys[numbers] = ordered[high - ranks[numbers]]
            left, right = (bisect(ordered, low, high, keys[numbers], side) for side in (False, True))
            above[numbers], ties[numbers] = high - right, right - left

        cuts = np.flatnonzero(np.diff(self.starts[:-1] // _AT_ONCE)) + 1
        in_threads(sort_brackets, list(pairwise([0, *cuts.tolist(), self.starts.size - 1])))
        return keys, above, ties

    def labels_among_ties(self, bracket: int, key: int, n_kept: int) -> int:
        """Return the number of labels among the first ``n_kept`` ties at a key in a bracket."""
        first, last = self.starts[bracket], self.starts[bracket + 1]
        end = first + np.flatnonzero(self.keys[first:last] == key)[n_kept - 1]
        labels = self.labels[self.label_starts[bracket] : self.label_starts[bracket + 1]]
        return int(np.count_nonzero(self.keys[labels[labels <= end]] == key))


def bisect(values: Array, first: Ints, last: Ints, keys: Ints, right: bool) -> Ints:
    """Search each key in its own ascending slice of ``values``, as ``numpy.searchsorted`` does in a whole array.

    Examples
    --------
    >>> bisect(np.array([1, 3, 3, 2, 5]), np.array([0, 3]), np.array([3, 5]), np.array([3, 3]), right=False).tolist()
    [1, 4]
    """
    low, high = first.copy(), last.copy()
    while (unfinished := low < high).any():
        middle = (low + high) // 2
        value = values[np.where(unfinished, middle, 0)]
        up = unfinished & ((value <= keys) if right else (value < keys))
        low, high = np.where(up, middle + 1, low), np.where(unfinished & ~up, middle, high)
    return low


@dataclass(frozen=True)
class GroupSearch:
    """The search for the thresholds of groups: a pilot, a scan, and scans inside the cells that contain thresholds."""

    shape: ScanShape
    budgets: tuple[Fraction, ...]
    first_rows: tuple[int, ...]
    #: Number of groups, and the groups whose thresholds are searched.
    n_groups: int
    groups: range
    pilot: Pass | None
    #: The lowest key that the first scan lists; and the lowest and highest key in the pilot's sample.
    floor: int
    usual: tuple[int, int]
    #: Whether the first scan retains keys (it drops them if there are too many) or counts them in cells.
    holds: bool = True
    targets: Targets | None = None
    #: The ranks of the labels of each group, including samples without a label.
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
        """Begin with the pilot, or with a scan of everything if ``pilot`` is None."""
        ends = key_range(shape.dtype)
        holds = shape.n_scores <= shape.max_held
        return cls(shape, tuple(budgets), tuple(first_rows), n_groups, groups, pilot, ends[0], ends, holds)

    def next_pass(self) -> Pass | None:
        """Return the next pass, or None once all thresholds, and the labels in their sets, are known."""
        if self.pilot is not None:
            return self.pilot
        if self.targets is None:
            brackets, max_held = self._first_brackets(), self.shape.max_held if self.holds else 0
        elif self.targets.open.any():
            open_brackets = self._open_brackets(self.targets)
            brackets = open_brackets.brackets
            max_held = max(int(open_brackets.sizes.sum()), 1) if open_brackets.held else 0
        else:
            return None
        is_first = self.targets is None
        shape = replace(self.shape, max_held=_ALL, n_ranks=self.shape.n_ranks if is_first else 0)
        scan = plan_rows(shape, int(brackets.lows.min()), *self.usual)
        return group_pass(GroupPlan(scan, brackets, self.first_rows, max_held, is_first))

    def advance(self, state: PilotSample | GroupTally) -> GroupSearch:
        """Return the search after the state of its last pass."""
        if isinstance(state, PilotSample):
            return self._after_pilot(state)
        if self.n_scans > _MOST_SCANS:
            raise ScoresError(_CHANGED)
        if self.targets is None:
            targets, previous = self._first_targets(state.strata_ranks)
        else:
            targets, previous = self.targets, self._open_brackets(self.targets)
        if not previous.held:
            targets = narrow_brackets(targets, previous, state.cells, self._ends)
        elif not state.dropped.any():
            targets = settle_keys(targets, previous, state.rows, self._ends)
        ranks = state.strata_ranks if self.ranks is None else self.ranks
        return replace(self, targets=targets, ranks=ranks, n_scans=self.n_scans + 1)

    def _after_pilot(self, sample: PilotSample) -> GroupSearch:
        """Choose the floor of the first scan, and whether it retains keys."""
        lowest, top = self._ends
        if not sample.keys.size:
            return replace(self, pilot=None)
        share = float(GENEROUS * max(self.budgets) / self.shape.n_classes)
        ((low, _),) = generous_brackets(sample, [share], self.shape.dtype)
        listed = int(sample.weights[sample.keys >= low].sum()) * self.shape.n_scores // sample.n_scores
        holds = (self.shape.n_scores if low == lowest else listed) <= self.shape.max_held
        # A bracket of keys must have two or more: one with a single key would be taken for a bracket of samples.
        floor, usual = min(low, top - 1), (sample.lowest, sample.highest)
        return replace(self, pilot=None, floor=floor, usual=usual, holds=holds)

    def _first_targets(self, ranks: StrataRanks) -> tuple[Targets, OpenBrackets]:
        """Return the targets and brackets of the first scan, given the ranks of its labels."""
        n_samples = np.zeros(self.n_groups, np.int64)
        np.add.at(n_samples, ranks.strata, ranks.counts)
        sizes = n_samples[self.groups.start : self.groups.stop] * self.shape.n_classes
        groups, n = self.groups.start + np.flatnonzero(sizes), len(self.budgets)
        labels = [count_labels_of_each(budget, n_samples[groups]) for budget in self.budgets]
        left, indices = np.stack(labels, axis=1).reshape(-1), np.repeat(groups - self.groups.start, n)
        zero = np.zeros_like(left)
        targets = Targets(
            groups=np.repeat(groups, n),
            budgets=np.tile(np.arange(n), groups.size),
            ranks=np.minimum(left + 1, sizes[indices]),
            left=left,
            hits=zero,
            keys=zero + NAN_KEY,
            known=zero > 0,
            open=zero == 0,
            lows=zero + self.floor,
            highs=zero + self._ends[1],
            firsts=zero,
            lasts=zero + self.first_rows[-1] - 1,
            sizes=sizes[indices],
        )
        return targets, OpenBrackets(self._first_brackets(), np.arange(indices.size), indices, sizes, self.holds)

    def _first_brackets(self) -> GroupBrackets:
        """Return the same bracket for each group."""
        zero = np.zeros(len(self.groups), np.int64)
        starts = np.clip(np.arange(self.n_groups + 1) - self.groups.start, 0, len(self.groups))
        lows, highs, lasts = zero + self.floor, zero + self._ends[1], zero + self.first_rows[-1] - 1
        return GroupBrackets.in_cells(starts, lows, highs, zero, lasts, self.usual)

    def _open_brackets(self, targets: Targets) -> OpenBrackets:
        return OpenBrackets.from_targets(targets, self.n_groups, self.usual, self.shape.max_apart)

    @property
    def _ends(self) -> tuple[int, int]:
        """The lowest and the highest possible key."""
        return key_range(self.shape.dtype)
