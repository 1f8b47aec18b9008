"""What sets hold: how many have each size, and how many of those hold their label, also by class and by group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from ..arrays import Array, Bools, Ints
from ..records import Counts, State
from .loss_tally import ProbabilityTally


@dataclass(frozen=True)
class CoverageCounts(State):
    """Of each group of samples: how many there are, how many of them have a label and hold it, and their sizes added up."""

    n_samples: Counts
    n_labelled: Counts
    n_hits: Counts
    sizes: Counts

    @classmethod
    def of(cls, groups: Array, sizes: Ints, labelled: Bools, hits: Bools, n_groups: int) -> Self:
        """Count samples, given the group, the size of the set, and whether there is a label and whether it is inside."""
        totals = np.zeros(n_groups, np.int64)
        np.add.at(totals, groups, sizes)
        n_all, n_labelled, n_hits = (
            np.bincount(which, minlength=n_groups) for which in (groups, groups[labelled], groups[hits])
        )
        return cls(n_all, n_labelled, n_hits, totals)


@dataclass(frozen=True)
class CoverageTally(ProbabilityTally):
    """The sets of the bands read so far."""

    by_size: CoverageCounts
    #: Of labelled samples, by their class.
    by_class: CoverageCounts
    by_group: CoverageCounts
