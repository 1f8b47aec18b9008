"""What one read of some bands contributes to the thresholds of groups."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np

from ..arrays import Bools
from ..records import ANY, BY_BAND, SAME
from .cell_counts import CellCounts
from .checks import CheckedTally
from .held_rows import HeldRows
from .strata import StrataRanks


@dataclass(frozen=True)
class GroupTally(CheckedTally):
    """The scores inside the brackets of all groups: their keys, or their counts in cells; and the ranks of the labels of each group."""

    strata_ranks: StrataRanks
    #: The keys of each row inside each bracket, as rows whose stratum is the bracket, as long as they are no more than ``max_held``
    #: in all (0: none are held); and whether they were more.
    max_held: Annotated[int, SAME]
    rows: Annotated[tuple[HeldRows, ...], BY_BAND]
    dropped: Annotated[Bools, ANY]
    #: Or what each cell holds.
    cells: CellCounts

    def settled(self) -> Self:
        """Return the tally without its rows if they are too many."""
        if self.rows and sum(part.keys.size for part in self.rows) > self.max_held:
            return replace(self, rows=(), dropped=np.ones_like(self.dropped))
        return self
