"""What truncated rows may have discarded: nothing above the highest of their last stored scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ..arrays import Ints
from ..kernels.keys import NAN_KEY
from ..records import Counts, Merging, State

#: Keys: the highest, and below all of them where there is none.
HIGHEST = Merging(max, lambda _: NAN_KEY)
#: The same of each of several.
HIGHEST_OF_EACH = Merging(np.maximum.reduce, lambda keys: np.full_like(keys, NAN_KEY))


@dataclass(frozen=True)
class LastSlots(State):
    """The highest key of any row's last stored score."""

    highest: Annotated[int, HIGHEST]


@dataclass(frozen=True)
class GroupSlots(State):
    """Of each group the highest key of its rows' last stored scores, and how many scores are above a key of its own."""

    highest: Annotated[Ints, HIGHEST_OF_EACH]
    n_above: Counts
