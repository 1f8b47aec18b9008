"""What is known of the thresholds of groups between two reads: a bracket for each, and what lies before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction

import numpy as np

from ..arrays import Bools, Ints
from ..errors import ScoresError
from ..exact.budgets import count_labels_of_each
from ..kernels.keys import NAN_KEY
from ..scans.group_scan import GroupBrackets
from ..states.distinct import distinct

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
