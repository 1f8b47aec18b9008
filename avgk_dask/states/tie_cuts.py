"""Cut ties: the first ones of a band, in row-major order, when not all are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..arrays import Ints
from ..exact.sums import ExactSums
from ..records import BY_BAND, Record, State
from .strata import StrataSums


@dataclass(frozen=True)
class TieCut(Record):
    """The first ties of a band: where they end, and what they add to sets and label weight."""

    band: int
    #: The position of the budget they are for.
    budget: int
    n_taken: int
    row: int
    last_class: int
    #: By cell, what the number of sets of that cell changes by; and what the strata gain.
    changes: Ints
    strata: StrataSums
    weight: ExactSums


@dataclass(frozen=True)
class TieCuts(State):
    """The cuts in all bands that were read for them."""

    cuts: Annotated[tuple[TieCut, ...], BY_BAND]
