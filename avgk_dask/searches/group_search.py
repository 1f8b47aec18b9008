"""The search for the thresholds of groups, each found on its own samples: all groups share the reads.

The first scan lists all scores from a floor up that is probably below every threshold. As long as those fit, they are held, and
tell everything. Else they are counted by group in cells, and the next scan looks only into the cell of each threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ..errors import ScoresError
from ..kernels.keys import key_range
from ..scans.band_pass import Pass
from ..scans.group_scan import GroupBrackets, GroupPlan, group_pass
from ..scans.plan import ScanShape
from ..states.group_tally import GroupTally
from ..states.pilot_sample import PilotSample
from ..states.strata import StrataRanks
from .brackets import generous_brackets, plan_rows
from .group_targets import CHANGED, Bracketed, Targets, first_brackets
from .settled_groups import narrow_brackets, settle_keys

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
