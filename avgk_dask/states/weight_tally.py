"""The label weights of ties: what is needed to know the lightest and the heaviest of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..records import EACH, State
from .key_histogram import KeyHistogram


@dataclass(frozen=True)
class WeightTally(State):
    """A histogram of the weights in each window."""

    histograms: Annotated[tuple[KeyHistogram, ...], EACH]
