"""What is counted at one score, which is that of a label: the scores above it, and the ties by band."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..arrays import Ints
from ..records import JOINED, Count, State
from .last_slots import HIGHEST


@dataclass(frozen=True)
class TargetTally(State):
    """Scores above a key, the highest one below it, and of each band that has any the scores at it and the labels among them."""

    n_above: Count
    highest_below: Annotated[int, HIGHEST]
    bands: Annotated[Ints, JOINED]
    n_ties: Annotated[Ints, JOINED]
    n_hits: Annotated[Ints, JOINED]
    #: Of the band that is read for it: the place among its ties, from 1, of the label that is asked for.
    place: Count
