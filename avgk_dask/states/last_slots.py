"""What truncated rows may have discarded: nothing above the highest of their last stored scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..kernels.keys import NAN_KEY
from ..records import Merging, State

#: Keys: the highest, and below all of them where there is none.
HIGHEST = Merging(max, lambda _: NAN_KEY)


@dataclass(frozen=True)
class LastSlots(State):
    """The highest key of any row's last stored score."""

    highest: Annotated[int, HIGHEST]
